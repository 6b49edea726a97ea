"""What is saved is loaded: the same tree, the same predictions to the last bit, and the same header."""

import dataclasses
import functools
import importlib
import inspect as python_inspect
import json
import pkgutil

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors
import safetensors.numpy

import loca
from loca.attention import Attention, Blocked, Dense, Nystrom, Sharded, Uncoupled
from loca.data import Normalization, Trajectories, Transform, Variable
from loca.domains import Box, Domain, Mesh, Sphere, Torus
from loca.encoders import Beside, Encoder, Projection, Scattering1D, Scattering2D, Sensors, StructureTensor
from loca.gaussian import Hyperparameters, solve
from loca.kernels import RBF, Kernel, Matern
from loca.local import Corrected, LocalStep
from loca.local.corrections import LocalRule, UncertainCorrected
from loca.local.patches import Axis, Patch
from loca.local.patches import Torus as Extended
from loca.models import FNO, LOCA, Combination, DeepONet, Grid, Operator, Proportional, Regression, Signature, Sum
from loca.models.combination import UncertainSum
from loca.models.stepper import Stepper, Unrolled
from loca.nets import MLP
from loca.parameters import Held, count
from loca.positions import Harmonic, Position
from loca.rules import (
    FixedRule,
    GaussLegendre,
    MonteCarlo,
    OwnQueries,
    QuasiMonteCarlo,
    Rule,
    SphereProduct,
    Trapezoid,
)
from loca.saving import Entry, Header, ModelFileError, describe, inspect, load, save
from loca.saving.structure import PARTS, builtin_class, classes_in, name_of
from loca.sensitivity import tangents
from loca.symmetries import Homogeneous, Symmetric, Symmetries
from loca.typing import MultiInput

SMALL = {
    "num_features": 3, "lift_size": 4, "lift_widths": (5,), "proposal_widths": (5,), "feature_widths": (5,),
}  # fmt: skip
BOX, TORUS, SPHERE = Box((-1.0, 0.0), (1.0, 0.1)), Torus((0.0, 0.0), (1.0, 2.0)), Sphere()
CORNER = Mesh([(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)], [(0, 1, 2), (1, 2, 3)])


def samples(domain: Domain, shape: tuple[int, ...] = (8, 8), channels: int = 1) -> loca.Samples:
    rng = np.random.default_rng(0)
    axes = np.meshgrid(*(np.linspace(0.0, 0.9, n) for n in shape), indexing="ij")
    x = np.stack(axes, axis=-1).reshape(-1, len(shape))
    y = domain.from_unit(jnp.asarray(rng.uniform(size=(9, domain.dimension)), jnp.float32))
    u, s = rng.normal(size=(3, len(x), channels)), rng.normal(2.0, 3.0, size=(3, 9, 2))
    u, s, x = (jnp.asarray(a, jnp.float32) for a in (u, s, x))
    return loca.Samples(u, y, s, x=x, domain=domain)


def loca_with(domain: Domain = BOX, shape: tuple[int, ...] = (8, 8), **parts) -> tuple[LOCA, loca.Samples]:
    data = samples(domain, shape)
    sizes = {"encoder": Sensors(len(data.u[0])), **SMALL}
    return LOCA.create(data, key=jax.random.key(1), **(sizes | parts)), data


def deeponet() -> tuple[DeepONet, loca.Samples]:
    data = samples(TORUS)
    return DeepONet.create(data, key=jax.random.key(1), num_features=3, branch_widths=(4,), trunk_widths=(4,)), data


def fno(domain: Domain = TORUS) -> tuple[FNO, loca.Samples]:
    data = samples(domain)
    return FNO.create(data, key=jax.random.key(1), modes=2, width=3, depth=2, padding=(1, 0)), data


def several() -> tuple[LOCA, loca.Samples]:
    """A model of two fields and a number, whose variables have all kinds of transforms."""
    one = samples(BOX)
    u = MultiInput((jnp.exp(one.u), one.u[:, :5]), jnp.arange(3.0)[:, None])
    data = loca.Samples(u, one.y, one.s, x=(one.x, one.x[:5]), domain=BOX)
    transforms = {"u1": "log+per-location", "u2": "asinh", "s1": "per-location"}
    return LOCA.create(data, key=jax.random.key(1), transforms=transforms, **SMALL), data


def uncertain(kind) -> tuple[Operator, loca.Samples]:
    """A network in an operator that knows its error."""
    data = samples(BOX)
    sizes = {"num_features": 3, "branch_widths": (4,), "trunk_widths": (4,)}
    return kind.create(DeepONet.create, data, key=jax.random.key(1), **sizes), data


