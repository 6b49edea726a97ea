"""Our side of the parity check: the same models with the peers' weights, on the same inputs.

    python compare.py <file.npz>

Exits with an error if any output is off by more than 1e-5 of the largest.
"""

import functools
import json
import math
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from loca.data import Free, Normalization, Shared
from loca.domains import Box
from loca.encoders import Sensors
from loca.models import FNO, DeepONet, Grid
from loca.nets import MLP
from loca.positions import Harmonic

TOLERANCE = 1e-5
ACTIVATIONS = {
    "gelu": functools.partial(jax.nn.gelu, approximate=False),  # PyTorch's is the exact one
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
}


def blank(build, *args, **options):
    """A model without numbers: drawing random ones only to replace them would take most of the time."""
    return eqx.filter_eval_shape(lambda: build(*args, **options, key=jax.random.key(0)))


def mlp(weights, prefix, activation):
    """The perceptron whose layers are `prefix`.0, `prefix`.1, …; PyTorch's weights are ours transposed."""
    layers = []
    while f"{prefix}.{len(layers)}.weight" in weights:
        name = f"{prefix}.{len(layers)}"
        layers.append((weights[f"{name}.weight"], weights[f"{name}.bias"]))
    matrices = tuple(jnp.asarray(w.reshape(w.shape[:2]).T) for w, _ in layers)
    biases = tuple(jnp.asarray(b) for _, b in layers)
    net = blank(MLP, (len(matrices[0]), *map(len, biases)), activation=activation)
    return eqx.tree_at(lambda net: (net.weights, net.biases), net, (matrices, biases))


