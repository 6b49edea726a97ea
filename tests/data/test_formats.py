"""Every file is written here as its format is published, and read back: values, places, names, units and domains."""

import itertools
import pickle

import h5py
import numpy as np
import pytest
import scipy.io
import xarray

from loca.data import Free, Variable
from loca.data import open as open_records
from loca.domains import Box, Sphere, Torus

RANDOM = np.random.default_rng(1)


def normal(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def grid(*axes):
    return np.float32(list(itertools.product(*axes)))


# ---- NetCDF and Zarr ------------------------------------------------------------------------------------------------


def year(number, days):
    """A year of temperatures as NCEP publishes them: packed 16-bit integers, latitudes from the north."""
    kelvin = 0.01 * np.round(100 * RANDOM.uniform(220, 310, (days, 7, 12)))
    return xarray.Dataset(
        {"air": (("time", "lat", "lon"), kelvin, {"units": "degK"})},
        {
            "time": np.datetime64(f"{number}-01-01", "ns") + np.arange(days) * np.timedelta64(1, "D"),
            "lat": ("lat", np.linspace(90, -90, 7, dtype=np.float32), {"units": "degrees_north"}),
            "lon": ("lon", np.arange(0, 360, 30, dtype=np.float32), {"units": "degrees_east"}),
        },
    )


PACKED = {"air": {"dtype": "int16", "scale_factor": 0.01, "add_offset": 277.65, "_FillValue": 32767}}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("air.nc", {"engine": "h5netcdf"}),
        ("air.nc", {"engine": "scipy", "format": "NETCDF3_CLASSIC"}),
        ("air.nc", {"engine": "scipy", "format": "NETCDF3_64BIT"}),
        ("air.dat", {"engine": "h5netcdf"}),
    ],
)
def test_netcdf(tmp_path, name, options):
    dataset = year(2000, 9)
    dataset.to_netcdf(tmp_path / name, encoding=PACKED, **options)
    records = open_records(tmp_path / name, inputs="air", outputs="air", sample="time")
    samples = records.load([8, 2])
    assert np.allclose(samples.u[..., 0], dataset.air[[8, 2]].to_numpy().reshape(2, -1), rtol=0, atol=0.005)
    assert records.inputs == (Variable("air", "degK"),)
    assert records.domain == Sphere()
    assert np.array_equal(samples.y.points, grid(dataset.lat.to_numpy(), dataset.lon.to_numpy()))
    label = records.label(np.asarray(samples.s), [8, 2])
    assert label.air.dims == ("time", "lat", "lon")
    assert np.array_equal(label.time, dataset.time[[8, 2]])


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("consolidated", [True, False])
@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part")
def test_zarr(tmp_path, version, consolidated):
    dataset = year(2000, 9).astype(np.float32)
    dataset.to_zarr(tmp_path / "air.zarr", zarr_format=version, consolidated=consolidated)
    records = open_records(tmp_path / "air.zarr", inputs="air", outputs="air", sample="time")
    samples = records.load()
    xarray.testing.assert_equal(records.label(np.asarray(samples.s)), dataset)


