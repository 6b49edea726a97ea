"""Measure the server: requests per second against the bare model, response times, and memory over time.

    python tools/load.py                                       # LOCA and DeepONet, a worker for every core
    python tools/load.py --soak 3600                           # and an hour at full load
    python tools/load.py --out reproduction/studies/load.json  # keep the results for the documentation
    python tools/load.py --table                               # print them as the table of docs/deploy.md

The load comes from `wrk` (in Debian's package of this name), which takes little of the machine that it shares with the
server.
"""

import argparse
import contextlib
import datetime
import http.client
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import jax
import numpy as np

import loca

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "reproduction/studies/load.json"
SIDE, BATCH = 32, 32

SEVERAL = 4
"""Functions in each request of the second measurement."""


def example_model(kind="LOCA", seed=0):
    """An untrained model of the size of the paper's Darcy problem; training would not change its speed."""
    rng = np.random.default_rng(seed)
    axis = np.linspace(0.0, 1.0, SIDE)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    waves = np.cos(np.pi * grid @ rng.integers(0, 5, (2, 16)))
    u, s = (rng.normal(size=(64, 16)) @ waves.T for _ in range(2))
    data = loca.Samples(u, grid, s, x=grid)
    return getattr(loca, kind).create(data, key=jax.random.key(seed)), data


def bare_rate(model, data, seconds):
    """Functions per second of the compiled model in batches, from NumPy to NumPy, without a server."""
    predict, u = jax.jit(jax.vmap(model.at(data.y.points))), np.asarray(data.u[:BATCH])
    np.asarray(predict(u))
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        np.asarray(predict(u))
        count += BATCH
    return count / (time.perf_counter() - start)


def request_bytes(u, name="model"):
    """The header and the body of an inference request for some functions with binary tensors."""
    tensor = {"name": "u", "datatype": "FP32", "shape": list(u.shape), "parameters": {"binary_data_size": 4 * u.size}}
    output = {"name": "s", "parameters": {"binary_data": True}}
    text = json.dumps({"inputs": [tensor], "outputs": [output]}).encode()
    body = text + np.asarray(u, "<f4").tobytes()
    head = f"POST /v2/models/{name}/infer HTTP/1.1\r\nHost: load\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Inference-Header-Content-Length: {len(text)}\r\n\r\n".encode() + body


def worst_difference(address, u, expected):
    """The largest difference between responses and the model itself."""
    worst, connection = 0.0, http.client.HTTPConnection(*address)
    with contextlib.closing(connection):
        for row, right in zip(u, expected, strict=True):
            head, _, body = request_bytes(row[None]).partition(b"\r\n\r\n")
            length = head.rpartition(b" ")[2].decode()
            path, headers = "/v2/models/model/infer", {"Inference-Header-Content-Length": length}
            connection.request("POST", path, body, headers)
            found = np.frombuffer(connection.getresponse().read()[-4 * right.size :], "<f4")
            worst = max(worst, float(np.abs(found - right.ravel()).max()))
    return worst


class Wrk:
    """Connections that send one request after another: how many there were, how many failed, and how long they took."""

    def __init__(self, address, connections, requests, folder):
        if shutil.which("wrk") is None:
            raise SystemExit("wrk is missing; install it, in Debian by `apt-get install wrk`")
        file = Path(folder) / f"{len(requests[0])}.requests"
        file.write_bytes(b"".join(requests))
        self.command = ["wrk", "-t1", f"-c{connections}", "--latency", "-s", str(ROOT / "tools/load.lua")]
        self.script = [f"http://{address[0]}:{address[1]}", "--", str(file), str(len(requests[0]))]
        self.count, self.errors, self.times = 0, 0, []

    def __call__(self, seconds):
        """Requests per second."""
        line = [*self.command, f"-d{seconds:g}s", *self.script]
        text = subprocess.run(line, capture_output=True, text=True, check=True).stdout
        if failed := re.findall(r"(?:Non-2xx or 3xx responses|connect|read|write|timeout):? (\d+)", text):
            self.errors += sum(map(int, failed))
        self.count += int(re.search(r"(\d+) requests in", text)[1])
        units = {"us": 1e-3, "ms": 1.0, "s": 1e3}
        found = {level: float(time) * units[unit] for level, time, unit in re.findall(r"(\d+)%\s+([\d.]+)(\w+)", text)}
        self.times.append([found[level] for level in ("50", "90", "99")])
        return float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1])


def family(process):
    """A process and its children."""
    return [process, *map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split())]


def processor_seconds(process):
    """Processor time that a process and its children have used."""
    stats = [Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split() for each in family(process)]
    return sum(int(fields[11]) + int(fields[12]) for fields in stats) / os.sysconf("SC_CLK_TCK")


def resident(process):
    """Megabytes of memory of a process and its children."""
    lines = [Path(f"/proc/{each}/status").read_text().splitlines() for each in family(process)]
    return sum(int(line.split()[1]) for each in lines for line in each if line.startswith("VmRSS")) / 1024


@contextlib.contextmanager
def running_server(folder, workers):
    """A server of the models in a folder: its process and its address."""
    command = [sys.executable, "-c", "from loca.cli import main; main()", "serve", str(folder), "--port", "0"]
    process = subprocess.Popen([*command, "--workers", str(workers)], stderr=subprocess.PIPE, text=True)
    ready, address = 0, None
    try:
        for line in process.stderr:
            ready += "startup complete" in line
            if "running on" in line:
                address = "127.0.0.1", int(line.rpartition(":")[2].split()[0])
            if address and ready == workers:
                break
            if not line.startswith("INFO"):
                print(line, end="", file=sys.stderr)
        else:
            raise RuntimeError("the server did not start")
        threading.Thread(target=process.stderr.read, daemon=True).start()  # so that the server can write
        time.sleep(0.5)  # the last worker starts to listen
        yield process, address
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def spread(values):
    """The median, and the least and the largest."""
    return round(float(np.median(values)), 3), [round(float(value), 3) for value in (min(values), max(values))]


