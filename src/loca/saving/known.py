"""What a file may name: the package's own classes and the usual activations, each under a name that never changes.

A name stays in the table for as long as files with it may exist, whatever becomes of the class in the source. What a
user adds has a bare name, such as `MyKernel`; ours have a dot, so that neither can pass for the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from loca import attention, domains, encoders, kernels, models, nets, parameters, positions, rules
from loca.attention.random_features import FixedNoise
from loca.data import Normalization
from loca.encoders.scattering1d import Band
from loca.encoders.scattering2d import Axis
from loca.saving.errors import ModelFileError

CLASSES: dict[str, type[eqx.Module]] = {
    "attention.Blocked": attention.Blocked,
    "attention.Dense": attention.Dense,
    "attention.Nystrom": attention.Nystrom,
    "attention.RandomFeatures": attention.RandomFeatures,
    "attention.RandomFeatures.FixedNoise": FixedNoise,
    "attention.Sharded": attention.Sharded,
    "attention.Uncoupled": attention.Uncoupled,
    "data.Normalization": Normalization,
    "domains.Box": domains.Box,
    "domains.Sphere": domains.Sphere,
    "domains.Torus": domains.Torus,
    "encoders.Fourier": encoders.Fourier,
    "encoders.HarmonicSensors": encoders.HarmonicSensors,
    "encoders.Projection": encoders.Projection,
    "encoders.Scattering1D": encoders.Scattering1D,
    "encoders.Scattering1D.Band": Band,
    "encoders.Scattering2D": encoders.Scattering2D,
    "encoders.Scattering2D.Axis": Axis,
    "encoders.Sensors": encoders.Sensors,
    "encoders.Wavelet": encoders.Wavelet,
    "kernels.Laplacian": kernels.Laplacian,
    "kernels.Matern": kernels.Matern,
    "kernels.Product": kernels.Product,
    "kernels.RBF": kernels.RBF,
    "kernels.RationalQuadratic": kernels.RationalQuadratic,
    "kernels.Scaled": kernels.Scaled,
    "kernels.Sum": kernels.Sum,
    "models.DeepONet": models.DeepONet,
    "models.FNO": models.FNO,
    "models.FNO.Grid": models.Grid,
    "models.FNO.SpectralLayer": models.SpectralLayer,
    "models.LOCA": models.LOCA,
    "models.Proportional": models.Proportional,
    "models.Regression": models.Regression,
    "models.Signature": models.Signature,
    "nets.MLP": nets.MLP,
    "parameters.Held": parameters.Held,
    "parameters.Positive": parameters.Positive,
    "positions.Harmonic": positions.Harmonic,
    "positions.Periodic": positions.Periodic,
    "positions.Spherical": positions.Spherical,
    "rules.GaussLegendre": rules.GaussLegendre,
    "rules.MonteCarlo": rules.MonteCarlo,
    "rules.OwnQueries": rules.OwnQueries,
    "rules.QuasiMonteCarlo": rules.QuasiMonteCarlo,
    "rules.SphereProduct": rules.SphereProduct,
    "rules.Trapezoid": rules.Trapezoid,
}
"""The parts of our models."""

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "jax.nn.celu": jax.nn.celu,
    "jax.nn.elu": jax.nn.elu,
    "jax.nn.gelu": jax.nn.gelu,
    "jax.nn.identity": jax.nn.identity,
    "jax.nn.leaky_relu": jax.nn.leaky_relu,
    "jax.nn.mish": jax.nn.mish,
    "jax.nn.relu": jax.nn.relu,
    "jax.nn.selu": jax.nn.selu,
    "jax.nn.sigmoid": jax.nn.sigmoid,
    "jax.nn.silu": jax.nn.silu,
    "jax.nn.soft_sign": jax.nn.soft_sign,
    "jax.nn.softplus": jax.nn.softplus,
    "jax.numpy.cos": jnp.cos,
    "jax.numpy.sin": jnp.sin,
    "jax.numpy.tanh": jnp.tanh,
}
"""Activations."""

CLASS_NAMES = {cls: name for name, cls in CLASSES.items()}
FUNCTION_NAMES = {function: name for name, function in FUNCTIONS.items()}

Extra = Iterable[type[eqx.Module] | Callable[..., Any]]
"""A user's own classes and functions."""


def own_names(extra: Extra) -> tuple[dict[str, type[eqx.Module]], dict[str, Callable[..., Any]]]:
    """A user's own classes, and functions, by the bare names that `save` gives them."""
    classes, functions = {}, {}
    for thing in extra:
        named = classes if isinstance(thing, type) else functions
        name = getattr(thing, "__name__", None)
        if name is None or (isinstance(thing, type) and not issubclass(thing, eqx.Module)):
            raise TypeError(f"`extra` takes Equinox modules and named functions, got {thing}")
        if name in named:
            raise ModelFileError(f"`extra` has two things called {name}; rename one of them")
        named[name] = thing
    return classes, functions
