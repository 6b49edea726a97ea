"""Random mistakes on the command line: every one ends with a message and an exit code, never with a traceback."""

import json
import logging
import os
import random
import shutil

import jax
import numpy as np
import pytest
import xarray
from typer.testing import CliRunner

from commands import command
from loca.cli.app import app
from loca.problems import Antiderivative, generate

PROBLEM = Antiderivative(length=0.3, sensors=20, queries=10)
SMALL = "num_features = 4\nlift_size = 4\nlift_widths = [8]\nproposal_widths = [8]\nfeature_widths = [8]\n"

WORDS = ["", "nothing", "a,b", ",", "-", "forcing,forcing", "ü", "1", "x" * 300]
NUMBERS = ["-1", "0", "x", "1.5", "", "nan", "inf", "1e3", "-99999999999999999999", "[1]"]
VALUES = {
    "--count": NUMBERS,
    "--rows": [*NUMBERS, "3000"],
    "--steps": [*NUMBERS, "99999999999999999999"],
    "--batch-size": [*NUMBERS, "99999999999999999999"],
    "--labels": [*NUMBERS, "5000"],
    "--seed": [*NUMBERS, "99999999999999999999"],
    "--rate": [*NUMBERS, "1e400"],
    "--workers": NUMBERS,
    "--set": ["", "sensors", "sensors=x", "=3", "nothing=1", "sensors=-1", "length=0", "sensors=[1, 2]", "length=nan",
              "queries=0", "length='", "sensors=1.5", "sensors=true"],
    "--grid": ["", "5x", "x", "0", "-3", "1.5", "5x6x7", "1", "5,6", "0x0"],
    "--class": ["", "nothing", "nothing:at_all", ":", "os:getcwd", "json:JSONDecoder", "1:2", "os.path:sep", "os:"],
    "--split": ["", "train", "nothing"],
    "--transform": ["", "log", "auto", "u=", "=log", "u=log", "u=sqrt", "a=b=c", "nothing=log"],
}  # fmt: skip
"""Values that options of a kind do not expect; any other option takes `WORDS`."""

EXTRA = ["--inputs", "--outputs", "--sample", "--format", "--class", "--split", "--grid", "--at"]
MORE = ["--nothing", "--out", "-x", "--json", "--pdf", "--stream", "extra", "--count", "--regrid"]
"""Options that are added with a value, and words that are added without one."""

