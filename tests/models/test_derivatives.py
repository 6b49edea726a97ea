"""Derivatives of operators: adjoints, closed forms in the units of the data, and what is refused."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import loca
from loca.data import Log, Normalization, PerLocation, Samples
from loca.domains import Box
from loca.gaussian import Hyperparameters
from loca.models import FNO, LOCA, DeepONet, Operator, Regression
from loca.rules import OwnQueries
from loca.typing import Measurements, MultiInput, values_of

KEY = jax.random.key(0)
Y = np.linspace(0.1, 0.9, 5)


def functions(count=12):
    """s(y) = exp(sin(3 ū y)) from positive u on 16 sensors of a line."""
    rng = np.random.default_rng(0)
    x = np.linspace(0.0, 1.0, 16)
    u = np.exp(rng.normal(size=(count, 3)) @ np.stack([np.ones(16), np.sin(3 * x), np.cos(5 * x)]))
    s = np.exp(np.sin(3.0 * u.mean(axis=1, keepdims=True) * x))
    return Samples(u, x, s, x=x, domain=Box.unit(1))


SMALL = {"num_features": 4, "lift_size": 3, "lift_widths": (5,), "proposal_widths": (5,), "feature_widths": (5,)}
TRANSFORMS = {"u1": "log", "s1": "log"}
MODELS = {
    "loca": lambda data: LOCA.create(data, key=KEY, transforms=TRANSFORMS, **SMALL),
    "deeponet": lambda data: DeepONet.create(data, key=KEY, num_features=4, branch_widths=(5,), trunk_widths=(5,)),
    "fno": lambda data: FNO.create(data, key=KEY, modes=2, width=3, depth=2, transforms=TRANSFORMS),
    "ridge": lambda data: Regression.fit(data, components=3, transforms=TRANSFORMS),
    "gaussian": lambda data: loca.solve(
        data, hyperparameters=Hyperparameters(length=2.0, noise=1e-3, location_lengths=(0.5,)), ranks=(8, 8)
    )[0],
}


def adjoint_error(model, u):
    """|⟨J du, w⟩/⟨du, J* w⟩ − 1| with w = J du, so that the first product has no cancellation."""
    du = np.random.default_rng(1).normal(size=u.shape)
    ds = model.jvp(u, du, Y)
    back = np.asarray(model.vjp(u, ds, Y), np.float64)
    return abs(np.sum(np.asarray(ds, np.float64) ** 2) / np.sum(du * back[:, 0]) - 1.0)


def doubled(model):
    """The same model in double precision."""
    wider = {jnp.dtype("float32"): jnp.float64, jnp.dtype("complex64"): jnp.complex128}
    return jax.tree.map(
        lambda leaf: leaf.astype(wider.get(leaf.dtype, leaf.dtype)) if eqx.is_array(leaf) else leaf, model
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name if name == "loca" else pytest.param(name, marks=pytest.mark.full) for name in MODELS]
)
def test_jvp_and_vjp_are_adjoint(name):
    data = functions()
    model = MODELS[name](data)
    u = np.asarray(data.u[1, :, 0], np.float64)
    assert adjoint_error(model, u) < 1e-6
    with jax.enable_x64(True):
        model = doubled(model)
        assert model.jvp(u, u, Y).dtype == jnp.float64
        assert adjoint_error(model, u) < 1e-12


class Powers(Operator):
    """F(u)(y) = Π_c (geometric mean of u_c)^(c + y) over all channels of all inputs: linear in logarithms."""

    normalization: Normalization

    def encode(self, u):
        u = self.normalization.standardize_input(u)
        values = values_of(u)
        if isinstance(u, Measurements):
            values = (jnp.where(u.mask[:, None], u.u, 0.0) * len(u.mask) / u.mask.sum(),)
        return jnp.stack([each.mean() for each in values])

    def respond(self, codes, queries):
        powers = jnp.arange(codes.shape[1]) + queries.locations(len(codes))
        return jnp.einsum("nc,npc->np", codes, powers)[..., None]


def logarithmic(channels):
    """Logarithms of all variables, without shifts and scales."""
    ones, zeros = jnp.ones(channels), jnp.zeros(channels)
    return Powers(Normalization(zeros, ones, jnp.zeros(1), jnp.ones(1), (Log(),) * channels, (Log(),)))


def test_derivatives_are_in_the_units_of_the_data():
    """F = g^y with g = geometric mean of m values: dF = y F Σ du/(m u), dF/dy = F log g."""
    model, rng = logarithmic(1), np.random.default_rng(0)
    u, du = rng.uniform(1.0, 3.0, size=6), rng.normal(size=6)
    s = np.exp(np.log(u).mean()) ** Y
    np.testing.assert_allclose(model.jvp(u, du, Y)[:, 0], Y * s * np.mean(du / u), rtol=1e-5)
    np.testing.assert_allclose(model.vjp(u, s, Y)[:, 0], np.sum(Y * s**2) / (6 * u), rtol=1e-5)
    np.testing.assert_allclose(model.dy(u, Y)[:, 0, 0], s * np.log(u).mean(), rtol=1e-5)
    gradient = model.gradient(lambda s: jnp.sum(s(Y) ** 2))
    np.testing.assert_allclose(gradient(u)[:, 0], np.sum(2.0 * Y * s**2) / (6 * u), rtol=1e-5)
    many = jax.vmap(model.jvp, (0, 0, None))(np.stack([u, 2 * u]), np.stack([du, 2 * du]), Y)
    np.testing.assert_allclose(many[1, :, 0], 2.0**Y * Y * s * np.mean(du / u), rtol=1e-5)


def test_several_inputs_have_derivatives_of_the_same_form():
    """F = a^y b^(1 + y) ν^(2 + y) from two fields with geometric means a and b, and a number ν."""
    rng = np.random.default_rng(0)
    a, b, nu = rng.uniform(1.0, 2.0, size=4), rng.uniform(1.0, 2.0, size=3), 1.5
    u = MultiInput((jnp.asarray(a)[:, None], jnp.asarray(b)[:, None]), jnp.array([nu]))
    s = np.exp(np.log(a).mean() * Y + np.log(b).mean() * (1 + Y) + np.log(nu) * (2 + Y))
    model = logarithmic(3)
    back = model.vjp(u, np.ones(5), Y)
    np.testing.assert_allclose(back.fields[0][:, 0], np.sum(Y * s) / (4 * a), rtol=1e-5)
    np.testing.assert_allclose(back.fields[1][:, 0], np.sum((1 + Y) * s) / (3 * b), rtol=1e-5)
    np.testing.assert_allclose(back.scalars, [np.sum((2 + Y) * s) / nu], rtol=1e-5)
    np.testing.assert_allclose(model.jvp(u, back, Y).sum(), sum(jnp.sum(v**2) for v in values_of(back)), rtol=1e-5)
    with pytest.raises(ValueError, match=r"du has shape \(4, 1\), \(3, 1\), but u has \(4, 1\), \(3, 1\), \(1,\)"):
        model.jvp(u, MultiInput(u.fields), Y)


def test_measurements_change_their_values_and_ignore_the_padding(unchecked):
    values, mask = jnp.array([[1.0], [2.0], [jnp.nan]]), jnp.array([True, True, False])
    u = Measurements(values, jnp.zeros((3, 1)), mask)
    model = logarithmic(1)
    expected = Y * np.sqrt(2.0) ** Y
    np.testing.assert_allclose(model.jvp(u, [1.0, 2.0, 5.0], Y)[:, 0], expected, rtol=1e-5)
    np.testing.assert_allclose(model.vjp(u, np.ones(5), Y)[:, 0], expected.sum() / np.array([2, 4, np.inf]), rtol=1e-5)
    with pytest.raises(ValueError, match=r"changes of the measured values, got Measurements; pass du\.u"):
        model.jvp(u, u, Y)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["loca", *(pytest.param(name, marks=pytest.mark.full) for name in ("fno", "gaussian"))]
)
def test_derivatives_in_y_agree_with_differences(name):
    data = functions()
    model, h = MODELS[name](data), 1e-5
    with jax.enable_x64(True):
        model = doubled(model)
        differences = (model(data.u[0], Y + h) - model(data.u[0], Y - h)) / (2.0 * h)
        found = model.dy(data.u[0], Y)[..., 0]
        np.testing.assert_allclose(found, differences, rtol=1e-6, atol=1e-6 * np.abs(found).max())


def test_operators_without_a_derivative_in_y_say_so():
    data = functions()
    with pytest.warns(UserWarning, match="zero at all 5 queries; Regression is constant near them"):
        MODELS["ridge"](data).dy(data.u[0], Y)
    own = LOCA.create(data, key=KEY, rule=OwnQueries(data.domain), **SMALL)
    with pytest.raises(ValueError, match="depends on the other queries"):
        own.dy(data.u[0], Y)
    scattered = PerLocation(jnp.zeros(3), jnp.ones(3), jnp.array([[0.1], [0.4], [0.2]]), None, (None,), False)
    model = eqx.tree_at(lambda model: model.normalization.s_transforms, logarithmic(1), (scattered,))
    with pytest.raises(ValueError, match="jumps between locations"):
        model.dy(data.u[0], Y)


@pytest.mark.full
def test_rounded_products_do_not_change_derivatives():
    data = functions()
    model = MODELS["deeponet"](data)
    expected = model.jvp(data.u[0], data.u[1], Y)
    with jax.default_matmul_precision("bfloat16"):
        np.testing.assert_array_equal(model.jvp(data.u[0], data.u[1], Y), expected)
