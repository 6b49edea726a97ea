"""One test function and what every model makes of it: the paper's comparisons of fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.claims.results import rounded
from loca.data import Samples, Variable
from loca.data.store import samples_from_arrays, samples_to_arrays
from loca.domains import domain_from_json
from loca.evaluation import BLOCK
from loca.figures import draw_predictions
from loca.models import Operator, Predictor

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True, eq=False)
class Example:
    """A function, alone among its samples, and the answers of models by their names."""

    samples: Samples
    answers: Mapping[str, Float[Array, "1 P d_s"]]

    @classmethod
    def of(cls, models: Mapping[str, Operator], test: Samples, number: int) -> Example:
        """The function of that number; of one that depends on time as its input does not, the last moment."""
        # in company, as when errors were taken: a program for one function alone would have to be compiled first
        company = test.take((number + jnp.arange(min(BLOCK, len(test)))) % len(test))
        predictions = {
            name: jnp.asarray(Predictor(model, company.y)(company.u, company.y)[:1]) for name, model in models.items()
        }
        samples = company.take(jnp.array([0]))
        y = samples.y.points
        if samples.x is not None and y.shape[1] > samples.x.shape[1]:
            late = jnp.flatnonzero(y[:, 0] == y[:, 0].max())
            samples = Samples(
                samples.u, y[late], samples.s[:, late],
                x=samples.x, domain=samples.domain, inputs=samples.inputs, outputs=samples.outputs,
            )  # fmt: skip
            predictions = {name: values[:, late] for name, values in predictions.items()}
        return cls(samples, predictions)

    def to_json(self) -> dict[str, Any]:
        """As JSON can hold it, with the digits that are kept."""
        once, each = ({k: rounded(v).tolist() for k, v in part.items()} for part in samples_to_arrays(self.samples))
        return {
            "domain": self.samples.domain.to_json(),
            "inputs": [variable._asdict() for variable in self.samples.inputs],
            "outputs": [variable._asdict() for variable in self.samples.outputs],
            "once": once,
            "each": each,
            "answers": {name: rounded(answer).tolist() for name, answer in self.answers.items()},
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Example:
        """What `to_json` gave."""

        def arrays(part: Mapping[str, Any]) -> dict[str, Any]:
            return {name: np.array(values, np.float32) for name, values in part.items()}

        inputs, outputs = (tuple(Variable(**v) for v in content[which]) for which in ("inputs", "outputs"))
        samples = samples_from_arrays(
            {name: jnp.asarray(values) for name, values in arrays(content["once"]).items()},
            arrays(content["each"]), domain=domain_from_json(content["domain"]), inputs=inputs, outputs=outputs,
        )  # fmt: skip
        return cls(samples, {name: jnp.asarray(values) for name, values in arrays(content["answers"]).items()})

    def figure(self) -> Figure:
        """Input, truth, prediction and error, a row for each model."""
        rows = self.samples.take(jnp.zeros(len(self.answers), int))
        return draw_predictions(rows, jnp.concatenate(list(self.answers.values())), list(self.answers))
