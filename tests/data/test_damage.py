"""Files that are damaged, empty, malicious or incomplete, and values that single precision cannot hold."""

import zipfile

import h5py
import numpy as np
import pytest
import scipy.io
import xarray

import loca
from loca.data import Labeled, Samples
from loca.data import open as open_records
from loca.typing import Measurements

RANDOM = np.random.default_rng(3)
ROLES = {"inputs": "a", "outputs": "b", "sample": "n"}


def fields(count=5, **change):
    """A data set of two fields on six points."""
    values = {name: RANDOM.normal(size=(count, 6)) for name in "ab"}
    return xarray.Dataset(
        {name: (("n", "x"), change.get(name, lambda v: v)(v)) for name, v in values.items()},
        {"x": change.get("x", np.arange(6.0))},
    )


@pytest.mark.parametrize("start", [9, 600, 2000, 5000])
def test_a_damaged_netcdf_file_is_named(tmp_path, start):
    path = tmp_path / "damaged.nc"
    fields(200).to_netcdf(path, engine="h5netcdf")
    content = bytearray(path.read_bytes())
    content[start : start + 400] = RANDOM.bytes(400)
    path.write_bytes(content)
    error = None
    try:
        open_records(path, **ROLES).load()
    except ValueError as found:  # values may be damaged unnoticed: NetCDF has no checksums
        error = found
    assert error is None or "damaged.nc" in str(error)


def test_a_file_that_was_cut_off_is_named(tmp_path):
    path = tmp_path / "cut.nc"
    fields(200).to_netcdf(path, engine="h5netcdf")
    whole = path.read_bytes()
    for length in (len(whole) // 2, 600):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"cut\.nc cannot be read; it may be damaged or incomplete"):
            open_records(path, **ROLES)
    np.savez(tmp_path / "cut.npz", u=np.ones((3, 4)), s=np.ones((3, 4)))
    archive = (tmp_path / "cut.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(archive[: len(archive) // 2])
    with pytest.raises(ValueError, match=r"cut\.npz cannot be read; it may be damaged"):
        open_records(tmp_path / "cut.npz")


def test_an_empty_file_and_one_without_functions_say_so(tmp_path):
    (tmp_path / "empty.nc").touch()
    with pytest.raises(ValueError, match=r"empty\.nc is empty \(0 bytes\)"):
        open_records(tmp_path / "empty.nc")
    fields(0).to_netcdf(tmp_path / "none.nc", engine="h5netcdf")
    with pytest.raises(ValueError, match=r"none\.nc holds no functions: its dimension 'n' has length 0"):
        open_records(tmp_path / "none.nc", **ROLES)


def write_npy(archive, name, shape, content):
    """An array whose header declares a shape, whatever follows."""
    with archive.open(f"{name}.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {"descr": "<f8", "fortran_order": False, "shape": shape})
        member.write(content)


def test_an_archive_that_would_fill_the_memory_is_refused(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "claim.npz", "w") as archive:
        write_npy(archive, "u", (10**11,), b"\0" * 80)
        write_npy(archive, "s", (10**11,), b"\0" * 80)
    with pytest.raises(ValueError, match=r"'u' of .*claim\.npz declares 800 GB .* refused"):
        open_records(tmp_path / "claim.npz")
    monkeypatch.setattr("loca.data.files.arrays.MOST_EXPANDED", 2**20)
    zeros = b"\0" * 2**20
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        write_npy(archive, "u", (2**16, 2**5), zeros * 2**4)
        write_npy(archive, "s", (2**16, 2**5), zeros)
    with pytest.raises(ValueError, match=r"'u' of .*bomb\.npz declares 0\.0168 GB .* but takes 0\.0\d+ MB"):
        open_records(tmp_path / "bomb.npz")
    np.savez_compressed(tmp_path / "small.npz", u=np.zeros((3, 4)), s=np.zeros((3, 4)))
    assert len(open_records(tmp_path / "small.npz")) == 3
    bomb = np.zeros((2**10, 2**12), np.int8)
    scipy.io.savemat(tmp_path / "bomb.mat", {"u": bomb, "s": bomb}, do_compression=True)
    with pytest.raises(ValueError, match=r"'u' of .*bomb\.mat declares"):
        open_records(tmp_path / "bomb.mat")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: 1e-300 * v, "varies from .* which is the same in numbers of 32 bits"),
        (lambda v: 1e300 * v, "has values up to .*e.300, but numbers of 32 bits end at 3.4e.38"),
        (lambda v: 2**53 + 2 * (v > 0.0), "varies from 9007199254740992 to 9007199254740994"),
    ],
)
def test_numbers_beyond_single_precision_are_refused(change, message):
    u, s = RANDOM.normal(size=(2, 5, 6))
    for values in ({"u": change(u), "s": s}, {"u": u, "s": change(s)}):
        with pytest.raises(ValueError, match=message):
            Samples(y=np.arange(6.0), **values)
    with pytest.raises(ValueError, match=message):  # one channel of two
        Samples(np.stack([u, change(u).astype(np.float64)], -1), np.arange(6.0), s)
    with pytest.raises(ValueError, match=f"'a' {message}"):
        Labeled(fields(a=change), **ROLES).load()


