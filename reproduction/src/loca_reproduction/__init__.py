"""The paper's claims tested anew, and measurements of speed; see the command `loca-reproduce`."""