def test_years_in_several_files_are_one(tmp_path):
    years = [year(1999, 5), year(2000, 6), year(2001, 4)]
    for dataset in years:
        dataset.to_netcdf(tmp_path / f"air.{dataset.time.dt.year[0].item()}.nc", engine="h5netcdf")
    whole = np.concatenate([dataset.air for dataset in years]).astype(np.float32)
    options = {"inputs": "air", "outputs": "air", "sample": "time"}
    records = open_records(str(tmp_path / "air.*.nc"), **options)
    assert len(records) == 15
    for rows in (slice(None), slice(3, 13, 4), slice(4, 6), [14, 0, 7, 7, 5], [-1], slice(0, 0), slice(12, 2, -3)):
        assert np.array_equal(records.load(rows).u[..., 0], whole.reshape(15, -1)[rows])
    listed = open_records([tmp_path / "air.2001.nc", tmp_path / "air.1999.nc"], **options)
    assert np.array_equal(listed.load([3, 4]).u[..., 0], np.stack([whole[14], whole[0]]).reshape(2, -1))
    dates = records.label(np.asarray(records.load([4, 5]).s), [4, 5]).time
    assert dates.dt.strftime("%Y-%m-%d").to_numpy().tolist() == ["1999-01-05", "2000-01-01"]
    years[0].assign(rain=years[0].air).to_netcdf(tmp_path / "more.nc", engine="h5netcdf")
    assert len(open_records([tmp_path / "more.nc", tmp_path / "air.2001.nc"], **options)) == 9
    years[0].isel(lat=slice(3)).to_netcdf(tmp_path / "part.nc", engine="h5netcdf")
    with pytest.raises(ValueError, match=r"'air' differs between .*part\.nc"):
        open_records([tmp_path / "air.1999.nc", tmp_path / "part.nc"], **options)
    years[0].assign_coords(lon=years[0].lon + 1).to_netcdf(tmp_path / "part.nc", engine="h5netcdf")
    with pytest.raises(ValueError, match=r"'lon' differs between .*part\.nc"):
        open_records([tmp_path / "air.1999.nc", tmp_path / "part.nc"], **options)


def test_inputs_and_outputs_in_files_of_their_own(tmp_path):
    years = [year(1999, 5), year(2000, 6)]
    for dataset in years:
        number = dataset.time.dt.year[0].item()
        bounds = {"time_bnds": (("time", "nbnds"), np.zeros((len(dataset.time), 2)))}
        dataset.assign(bounds).to_netcdf(tmp_path / f"air.{number}.nc", engine="h5netcdf")
        pressure = dataset.rename(air="pres").map(lambda v: 100 * v).assign(bounds)
        pressure.pres.attrs["missing_value"] = np.float64(-1.0)
        pressure.to_netcdf(tmp_path / f"pres.{number}.nc", engine="h5netcdf", encoding={"pres": {"_FillValue": -2.0}})
    options = {"inputs": "air", "outputs": "pres", "sample": "time"}
    records = open_records([str(tmp_path / "air.*.nc"), str(tmp_path / "pres.*.nc")], **options)
    samples = records.load([10, 4])
    kelvin = np.concatenate([dataset.air for dataset in years]).reshape(11, -1)[[10, 4]]
    assert np.array_equal(samples.u[..., 0], np.float32(kelvin))
    assert np.array_equal(samples.s[..., 0], np.float32(100 * kelvin))
    with pytest.raises(ValueError, match="files of air and of pres do not have the same samples and grids"):
        open_records([*tmp_path.glob("air.*.nc"), tmp_path / "pres.1999.nc"], **options)


def test_packed_land_is_missing(tmp_path):
    sea = year(2000, 3)
    land = RANDOM.uniform(size=(7, 12)) < 0.3
    sea["air"] = sea.air.where(~land)
    sea.to_netcdf(tmp_path / "sea.nc", engine="h5netcdf", encoding=PACKED)
    records = open_records(tmp_path / "sea.nc", inputs="air", outputs="air", sample="time")
    samples = records.load()
    assert samples.s.shape == (3, (~land).sum(), 1)
    assert np.isfinite(samples.s).all()
    label = records.label(np.asarray(samples.s))
    assert np.allclose(label.air, sea.air, rtol=0, atol=0.005, equal_nan=True)


def test_stations_with_names_and_nodes_of_a_mesh(tmp_path):
    stations = xarray.Dataset(
        {
            "rain": (("day", "station"), normal(4, 3), {"units": "mm"}),
            "latitude": ("station", [51.5, 48.9, 40.4]),
            "longitude": ("station", [0.0, 2.3, -3.7]),
            "elevation": ("station", [11.0, 35.0, 667.0]),
        },
        {"station": ["London", "Paris", "Madrid"]},
    )
    stations.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    records = open_records(tmp_path / "a.nc", inputs=["rain", "elevation"], outputs="rain", sample="day")
    samples = records.load()
    assert np.array_equal(samples.x, np.stack([stations.latitude, stations.longitude], -1).astype(np.float32))
    assert np.array_equal(samples.u[1, :, 1], stations.elevation.astype(np.float32))
    label = records.label(np.asarray(samples.s))
    assert label.station.to_numpy().tolist() == ["London", "Paris", "Madrid"]
    assert np.array_equal(label.rain.coords["latitude"], stations.latitude)
    mesh = xarray.Dataset({"p": (("run", "node"), normal(4, 3)), "y": ("node", normal(3)), "x": ("node", normal(3))})
    mesh.to_netcdf(tmp_path / "b.nc", engine="h5netcdf")
    samples = open_records(tmp_path / "b.nc", inputs="p", outputs="p", sample="run").load()
    assert np.array_equal(samples.y.points, np.stack([mesh.x, mesh.y], -1))


