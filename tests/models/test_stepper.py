"""Steppers: their rollouts are those of the operator inside, in parts of any size, with what acts on the fields."""

import dataclasses
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import loca
from loca.data import Normalization, Trajectories
from loca.domains import Torus
from loca.exporting import read_artifact
from loca.models import DivergedWarning, Noise, Operator, Stepper, Unrolled

TAU = 2.0 * np.pi
Y = np.linspace(0.0, TAU, 16, endpoint=False)
RANDOM = np.random.default_rng(0)


class Rotation(Operator):
    """The increment of a wave that moves by one point: exact, with a factor that grows or decays, plus the forcing."""

    normalization: Normalization
    factor: jax.Array
    fields: int = 1
    forced: bool = False

    def encode(self, u):
        return u

    def respond(self, codes, queries):
        last = codes[:, :, : self.fields]
        moved = self.factor * jnp.roll(last, 1, axis=1) - last
        moved = moved + codes[:, :, -1:] if self.forced else moved
        return self.normalization.at(queries).standardize(moved)


def trajectories(N=4, T=9, **options):
    """Sines that move by one point per step, around a mean of their own."""
    phase = RANDOM.uniform(0.0, TAU, size=(N, 1, 1)) + Y[1] * np.arange(T)[:, None]
    return Trajectories(0.5 + np.sin(Y - phase), Y, domain=Torus([0.0], [TAU]), **options)


def rotation(data, factor=1.0, **options):
    pairs = data.samples()
    return Rotation(Normalization.fit(pairs), jnp.asarray(factor), **options)


def test_a_rollout_is_the_truth_and_conserves_the_mean():
    data = trajectories()
    stepper = Stepper.of(rotation(data), data)
    assert (stepper.history, stepper.about.conserved, stepper.about.step) == (1, (True,), 1.0)
    found = stepper.rollout(data.s[:, :1], 8)
    np.testing.assert_allclose(found, data.s[:, 1:], atol=1e-5)
    one = stepper.rollout(data.s[0, :3], 5)  # of more frames than it sees, the last count
    np.testing.assert_allclose(one, data.s[0, 3:8], atol=1e-5)
    np.testing.assert_allclose(stepper(data.s[0, 0], Y), data.s[0, 1], atol=1e-5)  # as an operator, one step
    leaking = Stepper.of(rotation(data, 0.9), data)
    long = leaking.rollout(data.s[:1, 0], 200)
    np.testing.assert_allclose(long.mean(axis=(1, 2)), 0.5, atol=1e-5)
    assert long[-1].std() < 1e-6


def test_parts_of_any_size_are_the_same_bytes(monkeypatch):
    data = trajectories(forcing=np.full((4, 9, 1), 0.1), cycles=(4.0,))
    stepper = Stepper.of(rotation(data, 0.9, forced=True), data)
    stepper = dataclasses.replace(
        stepper, noise=Noise(0.1 * jnp.asarray(RANDOM.normal(size=(5, 16, 1))), jnp.ones((1, 1)))
    )
    options = {"forcing": RANDOM.normal(size=(4, 23, 1)), "draws": 3, "key": jax.random.key(1)}
    whole = stepper.rollout(data, 23, **options)
    assert whole.shape == (4, 3, 23, 16, 1)
    monkeypatch.setattr("loca.models.stepper.AT_ONCE", 5 * 12 * 16)
    np.testing.assert_array_equal(stepper.rollout(data, 23, **options), whole)
    assert (whole[:, 0, 0] != whole[:, 1, 0]).any()
    with pytest.raises(ValueError, match=r"need 1 channels of forcing.*\(4, 23, 1\).*until the last step"):
        stepper.rollout(data, 24, **options)


