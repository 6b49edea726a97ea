"""Workers of a comparison take turns; only built-in models are tested, since peers need their own environment."""

import sys

import pytest

from loca_reproduction.benchmarks.peers import Comparison, Worker, check_sizes, measure_peers


@pytest.mark.full
def test_built_in_models_take_turns_and_reach_the_target():
    comparison = Comparison("ours", ("deeponet", "loca"), batch_size=100, target=0.2, every=50)
    (figures,) = measure_peers(comparisons=(comparison,), rounds=1, seconds=0.05, runs=1, limit=60.0)
    assert [side["side"] for side in figures["sides"]] == ["deeponet", "loca"]
    for side in figures["sides"]:
        assert side["errors"][0] <= comparison.target
        assert side["steps_to_target"] is not None
        assert side["steps_to_target"] % comparison.every == 0
        assert side["seconds_to_target"] is not None
    assert figures["sides"][0]["step_ratio"] == 1.0


def test_the_output_of_a_failed_worker_is_quoted(tmp_path):
    program = "import sys; print('out of luck', file=sys.stderr); sys.exit(3)"
    with pytest.raises(RuntimeError, match=r"(?s)broken ended with exit code 3; .*out of luck"):
        Worker("broken", (sys.executable, "-c", program), tmp_path / "log")


def test_models_of_different_size_are_refused(tmp_path):
    sizes = {"a": 1000, "b": 1040, "c": 1060}
    speak = "import sys; print('{\"parameters\": ' + sys.argv[1] + '}', flush=True); sys.stdin.read()"
    workers = [Worker(name, (sys.executable, "-c", speak, str(n)), tmp_path / name) for name, n in sizes.items()]
    try:
        check_sizes(workers[:2])
        with pytest.raises(ValueError, match=r"same size within 5%.*'c': 1060"):
            check_sizes(workers)
    finally:
        for worker in workers:
            worker.close()