def calibrated_draw() -> tuple[Operator, loca.Samples]:
    """A draw of a calibrated network."""
    model, data = deeponet()
    held = data.take(jnp.arange(12) % len(data))
    return loca.calibrate(model, held).draws(jax.random.key(2), 1)[0], data


def key():
    return jax.random.key(7)


def with_derivatives():
    model, data = deeponet()
    return tangents(model, data, data.u[:, None], data.s[:, None])


def symmetric(kind) -> tuple[Operator, loca.Samples]:
    """A homogeneous average over a group, with error bars or, without a group, without them."""
    data = samples(BOX)
    own = Symmetries.of(["odd", "scale 1"] if kind is Symmetric else ["scale 1"], data)
    return own.wrap(Regression.fit(own.augment(data), components=2)), data


GAUSSIAN = Hyperparameters(location_lengths=(0.5, 0.5))


def combination(kind=Combination):
    data = samples(BOX)
    members = {"ridge": Regression.fit(data, components=2), "mean": Regression.fit(data, components=0)}
    return kind.of(members, np.array([[0.25, 0.5], [0.75, 0.5]]), data), data


def corrected(kind) -> tuple[Operator, loca.Samples]:
    """With a structure tensor beside the inputs, or, with error bars, a draw."""
    if kind is Corrected:
        model, data = loca_with(encoder=structured())
    else:
        model, data = solve(samples(BOX), hyperparameters=GAUSSIAN, ranks=(4, 8), progress=False)[0], samples(BOX)
    places = Grid((jnp.linspace(0.0, 0.9, 8), jnp.linspace(0.0, 0.9, 8)), (None, None))
    rule = LocalRule.largest(places, 1, jnp.ones(2), 1300)
    rule = dataclasses.replace(rule, weights=jnp.full_like(rule.weights, 0.01))
    shape = jax.eval_shape(model.encode, data.u[0]).shape
    found = kind(model.normalization, model, places, rule, jnp.ones(2), shape, signature=model.signature)
    return (found if kind is Corrected else found.draws(key(), 1)[0]), data


def local_step() -> tuple[Operator, loca.Samples]:
    """A step of two fields, one of which changes its sign at an end, with functions of place."""
    data = samples(BOX, channels=2)
    torus = Extended((Axis(8, "face", (0,)), Axis(8, "point")))
    patches = (Patch((1.0, 1.0), 2, ()), Patch((0.0,), 2, ()))
    places = Grid((jnp.linspace(0.0, 0.9, 8), jnp.linspace(0.0, 0.9, 8)), (None, None))
    weights = jnp.full((patches[0].count(torus) + 12 * patches[1].count(torus), 2), 0.01)
    return LocalStep(
        Normalization.identity(2, 2), places, torus, patches, 0, weights, weights, jnp.ones(2),
        jnp.full((2, 16, 8), 9.0), signature=Signature.of(data),
    ), data  # fmt: skip


def structured() -> Beside:
    return Beside((Sensors(64), StructureTensor.fit(samples(BOX).u, (8, 8), (False, False))), (1.0, 0.5))


def stepped(ahead: int = 1) -> tuple[Operator, loca.Samples]:
    """A stepper, or one over several steps, with the pairs that it learns from."""
    s = np.random.default_rng(0).standard_normal((3, 5, 8, 1)).astype(np.float32)
    data = Trajectories(s, np.linspace(0.0, 0.9, 8)[:, None], domain=Torus([0.0], [1.0]))
    stepper = Stepper.of(Regression.fit(data.samples(), components=2), data)
    return (stepper if ahead == 1 else Unrolled.of(stepper, ahead)), data.steps(ahead=ahead).load()


