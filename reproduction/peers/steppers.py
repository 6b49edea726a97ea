"""Data and networks of APEBench, in an environment of its own: `uv venv ENV; uv pip install --python ENV apebench`.

    ENV/bin/python peers/steppers.py burgers-1d --out burgers-1d.npz                   # trajectories
    ENV/bin/python peers/steppers.py burgers-1d --network "FNO;12;18;4;gelu" --seed 0    # a row of JSON

`studies/apebench.py` runs both.
"""

import argparse
import json
import time

import apebench
import jax
import numpy as np

SCENARIOS = {
    "advection-1d": ("diff_adv", 1, 160),
    "burgers-1d": ("diff_burgers", 1, 160),
    "kdv-1d": ("diff_kdv", 1, 160),
    "ks-conservative-1d": ("diff_ks_cons", 1, 160),
    "ks-1d": ("diff_ks", 1, 160),
    "fisher-1d": ("diff_fisher", 1, 160),
    "burgers-2d": ("diff_burgers", 2, 32),
    "ks-2d": ("diff_ks", 2, 32),
}
"""Their names in APEBench, the number of axes and of points along each."""


def main() -> None:
    """Write the data of a scenario, or train and test a network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("--out")
    parser.add_argument("--network")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    name, axes, points = SCENARIOS[given.scenario]
    scenario = apebench.scenarios.scenario_dict[name](num_spatial_dims=axes, num_points=points)
    if given.out:
        np.savez(given.out, train=np.asarray(scenario.get_train_data()), test=np.asarray(scenario.get_test_data()))
    if given.network:
        begun = time.process_time()
        model = scenario(network_config=given.network, train_config="one", start_seed=given.seed)[1]
        seconds = time.process_time() - begun
        frames = np.asarray(jax.jit(jax.vmap(lambda u: rollout(model, u, 200)))(scenario.get_test_data()[:, 0]))
        truth = np.asarray(scenario.get_test_data()[:, 1:])
        dims = tuple(range(3, truth.ndim))
        squares = [np.sum(each.astype(np.float64) ** 2, axis=dims) for each in (frames - truth, truth)]
        errors = np.sqrt(squares[0] / squares[1]).mean(axis=(0, 2)).tolist()
        sizes = np.nan_to_num(np.abs(frames), nan=np.inf).reshape(len(frames), -1).max(axis=1)
        diverged = int((sizes > 3.0 * np.abs(truth).max()).sum())
        print(json.dumps({"errors": errors, "diverged": diverged, "core seconds": seconds}))  # noqa: T201


def rollout(model, u, steps):
    """The next frames."""

    def step(u, _):
        u = model(u)
        return u, u

    return jax.lax.scan(step, u, length=steps)[1]


if __name__ == "__main__":
    main()
