"""The gradient of one training step on meshes, compared with one device; run as a program, it prints JSON.

Arguments: the number of devices that XLA simulates; with several processes also the index of this one, their number
and the port at which they meet. With LOCA_FULL=1, all meshes are compared instead of one with all axes.
"""

import dataclasses
import json
import os
import sys

devices, *meeting = map(int, sys.argv[1:])
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"

import equinox as eqx  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from jax.sharding import Mesh  # noqa: E402

from loca.attention import Dense, Sharded  # noqa: E402
from loca.data import Free  # noqa: E402
from loca.devices import complete, local_copy, place  # noqa: E402
from loca.encoders import Sensors  # noqa: E402
from loca.evaluation import evaluate  # noqa: E402
from loca.kernels import RBF  # noqa: E402
from loca.losses import mean_squared  # noqa: E402
from loca.models import LOCA, DeepONet, shard  # noqa: E402
from loca.problems import Antiderivative  # noqa: E402
from loca.rules import GaussLegendre, OwnQueries  # noqa: E402
from loca.training import Encoded, State, advance  # noqa: E402

ONE_AXIS = [{axis: count} for axis in ("functions", "queries", "nodes") for count in (1, 2, 4, 8)]
ALL_AXES = {"nodes": 2, "functions": 2, "queries": 2}
MIXED = [{"queries": 2, "nodes": 4}, ALL_AXES]

FULL = bool(os.environ.get("LOCA_FULL"))

SHOW = optax.GradientTransformation(
    lambda learned: jax.tree.map(jnp.zeros_like, learned),
    lambda gradient, _, learned=None: (jax.tree.map(jnp.zeros_like, gradient), gradient),
)
"""An optimizer that changes nothing and remembers the gradient."""


def mesh_of(axes):
    count = int(np.prod(list(axes.values())))
    return Mesh(np.array(jax.devices()[:count]).reshape(*axes.values()), tuple(axes))


def example(dtype):
    """25 nodes and 20 locations: neither can be split evenly among eight."""
    data = Antiderivative(length=0.3, sensors=40, queries=20).sample(jax.random.key(0), 16)
    widths = {"lift_widths": (16,), "proposal_widths": (16,), "feature_widths": (16,), "num_features": 10}
    parts = {"encoder": Sensors(40), "rule": GaussLegendre(data.domain, 25), "kernel": 2.0 * RBF(0.7), "lift_size": 8}
    model = LOCA.create(data, key=jax.random.key(1), **widths, **parts)
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, (model, data))


def step(model, encoded, mesh):
    """Gradient and loss of the step that `fit` takes."""
    mesh = None if mesh is None else complete(mesh)
    state, encoded = place((State.start(model, SHOW), encoded), mesh)

    @eqx.filter_jit
    def one(state, encoded):
        after, loss = advance(state, encoded, SHOW, mean_squared, mesh)
        return after.optimizer_state, loss

    gradient, loss = one(state, encoded)
    gradient = local_copy(gradient)
    rest = eqx.tree_at(lambda model: model.k.amplitude.log, gradient, replace_fn=jnp.zeros_like)
    vector = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(rest)])
    return vector, abs(float(gradient.k.amplitude.log)), float(loss)


def compared(form, axes, dtype, single, model, encoded):
    vector, amplitude, loss = step(model, encoded, mesh_of(axes))
    expected, _, expected_loss = single
    norm = np.linalg.norm(expected)
    return {
        "form": form,
        "axes": axes,
        "bits": jnp.finfo(dtype).bits,
        "gradient": float(np.abs(vector - expected).max() / norm),
        "amplitude": amplitude / float(norm),
        "loss": abs(loss / expected_loss - 1.0),
    }


def gradients(meshes, dtype, forms):
    model, data = example(dtype)
    given = {"shared": data, "indexed": data.observe(jax.random.key(2), 15), "few": data.observe(jax.random.key(2), 1)}
    rows = data.y.locations(len(data))
    given["free"] = eqx.tree_at(lambda data: data.y, data, Free(rows + 0.1 * (1.0 - rows) * rows))
    for form in forms:
        encoded = Encoded.of(model, given[form])
        single = step(model, encoded, None)
        yield from (compared(form, axes, dtype, single, model, encoded) for axes in meshes)


