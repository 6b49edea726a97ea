"""Files of many formats as labeled pairs of functions, read on demand."""
