"""Runs of a simulation: one mesh per file, a table of parameters, and tables alone; written and read back."""

import meshio
import numpy as np
import pytest
import xarray

from loca.data import Free, Variable, write_vtu
from loca.data import open as open_records
from loca.domains import Box, Mesh
from loca.typing import MultiInput

RANDOM = np.random.default_rng(2)
POINTS = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 2.0, 0.0]])
CELLS = [("triangle", np.array([[0, 1, 2], [0, 2, 3]]))]
RUNS = 5


def write_runs(folder, ending=".vtu", order=range(RUNS), file_column=True, points=POINTS):
    """Five runs with two parameters each; `order` is that of the rows of the table."""
    source, temperature = RANDOM.normal(size=(2, RUNS, 4))
    numbers = RANDOM.normal(size=(RUNS, 2))
    for i in range(RUNS):
        data = {"source": source[i], "temperature": temperature[i], "velocity": RANDOM.normal(size=(4, 3))}
        kind = {".vtu": "vtu", ".msh": "gmsh"}[ending]
        meshio.write(folder / f"run_{i}{ending}", meshio.Mesh(points, CELLS, data), file_format=kind)
    rows = [f"{f'run_{i}{ending},' if file_column else ''}{numbers[i, 0]},{numbers[i, 1]}" for i in order]
    (folder / "params.csv").write_text("\n".join([("file," if file_column else "") + "heating,flow", *rows]) + "\n")
    return numbers, source, temperature


@pytest.mark.parametrize("ending", [".vtu", ".msh"])
def test_meshes_and_a_table_are_samples(tmp_path, ending):
    numbers, source, temperature = write_runs(tmp_path, ending, order=[3, 1, 0, 4, 2])
    records = open_records(tmp_path, outputs="temperature")
    samples = records.load([4, 0])
    assert records.domain == Mesh(POINTS[:, :2], CELLS[0][1])
    assert (records.inputs, records.outputs) == (
        (Variable("heating"), Variable("flow")),
        (Variable("temperature"),),
    )
    np.testing.assert_allclose(samples.u[:, 0], numbers[[4, 0]], rtol=1e-6)
    np.testing.assert_allclose(samples.s[..., 0], temperature[[4, 0]], rtol=1e-6)
    np.testing.assert_array_equal(samples.y.points, POINTS[:, :2])
    several = open_records(
        [tmp_path / f"*{ending}", tmp_path / "params.csv"], inputs=["flow", "source"], outputs="temperature"
    ).load()
    assert isinstance(several.u, MultiInput)
    np.testing.assert_allclose(several.u.fields[0][..., 0], source, rtol=1e-6)
    np.testing.assert_allclose(several.u.scalars[:, 0], numbers[:, 1], rtol=1e-6)
    vector = open_records(tmp_path, inputs="heating", outputs="velocity")
    assert [v.name for v in vector.outputs] == ["velocity_1", "velocity_2", "velocity_3"]


def test_rows_without_names_of_files_are_in_the_order_of_the_files(tmp_path):
    numbers, _, _ = write_runs(tmp_path, file_column=False)
    samples = open_records(tmp_path, inputs="heating", outputs="temperature").load()
    np.testing.assert_allclose(samples.u[:, 0, 0], numbers[:, 0], rtol=1e-6)
    (tmp_path / "run_4.vtu").unlink()
    with pytest.raises(ValueError, match=r"files of temperature and of heating .* \(4 and 5 samples\)"):
        open_records(tmp_path, inputs="heating", outputs="temperature")


def test_a_surface_lies_in_a_box(tmp_path):
    write_runs(tmp_path, points=POINTS + np.array([[0, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]]))
    assert open_records(tmp_path, outputs="temperature").domain == Box((0.0, 0.0, 0.0), (1.0, 2.0, 1.0))


def test_errors_name_the_file_and_the_column(tmp_path):
    write_runs(tmp_path, order=[0, 1, 2, 4])
    with pytest.raises(ValueError, match=r"the table lacks run_3 \(column 'file': 4 rows for 5 samples\)"):
        open_records(tmp_path, outputs="temperature")
    table = tmp_path / "params.csv"
    for content, message in [
        ("heating,flow\n1,2\n3,oops\n", r"params.csv, line 3: 'oops' in the column 'flow' is no number"),
        ("", "params.csv is empty"),
    ]:
        table.write_text(content)
        with pytest.raises(ValueError, match=message):
            open_records(tmp_path, outputs="temperature")
    table.unlink()
    (tmp_path / "run_3.vtu").write_text("<VTKFile type='UnstructuredGrid'><broken")
    with pytest.raises(ValueError, match=r"run_3\.vtu cannot be read as a mesh"):
        open_records(tmp_path, inputs="source", outputs="temperature")
    meshio.write(tmp_path / "run_3.vtu", meshio.Mesh(POINTS[:3], [("triangle", [[0, 1, 2]])], {"source": np.ones(3)}))
    with pytest.raises(ValueError, match=r"run_3.vtu holds source but not temperature, unlike .*run_0.vtu"):
        open_records(tmp_path, inputs="source", outputs="temperature")


