"""Inversion of Darcy flow from 40 noisy pressures: is the posterior calibrated, and is it that of the real solver?

    python studies/inversion.py --out DIR --truths 100 --exact 5

The surrogate is solved for once. For every truth, computed by the solver, the posterior of the permeability is found by
MCMC with the surrogate's error from held-out functions (`held`), with its standard deviations alone (`diagonal`), and
without it (`none`). For the first truths it is also found by MCMC with the solver itself, for the same prior and noise.
DIR/truths.jsonl has one line per truth; the same command resumes, and more truths extend it. DIR/inversion.json has the
summary:

- `p_values`: of the χ² test that the ranks of the true coordinates among draws are uniform (simulation-based
  calibration, Talts et al. 2018), one for each coordinate of the prior; and of all coordinates together.
- `coverage`: of central 90 % intervals of log permeability, over sensors and truths.
- `error`: ‖posterior mean − truth‖/‖truth − prior mean‖ of log permeability, the median.
- `exact`: distance of the posterior means with surrogate and solver in units of the posterior standard deviation, and
  the seconds of both, in total and for 100 effective draws.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.diagnostics import effective_sample_size
from scipy.stats import chi2

import loca
from loca.data import Log, Shared
from loca.inversion import InversionWarning, Prior, surrogate_covariance
from loca.problems import Darcy

SENSORS, NOISE = 40, 0.02
"""The number of observed pressures, and their noise relative to the standard deviation of all pressures."""

BINS, RANKS = 10, 19
"""Bins of the χ² test, and draws, thinned to be nearly independent, among which the truth is ranked."""


class Case:
    """The surrogate, its data, and the observed locations; all from one seed."""

    def __init__(self, directory: Path, resolution: int, functions: int):
        self.problem = Darcy(resolution=resolution, preset="easy")
        keys = jax.random.split(jax.random.key(0), 3)
        self.train, self.held = self.problem.sample(keys[0], functions), self.problem.sample(keys[1], 200)
        file = directory / "model.safetensors"
        if not file.exists():
            operator, report = loca.solve(self.train, progress=False)
            print(report)
            loca.save(operator, file, data=self.train)
        self.operator = loca.load(file)
        assert isinstance(self.operator.normalization.u_transforms[0], Log), "the prior must be that of log u"
        self.prior = Prior.fit(self.operator.normalization, self.train.u)
        inside = np.flatnonzero(np.all((self.problem.x > 0.0) & (self.problem.x < 1.0), axis=1))
        self.rows = np.sort(np.random.default_rng(0).choice(inside, SENSORS, replace=False))
        self.y = self.train.y.points[self.rows]
        self.noise = NOISE * float(jnp.std(self.train.s))
        covariance = surrogate_covariance(self.operator, self.y, self.prior, self.held, key=jax.random.key(0))
        std = np.sqrt(np.diag(covariance))[:, None]
        self.arms = {
            "held": {"held": self.held},
            "diagonal": {"surrogate_error": std},
            "none": {"surrogate_error": 0.0},
        }

    def truth(self, number: int):
        """A permeability, and its noisy pressures, in double precision."""
        u, s = self.problem.pairs(jax.random.key(1), [number])
        noise = self.noise * np.random.default_rng([1, number]).normal(size=SENSORS)
        return u[0], s[0, self.rows, 0] + noise


def surrogate(case: Case, u, s, arm: str, number: int):
    """The posterior with the surrogate, as numbers, and its draws of log u."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InversionWarning)  # divergences and misfits are recorded
        found = loca.invert(
            case.operator, (case.y, s), noise=case.noise, prior=case.prior, key=jax.random.key(number), **case.arms[arm]
        )
    seconds = time.perf_counter() - start
    log_u, draws = np.log(u[:, 0]), np.log(np.asarray(found.draws[..., 0], np.float64))
    few = found.coordinates[np.linspace(0, len(draws) - 1, RANKS).round().astype(int)]
    z = np.asarray(case.prior.encode(jnp.asarray(u, jnp.float32)))
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    center = np.log(np.asarray(case.train.u)).mean(axis=0)[:, 0]
    return {
        "ranks": np.sum(few < z, axis=0).tolist(),
        "coverage": float(np.mean((low <= log_u) & (log_u <= high))),
        "error": float(np.linalg.norm(draws.mean(axis=0) - log_u) / np.linalg.norm(center - log_u)),
        "seconds": seconds,
        "effective": found.diagnostics.effective,
        "divergences": found.diagnostics.divergences,
        "p_value": found.diagnostics.p_value,
    }, (found, draws)


