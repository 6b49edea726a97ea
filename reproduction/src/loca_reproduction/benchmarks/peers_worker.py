"""The worker process of `loca-reproduce bench peers` for a built-in model, which trains the model on request.

    python -c "from loca_reproduction.benchmarks.peers_worker import main; main()" <model> <data.npz> <batch size>

Requests and replies are lines of JSON on standard input and output; `Worker` in `peers.py` describes them.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from loca.data import Samples, Shared
from loca.domains import Box
from loca.encoders import Sensors
from loca.metrics import relative_l2
from loca.models import DeepONet, Operator
from loca.parameters import count
from loca.positions import Harmonic
from loca.training import Encoded, State, advance, paper_optimizer
from loca.typing import Key
from loca_reproduction.settings import SETTINGS

SETTING = SETTINGS["darcy"]
DEEPONET_WIDTH = 94
"""Width of DeepONet's layers: with four layers each in branch and trunk, it has as many parameters as LOCA."""

FEATURES = Harmonic(Box.unit(2), SETTING.harmonics)
"""The position encoding of the built-in DeepONet."""


def deeponet(data: Samples, *, key: Key) -> DeepONet:
    """A DeepONet that reads the values at the sensors: their harmonic features would need six times the parameters."""
    widths = (DEEPONET_WIDTH,) * 3
    return DeepONet.create(
        data,
        key=key,
        encoder=Sensors(math.prod(SETTING.sensors)),
        position=FEATURES,
        num_features=DEEPONET_WIDTH,
        branch_widths=widths,
        trunk_widths=widths,
    )


MODELS: dict[str, Callable[..., Operator]] = {"fno": SETTING.fno, "deeponet": deeponet, "loca": SETTING.loca}


class Trainer:
    """A model in training. Everything is compiled before anything is timed."""

    def __init__(self, name: str, data: dict[str, np.ndarray], batch_size: int):
        x = jnp.asarray(data["y"])
        self.train_data, self.validation = (
            Samples(jnp.asarray(u)[..., None], x, jnp.asarray(s)[..., None], x=x, domain=Box.unit(2))
            for u, s in ((data["u"], data["s"]), (data["judge_u"], data["judge_s"]))
        )
        self.create, self.batch_size, self.optimizer = MODELS[name], batch_size, paper_optimizer()
        model = self.create(self.train_data, key=jax.random.key(0))
        self.parameters = count(model)
        self.static = eqx.partition(State.start(model, self.optimizer), eqx.is_array)[1]
        self._encode = jax.jit(lambda u: jax.lax.map(model.encode, u, batch_size=256))
        self._steps = jax.jit(self._run)
        self._error = jax.jit(self._validate)
        self.restart(0)
        self.steps(1)
        self.error()

    def restart(self, seed: int) -> None:
        """Start from new initial weights, and encode all functions again."""
        model = self.create(self.train_data, key=jax.random.key(seed))
        s = model.normalization.at(self.train_data.y).standardize(self.train_data.s)
        self.encoded = Encoded(self._encode(self.train_data.u), self.train_data.y, s)
        self.validation_codes = self._encode(self.validation.u)
        self.arrays = eqx.filter(State.start(model, self.optimizer), eqx.is_array)

    def _run(self, arrays: Any, encoded: Encoded, count: int) -> Any:
        def step(_: Any, arrays: Any) -> Any:
            state = eqx.combine(arrays, self.static)
            state, _ = advance(state, encoded.batch(0, state.step, self.batch_size), self.optimizer)
            return eqx.filter(state, eqx.is_array)

        return jax.lax.fori_loop(0, count, step, arrays)

    def _validate(self, arrays: Any, codes: Any) -> jax.Array:
        model = eqx.combine(arrays, self.static).model
        queries = Shared(self.validation.y.points)
        parts = codes.reshape(-1, min(self.batch_size, len(codes)), *codes.shape[1:])
        s = jax.lax.map(lambda part: model.normalization.at(queries).restore(model.respond(part, queries)), parts)
        return jnp.mean(relative_l2(s.reshape(self.validation.s.shape), self.validation.s))

    def steps(self, count: int) -> None:
        """Take `count` steps, and wait until they are done."""
        self.arrays = jax.block_until_ready(self._steps(self.arrays, self.encoded, count))

    def error(self) -> float:
        """The mean relative L2 error of the validation functions."""
        return float(self._error(self.arrays, self.validation_codes))

    def seconds_per_step(self, count: int) -> float:
        """Wall-clock time per step over `count` steps, after one untimed step."""
        self.steps(1)
        start = time.perf_counter()
        self.steps(count)
        return (time.perf_counter() - start) / count

    def train(self, seed: int, target: float, every: int, limit: float) -> list[tuple[float, int, float]]:
        """Train until the error reaches `target` or `limit` seconds have passed; validate every `every` steps.

        Returns the seconds, steps and error of every validation.
        """
        curve: list[tuple[float, int, float]] = []
        start = time.perf_counter()
        self.restart(seed)
        while not curve or (curve[-1][2] > target and curve[-1][0] < limit):
            self.steps(every)
            error = self.error()
            curve.append((time.perf_counter() - start, every * (len(curve) + 1), error))
        return curve


def serve(name: str, path: Path, batch_size: int) -> None:
    """Reply to requests until standard input ends."""
    with np.load(path, allow_pickle=False) as file:
        data = dict(file)
    began = time.perf_counter()
    trainer = Trainer(name, data, batch_size)
    reply(
        parameters=trainer.parameters,
        start_seconds=time.perf_counter() - began,
        way="compiled",
        versions={"jax": jax.__version__},
    )
    for line in sys.stdin:
        request = json.loads(line)
        match request.pop("do"):
            case "step":
                reply(seconds=trainer.seconds_per_step(**request))
            case "train":
                reply(curve=trainer.train(**request))


def reply(**values: Any) -> None:
    """Write one line of JSON to standard output."""
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Serve the model that the command line names."""
    if len(sys.argv) != 4 or sys.argv[1] not in MODELS:
        sys.exit(__doc__)
    serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
