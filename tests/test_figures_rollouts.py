"""Figures of rollouts show what they were given."""

import numpy as np
import pytest

from loca.data import Trajectories, Variable
from loca.domains import Torus, grid
from loca.evaluation import LeadTimes
from loca.figures import animation, lead_times, over_time, spectra

RANDOM = np.random.default_rng(0)
X = np.arange(8) / 8


def report(seed):
    errors = {"rmse": np.abs(RANDOM.normal(size=(3, 6, 1))) + seed, "spread": np.ones((3, 6, 1))}
    power = RANDOM.uniform(0.1, 1.0, size=(6, 5, 1))
    found = {
        "forecast": errors,
        "persistence": {"rmse": errors["rmse"] + 1.0},
        "climatology": {"rmse": errors["rmse"] + 2.0},
    }
    return LeadTimes((Variable("u", "m"),), 0.5, "s", found, {"truth": power, "forecast": 0.5 * power})


def test_errors_against_lead_time():
    both = {"solved": report(1.0), "FNO": report(2.0)}
    (ax,) = lead_times(both, "rmse").axes
    lines = {line.get_label(): line.get_ydata() for line in ax.lines}
    assert list(lines) == ["persistence", "climatology", "solved", "solved, spread", "FNO", "FNO, spread"]
    np.testing.assert_allclose(lines["solved"], both["solved"].of("rmse")[:, 0])
    assert ax.get_xlabel() == "lead time (s)"
    (ax,) = spectra(both["FNO"]).axes
    np.testing.assert_allclose(ax.lines[1].get_ydata(), 0.5 * ax.lines[0].get_ydata())


@pytest.mark.slow
@pytest.mark.parametrize("dimension", [1, 2])
def test_fields_over_time(dimension, tmp_path):
    y = grid(*[X] * dimension)
    truth, forecast = RANDOM.normal(size=(2, 5, len(y), 1)).astype(np.float32)
    data = Trajectories(truth[None], y, domain=Torus([0.0] * dimension, [1.0] * dimension), time=("t", "s"))
    axes = [ax for ax in over_time(truth, forecast, data).axes if ax.images]
    middle = (slice(None), *[4] * (dimension - 1))
    shown = (forecast - truth).reshape(5, *[8] * dimension)[middle]
    np.testing.assert_allclose(axes[2].images[0].get_array(), shown)
    film = animation(truth, forecast, data)
    film.save(tmp_path / "wave.gif", writer="pillow")
    assert (tmp_path / "wave.gif").stat().st_size > 1000