def spectral_layer(layer, weights, i):
    """`layer` with the weights of a peer's block; theirs are (in, out, *modes) with frequency 0 in the middle."""
    theirs = np.moveaxis(weights[f"fno_blocks.convs.{i}.weight.tensor"], (0, 1), (-2, -1))
    R = np.zeros(layer.real.shape, theirs.dtype)
    *others, last = (np.arange(k) for k in theirs.shape[:-2])
    # −⌊k/2⌋ … from low to high in theirs is, counted from the end where negative, the place in ours
    R[np.ix_(*(j - len(j) // 2 for j in others), last)] = theirs
    skip, bias = weights[f"fno_blocks.fno_skips.{i}.conv.weight"], weights[f"fno_blocks.convs.{i}.bias"]
    parts = (R.real, R.imag, skip[:, :, 0].T, bias.reshape(-1))
    return eqx.tree_at(
        lambda layer: (layer.real, layer.imag, layer.weight, layer.bias), layer, tuple(map(jnp.asarray, parts))
    )


def fno(case, weights, shape):
    """The peer's FNO as ours, on a grid of the given shape."""
    activation = ACTIVATIONS[case["activation"]]
    if case["ends"]:
        grid = Grid(tuple(jnp.linspace(0.0, 1.0, n) for n in shape), (None,) * len(shape))
    else:
        grid = Grid(tuple(jnp.arange(n) / n for n in shape), (1.0,) * len(shape))
    *others, last = case["modes"]
    normalization = Normalization.identity(*case["channels"])
    model = blank(
        FNO,
        normalization,
        grid,
        modes=(*((k + 1) // 2 for k in others), last // 2 + 1),
        width=case["width"],
        depth=case["depth"],
        # as released, neuraloperator applies it twice
        activation=activation if case["repaired"] else lambda h: activation(activation(h)),
    )
    layers = tuple(spectral_layer(layer, weights, i) for i, layer in enumerate(model.layers))
    lift, project = mlp(weights, "lifting.fcs", activation), mlp(weights, "projection.fcs", activation)
    return eqx.tree_at(
        lambda m: (m.normalization, m.grid, m.lift, m.layers, m.project),
        model,
        (normalization, grid, lift, layers, project),
    )


class Nets(eqx.Module):
    """The outputs of some perceptrons next to each other, passed through a last activation, and all that repeated."""

    nets: tuple[MLP, ...]
    last: object = eqx.field(static=True, default=lambda h: h)
    copies: int = eqx.field(static=True, default=1)

    def __call__(self, h: Array) -> Array:
        return jnp.tile(self.last(jnp.concatenate([net(h) for net in self.nets], axis=-1)), self.copies)


def deeponet(case, weights):
    """The peer's DeepONet as ours: whatever its way to several outputs, ours has d_s blocks of n features."""
    activation, outputs, strategy = ACTIVATIONS[case["activation"]], case["outputs"], case["strategy"]
    parts = [f"{i}." for i in range(outputs)] if strategy == "independent" else [""]
    branches = tuple(mlp(weights, f"branch.{part}linears", activation) for part in parts)
    trunks = tuple(mlp(weights, f"trunk.{part}linears", activation) for part in parts)
    return DeepONet(
        normalization=Normalization.identity(1, outputs),
        encoder=Sensors(case["branch"][0]),
        branch=Nets(branches, copies=outputs if strategy == "split_trunk" else 1),
        e=Harmonic(Box.unit(case["trunk"][0]), 0),  # the coordinates themselves
        trunk=Nets(trunks, activation, outputs if strategy == "split_branch" else 1),
        bias=jnp.stack([jnp.asarray(weights[f"b.{i}"]) for i in range(outputs)]),
    )


@eqx.filter_jit
def predict(model, u, queries):
    return model.predict(u, queries)


def outputs(case, stored):
    """Pairs (name, ours, theirs), both of shape (N, P, d_s)."""
    weights = {name.removeprefix("weights/"): a for name, a in stored.items() if name.startswith("weights/")}
    if case["peer"] == "FNO":
        for j, shape in enumerate(case["grids"]):
            model = fno(case, weights, shape)
            u, s = (np.moveaxis(stored[f"{name}{j}"], 1, -1).reshape(2, math.prod(shape), -1) for name in "us")
            y = jnp.stack(jnp.meshgrid(*model.grid.axes, indexing="ij"), axis=-1).reshape(len(s[0]), -1)
            yield describe_fno(case, shape), predict(model, jnp.asarray(u), Shared(y)), s
    else:
        u, y, s = (jnp.asarray(stored[name]) for name in "uys")
        queries = Shared(y) if case["aligned"] else Free(y[:, None])
        ours = predict(deeponet(case, weights), u[..., None], queries)
        yield describe_deeponet(case), ours, s.reshape(ours.shape)


def describe_fno(case, shape):
    lifting = f", lifting {case['lifting']}" if case["lifting"] else ""
    edges = "[0, 1]" if case["ends"] else "[0, 1)"
    state = "repaired" if case["repaired"] else "as released"
    channels = "→".join(map(str, case["channels"]))
    finer = "" if shape == case["grids"][0] else ", weights as above"
    grid, modes = "×".join(map(str, shape)), "×".join(map(str, case["modes"]))
    return f"FNO {grid} on {edges}, n_modes {modes}, channels {channels}{lifting}, {case['activation']}, {state}{finer}"


def describe_deeponet(case):
    widths = f"branch {'-'.join(map(str, case['branch']))}, trunk {'-'.join(map(str, case['trunk']))}"
    several = f", {case['outputs']} outputs {case['strategy']}" if case["strategy"] else ""
    return f"DeepONet{'CartesianProd' if case['aligned'] else ''} {widths}, {case['activation']}{several}"


def errors(case, stored):
    """(name, max |ours − theirs| / max |theirs|)."""
    for name, ours, theirs in outputs(case, stored):
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            sys.exit(f"{name}: ours is {ours.dtype}{ours.shape}, theirs {theirs.dtype}{theirs.shape}")
        yield name, float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def compare(path):
    """Print the table of errors; whether all are small."""
    with np.load(path, allow_pickle=False) as file:
        stored = dict(file)
    good = True
    print("| case | relative error in 32 bits | in 64 bits | ok |")
    print("| --- | --- | --- | --- |")
    for i, case in enumerate(json.loads(str(stored["cases"]))):
        single, double = (
            {name.removeprefix(prefix): a for name, a in stored.items() if name.startswith(prefix)}
            for prefix in (f"32/{i}/", f"64/{i}/")
        )
        with jax.enable_x64(True):
            doubles = list(errors(case, double))
        for (name, a), (_, b) in zip(errors(case, single), doubles, strict=True):
            ok = max(a, b) <= TOLERANCE
            verdict = "yes" if ok else "NO"
            if "differs" in case and not ok:
                verdict = f"differs, their {case['differs']}"
            else:
                good &= ok
            print(f"| {name} | {a:.1e} | {b:.1e} | {verdict} |")
    return good


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if not compare(sys.argv[1]):
        sys.exit(f"some outputs differ from the peers' by more than {TOLERANCE:g}")
