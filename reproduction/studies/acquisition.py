"""Which permeabilities to simulate next: Darcy flow, error against the number of simulations, against random choice.

    python studies/acquisition.py --out DIR --seeds 10

For every seed the loop starts with the same simulations. In each round an operator is solved for, `loca.acquire`
chooses inputs from a pool, or chance does, and the solver simulates them. DIR/seeds.jsonl has one line for each seed
and choice; the same command resumes. DIR/acquisition.json has means over seeds, and DIR/acquisition.png the figure.
"""

import argparse
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import loca
from loca.data import Samples
from loca.figures import line_styles, log_axis, style
from loca.problems import Darcy

POOL, TEST = 400, 200
CHOICES = ("acquire", "random")


def simulate(problem, u):
    """Pairs (u, s) of the real solver."""
    s = problem.solve(np.asarray(u[..., 0], np.float64))
    return Samples(
        u, jnp.asarray(problem.y, jnp.float32), jnp.asarray(s, jnp.float32), x=jnp.asarray(problem.x, jnp.float32),
        domain=problem.domain, inputs=problem.inputs, outputs=problem.outputs,
    )  # fmt: skip


def errors(problem, seed, choice, first, batch, most):
    """The mean relative L2 error after each round."""
    keys = jax.random.split(jax.random.key(seed), 3)
    pool, test = problem.sample(keys[0], POOL).u, problem.sample(keys[1], TEST)
    order = np.asarray(jax.random.permutation(keys[2], POOL))
    chosen, found = list(order[:first]), {}
    while True:
        operator, _ = loca.solve(simulate(problem, pool[np.asarray(chosen)]), progress=False, seed=seed)
        report = loca.evaluate(operator, test, metrics=["relative_l2"])
        found[len(chosen)] = float(report.errors["relative_l2"].mean())
        if len(chosen) >= most:
            return found
        left = np.setdiff1d(order, chosen, assume_unique=True)
        count = min(batch, most - len(chosen))
        if choice == "acquire":
            rows = loca.acquire(operator, pool[left], count=count).rows
        else:
            rows = np.random.default_rng([seed, len(chosen)]).choice(len(left), count, replace=False)
        chosen += list(left[rows])


def draw(means, path):
    """Draw the error over the number of simulations."""
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(3.2, 2.4), layout="constrained")
        ax = figure.subplots()
        for choice, look in line_styles(means).items():
            mean, deviation = means[choice]
            counts = [int(count) for count in mean]
            values, spread = 100 * np.array(list(mean.values())), 100 * np.array(list(deviation.values()))
            ax.plot(counts, values, marker="o", label=choice, **look)
            ax.fill_between(counts, values - spread, values + spread, color=look["color"], alpha=0.2, linewidth=0)
        ax.set(xlabel="simulations", ylabel="mean relative L2 error (%)")
        log_axis(ax)
        ax.legend()
        figure.savefig(path, dpi=150)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=20, help="simulations before the first choice")
    parser.add_argument("--batch", type=int, default=20, help="simulations per round")
    parser.add_argument("--most", type=int, default=120, help="simulations at the end")
    parser.add_argument("--resolution", type=int, default=16)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    problem = Darcy(resolution=given.resolution, preset="easy")
    file = given.out / "seeds.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done = {(line["seed"], line["choice"]) for line in lines}
    for seed in range(given.seeds):
        for choice in CHOICES:
            if (seed, choice) not in done:
                found = errors(problem, seed, choice, given.first, given.batch, given.most)
                lines.append({"seed": seed, "choice": choice, "errors": found})
                with file.open("a") as log:
                    log.write(json.dumps(lines[-1]) + "\n")
                print(seed, choice, {count: round(error, 4) for count, error in found.items()})
    means = {}
    for choice in CHOICES:
        table = [{str(k): v for k, v in line["errors"].items()} for line in lines if line["choice"] == choice]
        values = np.array([list(row.values()) for row in table])
        spread = values.std(axis=0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0 * values[0]
        means[choice] = [dict(zip(table[0], each.tolist(), strict=True)) for each in (values.mean(axis=0), spread)]
    (given.out / "acquisition.json").write_text(
        json.dumps({"seeds": given.seeds, "mean and its error": means}, indent=1)
    )
    print(json.dumps(means, indent=1))
    draw(means, given.out / "acquisition.png")


if __name__ == "__main__":
    main()