def test_forcing_acts_in_its_step():
    data = trajectories(forcing=np.zeros((4, 9, 1)))
    stepper = Stepper.of(rotation(data, forced=True), data)
    stepper = dataclasses.replace(stepper, about=dataclasses.replace(stepper.about, conserved=(False,)))
    pulse = np.zeros((4, 3, 1))
    pulse[:, 1] = 1.0
    found = stepper.rollout(data.s[:, :1], 3, forcing=pulse)
    np.testing.assert_allclose(
        found - data.s[:, 1:4], np.array([0.0, 1.0, 1.0])[:, None, None] * np.ones((4, 3, 16, 1)), atol=1e-5
    )


def test_divergence_is_said():
    data = trajectories()
    stepper = Stepper.of(rotation(data, 1.5), data)
    with pytest.warns(DivergedWarning, match=r"at step \d the field u1 has left its range in the data, -0.5 to 1.5"):
        stepper.rollout(data, 300)


def test_locations_without_values():
    values = np.asarray(trajectories().s).copy()
    values[:, :, 3] = np.nan
    data = Trajectories(values, Y, domain=Torus([0.0], [TAU]))
    stepper = Stepper.of(rotation(data), data)
    found = stepper.rollout(values[:, -1:], 4)
    assert np.isnan(found[:, :, 3]).all()
    assert np.isfinite(np.delete(found, 3, axis=2)).all()
    np.testing.assert_array_equal(found, stepper.rollout(data, 4))


def test_refusals():
    data = trajectories()
    stepper = Stepper.of(rotation(data), data)
    for start, message in (
        (np.zeros((1, 15, 1)), r"expected frames of shape \(k, 16, 1\)"),
        (data.stride(2), "frames of the start are 2 apart, steps are 1 long"),
        (np.full((1, 16, 1), np.nan), "NaN or infinite"),
        (dataclasses.replace(data, fields=("v",)), "the start has v"),
    ):
        with pytest.raises(ValueError, match=message):
            stepper.rollout(start, 2)
    with pytest.raises(ValueError, match=r"does not know its error.*calibrate"):
        stepper.rollout(data, 2, draws=3)
    two = dataclasses.replace(data, s=np.concatenate([data.s, data.s], axis=-1), fields=("u", "v"))
    with pytest.raises(ValueError, match="1 input and 1 output channels"):
        Stepper.of(rotation(data), two)


def test_an_fno_of_two_frames(tmp_path):
    data = trajectories(static=np.cos(Y)[:, None])
    pairs = data.samples(history=2)
    stepper = Stepper.of(loca.FNO.create(pairs, key=jax.random.key(0), modes=4, width=8, depth=2), data)
    assert stepper.history == 2
    with pytest.raises(ValueError, match="sees the last 2 frames, but the start has 1; pass 2"):
        stepper.rollout(data.s[:, :1], 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergedWarning)
        first = stepper.rollout(data.s[:, :2], 3)
        increment = stepper.operator.predict(pairs.take(jnp.arange(1)).u, Y)
        increment = increment - increment.mean()
        np.testing.assert_allclose(first[0, 0], data.s[0, 1] + increment[0], atol=1e-4)  # without interpolation
        loca.save(stepper, tmp_path / "stepper.safetensors", data=pairs)
        np.testing.assert_array_equal(loca.load(tmp_path / "stepper.safetensors").rollout(data.s[:, :2], 3), first)


@pytest.mark.slow
def test_a_step_and_a_loop_as_programs(tmp_path):
    data = trajectories()
    stepper = Stepper.of(loca.FNO.create(data.samples(), key=jax.random.key(0), modes=4, width=8, depth=2), data)
    u = data.s[:3, 0]
    for name, operator in (("step", stepper), ("loop", Unrolled.of(stepper, 3))):
        loca.export(operator, tmp_path / f"{name}.stablehlo", y=data.y)
    step = read_artifact(tmp_path / "step.stablehlo")(u=u)["mean"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergedWarning)
        frames = stepper.rollout(u[:, None], 3)
    np.testing.assert_allclose(step, frames[:, 0], atol=1e-5)
    loop = read_artifact(tmp_path / "loop.stablehlo")(u=u)["mean"]
    np.testing.assert_allclose(u + loop[..., 2:], frames[:, 2], atol=1e-5)
