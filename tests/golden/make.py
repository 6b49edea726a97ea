"""Write the golden files of a revision: `python tests/golden/make.py` fills `tests/golden/<version>`.

Run it once per format, at the revision whose files are to be kept; with the argument `exports`, it makes exported
programs only, for which LOCA_JAX2ONNX must be set (docs/deploy.md). The files stay in the repository and every later
revision must read them: model files, a store, an interrupted store, a training directory with checkpoints, and run
directories of `loca train`, one finished and one killed. Beside each are inputs and the predictions of that revision.
"""

import os
import platform
import shutil
import signal
import subprocess
import sys
import time
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
from loca.models import Proportional, Regression
from loca.rules import MonteCarlo
from loca.saving import inspect
from loca.solving import Hyperparameters
from loca.training import StoppedError

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


def stop_at(step: int):
    """A callback that asks the run to stop, as the system does."""
    return lambda progress: os.kill(os.getpid(), signal.SIGTERM) if progress.step >= step else None


def make_models(place: Path) -> None:
    for name, (model, data) in models().items():
        loca.save(model, place / f"{name}.safetensors", data=data, metrics={"relative_l2": 0.25})
        np.savez(place / f"{name}.npz", machine=machine(), **predictions(model, data))


def make_stores(place: Path) -> None:
    run = [sys.executable, "-c", "from loca.cli import main; main()", "generate", "antiderivative", "--count", "40"]
    small = ["--set", "length=0.3", "--set", "sensors=20", "--set", "queries=10"]
    subprocess.run([*run, *small, "--out", str(place / "antiderivative.zarr")], check=True)

    class EnoughError(Exception):
        pass

    def stop(done: int, count: int) -> None:
        if done >= 20:
            raise EnoughError

    problem = loca.problems.Antiderivative(length=0.3, sensors=20, queries=10)
    try:
        loca.problems.generate(problem, 40, place / "interrupted.zarr", workers=1, progress=stop)
    except EnoughError:
        (place / "interrupted.zarr.partial/lock").unlink()


def make_training(place: Path) -> None:
    """A run of `fit` stopped in the middle, and what it would have ended with."""
    data = loca.data.open(place / "antiderivative.zarr").load()
    model = loca.LOCA.create(data, key=jax.random.key(0), encoder=Sensors(20), **SMALL)
    loca.save(model, place / "start.safetensors", data=data)
    arguments = {"steps": 40, "batch_size": 10, "every": 20, "validate": data.take(jnp.arange(8))}
    try:
        loca.fit(model, data, directory=place / "training", callbacks=[stop_at(10)], **arguments)
    except StoppedError:
        (place / "training/checkpoints/lock").unlink()
    final, history = loca.fit(model, data, **arguments)
    expected = predictions_1d(final, data)
    np.savez(place / "training.npz", machine=machine(), loss=[moment.loss for moment in history], **expected)


def predictions_1d(model: loca.Operator, data: loca.Samples) -> dict[str, np.ndarray]:
    return {
        "u": np.asarray(data.u[:3]),
        "y": np.asarray(data.y.points),
        "s": np.asarray(model.predict(data.u[:3], data.y)),
    }


def make_runs(place: Path) -> None:
    """`loca train`, finished, and the same killed when it had saved once."""
    config = """[data]
path = "antiderivative.zarr"
labels = 6
test = "antiderivative.zarr"
[model]
num_features = 6
lift_size = 6
lift_widths = [8]
proposal_widths = [8]
feature_widths = [8]
[training]
steps = 3000
every = 1000
batch_size = 10
checkpoint_seconds = 0.2
"""
    (place / "run.toml").write_text(config)
    train = [sys.executable, "-c", "from loca.cli import main; main()", "train", "run.toml", "--out"]
    subprocess.run([*train, "finished"], cwd=place, check=True)
    for each in sorted(int(path.name) for path in (place / "finished/checkpoints").iterdir() if path.name.isdigit())[
        :-1
    ]:
        shutil.rmtree(place / f"finished/checkpoints/{each}")
    killed = subprocess.Popen([*train, "killed"], cwd=place)
    checkpoints = place / "killed/checkpoints"
    while not (checkpoints.is_dir() and any(path.name.isdigit() for path in checkpoints.iterdir())):
        assert killed.poll() is None, "the run ended before it was killed"
        time.sleep(0.02)
    killed.kill()
    killed.wait()
    kept = max(int(path.name) for path in checkpoints.iterdir() if path.name.isdigit())
    for path in checkpoints.iterdir():
        if path.is_dir() and path.name != str(kept):
            shutil.rmtree(path)
    assert kept < 3000, "killed too late; make the run longer"
    for lock in (place / "killed/checkpoints/lock", place / "finished/checkpoints/lock"):
        lock.unlink(missing_ok=True)
    model = loca.load(place / "finished/model.safetensors")
    data = loca.data.open(place / "antiderivative.zarr").load()
    np.savez(place / "finished.npz", machine=machine(), **predictions_1d(model, data))


if __name__ == "__main__":
    place = HERE / loca.__version__
    if sys.argv[1:] != ["exports"]:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        make_models(place)
        make_stores(place)
        make_training(place)
        make_runs(place)
    make_exports(place)