def test_states_called_x_are_no_places(tmp_path):
    lorenz = xarray.Dataset({name: (("run", "t"), normal(4, 5)) for name in "xyz"})
    lorenz.to_netcdf(tmp_path / "lorenz.nc", engine="h5netcdf")
    samples = open_records(tmp_path / "lorenz.nc", inputs="x", outputs="z", sample="run").load()
    assert np.array_equal(samples.y.points[:, 0], np.float32([0, 0.25, 0.5, 0.75, 1]))
    assert np.array_equal(samples.s[..., 0], lorenz.z)


def test_calendar_without_leap_years_is_read_as_numbers(tmp_path):
    pytest.importorskip("h5netcdf")
    dataset = year(2000, 4).assign_coords(
        time=("time", np.arange(4.0), {"units": "days since 2000-02-27", "calendar": "noleap"})
    )
    dataset.to_netcdf(tmp_path / "air.nc", engine="h5netcdf")
    records = open_records(tmp_path / "air.nc", inputs="air", outputs="air", sample="time")
    assert np.array_equal(records.load().u[..., 0], dataset.air.to_numpy().astype(np.float32).reshape(4, -1))


def test_generic_files_ask_for_roles_and_say_what_they_hold(tmp_path):
    year(2000, 3).to_netcdf(tmp_path / "air.nc", engine="h5netcdf")
    with pytest.raises(ValueError, match=r"pass inputs=.*\n(.*\n)*  air\(time: 3, lat: 7, lon: 12\) \[degK\]"):
        open_records(tmp_path / "air.nc")
    with h5py.File(tmp_path / "plain.h5", "w") as file:
        file["field"] = normal(4, 5)
    records = open_records(tmp_path / "plain.h5", inputs="field", outputs="field", sample="phony_dim_0")
    assert np.allclose(records.load().x[:, 0], np.linspace(0, 1, 5))


# ---- the Well -------------------------------------------------------------------------------------------------------


def write_well(path, *, trajectories=3, parameter=0.25, boundary="PERIODIC", flat_tensor=False, own_times=False):
    """A file after docs/data_format.md of the Well and its writer of dummy data."""
    t, x, y = np.linspace(0, 1, 4), np.arange(6) * 0.5, 1 + np.arange(5) * 0.25
    n = trajectories
    arrays = {
        "t0_fields/density": (normal(n, 4, 6, 5), [True, True], True, True),
        "t0_fields/mask": (normal(n, 6, 5), [True, True], True, False),
        "t0_fields/gravity": (normal(5), [False, True], False, False),
        "t1_fields/velocity": (normal(n, 4, 6, 5, 2), [True, True], True, True),
        "t2_fields/strain": (normal(n, 4, 6, 5, *([4] if flat_tensor else [2, 2])), [True, True], True, True),
    }
    with h5py.File(path, "w") as file:
        file.attrs.update({"dataset_name": "test", "grid_type": "cartesian", "n_spatial_dims": 2, "n_trajectories": n})
        file.attrs["simulation_parameters"] = ["alpha"]
        file.attrs["alpha"] = parameter
        dimensions = file.create_group("dimensions")
        dimensions.attrs["spatial_dims"] = ["x", "y"]
        times = np.stack([t + i for i in range(n)]) if own_times else t
        for name, values, by_sample in (("time", times, own_times), ("x", x, False), ("y", y, False)):
            dimensions[name] = np.float32(values)
            dimensions[name].attrs["sample_varying"] = by_sample
            if name != "time":
                dimensions[name].attrs["time_varying"] = False
        conditions = file.create_group("boundary_conditions")
        for axis in "xy":
            group = conditions.create_group(f"{axis}_boundary")
            group.attrs.update({"associated_dims": [axis], "associated_fields": [], "bc_type": boundary})
            group.attrs.update({"sample_varying": False, "time_varying": False})
            group["mask"] = np.zeros(len(x if axis == "x" else y), bool)
        file.create_group("scalars").attrs["field_names"] = ["alpha", "forcing"]
        file["scalars/alpha"] = np.float32(parameter)
        file["scalars/alpha"].attrs.update({"sample_varying": False, "time_varying": False})
        file["scalars/forcing"] = np.float32(t)
        file["scalars/forcing"].attrs.update({"sample_varying": False, "time_varying": True})
        for name, (values, along, by_sample, by_time) in arrays.items():
            file[name] = values
            file[name].attrs.update({"dim_varying": along, "sample_varying": by_sample, "time_varying": by_time})
        for group in ("t0_fields", "t1_fields", "t2_fields"):
            file[group].attrs["field_names"] = list(file[group])
    return {name.split("/")[1]: values for name, (values, *_) in arrays.items()}, (t, x, y)