OUTPUTS = ["", ".", "below/file.txt/made", "/proc/made", "made", "made.csv", "made.txt", "folder", "full", "\0", "~"]
"""Names that no file can have, or that promise no format; endings are appended to some."""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Data, a trained run, and files with which something is wrong."""
    place = tmp_path_factory.mktemp("fuzz")
    generate(PROBLEM, 12, place / "good.zarr")
    generate(Antiderivative(length=0.3, sensors=30, queries=10), 4, place / "other.zarr")
    samples = PROBLEM.sample(jax.random.key(0), 4)
    u, s = np.asarray(samples.u[..., 0]), np.asarray(samples.s[..., 0])
    fields = {"u": (("n", "x"), u), "s": (("n", "y"), s), "name": ("n", np.array(["a", "b", "c", "d"]))}
    coordinates = {"x": np.linspace(0.0, 1.0, 20), "y": np.linspace(0.0, 1.0, 10)}
    xarray.Dataset(fields, coordinates).to_netcdf(place / "good.nc", engine="h5netcdf")
    np.savez(place / "nan.npz", u=np.where(u > 1.0, np.nan, u)[..., None], s=s[..., None], x=np.ones((20, 1)), y=s)
    np.savez(place / "objects.npz", u=np.array([{}, 1, "a", None]), s=s)
    (place / "run.toml").write_text(
        f'[data]\npath = "{place}/good.zarr"\n[model]\n{SMALL}[training]\nsteps = 2\nbatch_size = 4\n'
    )
    command("train", place / "run.toml", "--out", place / "run")
    for name in ("good.nc", "run/model.safetensors", "run.toml"):
        whole = (place / name).read_bytes()
        (place / f"cut-{name.replace('/', '-')}").write_bytes(whole[: len(whole) // 2])
    for suffix in ("nc", "npz", "mat", "zarr", "safetensors", "toml", "json", "h5"):
        (place / f"empty.{suffix}").touch()
        (place / f"noise.{suffix}").write_bytes(random.Random(0).randbytes(2000))
    (place / "table.csv").write_text("x,y\n1,2\n")
    (place / "folder").mkdir()
    (place / "gone.nc").symlink_to(place / "nowhere.nc")
    shutil.copytree(place / "good.zarr", place / "damaged.zarr")
    shutil.rmtree(place / "damaged.zarr/s")
    shutil.copytree(place / "good.zarr", place / "newer.zarr")
    described = json.loads((place / "newer.zarr/zarr.json").read_text())
    described["attributes"]["loca"]["format"] = 999
    (place / "newer.zarr/zarr.json").write_text(json.dumps(described))
    for name, text in {"broken": "{", "other": '{"data": 3}', "list": "[]"}.items():
        (place / f"run-{name}").mkdir()
        (place / f"run-{name}/run.json").write_text(text)
    return place


def bases(place):
    """Commands by name: their arguments and options. Those that would take long are wrong already."""
    data, model = str(place / "good.zarr"), str(place / "run")
    nc = {"--inputs": "u", "--outputs": "s", "--sample": "n"}
    return {
        ("generate",): (["antiderivative"], {"--count": "2", "--out": "made.zarr", "--set": "sensors=20"}),
        ("convert",): ([str(place / "good.nc"), "made.zarr"], nc),
        ("show",): ([data], {"--out": "made.png", "--rows": "1"}),
        ("check",): ([data], {"--count": "4", "--test": data}),
        ("train",): ([], {"--data": data, "--out": "made", "--steps": "2", "--batch-size": "4", "--labels": "3",
                          "--model": "cnn"}),
        ("train", "toml"): ([str(place / "run.toml")], {"--out": "made", "--rate": "1e-3",
                            "--transform": "antiderivative=asinh"}),
        ("train", "resume"): ([], {"--resume": str(place / "folder")}),
        ("evaluate",): ([model, data], {"--out": "made.json"}),
        ("predict",): ([model, data], {"--out": "made.nc"}),
        ("predict", "grid"): ([model, data], {"--out": "made.zarr", "--grid": "7"}),
        ("inspect",): ([model], {}),
        ("figures",): ([model, str(place / "other.zarr")], {"--out": "made", "--count": "2"}),
    }  # fmt: skip


def mistaken(rng, place):
    """A command line with one to three mistakes; some keep the command in order."""
    name, (arguments, options) = rng.choice(list(bases(place).items()))
    arguments, options, more = list(arguments), dict(options), []
    files = [str(path) for path in sorted(place.iterdir())]
    files += ["", ".", "/dev/null", "/proc/self/mem", "\0", str(place / "*.zzz"), str(place / "table.csv/below.nc")]
    for _ in range(rng.choice([1, 1, 2, 3])):
        kind = rng.randrange(10)
        if kind < 3 and options:
            option = rng.choice(list(options))
            options[option] = value_for(option, rng, files)
        elif kind < 5 and arguments:
            arguments[rng.randrange(len(arguments))] = rng.choice([*files, *OUTPUTS])
        elif kind == 5:
            extra = rng.choice(EXTRA)
            options[extra] = value_for(extra, rng, files)
        elif kind == 6:
            more.append(rng.choice(MORE))
        elif kind == 7 and options:
            options.pop(rng.choice(list(options)))
        elif kind == 8 and arguments:
            arguments.pop(rng.randrange(len(arguments)))
        else:
            rng.shuffle(arguments)
    if name == ("train",):  # otherwise a model of full size would be trained
        options.setdefault("--model", "cnn")
    words = [word for pair in options.items() for word in pair]
    return [name[0], *arguments, *words, *more]


def value_for(option, rng, files):
    """A value that an option does not expect, or one that it might."""
    if option in ("--data", "--test", "--resume", "--validation", "--at"):
        return rng.choice(files)
    if option == "--out":
        suffix = rng.choice(["", ".zarr", ".nc", ".json", ".png", ".csv", ".parquet"])
        return rng.choice(OUTPUTS) + suffix
    return rng.choice(VALUES.get(option, WORDS))


HEADS = {".nc": b"\x89HDF", ".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml", ".json": b"{", ".parquet": b"PAR1"}
"""The first bytes of files, by the ending of their names."""


def is_wrong(path):
    """Whether a file has another format than its name says; hidden, partial and Orbax's files have none."""
    if any(part.startswith(".") or part.endswith((".partial", "checkpoints")) for part in path.parts):
        return False
    if path.suffix == ".txt":
        return True  # nothing writes these
    if path.suffix == ".csv":
        return b"," not in path.read_bytes().partition(b"\n")[0]  # no names of columns
    if path.suffix == ".zarr":
        return not (path / "zarr.json").is_file()
    return path.is_file() and path.suffix in HEADS and not path.read_bytes().startswith(HEADS[path.suffix])


@pytest.mark.parametrize(
    ("seed", "count"), [pytest.param(0, 40, marks=pytest.mark.slow), pytest.param(1, 1000, marks=pytest.mark.full)]
)
def test_mistakes_end_with_a_message_and_an_exit_code(seed, count, place, tmp_path, monkeypatch):
    rng, found, codes = random.Random(seed), [], []
    for number in range(int(os.environ.get("LOCA_MISTAKES", count))):
        here = tmp_path / str(number)
        (here / "below").mkdir(parents=True)
        (here / "below/file.txt").write_text("a file")
        (here / "folder.nc").mkdir()
        for name in ("full.nc", "full.json", "full.png"):
            (here / name).symlink_to("/dev/full")
        monkeypatch.chdir(here)
        before = set(here.rglob("*"))
        line = mistaken(rng, place)
        result = CliRunner().invoke(app, line)
        made = set(here.rglob("*")) - before
        said = {
            "exception": result.exception is not None and not isinstance(result.exception, SystemExit),
            "exit code": result.exit_code not in (0, 1, 2),
            "traceback": "Traceback" in result.output or "not expected" in result.output,
            "silence": not result.output.strip(),
            "length": result.exit_code != 0 and len(result.output.splitlines()) > 40 and line[0] != "check",
            "format": any(map(is_wrong, made)),
        }
        codes.append(result.exit_code)
        if any(said.values()):
            wrong = [what for what, is_so in said.items() if is_so]
            found.append((line, wrong, result.exit_code, repr(result.exception), result.output[-600:]))
            logging.getLogger(__name__).warning("%s", found[-1])  # at once: --log-cli-level=WARNING
        shutil.rmtree(here)
    report = "\n\n".join(f"loca {line}\n{wrong} {code} {error}\n{output}" for line, wrong, code, error, output in found)
    assert not found, f"{len(found)} of {len(codes)}\n{report}"
    assert {1, 2} <= set(codes), "the mistakes are all of one kind"
