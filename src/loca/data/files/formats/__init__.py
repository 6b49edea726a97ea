"""File formats: each turns a path into labeled arrays that stay in the file, and says what is input and output."""
