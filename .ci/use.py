"""A first use of the installed package: learn to differentiate sums of two sines, and ask between the labels."""

import jax
import jax.numpy as jnp

import loca

x = jnp.linspace(0.0, 1.0, 32)[:, None]
k = jnp.pi * jnp.arange(1, 3)
a = jax.random.normal(jax.random.key(0), (200, 2))
u = (a @ jnp.sin(k[:, None] * x.T))[:, :, None]
s = (a @ (k[:, None] * jnp.cos(k[:, None] * x.T)))[:, :, None]

train = loca.Samples(u, x, s, x=x)
model = loca.LOCA.create(train, encoder=loca.encoders.Sensors(32, 1), key=jax.random.key(1))
model, _ = loca.fit(model, train, steps=300, batch_size=50)

y = x[:-1] + 0.5 / 31
prediction = model.predict(u, loca.data.Shared(y))
truth = (a @ (k[:, None] * jnp.cos(k[:, None] * y.T)))[:, :, None]
error = float(loca.metrics.relative_l2(prediction, truth).mean())
print(f"loca {loca.__version__} at {loca.__file__}: relative error {error:.3f} between the labels")
assert error < 0.2
