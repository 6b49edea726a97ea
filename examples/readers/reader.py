"""Call a program of `loca export` with JAX alone.

pip install jax flatbuffers
python reader.py model.stablehlo inputs.npz outputs.npz
"""

import json
import sys
from pathlib import Path

import numpy as np
from jax import export

file, inputs, outputs = sys.argv[1:]
contents = Path(file).read_bytes()  # the length of the header, the header in JSON, and the arrays
start = 8 + int.from_bytes(contents[:8], "little")
header = json.loads(contents[8:start])
about = json.loads(header["__metadata__"]["loca"])  # names, units, domain, ...
begin, end = header["program"]["data_offsets"]
program = export.deserialize(bytearray(contents[start + begin : start + end]))

arrays = np.load(inputs)
found = program.call(*(arrays[each["name"]] for each in about["inputs"]))
np.savez(outputs, **found)