STATE = ["density", "velocity_x", "velocity_y", "strain_xx", "strain_xy", "strain_yx", "strain_yy"]


@pytest.mark.parametrize("flat_tensor", [False, True])
def test_well(tmp_path, flat_tensor):
    fields, (t, x, y) = write_well(tmp_path / "a.hdf5", flat_tensor=flat_tensor)
    records = open_records(tmp_path / "a.hdf5")
    samples = records.load()
    state = np.concatenate(
        [fields["density"][..., None], fields["velocity"], fields["strain"].reshape(3, 4, 6, 5, 4)], -1
    )
    assert [v.name for v in samples.outputs] == STATE
    assert [v.name for v in samples.inputs] == [*STATE, "mask"]
    assert np.array_equal(samples.u[..., :-1], state[:, 0].reshape(3, 30, 7))
    assert np.array_equal(samples.u[..., -1], fields["mask"].reshape(3, 30))
    assert np.array_equal(samples.s, state[:, 1:].reshape(3, 90, 7))
    assert np.array_equal(samples.x, grid(np.float32(x), np.float32(y)))
    assert np.array_equal(samples.y.points, grid(np.float32(t[1:]), np.float32(x), np.float32(y)))
    label = records.label(np.asarray(samples.s))
    assert np.array_equal(label.velocity_y, fields["velocity"][:, 1:, ..., 1])
    assert label.velocity_y.dims == ("sample", "time", "x", "y")
    # the last step as a function of space alone lives on a torus of period n·Δ
    last = open_records(
        tmp_path / "a.hdf5", inputs=["velocity", "gravity", "alpha"], outputs="velocity", output_times=[-1]
    )
    assert last.domain == Torus([0.0, 1.0], [3.0, 2.25])
    assert [v.name for v in last.inputs] == ["velocity_x", "velocity_y", "gravity", "alpha"]
    loaded = last.load([1]).u
    u = np.asarray(loaded.fields[0]).reshape(6, 5, 3)
    assert np.array_equal(u[..., 2], np.broadcast_to(fields["gravity"], (6, 5)))
    assert loaded.scalars.tolist() == [[0.25]]
    write_well(tmp_path / "b.hdf5", boundary="wall")
    assert open_records(tmp_path / "b.hdf5", output_times=[-1]).domain == Box([0.0, 1.0], [2.5, 2.0])


