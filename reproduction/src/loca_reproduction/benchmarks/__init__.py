"""Measurements of speed and memory on the machine at hand, as printed by `loca-reproduce bench`."""