def answers(model, encoded, mesh):
    """Its prediction for a batch."""
    if mesh is not None:
        model, encoded = place((shard(model, mesh), encoded), complete(mesh))
    return np.asarray(eqx.filter_jit(lambda asked, of: asked.respond(of.codes, of.queries))(model, encoded))


def same_bits(dtype, counts):
    """Whether answers at split queries are those of one device, by form of the queries and number of devices.

    512 locations: with 64 or more for each device the compiler multiplies matrices in the same order as for all.
    """
    data = Antiderivative(length=0.3, sensors=40, queries=512).sample(jax.random.key(0), 16)
    model = LOCA.create(data, key=jax.random.key(1), encoder=Sensors(40))
    model, data = jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, (model, data))
    for form, samples in {"shared": data, "indexed": data.observe(jax.random.key(2), 100)}.items():
        encoded = Encoded.of(model, samples)
        single = answers(model, encoded, None)
        for count in counts:
            yield form, count, bool((answers(model, encoded, mesh_of({"queries": count})) == single).all())


def sharded_alone():
    """`Sharded` without `shard`, in the mesh of the program."""
    model, data = example(jnp.float64)
    model = eqx.tree_at(lambda m: m.attention, model, Sharded(), is_leaf=lambda part: isinstance(part, Dense))
    dense = jnp.stack(model.scores(data.y.points))
    with jax.set_mesh(mesh_of({"nodes": 8})):
        return float(jnp.abs(jnp.stack(jax.jit(lambda y: model.scores(y))(data.y.points)) / dense - 1.0).max())


def evaluations():
    """The largest relative difference that a mesh makes to any error, for blocks that do not split evenly."""
    model, data = example(jnp.float64)
    mesh = mesh_of(ALL_AXES)
    for samples in (data, data.observe(jax.random.key(2), 15))[: 2 if FULL else 1]:
        plain, split = (evaluate(model, samples, batch_size=7, mesh=each).errors for each in (None, mesh))
        yield max(float(np.abs(split[name] / plain[name] - 1.0).max()) for name in plain)


def refusals():
    """What is said of a model that a mesh cannot split."""
    model, data = example(jnp.float32)
    deeponet = DeepONet.create(data, key=jax.random.key(1), num_features=3)
    together = dataclasses.replace(model, rule=OwnQueries(data.domain))
    for operator, axis in ((model, "layers"), (deeponet, "nodes"), (together, "queries")):
        try:
            shard(operator, mesh_of({axis: 2}))
        except ValueError as refused:
            yield str(refused)


def main():
    if meeting:
        rank, count, port = meeting
        bind = {"coordinator_bind_address": f"127.0.0.1:{port}"} if rank == 0 else {}
        jax.distributed.initialize(f"127.0.0.1:{port}", count, rank, initialization_timeout=120, **bind)
        found = list(gradients([{"nodes": 2, "functions": 2}], jnp.float32, ["shared"]))
        with jax.enable_x64(True):
            found += gradients([{"functions": 4}, {"queries": 4}, {"nodes": 4}], jnp.float64, ["indexed"])
        told = {"steps": found}
    else:
        single, mixed = ([{"functions": 8}, {"queries": 2}, {"nodes": 4}], MIXED) if FULL else ([], [ALL_AXES])
        found = list(gradients([*single, *mixed], jnp.float32, ["shared"])) if FULL else []
        bits = list(same_bits(jnp.float32, (1, 2, 4, 8) if FULL else (8,)))
        with jax.enable_x64(True):
            if FULL:
                found += gradients([*ONE_AXIS, *mixed], jnp.float64, ["shared"])
                meshes = [{"functions": 8}, {"queries": 4}, ALL_AXES]
                found += gradients(meshes, jnp.float64, ["indexed", "few", "free"])
                bits += same_bits(jnp.float64, (8,))
            else:
                found += gradients([ALL_AXES], jnp.float64, ["indexed"])
            told = {"steps": found, "bits": bits, "sharded": sharded_alone(), "evaluations": list(evaluations())}
        told["refused"] = list(refusals())
    sys.stdout.write(json.dumps(told) + "\n")


main()
