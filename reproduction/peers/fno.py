"""neuraloperator's FNO for `loca compare --other`: python fno.py DATA.npz PREDICTIONS.npz

Its documented recipe: AdamW, a falling learning rate, the relative L2 loss, batches of 20, inputs and outputs
standardized. A quarter of the time chooses, on validation functions, whether positive inputs are replaced by their
logarithm, and the largest learning rate.
"""

import os
import sys
import time

import numpy as np
import torch
from neuralop.models import FNO

RATES, BATCH, MODES, WIDTH = (5e-3, 1e-3), 20, 12, 32


def grid_of(points):
    """The numbers of points along each coordinate, if locations are a grid in the order of its rows."""
    counts = [len(np.unique(points[:, axis])) for axis in range(points.shape[1])]
    if np.prod(counts) != len(points) or not (np.diff(points.reshape(*counts, -1), axis=-2)[..., -1] > 0.0).all():
        sys.exit("neuraloperator's FNO needs inputs and outputs on a grid")
    return counts


def train(u, s, shape, rate, seconds, seed):
    """A model that is trained for some seconds; the learning rate falls to zero in the end."""
    torch.manual_seed(seed)
    modes = tuple(min(MODES, count) for count in shape)
    model = FNO(n_modes=modes, in_channels=u.shape[1], out_channels=s.shape[1], hidden_channels=WIDTH, n_layers=4)
    optimizer = torch.optim.AdamW(model.parameters(), rate, weight_decay=1e-4)
    known = ~torch.isnan(s)
    begun, rows = time.perf_counter(), []
    while (used := (time.perf_counter() - begun) / seconds) < 1.0:
        for group in optimizer.param_groups:
            group["lr"] = rate * 0.5 * (1.0 + np.cos(np.pi * used))
        rows = rows or list(torch.randperm(len(u)).split(BATCH))
        batch = rows.pop()
        truth = torch.where(known[batch], s[batch], 0.0).flatten(1)
        found = torch.where(known[batch], model(u[batch]), 0.0).flatten(1)
        loss = ((found - truth).norm(dim=1) / truth.norm(dim=1)).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    return model


@torch.no_grad()
def predict(model, u):
    """Predictions for all functions."""
    return torch.cat([model(part) for part in u.split(BATCH)])


def main():
    """Train, and predict."""
    data = dict(np.load(sys.argv[1]))
    shape = grid_of(data["x"])
    if data["x"].shape != data["y"].shape or not np.allclose(data["x"], data["y"]):
        sys.exit("neuraloperator's FNO needs outputs on the grid of the inputs")
    s_shift, s_scale = np.nanmean(data["train_s"]), np.nanstd(data["train_s"])

    def fields(values, shift, scale):
        return torch.from_numpy((values - shift) / scale).float().movedim(-1, 1).unflatten(2, shape)

    def inputs(transform):
        values = {part: transform(data[f"{part}_u"]) for part in ("train", "validation", "test")}
        return {part: fields(each, values["train"].mean(), values["train"].std()) for part, each in values.items()}

    s = {part: fields(data[f"{part}_s"], s_shift, s_scale) for part in ("train", "validation")}
    seconds, seed = float(data["seconds"]), int(data["seed"])

    def error(u, rate):
        model = train(u["train"], s["train"], shape, rate, seconds / 4 / trials, seed)
        both = s["validation"], predict(model, u["validation"])
        truth, found = (each.flatten(1) * s_scale + s_shift for each in both)
        return float(((found - truth).norm(dim=1) / truth.norm(dim=1)).mean())

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    is_positive = min(data[f"{part}_u"].min() for part in ("train", "validation", "test")) > 0.0
    forms = [inputs(transform) for transform in (np.asarray, np.log)[: 1 + is_positive]]
    trials = len(forms) + len(RATES) - 1
    errors = [error(form, RATES[0]) for form in forms]
    u = forms[int(np.argmin(errors))]
    errors = [min(errors), *(error(u, rate) for rate in RATES[1:])]
    model = train(u["train"], s["train"], shape, RATES[int(np.argmin(errors))], 0.75 * seconds, seed)
    begun = time.perf_counter()
    predict(model, u["test"][:1])
    milliseconds = 1e3 * (time.perf_counter() - begun)
    predictions = {
        f"{part}_s": (predict(model, u[part]).flatten(2).movedim(1, -1) * s_scale + s_shift).numpy()
        for part in ("validation", "test")
    }
    parameters = sum(each.numel() * (2 if each.is_complex() else 1) for each in model.parameters())
    np.savez(sys.argv[2], **predictions, parameters=parameters, megabytes=4e-6 * parameters, milliseconds=milliseconds)


main()