def measure(kind, arguments, *, is_last):
    """All results for one model; the long run follows the last one."""
    model, data = example_model(kind)
    u, expected = np.asarray(data.u), np.asarray(model.predict(data.u, data.y.points))
    found = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "versions": f"Python {platform.python_version()}, JAX {jax.__version__}",
        "model": kind,
        "workers": arguments.workers,
        "values": [data.u[0].size, int(expected[0].size)],
        "connections": arguments.connections,
    }
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model").mkdir()
        loca.save(model, Path(folder) / "model/model.safetensors", data=data)
        with running_server(folder, arguments.workers) as (process, address):
            found["worst_difference"] = worst_difference(address, u, expected)
            longer = [request_bytes(each) for each in np.split(u, len(u) // SEVERAL)]
            groups = [request_bytes(each[None]) for each in u], longer
            one, four = (Wrk(address, arguments.connections, each, folder) for each in groups)
            one(1.0)
            one.times.clear()
            bare, served, costs, shares, shares_of_several = [], [], [], [], []
            for _ in range(arguments.rounds):  # in turns: other programs on the machine slow both
                rate = bare_rate(model, data, arguments.seconds)
                used, count = processor_seconds(process.pid), one.count
                served.append(one(arguments.seconds))
                costs.append((processor_seconds(process.pid) - used) / (one.count - count))
                bare.append((rate + bare_rate(model, data, arguments.seconds)) / 2.0)  # before and after
                shares.append(served[-1] / bare[-1])
                shares_of_several.append(SEVERAL * four(arguments.seconds) / bare[-1])
            found["bare_per_second"], found["served_per_second"] = round(np.median(bare)), round(np.median(served))
            found["share"], found["share_range"] = spread(shares)
            found["share_of_several"], found["share_of_several_range"] = spread(shares_of_several)
            found["processor_us"] = round(1e6 * float(np.median(costs)))
            found["full_load_ms"] = [round(float(value), 2) for value in np.median(one.times, axis=0)]
            if arguments.soak and is_last:
                found["soak"] = soak(one, arguments.soak, process.pid)
            found["requests"], found["errors"] = one.count + four.count, one.errors + four.errors
    return found


def soak(wrk, seconds, process):
    """Memory during a long run at full load: after its first tenth, and the largest later."""
    memory, rates = [], []
    thread = threading.Thread(target=lambda: rates.append(wrk(seconds)))
    thread.start()
    while thread.is_alive():
        memory.append(resident(process))
        thread.join(seconds / 100)
    settled, largest = memory[len(memory) // 10], max(memory[len(memory) // 10 :])
    megabytes = [round(settled, 1), round(largest, 1)]
    return {"seconds": seconds, "per_second": round(rates[0]), "megabytes": megabytes, "errors": wrk.errors}


def table(results):
    """The results as a table of the documentation, with a column for each model."""
    connections, workers = results[0]["connections"], results[0]["workers"]
    rows = {
        "bare model, batches of 32, functions per second": lambda found: found["bare_per_second"],
        f"server, {workers} workers, {connections} connections, requests per second": lambda found: found[
            "served_per_second"
        ],
        "share of the bare model (least, most)": lambda found: "{} ({}, {})".format(
            found["share"], *found["share_range"]
        ),
        f"share with {SEVERAL} functions in a request (least, most)": lambda found: "{} ({}, {})".format(
            found["share_of_several"], *found["share_of_several_range"]
        ),
        "processor time per request (µs)": lambda found: found["processor_us"],
        "50, 90, 99 % of responses within (ms)": lambda found: "{}, {}, {}".format(*found["full_load_ms"]),
        "requests, errors": lambda found: f"{found['requests']}, {found['errors']}",
    }
    models = [found["model"] for found in results]
    lines = [f"| | {' | '.join(models)} |", f"| --- |{' ---: |' * len(models)}"]
    return "\n".join(
        lines + [f"| {name} | {' | '.join(str(cell(f)) for f in results)} |" for name, cell in rows.items()]
    )


def soak_sentence(results):
    """The long run in words; empty if there was none."""
    runs = [found["soak"] for found in results if "soak" in found]
    return " ".join(
        f"In {run['seconds'] / 60:g} minutes at {run['per_second']} requests per second, memory grew from "
        f"{run['megabytes'][0]} MB after the first tenth to {run['megabytes'][1]} MB; {run['errors']} errors."
        for run in runs
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--model", action="append", choices=["LOCA", "FNO", "DeepONet"], help="LOCA and DeepONet by default"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes of the server")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--seconds", type=int, default=2, help="of every measurement")
    parser.add_argument("--rounds", type=int, default=9, help="of bare model and server, in turns")
    parser.add_argument("--soak", type=float, default=0.0, metavar="SECONDS", help="a long run at full load")
    parser.add_argument("--out", type=Path, help="write the results to this file")
    parser.add_argument("--table", action="store_true", help=f"print the table of {RESULTS.relative_to(ROOT)}")
    arguments = parser.parse_args()
    if arguments.table:
        results = json.loads(RESULTS.read_text())
        print(table(results), soak_sentence(results), sep="\n\n")
        return
    kinds = arguments.model or ["DeepONet", "LOCA"]
    results = [measure(kind, arguments, is_last=kind == kinds[-1]) for kind in kinds]
    print(json.dumps(results, indent=2))
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
