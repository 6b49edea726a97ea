"""`loca --help` starts quickly: a command imports what it needs, and help needs next to nothing."""

import os
import resource
import subprocess
import sys

import pytest

HELP = "import sys; sys.argv = ['loca', '--help']; from loca.cli import main; main()"


def cpu_seconds(code: str) -> float:
    """The processor time of a new process, which a busy machine does not change much."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=240)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_takes_at_most_half_longer_than_importing_jax():
    turns = [(cpu_seconds(HELP), cpu_seconds("import jax")) for _ in range(2)]
    ours, jax = map(min, zip(*turns, strict=True))
    assert ours <= 1.5 * jax


def settings_of(environment):
    """What JAX is told about its cache of compiled programs, by a command with these variables."""
    program = "from loca.cli.app import keep_programs; keep_programs(); import os\n"
    program += "print(*(f'{k}={v}' for k, v in os.environ.items() if k.startswith('JAX_')), sep='\\n')"
    own = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XDG_"))}
    run = subprocess.run(
        [sys.executable, "-c", program], env=own | environment, check=True, capture_output=True, text=True
    )
    return dict(line.split("=", 1) for line in run.stdout.split())


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere other variables name the directory")
def test_commands_keep_programs_in_the_cache_of_the_user(tmp_path):
    found = settings_of({"XDG_CACHE_HOME": str(tmp_path)})
    assert found["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path / "loca/programs")
    assert found["JAX_COMPILATION_CACHE_MAX_SIZE"] == str(2**30)
    assert settings_of({"JAX_COMPILATION_CACHE_DIR": "/elsewhere"}) == {"JAX_COMPILATION_CACHE_DIR": "/elsewhere"}
    (tmp_path / "file").touch()
    assert settings_of({"XDG_CACHE_HOME": str(tmp_path / "file")}) == {}  # which is no directory
