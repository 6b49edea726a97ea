"""A file in the format of The Well, for tests."""

import h5py
import numpy as np


def well_file(path, N=6, T=33, n=(12, 10)):
    """Two fields that move along x, in the layout of The Well, with a mask that is constant and a parameter."""
    x = [np.arange(k) / k for k in n]
    speed = np.arange(N) % 2 + 1
    with h5py.File(path, "w") as root:
        root.attrs.update(dataset_name="moving", simulation_parameters=["speed"], n_trajectories=N)
        scalars = root.create_group("scalars")
        scalars.attrs["field_names"] = ["speed"]
        scalars["speed"] = speed.astype(np.float32)
        scalars["speed"].attrs.update(sample_varying=True, time_varying=False)
        dims = root.create_group("dimensions")
        dims.attrs["spatial_dims"] = ["x", "y"]
        for name, values in (("time", 0.5 * np.arange(T)), ("x", x[0]), ("y", x[1])):
            dims[name] = values
            dims[name].attrs.update(sample_varying=False, time_varying=False)
        edges = root.create_group("boundary_conditions")
        for name in ("x", "y"):
            edge = edges.create_group(f"{name}_periodic")
            edge.attrs.update(bc_type="PERIODIC", associated_dims=[name], associated_fields=[], sample_varying=False)
        fields = root.create_group("t0_fields")
        fields.attrs["field_names"] = ["wall", "density", "energy"]
        wall = np.zeros(n, np.float32)
        wall[:2, :3] = 1.0
        fields["wall"] = wall
        fields["wall"].attrs.update(sample_varying=False, time_varying=False, dim_varying=[True, True])
        phase = np.random.default_rng(1).uniform(0, 1, size=(N, 1, 1, 1))
        time = np.arange(T)[:, None, None]
        place = x[0][:, None] - time * speed[:, None, None, None] / n[0] - phase
        for name, values in (("density", np.sin(2 * np.pi * place)), ("energy", np.cos(2 * np.pi * (place + x[1])))):
            fields[name] = np.broadcast_to(values, (N, T, *n)).astype(np.float32)
            fields[name].attrs.update(sample_varying=True, time_varying=True, dim_varying=[True, True])
        for group in ("t1_fields", "t2_fields"):
            root.create_group(group).attrs["field_names"] = []
    return path
