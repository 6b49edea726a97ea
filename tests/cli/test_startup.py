"""`loca --help` starts quickly: a command imports what it needs, and help needs next to nothing."""

import resource
import subprocess
import sys

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
