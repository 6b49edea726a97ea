"""The peers' side of the parity check: neuraloperator's FNO and DeepXDE's DeepONet, with random weights.

    python peer.py <file.npz>

Runs in the isolated environment and knows nothing of loca. For every case and precision it writes the weights, the
inputs and the outputs.
"""

import contextlib
import itertools
import json
import os
import sys
from unittest import mock

os.environ["DDE_BACKEND"] = "pytorch"

import deepxde
import numpy as np
import torch
from neuralop.layers.embeddings import GridEmbeddingND
from neuralop.models import FNO

# `modes` are neuraloperator's n_modes; with several grids, the same weights are used on each; `ends` says whether
# coordinates run to 1 or end one step before; `repaired` is explained at `repair`.
PLAIN = {
    "peer": "FNO",
    "channels": [1, 1],
    "width": 8,
    "depth": 3,
    "lifting": 0,
    "activation": "gelu",
    "ends": False,
    "repaired": True,
}
FNO_CASES = [
    {"grids": [[32], [64]], "modes": [16]},
    {"grids": [[33], [50]], "modes": [9], "channels": [2, 3], "lifting": 2},
    {"grids": [[32]], "modes": [30], "ends": True, "activation": "relu", "repaired": False},
    {"grids": [[32]], "modes": [16], "repaired": False},
    {"grids": [[16, 20], [32, 30]], "modes": [8, 8], "repaired": False},
    {"grids": [[16, 21]], "modes": [10, 21], "channels": [3, 2], "lifting": 2, "repaired": False},
    {"grids": [[16, 16]], "modes": [7, 6], "ends": True, "activation": "tanh", "repaired": False},
    {"grids": [[15, 17], [31, 29]], "modes": [8, 8]},
    {"grids": [[15, 17]], "modes": [8, 8], "repaired": False, "differs": "pull request 688"},
    {"grids": [[8, 10, 12], [12, 12, 16]], "modes": [4, 6, 8], "channels": [2, 2], "repaired": False},
    {"grids": [[9, 8, 7]], "modes": [4, 4, 4], "lifting": 1.5, "ends": True},
]

SINGLE = {"peer": "DeepONet", "aligned": True, "outputs": 1, "strategy": None, "activation": "tanh"}
DEEPONET_CASES = [
    {"branch": [20, 32, 16], "trunk": [1, 32, 16]},
    {"branch": [20, 32, 16], "trunk": [1, 32, 16], "aligned": False},
    {"branch": [50, 40, 40, 24], "trunk": [2, 40, 40, 40, 24], "activation": "relu"},
    {"branch": [50, 40, 40, 24], "trunk": [3, 40, 24], "activation": "gelu", "aligned": False},
    {"branch": [20, 32, 30], "trunk": [2, 32, 30], "outputs": 3, "strategy": "split_both", "activation": "gelu"},
    {"branch": [20, 32, 30], "trunk": [2, 32, 30], "outputs": 2, "strategy": "split_both", "aligned": False},
    {"branch": [20, 32, 15], "trunk": [2, 32, 15], "outputs": 2, "strategy": "independent"},
    {"branch": [20, 32, 30], "trunk": [2, 32, 15], "outputs": 2, "strategy": "split_branch"},
    {"branch": [20, 32, 15], "trunk": [2, 32, 30], "outputs": 2, "strategy": "split_trunk"},
]
CASES = [PLAIN | case for case in FNO_CASES] + [SINGLE | case for case in DEEPONET_CASES]


def alternate(*functions):
    """A function that is each of the given ones in turn."""
    turns = itertools.cycle(functions)
    return lambda *args, **options: next(turns)(*args, **options)


@contextlib.contextmanager
def repair(model, is_wanted):
    """neuraloperator 2.0.0 without two known slips.

    Without a channel MLP a block applies its activation twice (its issue 728). On axes but the last, frequencies are
    shifted back by fftshift in place of ifftshift, which leaves odd sizes one frequency off (corrected by its pull
    request 688, after the release).
    """
    if not is_wanted:
        yield
        return
    activation = alternate(model.fno_blocks.non_linearity, lambda h: h)
    shift = alternate(torch.fft.fftshift, torch.fft.ifftshift)
    with (
        mock.patch.object(model.fno_blocks, "non_linearity", activation),
        mock.patch.object(torch.fft, "fftshift", shift),
    ):
        yield


@contextlib.contextmanager
def precision(bits):
    """Models and numbers of 32 or 64 bits; SpectralConv asks for torch.cfloat by name whatever the default is."""
    with contextlib.redirect_stdout(None):
        deepxde.config.set_default_float(f"float{bits}")
    with mock.patch.object(torch, "cfloat", torch.complex64 if bits == 32 else torch.complex128):
        yield


def fno(case):
    grid, dimension = case["grids"][0], len(case["modes"])
    embedding = "grid"
    if case["ends"]:
        embedding = GridEmbeddingND(case["channels"][0], dimension, [[0.0, n / (n - 1)] for n in grid])
    model = FNO(
        n_modes=tuple(case["modes"]),
        in_channels=case["channels"][0],
        out_channels=case["channels"][1],
        hidden_channels=case["width"],
        n_layers=case["depth"],
        lifting_channel_ratio=case["lifting"],
        positional_embedding=embedding,
        non_linearity=activation_of(case),
        use_channel_mlp=False,
        fno_skip="linear",
    )
    arrays = {}
    for j, grid in enumerate(case["grids"]):
        u = torch.randn(2, case["channels"][0], *grid)
        with repair(model, case["repaired"]):
            arrays |= {f"u{j}": u, f"s{j}": model(u)}
    return model, arrays


def deeponet(case):
    build = deepxde.nn.DeepONetCartesianProd if case["aligned"] else deepxde.nn.DeepONet
    model = build(
        case["branch"],
        case["trunk"],
        activation_of(case),
        "Glorot normal",
        num_outputs=case["outputs"],
        multi_output_strategy=case["strategy"],
    )
    for parameter in model.parameters():
        if parameter.ndim < 2:  # biases start at zero and would not be seen
            parameter.normal_()
    u, y = torch.randn(6, case["branch"][0]), torch.rand(6 if not case["aligned"] else 11, case["trunk"][0])
    return model, {"u": u, "y": y, "s": model((u, y))}


def activation_of(case):
    functional = torch.nn.functional
    return {"gelu": functional.gelu, "relu": functional.relu, "tanh": torch.tanh}[case["activation"]]


@torch.no_grad()
def write(path):
    torch.set_num_threads(1)
    arrays = {"cases": json.dumps(CASES)}
    for bits, (i, case) in itertools.product((32, 64), enumerate(CASES)):
        torch.manual_seed(i)
        with precision(bits):
            model, results = (fno if case["peer"] == "FNO" else deeponet)(case)
        weights = {f"weights/{name}": weight for name, weight in model.named_parameters()}
        arrays |= {f"{bits}/{i}/{name}": array.numpy() for name, array in (results | weights).items()}
    np.savez(path, **arrays)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write(sys.argv[1])
