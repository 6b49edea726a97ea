"""A length per scalar and per input (automatic relevance), by gradients of the error of functions left out."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import minimize

from loca.gaussian.hyperparameters import Hyperparameters

START = -1.5, np.log(0.3), np.log(1e-3)
"""Logarithms of a relevance, of the weight of the linear kernel, and of the noise."""

BOUNDS = (-7.0, 3.0), (-9.0, 3.0), (-14.0, 2.0)
"""Where features in single precision are accurate enough."""

EVALUATIONS = 60
"""Of the error and its gradient, at most."""


class LeaveOneOut(NamedTuple):
    """The weighted mean of the errors ‖eₙ‖ of each function, predicted from all others, in closed form.

    k_U(z, z′) = 1 + β x·x′ + k(‖x − x′‖) with x = w ⊙ z and a relevance w for each group of the components of z.
    With H = (K + λ)⁻¹ the error is eₙ = (H s)ₙ/Hₙₙ at all locations: those of a function that are left out have no
    other labels.

    `products` and `distances` are z·z′ and ‖z − z′‖² of each group, and `known` is 1 where labels are, else 0.
    """

    products: Float[np.ndarray, "G N N"]
    distances: Float[np.ndarray, "G N N"]
    values: Float[np.ndarray, "S N M"]
    known: Float[np.ndarray, "*N M"]
    weights: Float[np.ndarray, "S N"]

    @classmethod
    def of(
        cls, codes: Float[np.ndarray, "N d"], groups: Int[np.ndarray, " d"], values: Float[np.ndarray, "S N M"],
        known: Float[np.ndarray, "*N M"], weights: Float[np.ndarray, "S N"],
    ) -> LeaveOneOut:  # fmt: skip
        """From codes, whose groups are given the mean square length 1."""
        every = np.stack([codes[:, groups == group] @ codes[:, groups == group].T for group in np.unique(groups)])
        lengths = np.einsum("gnn->g", every) / len(codes)
        products = every / np.where(lengths > 0.0, lengths, 1.0)[:, None, None]
        squares = np.einsum("gnn->gn", products)
        return cls(products, squares[:, :, None] + squares[:, None] - 2.0 * products, values, known, weights)

    def __call__(self, logarithms: Float[np.ndarray, " p"]) -> tuple[float, Float[np.ndarray, " p"]]:
        """The logarithm of the error, and its gradient with respect to those of w, β and λ."""
        squares, (linear, noise) = np.exp(2.0 * logarithms[:-2]), np.exp(logarithms[-2:])
        inner = np.tensordot(squares, self.products, 1)
        t = np.sqrt(5.0 * np.maximum(np.tensordot(squares, self.distances, 1), 0.0))
        kernel = 1.0 + linear * inner + (1.0 + t + t**2 / 3.0) * np.exp(-t)
        inverse = np.linalg.inv(kernel + noise * np.eye(len(kernel)))
        own = np.diag(inverse)[:, None]
        weighted = inverse @ self.values
        errors = self.known * weighted / own
        norms = np.linalg.norm(errors, axis=2)
        mean = np.mean(norms * self.weights)
        slopes = (self.weights / np.maximum(norms, np.finfo(float).tiny))[..., None] * errors / norms.size / own
        of_kernel = (inverse * np.sum(slopes * weighted / own, axis=(0, 2))) @ inverse
        of_kernel -= np.sum((inverse @ slopes) @ np.swapaxes(weighted, 1, 2), axis=0)
        of_distances = of_kernel * (5.0 / 6.0) * (1.0 + t) * np.exp(-t)
        of_squares = linear * np.tensordot(self.products, of_kernel, 2) - np.tensordot(self.distances, of_distances, 2)
        of_rest = linear * np.sum(of_kernel * inner), noise * np.trace(of_kernel)
        return float(np.log(mean)), np.array([*(2.0 * squares * of_squares), *of_rest]) / mean

    def minimized(self) -> Float[np.ndarray, " p"]:
        """The logarithms of w, β and λ with the least error that L-BFGS finds."""
        groups = len(self.products)
        start, bounds = ([each[0]] * groups + list(each[1:]) for each in (START, BOUNDS))
        options = {"maxfun": EVALUATIONS}
        return minimize(self, np.array(start), jac=True, method="L-BFGS-B", bounds=bounds, options=options).x


def with_relevances(hyper: Hyperparameters, logarithms: Float[np.ndarray, " p"], labels: int) -> list[Hyperparameters]:
    """The same with what was found; λ is relative to all labels, or as it was, or between."""
    relevances, (linear, noise) = np.exp(logarithms[:-2]), np.exp(logarithms[-2:])
    total = np.linalg.norm(relevances)  # codes keep the mean square length 1
    own = tuple((relevances / total).tolist())
    found = dataclasses.replace(hyper, length=float(1.0 / total), linear=float(linear * total**2), relevances=own)
    noises = hyper.noise, float(np.sqrt(hyper.noise * noise * labels)), float(noise * labels)
    return [dataclasses.replace(found, noise=each) for each in noises]
