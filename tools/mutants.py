"""Plant defects in the package, one at a time, and report which of them the tests catch.

    python tools/mutants.py --check                  # is every defect still where the table says?
    python tools/mutants.py --only kernels --out found.json

The defects are in `mutants.toml`: for each the file below `src/loca`, or its path if that begins with `reproduction/`,
a snippet that occurs there once, what to put in its place, and the tests of the part concerned. Each is planted in a
copy of the checkout; the checkout itself does not change. Results are written to the file `--out` after every defect;
the same command resumes an interrupted run.
"""

import argparse
import contextlib
import dataclasses
import hashlib
import json
import os
import queue
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_name("mutants.toml")

PASSED, NONE_SELECTED = 0, 5
"""Exit codes of pytest with which a defect has survived."""

WRONG_CALL = (3, 4)
"""Exit codes of pytest that say nothing about the defect: an error of its own, or a target that is not there."""


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One defect.

    **Arguments:**

    - `name`: what is wrong, in a few words.
    - `file`: where, below `src/loca` or `reproduction/`.
    - `old`: a snippet that occurs once in the file.
    - `new`: what to put in its place.
    - `tests`: files, directories or `file::test` that should notice.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def mark(self) -> str:
        """A digest of all fields: an edited defect is another one."""
        return hashlib.sha256(json.dumps(dataclasses.astuple(self)).encode()).hexdigest()[:16]

    @property
    def path(self) -> str:
        """Where the file is in a checkout."""
        return self.file if self.file.startswith("reproduction/") else f"src/loca/{self.file}"

    def problems(self, root: Path) -> Iterator[str]:
        """Why this defect cannot be planted in a checkout, or its tests cannot be run."""
        path = root / self.path
        if not path.is_file():
            yield f"{self.name}: there is no {self.path}"
            return
        text = path.read_text()
        if text.count(self.old) != 1:
            yield f"{self.name}: the snippet occurs {text.count(self.old)} times in {self.path}, not once"
        elif self.old == self.new:
            yield f"{self.name}: nothing is changed"
        else:
            try:
                compile(text.replace(self.old, self.new), self.path, "exec")
            except SyntaxError as error:
                yield f"{self.name}: {self.path} would not be Python: {error}"
        if not self.tests:
            yield f"{self.name}: no tests"
        for target in self.tests:
            file, _, test = target.partition("::")
            if not (root / file).exists():
                yield f"{self.name}: there is no {file}"
            elif test and not re.search(rf"\bdef {re.escape(test)}\(", (root / file).read_text()):
                yield f"{self.name}: there is no test {test} in {file}"


@dataclasses.dataclass(frozen=True)
class Result:
    """What came of a defect: whether it was caught, by which test, and after how many seconds."""

    mark: str
    caught: bool
    by: str
    seconds: float


def read_table(path: Path = TABLE) -> list[Mutant]:
    """Read all defects of the table."""
    rows = tomllib.loads(path.read_text())["mutant"]
    return [Mutant(**{**row, "tests": tuple(row["tests"])}) for row in rows]


def check(mutants: Sequence[Mutant], root: Path = ROOT) -> list[str]:
    """List what is wrong with the table."""
    names = [mutant.name for mutant in mutants]
    twice = [f"{name}: the name is taken twice" for name in sorted(set(names)) if names.count(name) > 1]
    return [*twice, *(problem for mutant in mutants for problem in mutant.problems(root))]


class Checkout:
    """A copy of the checkout in which tests run.

    **Arguments:**

    - `place`: a directory that is made.
    - `cache`: where JAX keeps compiled programs, for all copies.
    - `options`: further arguments for pytest.
    """

    def __init__(self, place: Path, cache: Path, options: Sequence[str] = ()):
        line = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        names = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
        for name in filter(None, names):
            if (ROOT / name).is_file():
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, place / name)
        self.place, self.options = place, list(options)
        self.environment = {
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(place / "src"), str(place / "reproduction/src")]),
            "NPROC": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        found = subprocess.run(
            [sys.executable, "-c", "import loca; print(loca.__file__)"],
            cwd=place, env=self.environment, capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip
        if not Path(found).is_relative_to(place):
            raise RuntimeError(f"tests in {place} would import {found}; another installation comes first")

    @contextlib.contextmanager
    def planted(self, mutant: Mutant) -> Iterator[None]:
        """Plant a defect, and take it out again."""
        path = self.place / mutant.path
        sound = path.read_text()
        try:
            path.write_text(sound.replace(mutant.old, mutant.new))
            forget_bytecode(path)
            yield
        finally:
            path.write_text(sound)
            forget_bytecode(path)

    def run(self, targets: Sequence[str], limit: float | None = None) -> tuple[int | None, str]:
        """Run tests up to the first that fails; return pytest's exit code, None after the time limit, and its words."""
        line = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *self.options, *targets]
        with tempfile.TemporaryFile("w+") as said:  # a pipe would be held open by whatever tests leave behind
            process = subprocess.Popen(
                line, cwd=self.place, env=self.environment, stdin=subprocess.DEVNULL, stdout=said,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # the tests' own processes too
                process.wait()
            said.seek(0)
            return code, said.read()

    def judge(self, mutant: Mutant, limit: float) -> Result:
        """Plant a defect and run its tests."""
        start = time.monotonic()
        with self.planted(mutant):
            code, said = self.run(mutant.tests, limit)
        if code in WRONG_CALL:
            raise RuntimeError(f"{mutant.name}: pytest could not run {' '.join(mutant.tests)}:\n{said[-2000:]}")
        if code is None:
            by = "the time limit"
        elif failed := re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE):
            by = failed[1]
        else:
            by = "" if code in (PASSED, NONE_SELECTED) else f"the end of pytest with code {code}"
        return Result(mutant.mark, code not in (PASSED, NONE_SELECTED), by, round(time.monotonic() - start, 1))