def test_well_folder_of_files_with_different_parameters(tmp_path):
    for split in ("train", "valid", "test"):
        (tmp_path / "data" / split).mkdir(parents=True)
    first, _ = write_well(tmp_path / "data/train/a.hdf5", parameter=0.25)
    second, _ = write_well(tmp_path / "data/train/b.hdf5", parameter=0.75, trajectories=2)
    write_well(tmp_path / "data/valid/a.hdf5", trajectories=1)
    records = open_records(tmp_path, split="train")
    samples = records.load([4, 1])
    assert len(records) == 5
    # what differs between files is an input: the parameter, and the field that is constant in each
    assert [v.name for v in records.inputs] == [*STATE, "gravity", "mask", "alpha"]
    u = np.asarray(samples.u.fields[0]).reshape(2, 6, 5, 9)
    assert samples.u.scalars.tolist() == [[0.75], [0.25]]
    assert np.array_equal(u[..., 7], np.stack([np.broadcast_to(f["gravity"], (6, 5)) for f in (second, first)]))
    assert np.array_equal(u[..., 0], [second["density"][1, 0], first["density"][1, 0]])
    assert len(open_records(tmp_path, split="valid")) == 1
    with pytest.raises(ValueError, match=r"split= one of \['test', 'train', 'valid'\]"):
        open_records(tmp_path)


def test_well_with_times_of_each_trajectory(tmp_path):
    fields, (t, x, y) = write_well(tmp_path / "a.hdf5", own_times=True)
    samples = open_records(tmp_path / "a.hdf5", outputs="density").load([2, 0])
    assert isinstance(samples.y, Free)
    assert np.array_equal(samples.y.y[0], grid(np.float32(t[1:] + 2), np.float32(x), np.float32(y)))
    assert np.array_equal(samples.s[..., 0], fields["density"][[2, 0], 1:].reshape(2, -1))


# ---- PDEBench -------------------------------------------------------------------------------------------------------


def test_pdebench_one_dimension(tmp_path):
    tensor, x, t = normal(7, 5, 8), (np.arange(8) + 0.5) / 8, np.arange(6) * 0.25
    with h5py.File(tmp_path / "1D_Advection_Sols_beta0.1.hdf5", "w") as file:
        file["tensor"], file["x-coordinate"], file["t-coordinate"] = tensor, np.float32(x), np.float32(t)
        file.attrs["beta"] = 0.1
    records = open_records(tmp_path / "1D_Advection_Sols_beta0.1.hdf5")
    samples = records.load()
    assert np.array_equal(samples.u[..., 0], tensor[:, 0])
    assert np.array_equal(samples.s[..., 0], tensor[:, 1:].reshape(7, -1))
    assert np.array_equal(samples.y.points, grid(np.float32(t[1:5]), np.float32(x)))
    assert np.array_equal(samples.x[:, 0], np.float32(x))
    assert records.domain == Box([0.25, 0.0625], [1.0, 0.9375])
    label = records.label(np.asarray(samples.s))
    assert np.array_equal(label.tensor, tensor[:, 1:])
    assert label.attrs["beta"] == 0.1


def test_pdebench_darcy(tmp_path):
    tensor, nu, axis = normal(4, 1, 6, 6), normal(4, 6, 6), np.float32((np.arange(6) + 0.5) / 6)
    with h5py.File(tmp_path / "2D_DarcyFlow_beta1.0_Train.hdf5", "w") as file:
        file["tensor"], file["nu"], file["x-coordinate"], file["y-coordinate"] = tensor, nu, axis, axis
    records = open_records(tmp_path / "2D_DarcyFlow_beta1.0_Train.hdf5")
    samples = records.load([3])
    assert (records.inputs, records.outputs) == ((Variable("nu"),), (Variable("tensor"),))
    assert np.array_equal(samples.u[0, :, 0], nu[3].ravel())
    assert np.array_equal(samples.s[0, :, 0], tensor[3].ravel())
    assert np.array_equal(samples.y.points, grid(axis, axis))
    assert np.array_equal(records.label(np.asarray(samples.s), [3]).tensor, tensor[[3]])


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_pdebench_compressible_flow(tmp_path, dimension):
    names = ["density", "pressure", "Vx", "Vy", "Vz"][: 2 + dimension]
    sizes = (4, 3, 2)[:dimension]
    fields = {name: normal(5, 3, *sizes) for name in names}
    axes = {axis: np.linspace(0.1, 0.9, size, dtype=np.float32) for axis, size in zip("xyz", sizes, strict=False)}
    with h5py.File(tmp_path / "CFD.hdf5", "w") as file:
        for name, values in fields.items():
            file[name] = values
        for axis, values in axes.items():
            file[f"{axis}-coordinate"] = values
        file["t-coordinate"] = np.float32([0.0, 0.1, 0.2, 0.3])  # one more than there are steps, as published
        file.attrs.update({"eta": 0.01, "zeta": 0.01, "M": 0.1})
    samples = open_records(tmp_path / "CFD.hdf5").load()
    assert [v.name for v in samples.outputs] == names
    assert np.array_equal(samples.u, np.stack([fields[n][:, 0].reshape(5, -1) for n in names], -1))
    assert np.array_equal(samples.s, np.stack([fields[n][:, 1:].reshape(5, -1) for n in names], -1))
    assert np.array_equal(samples.y.points, grid(np.float32([0.1, 0.2]), *axes.values()))


