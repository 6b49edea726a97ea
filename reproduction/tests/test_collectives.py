"""What goes between devices, in the compiled program."""

import pytest

from loca_reproduction.benchmarks.scale import measure_collectives, tally


@pytest.mark.full
def test_data_parallel_training_sends_the_gradient_once_and_nothing_else():
    """One all-reduce, of the gradient and the loss, however many locations there are."""
    (few,), (many,) = (measure_collectives(8, meshes=[{"functions": 8}], locations=count) for count in (256, 1024))
    assert few["counts"] == many["counts"] == {"all-reduce": 1}
    assert few["sizes"] == many["sizes"] == {"all-reduce": few["parameter_bytes"] + 4}


def test_collectives_are_counted_with_their_bytes():
    program = """
  %a = f32[] parameter(0)
  %b = (f32[2,3]{1,0}, /*index=1*/bf16[4]{0}) all-reduce(%x, %y), channel_id=1, to_apply=%add
  %c = f64[5]{0} all-gather(%z), dimensions={0}
  %e = f32[9]{0} all-reduce(%v), replica_groups={{0},{1}}, to_apply=%add
  ROOT %d = pred[] all-reduce(%w), to_apply=%or
"""
    assert tally(program) == ({"all-reduce": 2, "all-gather": 1}, {"all-reduce": 24 + 8 + 1, "all-gather": 40})
