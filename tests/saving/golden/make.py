"""Makes the golden file of a release, once: `python tests/saving/golden/make.py` writes it beside this script.

The file stays in the repository and must load in every later version. Beside the model are inputs, queries and what
the model answers, in single precision as computed when the file was made, and in double precision.
"""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import loca
import loca.saving
from loca.data import Shared, Variable
from loca.encoders import Scattering2D
from loca.kernels import RBF, Matern
from loca.parameters import Held

HERE = Path(__file__).parent


def make() -> None:
    rng = np.random.default_rng(0)
    line = np.linspace(0.0, 1.0, 8)
    x = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    u, s = rng.normal(size=(6, 64, 1)), rng.normal(0.0, 15.0, size=(6, 64, 2))
    data = loca.Samples(
        jnp.asarray(u, jnp.float32),
        jnp.asarray(x, jnp.float32),
        jnp.asarray(s, jnp.float32),
        x=jnp.asarray(x, jnp.float32),
        inputs=[Variable("conductivity", "W/(m K)")],
        outputs=[Variable("temperature", "°C"), Variable("flux", "W/m²")],
    )
    model = loca.LOCA.create(
        data,
        key=jax.random.key(0),
        encoder=Scattering2D.create((8, 8), scales=1, angles=2),
        kernel=RBF(0.5) + 0.3 * Matern(1.5, rate=Held(0.7)),
        num_features=8,
        lift_size=8,
        lift_widths=(16,),
        proposal_widths=(16,),
        feature_widths=(16,),
    )
    file = HERE / f"loca-{loca.__version__}.safetensors"
    loca.saving.save(model, file, data=data, metrics={"relative_l2": 0.25}, provenance={"made_by": "golden/make.py"})

    u, y = jnp.asarray(u[:3], jnp.float32), jnp.asarray(rng.uniform(size=(20, 2)), jnp.float32)
    single = np.asarray(model.predict(u, Shared(y)))
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda a: a.astype(jnp.float64) if eqx.is_inexact_array(a) else a, model)
        double = np.asarray(wide.predict(u.astype(jnp.float64), Shared(y.astype(jnp.float64))))
    np.savez(file.with_suffix(".npz"), u=np.asarray(u), y=np.asarray(y), single=single, double=double)
    error = np.abs(single - double).max() / np.std(double) / np.finfo(np.float32).eps
    size = file.stat().st_size
    print(f"{file.name}: {size} bytes; single precision is off by {error:.1f} round-offs of the spread")  # noqa: T201


if __name__ == "__main__":
    make()