def write_seeded(path, count, channels=2):
    data = normal(count, 4, 6, 5, channels)
    x, y, t = np.linspace(-1, 1, 6), np.linspace(-1, 1, 5), np.linspace(0, 5, 4)
    with h5py.File(path, "w") as file:
        for i in RANDOM.permutation(count):
            group = file.create_group(f"{i:04d}")
            group["data"] = data[i]
            group["grid/x"], group["grid/y"], group["grid/t"] = np.float32(x), np.float32(y), np.float32(t)
            group.attrs["config"] = f"sim:\n  seed: {i}\n"
    return data, (t, x, y)


def test_pdebench_groups_of_seeds(tmp_path):
    data, axes = write_seeded(tmp_path / "2D_diff-react_NA_NA.h5", 12)
    records = open_records(tmp_path / "2D_diff-react_NA_NA.h5")
    samples = records.load([11, 3, 3, 4])
    assert [v.name for v in samples.outputs] == ["data_1", "data_2"]
    assert np.array_equal(samples.u, data[[11, 3, 3, 4], 0].reshape(4, -1, 2))
    assert np.array_equal(samples.s, data[[11, 3, 3, 4], 1:].reshape(4, -1, 2))
    assert np.array_equal(samples.y.points, grid(np.float32(axes[0][1:]), *map(np.float32, axes[1:])))
    labels = records.label(np.asarray(samples.s), [11, 3, 3, 4])
    assert labels.sample.to_numpy().tolist() == ["0011", "0003", "0003", "0004"]
    with pytest.raises(ValueError, match="'train' and 'test', not 'valid'"):
        open_records(tmp_path / "2D_diff-react_NA_NA.h5", split="valid")
    one, _ = write_seeded(tmp_path / "one.h5", 2, channels=1)
    assert np.array_equal(open_records(tmp_path / "one.h5").load().u, one[:, 0].reshape(2, -1, 1))
    with h5py.File(tmp_path / "one.h5", "a") as file:
        file["0001/grid/x"][0] = 7.0
    with pytest.raises(ValueError, match=r"group '0001' .* another grid than '0000'"):
        open_records(tmp_path / "one.h5").load()


@pytest.mark.parametrize("count", [1, 9, 10, 25, 99, 110])
@pytest.mark.parametrize("split", ["train", "test"])
def test_pdebench_official_splits(tmp_path, count, split):
    """`FNODatasetSingle` tests on int(n · 0.1) samples from the start, `FNODatasetMult` on all after int(n · 0.9)."""
    with h5py.File(tmp_path / "flat.hdf5", "w") as file:
        file["tensor"] = np.broadcast_to(np.float32(np.arange(count))[:, None, None], (count, 2, 3))
        file["x-coordinate"], file["t-coordinate"] = np.float32([0, 1, 2]), np.float32([0, 1])
    with h5py.File(tmp_path / "seeds.h5", "w") as file:
        for i in range(count):
            file[f"{i:04d}/data"] = np.full((2, 3, 1), i, np.float32)
            file[f"{i:04d}/grid/x"], file[f"{i:04d}/grid/t"] = np.float32([0, 1, 2]), np.float32([0, 1])

    def rows(name):
        return np.asarray(open_records(tmp_path / name, split=split).load().u[:, 0, 0]).astype(int).tolist()

    everything, first, last = list(range(count)), int(count * 0.1), int(count * (1 - 0.1))
    assert rows("flat.hdf5") == (everything[:first] if split == "test" else everything[first:])
    assert rows("seeds.h5") == (everything[last:] if split == "test" else everything[:last])


