# ruff: noqa: E402, T201
"""Solve on 1, 2, 4 and 8 simulated devices; print how far the coefficients differ, and the collective operations."""

import json
import os
import sys

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

from loca.data import Free, Samples, Shared
from loca.devices import FUNCTIONS, complete
from loca.domains import Box
from loca.gaussian import Hyperparameters
from loca.gaussian.equation import Accuracy, PreparedData, Ranks, in_blocks
from loca.gaussian.system import System, normal, summed
from loca_reproduction.benchmarks.scale import tally

rng = np.random.default_rng(0)
u, y = jnp.asarray(rng.normal(size=(21, 6, 1))), Box.unit(2).from_unit(jnp.asarray(rng.uniform(size=(30, 2))))
s = jnp.asarray(rng.normal(size=(21, 30, 2)))
every = Samples(u, Shared(y), s, domain=Box.unit(2))
indexed = every.observe(jax.random.key(0), 7)
free = Samples(u, Free(indexed.y.locations(21)), indexed.s, domain=Box.unit(2))
hyper = Hyperparameters(length=1.0, noise=1e-2, nugget=1e-2, location_lengths=(0.5, 0.5))
found = {"differences": [], "collectives": []}
for data in (every, indexed, free) if "--all" in sys.argv else (indexed, free):
    prepared = PreparedData.fit(data, ())
    answers = []
    for devices in (None, 1, 2, 4, 8) if "--all" in sys.argv else (None, 2, 8):
        mesh = None if devices is None else complete(jax.make_mesh((devices,), (FUNCTIONS,)))
        answers.append(prepared.solve(hyper, Ranks(16, 20), Accuracy(1e-13, 500), mesh=mesh)[0])
    for answer in answers[1:]:
        for name in ("coefficients", "power", "variance"):
            one, other = getattr(answers[0], name), getattr(answer, name)
            found["differences"].append(float(jnp.max(jnp.abs(one - other)) / jnp.max(jnp.abs(one))))
    features = prepared.features(hyper, Ranks(16, 20))
    blocks = list(in_blocks(features, features.values, data.y, prepared.values, 1.0))
    system = System(blocks, 1e-2, mesh)
    (block,) = system.blocks
    program = summed.lower(normal, block, (answers[0].coefficients,), mesh).compile().compiled.as_text()
    found["collectives"].append(tally(program))
print(json.dumps(found))