MODELS = {
    "Sensors": lambda: loca_with(),
    "harmonics": lambda: loca_with(encoder=Sensors(64, num_frequencies=2)),
    "Projection": lambda: loca_with(encoder=Projection.create(Box.unit(2), 3)),
    "Scattering1D": lambda: loca_with(Box.unit(1), (64,), encoder=Scattering1D.create(64, scales=3)),
    "Scattering2D": lambda: loca_with(encoder=Scattering2D.create((8, 8), scales=2, angles=2)),
    "RBF": lambda: loca_with(kernel=RBF(Held(0.3))),
    "Matern": lambda: loca_with(kernel=Matern(0.5)),
    "combined": lambda: loca_with(kernel=(RBF() + 0.5 * Matern(1.5)) * Matern(0.5, Held(0.1))),
    "FixedRule": lambda: loca_with(rule=FixedRule(BOX, jnp.full((1, 2), 0.5), jnp.ones(1))),
    "GaussLegendre": lambda: loca_with(rule=GaussLegendre(BOX, (3, 4))),
    "MonteCarlo": lambda: loca_with(rule=MonteCarlo(BOX, 11, key=key())),
    "QuasiMonteCarlo": lambda: loca_with(rule=QuasiMonteCarlo(BOX, 16, key=key())),
    "OwnQueries": lambda: loca_with(rule=OwnQueries(BOX)),
    "Trapezoid": lambda: loca_with(TORUS, rule=Trapezoid(TORUS, 4)),
    "SphereProduct": lambda: loca_with(SPHERE, rule=SphereProduct(SPHERE, 4)),
    "Dense": lambda: loca_with(attention=Dense()),
    "Blocked": lambda: loca_with(attention=Blocked(7)),
    "Nystrom": lambda: loca_with(attention=Nystrom(7)),
    "Sharded": lambda: loca_with(attention=Sharded()),
    "Uncoupled": lambda: loca_with(attention=Uncoupled()),
    "Harmonic": lambda: loca_with(position=Harmonic(BOX, 4, start=1, include_raw=False)),
    "Mesh": lambda: loca_with(CORNER),
    "several": several,
    "DeepONet": deeponet,
    "FNO": fno,
    "FNO-box": lambda: fno(BOX),
    "Regression": lambda: (Regression.fit(samples(BOX), components=2), samples(BOX)),
    "Proportional": lambda: (Proportional.fit(samples(BOX, channels=2)), samples(BOX, channels=2)),
    "Ensemble": lambda: uncertain(loca.Ensemble),
    "Probabilistic": lambda: uncertain(loca.Probabilistic),
    "Calibrated": calibrated_draw,
    "Combination": combination,
    "Sum": lambda: combination(Sum),
    "UncertainSum": lambda: combination(UncertainSum),
    "Corrected": lambda: corrected(Corrected),
    "CorrectedDraw": lambda: corrected(UncertainCorrected),
    "LocalStep": local_step,
    "Tangent": with_derivatives,
    "Symmetric": lambda: symmetric(Symmetric),
    "Homogeneous": lambda: symmetric(Homogeneous),
    "Stepper": stepped,
    "Unrolled": lambda: stepped(2),
    "Gaussian": lambda: (solve(samples(BOX), hyperparameters=GAUSSIAN, ranks=(4, 8))[0], samples(BOX)),
}


@functools.cache
def built(name: str) -> tuple[Operator, loca.Samples]:
    """One of the models above, created once."""
    return MODELS[name]()


def bits(tree) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


def same(one, other) -> bool:
    """Whether two trees are equal in structure, static fields, types and every bit; NumPy compiles nothing."""
    one, other = (jax.tree.map(np.asarray, tree) for tree in (one, other))
    return bool(eqx.tree_equal(one, other, typematch=True)) and bits(one) == bits(other)


def names_in(description) -> set[str]:
    if isinstance(description, list):
        return set().union(*map(names_in, description))
    if isinstance(description, dict):
        own = {description["class"]} if "class" in description else set()
        return own.union(*(names_in(item) for item in description.values()))
    return set()


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_same_model_comes_back(name, tmp_path):
    model, data = built(name)
    path = tmp_path / "model.safetensors"
    save(model, path, data=data)
    loaded = load(path)
    assert same(model, loaded)
    save(loaded, tmp_path / "again.safetensors", data=inspect(path))
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


def test_every_class_that_a_model_can_be_made_of_has_a_name():
    """The models above hold every concrete class below the nouns of the package."""

    def all_below(cls: type) -> set[type]:
        return {cls}.union(*map(all_below, cls.__subclasses__()))

    for part in PARTS:
        package = importlib.import_module(f"loca.{part}")
        for module in pkgutil.walk_packages(getattr(package, "__path__", ()), f"loca.{part}."):
            importlib.import_module(module.name)
    kinds = (Operator, Encoder, Kernel, Rule, Position, Domain, Attention, MLP, Normalization, Transform)
    concrete = {
        cls
        for kind in kinds
        for cls in all_below(kind)
        if cls.__module__.startswith("loca.") and not python_inspect.isabstract(cls) and not cls.__abstractvars__
    }
    assert len(concrete) > 30
    names = {name_of(cls) for cls in concrete}
    assert len(names) == len(concrete)
    assert all(builtin_class(name) for name in names)
    in_models = set().union(*(names_in(describe(built(name)[0], "", {})) for name in MODELS))
    assert in_models >= names


def test_names_in_files_import_nothing(monkeypatch):
    def refuse(name, *others):
        raise AssertionError(name)

    for part in PARTS:
        classes_in(part)
    monkeypatch.setattr(importlib, "import_module", refuse)
    for name in ("os.system", "saving.file.load", "kernels.rbf.RBF", "kernels.os", "kernels", "", "..", "RBF"):
        assert builtin_class(name) is None


