"""scikit-learn's Gaussian process for `loca compare --other`: python gaussian_process.py DATA.npz PREDICTIONS.npz

Many inputs and outputs are replaced by their principal components. The kernel has a length per input. Validation
functions choose whether inputs that are positive are replaced by their logarithm.
"""

import sys
import time
import warnings

import numpy as np
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

COMPONENTS, MOST = 20, 1000


def main():
    """Fit, and predict."""
    data = dict(np.load(sys.argv[1]))
    parts = ("train", "validation", "test")
    u = {part: data[f"{part}_u"].reshape(len(data[f"{part}_u"]), -1).astype(float) for part in parts}
    s = data["train_s"].reshape(len(u["train"]), -1).astype(float)
    if np.isnan(s).any():
        sys.exit("scikit-learn's Gaussian process needs all labels")
    rows = np.random.default_rng(int(data["seed"])).permutation(len(s))[:MOST]
    most = min(COMPONENTS, len(rows) - 1)
    count = min(most, u["train"].shape[1])
    first = (
        [StandardScaler()] if u["train"].shape[1] <= COMPONENTS else [StandardScaler(), PCA(count), StandardScaler()]
    )
    outputs = PCA(min(most, s.shape[1]))  # small components stay small, and matter little to the kernel
    kernel = ConstantKernel() * Matern(2.0 * np.ones(count), (1e-2, 1e3), nu=2.5) + WhiteKernel(1e-4, (1e-10, 1e1))
    process = GaussianProcessRegressor(kernel, random_state=int(data["seed"]))
    scale = s.std()
    model = TransformedTargetRegressor(
        make_pipeline(*first, process),
        transformer=make_pipeline(FunctionTransformer(lambda s: s / scale, lambda s: s * scale), outputs),
        check_inverse=False,
    )
    truth, best, error = data["validation_s"].reshape(len(u["validation"]), -1), model, np.inf
    is_positive = min(u[part].min() for part in parts) > 0.0
    for transform in (np.asarray, np.log)[: 1 + is_positive]:
        each = make_pipeline(FunctionTransformer(transform), clone(model))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            each.fit(u["train"][rows], s[rows])
        difference = np.linalg.norm(each.predict(u["validation"]) - truth, axis=1) / np.linalg.norm(truth, axis=1)
        if difference.mean() < error:
            best, error = each, difference.mean()
    model = best
    begun = time.perf_counter()
    model.predict(u["test"][:1])
    milliseconds = 1e3 * (time.perf_counter() - begun)
    shape = data["train_s"].shape[1:]
    predictions = {f"{part}_s": model.predict(u[part]).reshape(-1, *shape) for part in parts[1:]}
    np.savez(sys.argv[2], **predictions, parameters=len(rows) * outputs.n_components, milliseconds=milliseconds)


main()
