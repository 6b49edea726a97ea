"""Write the golden files of a revision: `python tests/golden/make.py` fills `tests/golden/<version>`.

Run it once per format, at the revision whose files are to be kept; with the argument `exports`, it makes exported
programs only, for which LOCA_JAX2ONNX must be set (docs/deploy.md). The files stay in the repository and every later
revision must read them: model files and a store. Beside each model are inputs and the predictions of that revision.
"""

import os
import platform
import shutil
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import loca
from loca.attention import Nystrom, Uncoupled
from loca.data import Shared, Variable
from loca.domains import Box, Sphere, Torus
from loca.encoders import Fourier, Sensors
from loca.exporting import SUFFIXES
from loca.gaussian import Hyperparameters
from loca.models import Proportional, Regression
from loca.rules import MonteCarlo
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
    """Operators of every kind, on every domain."""
    key = jax.random.key(3)
    box, torus, sphere = samples(Box.unit(2), 2), samples(Torus((0.0, 0.0), (2.0, 1.0)), 1), samples(Sphere(), 1)
    return {
        "loca-box": (loca.LOCA.create(box, key=key, **SMALL), box),
        "loca-torus": (loca.LOCA.create(torus, key=key, encoder=Fourier.create((6, 6), modes=2), **SMALL), torus),
        "loca-sphere": (
            loca.LOCA.create(sphere, key=key, encoder=Sensors(36), attention=Nystrom(landmarks=5), **SMALL),
            sphere,
        ),
        "loca-uncoupled": (
            loca.LOCA.create(box, key=key, attention=Uncoupled(), rule=MonteCarlo(Box.unit(2), 16, key=key), **SMALL),
            box,
        ),
        "deeponet-torus": (
            loca.DeepONet.create(torus, key=key, num_features=5, branch_widths=(7,), trunk_widths=(7,)),
            torus,
        ),
        "fno-box": (loca.FNO.create(box, key=key, modes=2, width=4, depth=2), box),
        "fno-sphere": (loca.FNO.create(sphere, key=key, modes=2, width=4, depth=2), sphere),
        "regression-box": (Regression.fit(box, components=3), box),
        "proportional-torus": (Proportional.fit(torus), torus),
    }  # fmt: skip


def predictions(model: loca.Operator, data: loca.Samples) -> dict[str, np.ndarray]:
    """Inputs, queries and what the model predicts there."""
    y = data.domain.sample(jax.random.key(5), 12)
    if isinstance(model, Regression | Proportional):
        y = data.y.points
    return {"u": np.asarray(data.u[:3]), "y": np.asarray(y), "s": np.asarray(model.predict(data.u[:3], Shared(y)))}


def exported_models() -> dict[str, tuple[loca.Operator, loca.Samples]]:
    """The operators that are exported; LOCA is calibrated."""
    key, data = jax.random.key(3), samples(Box.unit(2), 2, count=20)
    found = {
        "loca": loca.calibrate(loca.LOCA.create(data, key=key, **SMALL), data),
        "deeponet": loca.DeepONet.create(data, key=key, num_features=5, branch_widths=(7,), trunk_widths=(7,)),
        "fno": loca.FNO.create(data, key=key, modes=2, width=4, depth=2),
        "gaussian": loca.solve(data, hyperparameters=Hyperparameters(location_lengths=(0.5, 0.5)), ranks=(4, 8))[0],
    }
    return {name: (model, data) for name, model in found.items()}


def make_exports(place: Path) -> None:
    shutil.rmtree(place / "exports", ignore_errors=True)
    (place / "exports").mkdir()
    for name, (model, data) in exported_models().items():
        file = place / f"exports/{name}.safetensors"
        loca.save(model, file, data=data)
        for suffix in SUFFIXES:
            loca.export(model, file.with_suffix(suffix), header=inspect(file))


def make_models(place: Path) -> None:
    for name, (model, data) in models().items():
        loca.save(model, place / f"{name}.safetensors", data=data, metrics={"relative_l2": 0.25})
        np.savez(place / f"{name}.npz", machine=machine(), **predictions(model, data))


def make_store(place: Path) -> None:
    problem = loca.problems.Antiderivative(length=0.3, sensors=20, queries=10)
    loca.problems.generate(problem, 40, place / "antiderivative.zarr")


if __name__ == "__main__":
    place = HERE / loca.__version__
    if sys.argv[1:] != ["exports"]:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        make_models(place)
        make_store(place)
    make_exports(place)
