"""Arrays of other libraries are shared, not copied, where their precision and layout allow it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loca.data import Samples, Shared, shared_array
from loca.encoders import Sensors
from loca.models import LOCA


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


@pytest.mark.full
def test_a_model_takes_tensors():
    u, y = aligned(3, 4, 1), aligned(5, 2)
    data = Samples(jnp.asarray(u), jnp.asarray(y), jnp.ones((3, 5, 1)))
    widths = dict.fromkeys(("lift_widths", "proposal_widths", "feature_widths"), (4,))
    model = LOCA.create(data, key=jax.random.key(0), encoder=Sensors(4, 1), num_features=3, lift_size=4, **widths)
    expected = model.predict(data.u, data.y)
    np.testing.assert_array_equal(model.predict(Tensor(u), Shared(shared_array(Tensor(y)))), expected)
    np.testing.assert_allclose(model(Tensor(u[1]), Tensor(y)), expected[1], rtol=1e-5)


def test_a_torch_tensor_is_shared():
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(aligned(3, 4, 1))
    assert shared_array(tensor).unsafe_buffer_pointer() == tensor.data_ptr()