# ---- npz and MATLAB -------------------------------------------------------------------------------------------------


def test_npz_of_functions_at_points(tmp_path):
    u, s, x, y = normal(5, 6), normal(5, 7, 2), normal(6, 1), normal(7, 3)
    np.savez(tmp_path / "a.npz", u=u, s=s, x=x, y=y)
    records = open_records(tmp_path / "a.npz")
    samples = records.load([4, 0])
    assert (records.inputs, records.outputs) == ((Variable("u"),), (Variable("s_1"), Variable("s_2")))
    assert np.array_equal(samples.u[..., 0], u[[4, 0]])
    assert np.array_equal(samples.s, s[[4, 0]])
    assert np.array_equal(samples.x, x)
    assert np.array_equal(samples.y.points, y)
    own = normal(5, 7, 3)
    np.savez_compressed(tmp_path / "b.npz", a=u, b=s, here=x[:, 0], there=own)
    samples = open_records(tmp_path / "b.npz", inputs="a", outputs="b", sensors="here", queries="there").load([2])
    assert np.array_equal(samples.x, x)
    assert np.array_equal(samples.y.y, own[[2]])


def test_npz_on_grids(tmp_path):
    u, k, s = normal(5, 6, 4), normal(5), normal(5, 3)
    np.savez(tmp_path / "a.npz", f=u, k=k, g=s)
    samples = open_records(tmp_path / "a.npz", inputs=["f", "k"], outputs="g").load()
    assert np.array_equal(samples.u.fields[0][..., 0], u.reshape(5, -1))
    assert np.array_equal(samples.u.scalars[:, 0], k)
    assert np.array_equal(samples.x[0], grid(np.linspace(0, 1, 6), np.linspace(0, 1, 4)))
    assert np.array_equal(samples.y.points[:, 0], np.float32([0, 0.5, 1]))
    with pytest.raises(ValueError, match=r"does not define its inputs(.*\n)+  f\(5, 6, 4\)\n  k\(5,\)"):
        open_records(tmp_path / "a.npz")


