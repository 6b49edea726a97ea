"""The process that converts a program to ONNX; it runs in an environment with jax2onnx.

    python -c "from loca.exporting.onnx_worker import main; main()" <folder>

`loca.exporting.formats.convert` writes the operator, the request, queries if they are fixed, and the inputs of the
probe to the folder, and reads model.onnx, outputs.npz and versions.json from it.
"""

import dataclasses
import json
import logging
import pkgutil
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from loca.exporting.formats import run_onnx
from loca.exporting.program import Outputs, Port, Program, example_in
from loca.models import LEVEL, widened
from loca.saving import load
from loca.typing import Array

OPSET = 21
"""The version of ONNX's operators: that of ONNX 1.16 and ONNX Runtime 1.18, of 2024."""


def main() -> None:
    """Convert what the folder holds."""
    folder = Path(sys.argv[1])
    request = json.loads((folder / "request.json").read_text())
    versions = {name: version(name) for name in ("loca-jax", "jax", "jax2onnx", "onnx", "onnxruntime")}
    if wrong := [f"{name} {versions[name]}" for name, at in request["needed"].items() if versions[name] != at]:
        raise RuntimeError(f"this environment has {', '.join(wrong)}; make it anew, with {request['needed']}")
    sys.path.insert(0, str(Path.cwd()))
    operator = load(folder / "operator.safetensors", classes=list(map(pkgutil.resolve_name, request["classes"])))
    y = np.load(folder / "queries.npy") if (folder / "queries.npy").exists() else None
    with np.load(folder / "probe.npz") as file:
        probe = dict(file)
    model = to_onnx(Program.of(operator, y, request["level"] or LEVEL, example_in(probe)))
    (folder / "model.onnx").write_bytes(model)
    (folder / "versions.json").write_text(json.dumps(versions))
    np.savez(folder / "outputs.npz", **run_onnx(model, probe))  # pyright: ignore[reportArgumentType]


def to_onnx(program: Program) -> bytes:
    """A program as an ONNX model."""
    logging.disable(logging.WARNING)  # about plugins for other packages
    import jax2onnx  # pyright: ignore[reportMissingImports]

    register_custom_vmap()
    in_double = "f64[" in str(jax.make_jaxpr(program.function(in_chunks=False))(*program.specifications()))
    inputs, outputs = ([inside(port) if in_double else port.name for port in ports]
                       for ports in (program.inputs, program.outputs))  # fmt: skip
    with jax.enable_x64(in_double):
        if in_double:  # jax2onnx cannot mix precisions, so all of the program is in double precision
            program = dataclasses.replace(program, **jax.tree.map(widened, vars(program)))
        function, names = program.function(in_chunks=False), [port.name for port in program.outputs]

        def ordered(*arrays: Array) -> tuple[Array, ...]:
            found: Outputs = function(*arrays)
            return tuple(found[name] for name in names)

        model = jax2onnx.to_onnx(
            ordered,
            list(program.specifications()),
            model_name="loca",
            opset=OPSET,
            enable_double_precision=in_double,
            input_names=inputs,
            output_names=outputs,
        )
    with_casts(model)
    return model.SerializeToString()


WIDE = "_in_double"
"""The end of the name of an array in double precision, of which the program takes or returns another form."""


def inside(port: Port) -> str:
    """The name of an array in a program in double precision."""
    return port.name + (WIDE if port.dtype == "float32" else "")


def with_casts(model: Any) -> None:
    """Let a program take and return in single precision what has another form inside."""
    import onnx  # pyright: ignore[reportMissingImports]

    for values, place in ((model.graph.output, len(model.graph.node)), (model.graph.input, 0)):
        for value in values:
            if (wide := value.name).endswith(WIDE):
                value.name, value.type.tensor_type.elem_type = wide.removesuffix(WIDE), onnx.TensorProto.FLOAT
                pair, to = ([value.name], [wide]), onnx.TensorProto.DOUBLE
                if place:
                    pair, to = pair[::-1], onnx.TensorProto.FLOAT
                model.graph.node.insert(place, onnx.helper.make_node("Cast", *pair, to=to))


def register_custom_vmap() -> None:
    """Teach jax2onnx a primitive that it does not know: a function with its own rule for `jax.vmap`, as scattering."""
    # Private names, which only the version of jax2onnx is known to have that formats.py accepts.
    from jax2onnx.plugins.jax.lax._control_flow_utils import lower_jaxpr_eqns  # pyright: ignore[reportMissingImports]
    from jax2onnx.plugins.plugin_system import (  # pyright: ignore[reportMissingImports]
        PrimitiveLeafPlugin,
        register_primitive,
    )

    class CustomVmap(PrimitiveLeafPlugin):
        """The body of the function in place of its call."""

        def lower(self, ctx: Any, eqn: Any) -> None:
            body, constants = eqn.params["call"].jaxpr, eqn.params["call"].consts
            for variable, value in zip(body.constvars, constants, strict=True):
                ctx.bind_const_for_var(variable, np.asarray(value))
            for outside, inside in zip(eqn.invars, body.invars, strict=True):
                ctx.bind_value_for_var(inside, ctx.get_value_for_var(outside))
            lower_jaxpr_eqns(ctx, body, source="custom_vmap")
            for outside, inside in zip(eqn.outvars, body.outvars, strict=True):
                ctx.bind_value_for_var(outside, ctx.get_value_for_var(inside))

    facts = {"jax_doc": "", "onnx": [], "since": "", "context": "", "component": "custom_vmap", "testcases": []}
    register_primitive(jaxpr_primitive="custom_vmap_call", **facts)(CustomVmap)
