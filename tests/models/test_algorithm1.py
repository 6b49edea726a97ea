"""LOCA against the plain-loop transcription of Algorithm 1, in double precision: values and gradients."""

import itertools

import algorithm1
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loca.attention import Dense
from loca.data import Free, Indexed, Normalization, Shared
from loca.domains import Box, Sphere, Torus
from loca.encoders import Sensors
from loca.kernels import RBF, Matern
from loca.models import LOCA
from loca.nets import MLP
from loca.parameters import trainable
from loca.positions import Harmonic, Periodic, Spherical
from loca.rules import GaussLegendre, MonteCarlo, OwnQueries, QuasiMonteCarlo, SphereProduct, Trapezoid

pytestmark = pytest.mark.slow

BOX = Box((-1.0, 2.0), (0.5, 4.0))
N, M, P, SENSORS, FEATURES = 2, 4, 3, 2, 2

RULES = {
    "gauss-legendre": lambda: GaussLegendre(BOX, (2, 3)),
    "monte-carlo": lambda: MonteCarlo(BOX, 5, key=jax.random.key(7)),
    "own-queries": lambda: OwnQueries(BOX),
    "quasi-monte-carlo": lambda: QuasiMonteCarlo(BOX, 4, key=jax.random.key(8)),
    "trapezoid": lambda: Trapezoid(Torus((1.0,), (3.0,)), 5),
    "sphere-product": lambda: SphereProduct(Sphere(), 2, 3),
}
KERNELS = {
    "rbf": lambda: RBF(0.7),
    "matern-1/2": lambda: Matern(0.5, 0.6),
    "matern-3/2": lambda: Matern(1.5, 0.6),
    "matern-5/2": lambda: Matern(2.5, 0.6),
    "sum": lambda: RBF(0.5) + 0.3 * Matern(1.5),
    "product": lambda: RBF(0.2) * Matern(2.5, 0.3),
}
FORMS = ("shared", "indexed", "free")
CHANNELS = (1, 2)

# Rules, kernels and forms of queries enter through separate interfaces, so it suffices to try each of them with one
# partner; only whether nodes follow the queries meets forms in the same lines of code.
CASES = {
    *(
        (rule, kernel, CHANNELS[i % 2], FORMS[i % 3])
        for i, (rule, kernel) in enumerate(zip(itertools.cycle(RULES), KERNELS, strict=False))
    ),
    *itertools.product(("own-queries",), ("matern-3/2",), (2,), FORMS),
}


def position(domain):
    match domain:
        case Box():
            return Harmonic(domain, 2)
        case Torus():
            return Periodic(domain, 4)
        case _:
            return Spherical(domain, 1)


def example(rule, kernel, d_s):
    domain = rule.domain
    q_key, g_key, f_key, y_key, u_key, i_key, s_key = jax.random.split(jax.random.key(0), 7)
    e = position(domain)
    model = LOCA(
        normalization=Normalization.identity(1, d_s),
        encoder=Sensors(SENSORS),
        f=MLP((SENSORS, FEATURES * d_s), key=f_key),
        e=e,
        q=MLP((e.size, 3, 2), key=q_key),
        g=MLP((2, FEATURES * d_s), key=g_key),
        k=kernel,
        rule=rule,
        attention=Dense(),
        output_size=d_s,
    )
    y = domain.sample(y_key, M)
    index = jax.vmap(lambda key: jax.random.permutation(key, M)[:P])(jax.random.split(i_key, N))
    forms = {"shared": Shared(y), "indexed": Indexed(y, index), "free": Free(y[index])}
    codes = jax.random.normal(u_key, (N, SENSORS))
    return model, forms, codes, jax.random.normal(s_key, (N, M, d_s))


def complex_step(loss, leaves, step=1e-30):
    """The gradient of a loss in all its numbers: Im loss(θ + ih)/h, without cancellation and so without error."""
    gradient = []
    for leaf in leaves:
        slopes = np.zeros(leaf.shape)
        for place in np.ndindex(leaf.shape):
            moved = leaf.astype(complex)
            moved[place] += 1j * step
            slopes[place] = loss([moved if other is leaf else other for other in leaves]).imag / step
        gradient.append(slopes)
    return gradient


@pytest.mark.parametrize(("rule", "kernel", "d_s", "form"), sorted(CASES))
def test_equals_algorithm1(rule, kernel, d_s, form):
    with jax.enable_x64(True):
        model, forms, codes, s = example(RULES[rule](), KERNELS[kernel](), d_s)
        queries = forms[form]
        target = s[:, : queries.count]
        learned, given = eqx.partition(model, trainable(model))

        def ours(learned):
            prediction = eqx.combine(learned, given).respond(codes, queries)
            return jnp.sum((prediction - target) ** 2), prediction

        (_, prediction), gradient = jax.jit(jax.value_and_grad(ours, has_aux=True))(learned)

        leaves, tree = jax.tree.flatten(learned)
        leaves, y = [np.asarray(leaf) for leaf in leaves], np.asarray(queries.locations(N))
        nodes = [jax.tree.map(np.asarray, model.rule(y_i)) for y_i in jnp.asarray(y)]

        def transcribed(leaves):
            model = eqx.combine(jax.tree.unflatten(tree, leaves), given)
            return algorithm1.predict(model, np.asarray(codes), y, lambda i: nodes[i])

        assert np.max(np.abs(prediction - transcribed(leaves))) < 1e-10
        expected = complex_step(lambda leaves: np.sum((transcribed(leaves) - np.asarray(target)) ** 2), leaves)
        scale = max(np.max(np.abs(slopes)) for slopes in expected)
        for ours_, theirs in zip(jax.tree.leaves(gradient), expected, strict=True):
            assert np.max(np.abs(ours_ - theirs)) < 1e-10 * scale