def test_predictions_are_written_as_vtu_and_read_back(tmp_path):
    domain = Mesh(POINTS[:, :2], CELLS[0][1])
    values = RANDOM.normal(size=(2, 3, 4)).astype(np.float32)
    found = xarray.Dataset(
        {"T": (("case", "node"), values[0]), "T_std": (("case", "node"), values[1]), "p": ("case", [0.1, 0.2, 0.3])},
        {"x": ("node", POINTS[:, 0]), "y": ("node", POINTS[:, 1])},
    )
    paths = write_vtu(found, tmp_path / "out.vtu", domain, "case")
    assert [path.name for path in paths] == ["out_0.vtu", "out_1.vtu", "out_2.vtu"]
    mesh = meshio.read(paths[2])
    np.testing.assert_array_equal(mesh.point_data["T"], values[0, 2])
    np.testing.assert_array_equal(mesh.cells_dict["triangle"], CELLS[0][1])
    records = open_records(paths, inputs="T", outputs="T_std")
    assert records.domain == domain
    np.testing.assert_array_equal(records.load().s[..., 0], values[1])
    (alone,) = write_vtu(found.isel(case=[0], node=[0, 2]), tmp_path / "points.vtu", domain, "case")
    assert set(meshio.read(alone).cells_dict) == {"vertex"}


def test_numbers_in_and_a_curve_out_from_tables_alone(tmp_path):
    numbers, curves, t = RANDOM.normal(size=(6, 5)), RANDOM.normal(size=(6, 8)), np.linspace(0, 2, 8)
    names = [f"p{i}" for i in range(5)]
    np.savetxt(tmp_path / "params.csv", numbers, delimiter=",", header=",".join(names), comments="")
    np.savetxt(tmp_path / "curve.csv", curves, delimiter=";", header=";".join(map(str, t)), comments="")
    samples = open_records([tmp_path / "params.csv", tmp_path / "curve.csv"]).load()
    np.testing.assert_allclose(samples.u[:, 0], numbers, rtol=1e-6)
    np.testing.assert_allclose(samples.s[..., 0], curves, rtol=1e-6)
    np.testing.assert_allclose(samples.y.points[:, 0], t, rtol=1e-6)
    assert samples.outputs == (Variable("curve"),)
    both = np.concatenate([numbers, curves], axis=1)
    np.savetxt(tmp_path / "all.csv", both, delimiter=",", header=",".join([*names, *map(str, t)]), comments="")
    again = open_records(tmp_path / "all.csv", inputs=["p1", "p0"]).load()
    np.testing.assert_allclose(again.u[:, 0], numbers[:, [1, 0]], rtol=1e-6)
    np.testing.assert_allclose(again.s, samples.s)


def long_table(path, numbers, points, values, runs, names="run,k,x,y,T"):
    """One row per run and location."""
    rows = [
        (run, k, *point, value)
        for run, k, own, of_run in zip(runs, numbers, points, values, strict=True)
        for point, value in zip(own, of_run, strict=True)
    ]
    path.write_text("\n".join([names, *(",".join(map(str, row)) for row in rows)]))


def test_a_field_out_from_a_table_with_one_row_per_location(tmp_path):
    points, values, numbers = RANDOM.uniform(size=(7, 2)), RANDOM.normal(size=(4, 7)), RANDOM.normal(size=4)
    long_table(tmp_path / "all.csv", numbers, [points] * 4, values, [30, 10, 40, 20])
    records = open_records(tmp_path / "all.csv", outputs="T", sample="run")
    samples = records.load()
    np.testing.assert_allclose(samples.u[:, 0, 0], numbers, rtol=1e-6)
    np.testing.assert_allclose(samples.s[..., 0], values, rtol=1e-6)
    np.testing.assert_allclose(samples.y.points, points, rtol=1e-6)
    assert records.label(np.asarray(samples.s)).run.to_numpy().tolist() == [30, 10, 40, 20]
    (tmp_path / "more.csv").write_text("run,q\n10,1\n20,2\n30,3\n40,4\n")
    merged = open_records([tmp_path / "all.csv", tmp_path / "more.csv"], inputs=["k", "q"], outputs="T", sample="run")
    np.testing.assert_allclose(merged.load().u[:, 0], np.stack([numbers, [3, 1, 4, 2]], 1), rtol=1e-6)
    with pytest.raises(ValueError, match=r"all.csv has several rows per run; pass outputs= among run, k, x, y, T"):
        open_records(tmp_path / "all.csv", sample="run")
    own = RANDOM.uniform(size=(4, 7, 2))
    long_table(tmp_path / "own.csv", numbers, own, values, range(4))
    free = open_records(tmp_path / "own.csv", outputs="T", sample="run").load()
    assert isinstance(free.y, Free)
    np.testing.assert_allclose(free.y.y, own, rtol=1e-6)