def write_matlab73(path, **arrays):
    """HDF5 behind 512 bytes of MATLAB's own, each array with its axes reversed."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, values in arrays.items():
            file[name] = values.T
            file[name].attrs["MATLAB_class"] = np.bytes_("double")
    with path.open("r+b") as file:
        about = b"MATLAB 7.3 MAT-file, Platform: GLNXA64, Created on: Mon Jan  1 00:00:00 2024 HDF5 schema 1.00 ."
        file.write(about.ljust(124) + b"\x00\x02IM")


@pytest.mark.parametrize("write", [write_matlab73, lambda path, **arrays: scipy.io.savemat(path, arrays)])
def test_matlab_darcy_of_fno(tmp_path, write):
    coeff, sol = RANDOM.normal(size=(6, 5, 4)), RANDOM.normal(size=(6, 5, 4))
    write(tmp_path / "piececonst.mat", coeff=coeff, sol=sol, Kcoeff=coeff)
    records = open_records(tmp_path / "piececonst.mat")
    for rows in (slice(1, 3), [5, 0, 0], slice(None)):
        samples = records.load(rows)
        assert np.array_equal(samples.u[..., 0], np.float32(coeff[rows]).reshape(len(samples), -1))
        assert np.array_equal(samples.s[..., 0], np.float32(sol[rows]).reshape(len(samples), -1))
    assert np.array_equal(samples.x, grid(np.linspace(0, 1, 5), np.linspace(0, 1, 4)))
    assert (records.inputs, records.outputs) == ((Variable("coeff"),), (Variable("sol"),))
    assert np.array_equal(records.label(np.asarray(samples.s)).sol, np.float32(sol))


def test_matlab_rows_of_locations_and_structures(tmp_path):
    u, x = RANDOM.normal(size=(3, 5)), RANDOM.normal(size=5)
    scipy.io.savemat(tmp_path / "a.mat", {"u": u, "s": u, "x": x, "y": x, "info": {"k": 1}})
    samples = open_records(tmp_path / "a.mat").load()
    assert np.array_equal(samples.x[:, 0], np.float32(x))
    assert np.array_equal(samples.y.points[:, 0], np.float32(x))
    with pytest.raises(ValueError, match=r"'info' .* cell or structure"):
        open_records(tmp_path / "a.mat", inputs="info", outputs="u")


# ---- all of them ----------------------------------------------------------------------------------------------------


def test_unknown_files_name_what_is_understood(tmp_path):
    (tmp_path / "a.txt").write_text("1,2\n")
    with pytest.raises(ValueError, match="none of the known formats: loca, zarr, mesh, table, well, pdebench, matlab"):
        open_records(tmp_path / "a.txt")
    for name in ("missing.nc", "*.nc"):
        with pytest.raises(FileNotFoundError, match="no file"):
            open_records(str(tmp_path / name))


def write_large(path, kind):
    """200 samples of 2 × 64 × 64, each in chunks of its own."""
    values = normal(200, 2, 64, 64)
    axis = np.linspace(0, 1, 64, dtype=np.float32)
    if kind == "netcdf":
        coords = {"sample": np.arange(200), "t": [0.0, 1.0], "x": axis, "y": axis}
        dataset = xarray.Dataset({"tensor": (("sample", "t", "x", "y"), values)}, coords)
        dataset.to_netcdf(path, engine="h5netcdf", encoding={"tensor": {"chunksizes": (1, 2, 64, 64)}})
        roles = {"inputs": "tensor", "outputs": "tensor", "sample": "sample"}
        return values, {**roles, "output_times": [1], "input_times": [0]}
    with h5py.File(path, "w") as file:
        if kind == "pdebench":
            file.create_dataset("tensor", data=values, chunks=(1, 2, 64, 64))
            file["x-coordinate"], file["y-coordinate"], file["t-coordinate"] = axis, axis, np.float32([0, 1])
        else:
            for i in range(200):
                file[f"{i:04d}/data"] = values[i, ..., None]
                file[f"{i:04d}/grid/x"], file[f"{i:04d}/grid/y"] = axis, axis
                file[f"{i:04d}/grid/t"] = np.float32([0, 1])
    return values, {}


@pytest.mark.parametrize("kind", ["netcdf", "pdebench", "seeds"])
def test_only_the_rows_asked_for_are_read(tmp_path, monkeypatch, kind):
    path = tmp_path / "large.h5"
    values, options = write_large(path, kind)
    sizes = []
    whole = h5py.Dataset.__getitem__

    def counted(self, key, **more):
        found = whole(self, key, **more)
        sizes.append(np.size(found))
        return found

    monkeypatch.setattr(h5py.Dataset, "__getitem__", counted)
    records = open_records(path, **options)
    assert sum(sizes) < 2000  # coordinates only
    records.load([0])  # the first sample says what is missing
    sizes.clear()
    rows = [150, 3, 77, 78, 79, 199, 20, 21, 22, 23]
    samples = records.load(rows)
    assert np.array_equal(samples.u[..., 0], values[rows, 0].reshape(10, -1))
    assert sum(sizes) <= 10 * 2 * 64 * 64 + 200 * 130  # nothing twice; grids of groups are compared
    chosen = records.select(slice(100, 200)).select([50])
    sizes.clear()
    assert np.array_equal(chosen.load().s[..., 0], values[[150], 1].reshape(1, -1))
    assert sum(sizes) <= 2 * 64 * 64 + 200 * 130


def test_records_travel_to_other_processes(tmp_path):
    values, options = write_large(tmp_path / "large.h5", "pdebench")
    records = open_records(tmp_path / "large.h5", **options)
    again = pickle.loads(pickle.dumps(records))  # noqa: S301
    assert np.array_equal(again.load([7]).u[..., 0], values[[7], 0].reshape(1, -1))