def forget_bytecode(path: Path) -> None:
    """Remove what Python compiled of a file: two versions of one second and one size would look alike to it."""
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


class Results:
    """What was found so far, by the names of the defects, in memory and in a file if there is to be one."""

    def __init__(self, path: Path | None):
        self.path = path
        known = json.loads(path.read_text()) if path is not None and path.exists() else {}
        self.found = {name: Result(**row) for name, row in known.items()}

    def has(self, mutant: Mutant) -> bool:
        """Whether this very defect was judged."""
        return mutant.name in self.found and self.found[mutant.name].mark == mutant.mark

    def add(self, mutant: Mutant, result: Result) -> None:
        """Keep a result; the file is there as a whole or as it was before."""
        self.found[mutant.name] = result
        if self.path is not None:
            rows = {name: dataclasses.asdict(each) for name, each in self.found.items()}
            temporary = self.path.with_name(f".{self.path.name}.partial")
            temporary.write_text(json.dumps(rows, indent=1) + "\n")
            temporary.replace(self.path)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="defects with this in their name or file")
    parser.add_argument("--workers", type=int, default=2, help="copies of the checkout in which tests run side by side")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="where to keep what is found")
    parser.add_argument("--tests-args", default="", metavar="ARGS", help="further arguments for pytest")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds after which a defect counts as caught")
    parser.add_argument("--no-baseline", action="store_true", help="do not run the tests without a defect first")
    parser.add_argument("--at-least", type=float, metavar="PERCENT", help="fail if fewer are caught")
    parser.add_argument("--check", action="store_true", help="see only that the table fits the checkout")
    asked = parser.parse_args()
    mutants = read_table()
    if problems := check(mutants):
        print(*problems, sep="\n", file=sys.stderr)
        return 1
    mutants = [mutant for mutant in mutants if asked.only in mutant.name or asked.only in mutant.file]
    if asked.check:
        print(f"all {len(mutants)} defects can be planted")
        return 0
    results = Results(asked.out)
    todo = [mutant for mutant in mutants if not results.has(mutant)]
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory, ThreadPoolExecutor(asked.workers) as pool:
        place, options = Path(directory).resolve(), shlex.split(asked.tests_args)
        checkouts = [Checkout(place / f"copy{i}", place / "jax-cache", options) for i in range(asked.workers)]
        if todo and not asked.no_baseline and not are_sound(checkouts, todo, pool):
            return 1
        free: queue.SimpleQueue[Checkout] = queue.SimpleQueue()
        for checkout in checkouts:
            free.put(checkout)

        def judge(mutant: Mutant) -> Result:
            checkout = free.get()
            try:
                return checkout.judge(mutant, asked.limit)
            finally:
                free.put(checkout)

        futures = {pool.submit(judge, mutant): mutant for mutant in todo}
        try:
            for future in as_completed(futures):
                mutant, result = futures[future], future.result()
                results.add(mutant, result)
                word = f"caught by {result.by}" if result.caught else "SURVIVED"
                print(f"{result.seconds:6.1f} s  {mutant.file}: {mutant.name}: {word}", flush=True)
        finally:
            for future in futures:
                future.cancel()
    return summary([(mutant, results.found[mutant.name]) for mutant in mutants], asked.at_least)


def are_sound(checkouts: Sequence[Checkout], mutants: Sequence[Mutant], pool: ThreadPoolExecutor) -> bool:
    """Run all tests without a defect: what fails then would catch anything."""
    targets = sorted({target for mutant in mutants for target in mutant.tests})
    shares = [targets[i :: len(checkouts)] for i in range(len(checkouts))]
    done = pool.map(lambda pair: pair[0].run(pair[1]) if pair[1] else (PASSED, ""), zip(checkouts, shares, strict=True))
    failed = [said for code, said in done if code not in (PASSED, NONE_SELECTED)]
    print(*failed, sep="\n", end="tests fail without any defect\n" if failed else "", file=sys.stderr)
    return not failed


def summary(judged: Sequence[tuple[Mutant, Result]], at_least: float | None) -> int:
    """Print how many were caught, and which not; the exit code."""
    survived = [mutant for mutant, result in judged if not result.caught]
    for mutant in survived:
        print(f"survived: {mutant.file}: {mutant.name}")
    caught = len(judged) - len(survived)
    print(f"{caught} of {len(judged)} caught, {sum(result.seconds for _, result in judged):.0f} s of tests")
    return int(at_least is not None and 100 * caught < at_least * len(judged))


if __name__ == "__main__":
    sys.exit(main())
