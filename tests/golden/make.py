"""Write the golden files of a revision: `python tests/golden/make.py` fills `tests/golden/<version>`.

Run it once per format, at the revision whose files are to be kept. ONNX files are made if LOCA_JAX2ONNX is set
(docs/deploy.md), and otherwise left as they are. The files stay in the repository and every later revision must read
them: model files, exported programs and a store. Beside each model are inputs and the predictions of that revision.
"""

import os
import platform
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import loca
from loca.data import Shared, Variable
from loca.domains import Box
from loca.exporting import SUFFIXES
from loca.exporting.formats import VARIABLE
from loca.gaussian import Hyperparameters
from loca.saving import inspect

HERE = Path(__file__).parent
SMALL = {"num_features": 6, "lift_size": 6, "lift_widths": (8,), "proposal_widths": (8,), "feature_widths": (8,)}


def machine() -> str:
    """What the bits of a prediction depend on besides the package: the processor's instructions and XLA."""
    flags = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")), "")
    wide = [flag for flag in ("avx2", "avx512f", "amx_tile") if f" {flag}" in flags]
    quick_compilation = os.environ.get("XLA_FLAGS", "").split()  # that of the gate
    return " ".join([platform.machine(), *wide, jax.__version__, os.environ.get("NPROC", ""), *quick_compilation])


def samples(domain: loca.domains.Domain, outputs: int, count: int = 8) -> loca.Samples:
    """Random pairs on a 6 × 6 grid of a domain."""
    rng = np.random.default_rng(7)
    line = (np.arange(6) + 0.5) / 6
    t = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    y = domain.from_unit(jnp.asarray(t, jnp.float32))
    u = jnp.asarray(rng.normal(size=(count, 36, 1)), jnp.float32)
    s = jnp.asarray(rng.normal(3.0, 5.0, size=(count, 36, outputs)), jnp.float32)
    names = [Variable("height", "m"), Variable("speed", "m/s")][:outputs]
    return loca.Samples(u, y, s, x=y, domain=domain, inputs=[Variable("depth", "m")], outputs=names)


def models() -> dict[str, tuple[loca.Operator, loca.Samples]]:
    """An operator of every kind; LOCA is calibrated."""
    key, data = jax.random.key(3), samples(Box.unit(2), 2, count=20)
    hyperparameters = Hyperparameters(location_lengths=(0.5, 0.5), amplitudes=(1.0, 1.0))
    found = {
        "loca": loca.calibrate(loca.LOCA.create(data, key=key, **SMALL), data),
        "deeponet": loca.DeepONet.create(data, key=key, num_features=5, branch_widths=(7,), trunk_widths=(7,)),
        "fno": loca.FNO.create(data, key=key, modes=2, width=4, depth=2),
        "gaussian": loca.solve(data, hyperparameters=hyperparameters, ranks=(4, 8))[0],
    }
    return {name: (model, data) for name, model in found.items()}


def make_models(place: Path, suffixes: tuple[str, ...]) -> None:
    """Each model as a file and as exported programs, and what it predicts."""
    place.mkdir(exist_ok=True)
    for name, (model, data) in models().items():
        file = place / f"{name}.safetensors"
        loca.save(model, file, data=data, metrics={"relative_l2": 0.25})
        y = data.domain.sample(jax.random.key(5), 12)
        predictions = {"u": data.u[:3], "y": y, "s": model.predict(data.u[:3], Shared(y))}
        np.savez(file.with_suffix(".npz"), machine=machine(), **predictions)
        for suffix in suffixes:
            file.with_suffix(suffix).unlink(missing_ok=True)
            loca.export(model, file.with_suffix(suffix), header=inspect(file))


def make_store(place: Path) -> None:
    """A small store."""
    shutil.rmtree(place / "antiderivative.zarr", ignore_errors=True)
    problem = loca.problems.Antiderivative(length=0.3, sensors=20, queries=10)
    loca.problems.generate(problem, 40, place / "antiderivative.zarr")


if __name__ == "__main__":
    place = HERE / loca.__version__
    make_models(place / "exports", SUFFIXES if VARIABLE in os.environ else (".stablehlo",))
    make_store(place)
