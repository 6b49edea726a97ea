"""Arrays of other libraries are shared, not copied, where their precision and layout allow it."""

import jax.numpy as jnp
import numpy as np
import pytest

from loca.data import Samples, shared_array


class Tensor:
    """An array that offers nothing but DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def aligned(*shape):
    """Random numbers at an address that XLA can use, which NumPy does not promise."""
    count = int(np.prod(shape))
    memory = np.random.default_rng(0).normal(size=count + 16).astype(np.float32)
    start = -memory.ctypes.data % 64 // 4
    return memory[start : start + count].reshape(shape)


def test_samples_share_the_memory_of_a_tensor():
    u, y, s, x = aligned(3, 4, 1), aligned(5, 2), aligned(3, 5, 2), aligned(4, 1)
    samples = Samples(Tensor(u), Tensor(y), Tensor(s), x=Tensor(x))
    for array, given in ((samples.u, u), (samples.y.points, y), (samples.s, s), (samples.x, x)):
        np.testing.assert_array_equal(array, given)
        assert array.unsafe_buffer_pointer() == given.ctypes.data


def test_masks_stay_masks():
    mask = np.arange(12).reshape(3, 4) > 5
    found = shared_array(Tensor(mask))
    assert found.dtype == bool
    np.testing.assert_array_equal(found, mask)


@pytest.mark.parametrize(
    "array", [np.arange(24.0).reshape(4, 6), np.arange(24).reshape(4, 6), np.arange(48.0).reshape(4, 12)[:, ::2]]
)
def test_other_precisions_and_layouts_are_converted(array):
    found = shared_array(Tensor(array))
    assert found.dtype == jnp.float32
    np.testing.assert_array_equal(found, array)