def test_numbers_that_single_precision_holds_are_taken():
    u = np.array([[1.0, np.nan, np.inf], [1e-300, 1e38, 3.0]])
    assert Samples(u, [0.0, 1.0], [[1, 2], [3, 4]]).u.dtype == np.float32
    same = np.full((2, 3), 1e-300)
    assert not np.asarray(Samples(same, [0.0, 1.0], [[True, False], [False, False]]).u).any()


def test_a_value_that_is_missing_in_the_first_sample_keeps_its_place():
    data = fields()
    data["b"][0, 2] = np.nan
    samples = Labeled(data, **ROLES).load()
    assert samples.s.shape == (5, 6, 1)
    with pytest.raises(ValueError, match="function 0, output 'b': 1 of 6 values NaN"):
        loca.data.check_finite(samples)
    data["b"][[0, 2, 4], 2] = np.nan
    with pytest.warns(UserWarning, match="2 of 5 functions have values of b at locations that are missing"):
        assert Labeled(data, **ROLES).load().s.shape == (5, 5, 1)


def test_a_missing_coordinate_is_refused():
    x = np.array([0.0, 1.0, np.nan, 3.0, 4.0, 5.0])
    with pytest.raises(ValueError, match=r"1 of 6 locations in y have coordinates that are NaN .* index 2"):
        Labeled(fields(x=x), **ROLES).load()
    u = RANDOM.normal(size=(3, 6))
    with pytest.raises(ValueError, match="1 of 6 locations in x"):
        Samples(u, np.arange(6.0), u, x=x)
    with pytest.raises(ValueError, match=r"1 of 18 locations in y .* index 1, 4"):
        Samples(u, np.where(np.arange(18.0).reshape(3, 6, 1) == 10.0, np.inf, 1.0), u)


def test_a_station_without_values_needs_no_coordinate():
    data = xarray.Dataset(
        {name: (("n", "station"), RANDOM.normal(size=(3, 4))) for name in ("a", "lat", "lon")}
        | {"b": (("n", "t"), RANDOM.normal(size=(3, 5)))}
    )
    for name in ("a", "lat", "lon"):
        data[name][1, 2] = np.nan
    samples = Labeled(data, "a", "b", "n").load()
    assert isinstance(samples.u, Measurements)
    assert not samples.u.mask[1, 2]
    assert np.isfinite(samples.u.x).all()
    data["a"][1, 2] = 1.0
    with pytest.raises(ValueError, match="a has values where coordinates are missing"):
        Labeled(data, "a", "b", "n").load()


def test_an_object_that_is_missing_in_the_file_is_named(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for i in range(3):
            file[f"{i:04d}/data"] = np.ones((2, 3, 1), np.float32)
            file[f"{i:04d}/grid/x"], file[f"{i:04d}/grid/t"] = np.float32([0, 1, 2]), np.float32([0, 1])
        del file["0001/data"]
    with pytest.raises(ValueError, match=r"a\.h5 cannot be read; it may be damaged or incomplete"):
        open_records(tmp_path / "a.h5").load()
