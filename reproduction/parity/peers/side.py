"""The peers' side of `loca-reproduce bench peers`: one of their models, trained when told.

    python side.py <model> <data.npz> <batch size>

Runs in the isolated environment and knows nothing of loca. Reads a request in JSON from every line of its input and
replies with a line; `Worker` in loca/benchmarks/peers.py describes the requests. Models, all with torch.optim.Adam:

- neuraloperator: FNO with the blocks that it has by default (channel MLPs, lifting and projection twice as wide)
- neuraloperator-alike: FNO with the layers that ours has
- deepxde: DeepONetCartesianProd as in its demos: ReLU, coordinates as they are
- deepxde-alike: DeepONetCartesianProd with the activation and the features of the coordinates that ours has

Given to them: data in memory and in their layout, a plain loop in place of their trainers, a fused optimizer where it
exists, and the quickest of one thread or two, compiled or not, found by trying before anything is timed.
"""

import json
import os
import sys
import time

os.environ["DDE_BACKEND"] = "pytorch"

import deepxde
import neuralop
import numpy as np
import torch

# what libraries print goes to standard error
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

RATE, DECAY = 1e-3, 0.99 ** (1 / 100)
THREADS = (2, 1)
WIDTH = 32


def fno(data, **options):
    return neuralop.models.FNO(
        n_modes=(16, 14), in_channels=1, out_channels=1, hidden_channels=WIDTH, n_layers=4, **options
    )


def deeponet(data, points, activation):
    widths = [int(data["deeponet_width"])] * 4
    branch, trunk = [data["u"].shape[1], *widths], [points.shape[1], *widths]
    return deepxde.nn.DeepONetCartesianProd(branch, trunk, activation, "Glorot normal")


MODELS = {
    "neuraloperator": lambda data: fno(data),
    "neuraloperator-alike": lambda data: fno(
        data, use_channel_mlp=False, lifting_channel_ratio=0, projection_channel_ratio=4
    ),
    "deepxde": lambda data: deeponet(data, data["y"], "relu"),
    "deepxde-alike": lambda data: deeponet(data, data["features"], torch.nn.functional.gelu),
}


class Trainer:
    """A model, its optimizer and its data."""

    def __init__(self, name, data, batch_size):
        self.name, self.data, self.batch_size = name, data, batch_size
        shape = (-1, 1, 32, 32) if name.startswith("neuraloperator") else (-1, 1024)
        u, s, judge = (torch.from_numpy(data[key]) for key in ("u", "s", "judge_u"))
        self.shift, self.scale = float(data["s_shift"]), float(data["s_scale"])
        u, judge = ((each - float(data["u_shift"])) / float(data["u_scale"]) for each in (u, judge))
        self.u, self.judge = u.reshape(shape), judge.reshape(shape)
        self.s = ((s - self.shift) / self.scale).reshape(shape)
        self.truth = torch.from_numpy(data["judge_s"]).reshape(-1, 1024)
        self.y = None
        if name.startswith("deepxde"):
            self.y = torch.from_numpy(data["features" if name.endswith("alike") else "y"])
        self.model = MODELS[name](data)
        self.forward = self.model
        self.restart(0)

    def restart(self, seed):
        torch.manual_seed(seed)
        self.model.load_state_dict(MODELS[self.name](self.data).state_dict())
        is_complex = any(parameter.is_complex() for parameter in self.model.parameters())
        self.optimizer = torch.optim.Adam(self.model.parameters(), RATE, fused=not is_complex)
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, DECAY)
        self.rows = []

    def predict(self, u, forward=None):
        forward = forward or self.forward
        return forward(u) if self.y is None else forward((u, self.y))

    def step(self):
        if not self.rows:
            self.rows = list(torch.randperm(len(self.u)).split(self.batch_size))
        rows = self.rows.pop()
        self.optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.mse_loss(self.predict(self.u[rows]), self.s[rows]).backward()
        self.optimizer.step()
        self.schedule.step()

    def steps(self, count):
        for _ in range(count):
            self.step()

    @torch.no_grad()
    def error(self):
        # Never compiled: without gradients, torch.compile gives other values for neuraloperator's default blocks.
        parts = self.judge.split(self.batch_size)
        s = torch.cat([self.predict(part, self.model) for part in parts]).reshape(-1, 1024) * self.scale + self.shift
        return float(((s - self.truth).norm(dim=1) / self.truth.norm(dim=1)).mean())

    def seconds_per_step(self, count):
        self.step()
        start = time.perf_counter()
        self.steps(count)
        return (time.perf_counter() - start) / count

    def slope(self):
        """The gradient on the first functions, as one vector of real numbers."""
        self.optimizer.zero_grad(set_to_none=True)
        rows = slice(0, self.batch_size)
        torch.nn.functional.mse_loss(self.predict(self.u[rows]), self.s[rows]).backward()
        slopes = [parameter.grad for parameter in self.model.parameters()]
        return torch.cat([(torch.view_as_real(g) if g.is_complex() else g).reshape(-1) for g in slopes])

    def choose_quickest(self):
        """Try every way whose gradient is right, keep the best; the seconds per step of each."""
        slope = self.slope()
        ways = {"eager": self.model, "compiled": torch.compile(self.model)}
        found = {}
        for way, forward in ways.items():
            self.forward = forward
            try:
                self.restart(0)
                difference = float((self.slope() - slope).norm() / slope.norm())
                if difference > 1e-3:
                    print(f"{way}: the gradient is off by {difference:.1e} of its length", file=sys.stderr)
                    continue
                self.seconds_per_step(1)
                self.error()
            except RuntimeError as reason:  # what cannot be compiled, or finds no C++ compiler
                print(f"{way}: {reason}", file=sys.stderr)
                continue
            for threads in THREADS:
                torch.set_num_threads(threads)
                found[f"{way}, {threads} threads"] = min(self.seconds_per_step(3) for _ in range(3))
        best = min(found, key=found.get)
        self.forward = ways[best.split(",")[0]]
        torch.set_num_threads(int(best.split()[1]))
        self.error()
        return best, found

    def train(self, seed, target, every, limit):
        """[seconds, steps, error] at every validation, until the target or the limit."""
        self.restart(seed)
        curve, start, done = [], time.perf_counter(), 0
        while not curve or (curve[-1][2] > target and curve[-1][0] < limit):
            self.steps(every)
            done += every
            error = self.error()
            curve.append([time.perf_counter() - start, done, error])
        return curve


def serve(name, path, batch_size):
    with np.load(path, allow_pickle=False) as file:
        data = dict(file)
    began = time.perf_counter()
    trainer = Trainer(name, data, batch_size)
    way, found = trainer.choose_quickest()
    say(
        parameters=sum(p.numel() * (2 if p.is_complex() else 1) for p in trainer.model.parameters()),
        start_seconds=time.perf_counter() - began,
        way=way,
        tried=found,
        versions={"torch": torch.__version__, "neuraloperator": neuralop.__version__, "deepxde": deepxde.__version__},
    )
    for line in sys.stdin:
        request = json.loads(line)
        match request.pop("do"):
            case "step":
                say(seconds=trainer.seconds_per_step(**request))
            case "train":
                say(curve=trainer.train(**request))


def say(**answer):
    print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in MODELS:
        sys.exit(__doc__)
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]))