def test_what_a_file_says_of_itself(small, data, contents, tmp_path):
    (tmp_path / "a").write_bytes(contents)
    header = inspect(tmp_path / "a")
    assert isinstance(header, Header)
    assert (header.format, header.model, header.size) == (1, "LOCA", len(contents))
    assert header.parameters == count(small)
    assert header.arrays["q.weights.0"] == Entry("float32", (11, 3))
    assert header.domain == data.domain
    assert header.inputs == (Variable("force", "N"),)
    assert header.outputs == (Variable("strain", ""),)
    assert header.metrics == {"relative_l2": 0.25}
    assert header.provenance == {"seed": 3, "where": ["Θήβα", None, True]}
    assert header.versions["loca-jax"] == loca.__version__
    assert contents.count(header.digest.encode()) == 1


def test_without_data_names_are_those_of_the_model_or_made_up(small, tmp_path):
    signature = dataclasses.replace(small.signature, input_names=("depth",), input_units=("m",))
    save(dataclasses.replace(small, signature=signature), tmp_path / "a")
    header = inspect(tmp_path / "a")
    assert header.inputs == (Variable("depth", "m"),)
    assert header.domain == small.domain
    save(dataclasses.replace(small, signature=None), tmp_path / "a")
    header = inspect(tmp_path / "a")
    assert header.inputs == (Variable("u1"),)
    assert header.outputs == (Variable("s1"),)
    assert header.domain is None
    with pytest.raises(ModelFileError, match="1 input and 2 output channels but the model has 1 and 1"):
        save(small, tmp_path / "a", data=samples(BOX))


def test_any_reader_of_safetensors_reads_it(small, contents, tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(contents)
    arrays = safetensors.numpy.load_file(path)
    assert arrays["q.weights.0"].tobytes() == np.asarray(small.q.weights[0]).tobytes()
    assert sorted(arrays) == sorted(inspect(path).arrays)
    with safetensors.safe_open(path, framework="np") as file:
        assert json.loads(file.metadata()["loca"])["format"] == 1


def test_double_precision_is_never_cut(small, tmp_path):
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda a: a.astype(jnp.float64), small)
        save(wide, tmp_path / "a")
        assert bits(load(tmp_path / "a")) == bits(wide)
    with pytest.raises(ModelFileError, match="enable_x64"):
        load(tmp_path / "a")


class MyKernel(Kernel):
    powers: dict[str, list[float]]
    shape: callable = eqx.field(static=True)

    def matrix(self, z, z_):
        return self.shape(z @ z_.T) + self.powers["a"][0]


def my_shape(x):
    return x**2


def test_own_classes_are_loaded_when_they_are_passed(small, data, tmp_path):
    model = eqx.tree_at(lambda m: m.k, small, MyKernel({"a": [2.0, 3]}, my_shape))
    save(model, tmp_path / "a")
    with pytest.raises(ModelFileError, match=r"MyKernel.*load\(path, classes=\[MyKernel\]\)"):
        load(tmp_path / "a")
    with pytest.raises(ModelFileError, match="my_shape"):
        load(tmp_path / "a", classes=[MyKernel])
    assert inspect(tmp_path / "a").model == "LOCA"
    loaded = load(tmp_path / "a", classes=[MyKernel, my_shape])
    assert same(model, loaded)
    predict = eqx.filter_jit(lambda model: model.predict(data.u, data.y))
    assert bits(predict(loaded)) == bits(predict(model))


def test_an_own_class_never_passes_for_ours(small, tmp_path):
    class RBF(Kernel):
        def matrix(self, z, z_):
            return z @ z_.T

    save(eqx.tree_at(lambda m: m.k, small, RBF()), tmp_path / "a")
    with pytest.raises(ModelFileError, match=r"classes=\[RBF\]"):
        load(tmp_path / "a")
    assert type(load(tmp_path / "a", classes=[RBF]).k) is RBF


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda x: x, "stores functions by name"),
        (float("nan"), "finite numbers"),
        (2**64, "cannot hold"),
        (jnp.ones(2, jnp.complex64), "real and imaginary"),
        (jax.random.key(0), "random keys out"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_place(value, message, small, tmp_path):
    model = eqx.tree_at(lambda m: m.k, small, MyKernel({"a": value}, my_shape))
    with pytest.raises(ModelFileError, match=rf"`k\.powers\.a`.*{message}"):
        save(model, tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"metrics": {"error": float("nan")}}, "finite numbers only; leave out the metrics error"),
        ({"provenance": {"a": [1, object()]}}, "written as JSON: .*object"),
        ({"provenance": {"a": "b" * 2**21}}, "shorten the provenance"),
    ],
)
def test_what_cannot_be_said_is_refused(given, message, small, tmp_path):
    with pytest.raises(ModelFileError, match=message):
        save(small, tmp_path / "a", **given)
    assert list(tmp_path.iterdir()) == []