def solver(case: Case, s, coordinates, steps: int, number: int):
    """The posterior with the solver itself: Metropolis steps with the covariance of the surrogate's draws."""
    rng = np.random.default_rng([2, number])
    scales, mean = np.asarray(case.prior.scales, np.float64), np.asarray(case.prior.mean, np.float64)
    # log u is linear in ξ, since the operator has the logarithm of the permeability
    fields = np.log(np.asarray(jax.vmap(case.prior)(jnp.eye(len(mean) + 1, len(mean), -1)), np.float64))[..., 0]
    steps_of_log_u = fields[1:] - fields[0]

    def density(xi):
        log_u = fields[0] + xi @ steps_of_log_u
        misfit = (s - case.problem.solve(np.exp(log_u)[None])[0, case.rows]) / case.noise
        return -0.5 * (np.sum(xi**2) + np.sum(misfit**2)), log_u

    draws = (coordinates - mean) / scales
    root = 2.38 / np.sqrt(draws.shape[1]) * np.linalg.cholesky(np.cov(draws.T))
    start = time.perf_counter()
    xi = draws.mean(axis=0)
    value, field = density(xi)
    chain, total, accepted = [], 0.0, 0
    for step in range(steps):
        proposal = xi + root @ rng.normal(size=len(xi))
        new, new_field = density(proposal)
        if np.log(rng.uniform()) < new - value:
            xi, value, field, accepted = proposal, new, new_field, accepted + 1
        if step >= steps // 10:
            chain.append(xi)
            total = total + field
    effective = float(np.min(effective_sample_size(np.stack(chain)[None])))
    return {
        "seconds": time.perf_counter() - start,
        "effective": effective,
        "acceptance": accepted / steps,
    }, total / len(chain)


def compare(case: Case, s, number: int, steps: int, found, draws, coordinates):
    """The solver's posterior beside the surrogate's, which is found once more, without compilation."""
    start = time.perf_counter()
    loca.invert(
        case.operator, (case.y, s), noise=case.noise, prior=case.prior, held=case.held, key=jax.random.key(number)
    )
    seconds = time.perf_counter() - start
    numbers, mean = solver(case, s, coordinates, steps, number)
    distance = (draws.mean(axis=0) - mean) / draws.std(axis=0)
    own = {"seconds": seconds, "effective": found.diagnostics.effective}
    return {"surrogate": own, "solver": numbers, "distance": float(np.sqrt(np.mean(distance**2)))}


def summary(lines):
    """What the page of the documentation quotes."""
    found = {"truths": len(lines)}
    for arm in lines[0]["arms"]:
        ranks = np.array([line["arms"][arm]["ranks"] for line in lines])
        counts = np.stack([np.histogram(column, BINS, (-0.5, RANKS + 0.5))[0] for column in ranks.T])
        expected = len(lines) / BINS
        p = chi2.sf(np.sum((counts - expected) ** 2 / expected, axis=1), BINS - 1)
        together = counts.sum(axis=0)
        pooled = chi2.sf(np.sum((together - together.mean()) ** 2 / together.mean()), BINS - 1)
        found[arm] = {
            "p_values": p.round(4).tolist(),
            "p_together": float(pooled),
            "coverage": float(np.mean([line["arms"][arm]["coverage"] for line in lines])),
            "error": float(np.median([line["arms"][arm]["error"] for line in lines])),
            "seconds": float(np.median([line["arms"][arm]["seconds"] for line in lines])),
            "effective": float(np.median([line["arms"][arm]["effective"] for line in lines])),
            "divergences": int(sum(line["arms"][arm]["divergences"] for line in lines)),
        }
    exact = [line["exact"] for line in lines if "exact" in line]
    if exact:
        per_100 = {
            k: np.median([100 * e[k]["seconds"] / e[k]["effective"] for e in exact]) for k in ("surrogate", "solver")
        }
        found["exact"] = {
            "truths": len(exact),
            "distance": [round(e["distance"], 3) for e in exact],
            "seconds": {k: float(np.median([e[k]["seconds"] for e in exact])) for k in ("surrogate", "solver")},
            "seconds_per_100_effective": {k: float(v) for k, v in per_100.items()},
            "times_faster": float(per_100["solver"] / per_100["surrogate"]),
        }
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--truths", type=int, default=100)
    parser.add_argument("--exact", type=int, default=5, help="truths that are also inverted with the solver")
    parser.add_argument("--steps", type=int, default=20_000, help="of MCMC with the solver")
    parser.add_argument("--functions", type=int, default=400, help="training functions")
    parser.add_argument("--resolution", type=int, default=32)
    parser.add_argument("--figure", type=Path, help="a picture of the first posterior")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    case = Case(given.out, given.resolution, given.functions)
    file = given.out / "truths.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    test = case.problem.sample(jax.random.key(3), 100)
    error = np.asarray(loca.models.predict(case.operator, test.u, Shared(test.y.points)) - test.s)
    print(f"surrogate: mean relative L2 error "
          f"{np.mean(np.linalg.norm(error, axis=1) / np.linalg.norm(np.asarray(test.s), axis=1)):.4f}")  # fmt: skip
    for number in range(len(lines), given.truths):
        u, s = case.truth(number)
        line, posteriors = {"truth": number, "arms": {}}, {}
        for arm in case.arms:
            line["arms"][arm], posteriors[arm] = surrogate(case, u, s, arm, number)
        if number < given.exact:
            exact = posteriors["none"][0].coordinates  # has no error of a surrogate either
            line["exact"] = compare(case, s, number, given.steps, *posteriors["held"], exact)
        with file.open("a") as log:
            log.write(json.dumps(line) + "\n")
        lines.append(line)
        print(number, {arm: round(v["coverage"], 2) for arm, v in line["arms"].items()}, line.get("exact", ""))
    found = summary(lines)
    (given.out / "inversion.json").write_text(json.dumps(found, indent=1))
    print(json.dumps(found, indent=1))
    if given.figure is not None:
        u, s = case.truth(0)
        _, (posterior, _) = surrogate(case, u, s, "held", 0)
        loca.figures.posterior(posterior, truth=u).savefig(given.figure, dpi=150)


if __name__ == "__main__":
    main()
