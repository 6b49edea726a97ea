"""Algorithm 1 of the paper in NumPy with plain loops: one function, one query, one node at a time.

Nothing of the package is called. Only the numbers of a model are read: its weights, biases, kernel parameters. They
may be complex, so that derivatives can be had by a complex step, exact to the last digit and without autodiff.
"""

import math

import numpy as np

from loca import kernels
from loca.domains import Box, Sphere, Torus


def network(net, h):
    for i, (w, b) in enumerate(zip(net.weights, net.biases, strict=True)):
        h = sum(h[a] * w[a] for a in range(len(w))) + b
        if i < len(net.weights) - 1:
            h = 0.5 * h * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (h + 0.044715 * h**3)))
    return h


def encode(position, y):
    features = []
    match position.domain:
        case Box() as box:
            t = [(y[i] - box.low[i]) / (box.high[i] - box.low[i]) for i in range(len(box.low))]
            features += t
            base = math.pi
        case Torus() as torus:
            t = [(y[i] - torus.low[i]) / (torus.high[i] - torus.low[i]) for i in range(torus.dimension)]
            base = 2.0 * math.pi
        case Sphere():
            assert position.degree == 1
            latitude, longitude = math.radians(y[0]), math.radians(y[1])
            c, across = math.sqrt(3.0 / (4.0 * math.pi)), math.cos(latitude)
            return np.array(
                [c * across * math.sin(longitude), c * math.sin(latitude), c * across * math.cos(longitude)]
            )
    for coordinate in t:
        for j in range(position.num_frequencies // 2):
            features += [math.cos(2**j * base * coordinate), math.sin(2**j * base * coordinate)]
    return np.array(features)


def distance(a, b):
    r2 = sum((a - b) ** 2)
    return np.sqrt(r2) if r2.real > 0 else 0.0


def kernel(k, a, b):
    match k:
        case kernels.RBF():
            return np.exp(-np.exp(k.rate.log) * sum((a - b) ** 2))
        case kernels.Matern(order=0.5):
            return np.exp(-np.exp(k.rate.log) * distance(a, b))
        case kernels.Matern(order=1.5):
            t = math.sqrt(3.0) * np.exp(k.rate.log) * distance(a, b)
            return (1.0 + t) * np.exp(-t)
        case kernels.Matern(order=2.5):
            t = math.sqrt(5.0) * np.exp(k.rate.log) * distance(a, b)
            return (1.0 + t + t**2 / 3.0) * np.exp(-t)
        case kernels.Sum():
            return kernel(k.left, a, b) + kernel(k.right, a, b)
        case kernels.Product():
            return kernel(k.left, a, b) * kernel(k.right, a, b)
        case kernels.Scaled():
            return np.exp(k.amplitude.log) * kernel(k.kernel, a, b)
    raise AssertionError(k)


def predict(model, codes, y, nodes):
    """s*(y) for every function: `codes` (N, d), queries `y` (N, P, d_y), and `nodes` giving (z, w) of a function."""
    d_s = model.output_size
    predictions = []
    for i in range(len(codes)):
        z, w = nodes(i)
        q_z = [network(model.q, encode(model.e, z_j)) for z_j in z]
        g_z = [network(model.g, q) for q in q_z]
        v = network(model.f, codes[i])
        n = len(v) // d_s
        mass_z = [sum(w[m] * kernel(model.k, q, q_z[m]) for m in range(len(z))) for q in q_z]
        for y_p in y[i]:
            q_y = network(model.q, encode(model.e, y_p))
            k_y = [kernel(model.k, q_y, q) for q in q_z]
            mass_y = sum(w[m] * k_y[m] for m in range(len(z)))
            g_tilde = 0.0
            for j in range(len(z)):
                kappa = k_y[j] / (np.sqrt(mass_y) * np.sqrt(mass_z[j]))
                g_tilde = g_tilde + w[j] * kappa * g_z[j]
            for c in range(d_s):
                score = np.exp(g_tilde[c * n : (c + 1) * n])
                predictions.append(sum(score / sum(score) * v[c * n : (c + 1) * n]))
    return np.array(predictions).reshape(len(codes), -1, d_s)
