"""Measure the server: throughput against the bare model, response times at half load, and memory over time.

    python tools/load.py                          # LOCA and FNO with 1024 values in and out, a worker for every core
    python tools/load.py --soak 3600              # and an hour at half load
    python tools/load.py --soak 3600 --rate 200   # and an hour at 200 requests per second
    python tools/load.py --out reproduction/studies/load.json  # keep the results for the documentation
    python tools/load.py --table                  # print them as the table of docs/deploy.md

Throughput is measured with `wrk` (in Debian's package of this name), which takes little of the machine that it shares
with the server. A client of our own, a thread with raw sockets, measures response times at a constant rate, compares
the responses with the model, and shows what a client in Python gets.
"""

import argparse
import contextlib
import datetime
import json
import os
import platform
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
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
    """Functions per second of the compiled model in batches, from NumPy to NumPy, without a server; and their cost."""
    predict, u = jax.jit(jax.vmap(model.at(data.y.points))), np.asarray(data.u[:BATCH])
    np.asarray(predict(u))
    count, start, used = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - start < seconds:
        np.asarray(predict(u))
        count += BATCH
    return count / (time.perf_counter() - start), (time.process_time() - used) / count


def request_bytes(u, name="model"):
    """An inference request for some functions with binary tensors, as it travels."""
    tensor = {"name": "u", "datatype": "FP32", "shape": list(u.shape), "parameters": {"binary_data_size": 4 * u.size}}
    output = {"name": "s", "parameters": {"binary_data": True}}
    text = json.dumps({"inputs": [tensor], "outputs": [output]}).encode()
    body = text + np.asarray(u, "<f4").tobytes()
    head = f"POST /v2/models/{name}/infer HTTP/1.1\r\nHost: load\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Inference-Header-Content-Length: {len(text)}\r\n\r\n".encode() + body


class Client:
    """Connections that send one request after another and measure the time to the response."""

    def __init__(self, address, connections, requests, expected):
        self.requests, self.expected = requests, expected
        self.poll = select.epoll()
        self.sockets, self.received, self.began, self.which = {}, {}, {}, {}
        self.idle = deque()
        for _ in range(connections):
            each = socket.create_connection(address)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            each.setblocking(False)
            number = each.fileno()
            self.sockets[number] = each
            self.poll.register(number, select.EPOLLIN)
            self.idle.append(number)
        self.length, self.count, self.errors, self.worst = None, 0, 0, 0.0

    def send(self, scheduled):
        """Send the next request on an idle connection; its time counts from `scheduled`."""
        number = self.idle.popleft()
        self.which[number] = self.count % len(self.requests)
        self.count += 1
        self.received[number], self.began[number] = b"", scheduled
        self.sockets[number].sendall(self.requests[self.which[number]])

    def receive(self, timeout):
        """Read what has arrived; return the times of responses that are complete."""
        times = []
        for number, _ in self.poll.poll(timeout):
            data = self.sockets[number].recv(65536)
            if not data:
                raise ConnectionError("the server closed a connection")
            self.received[number] += data
            if self.length is None and b"\r\n\r\n" in self.received[number]:
                head, _, _ = self.received[number].partition(b"\r\n\r\n")
                size = next(
                    int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
                )
                self.length = len(head) + 4 + size  # equal for all responses
            if len(self.received[number]) == self.length:
                times.append(time.perf_counter() - self.began[number])
                self.check(number)
                self.idle.append(number)
        return times

    def check(self, number):
        """Count a response that is an error, and compare every 16th one with the model itself."""
        response = self.received[number]
        self.errors += not response.startswith(b"HTTP/1.1 200")
        if self.count % 16 == 0:
            expected = self.expected[self.which[number]]
            found = np.frombuffer(response[-4 * expected.size :], "<f4")
            self.worst = max(self.worst, float(np.abs(found - expected.ravel()).max()))

    def close(self):
        """Close all connections."""
        for each in self.sockets.values():
            each.close()
        self.poll.close()


def closed_loop(client, seconds):
    """Requests per second when every connection sends its next request after each response."""
    end, times = time.perf_counter() + seconds, []
    start = time.perf_counter()
    while time.perf_counter() < end:
        while client.idle:
            client.send(time.perf_counter())
        times += client.receive(1.0)
    elapsed = time.perf_counter() - start
    while len(client.idle) < len(client.sockets):
        client.receive(1.0)
    return len(times) / elapsed


class Wrk:
    """The same closed loop by `wrk`: requests per second, how many there were, and how many had errors."""

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


def open_loop(client, seconds, rate, watch=lambda: None):
    """Response times at a constant rate; a request that must wait for a connection has waited since its time."""
    start, sent, times = time.perf_counter(), 0, []
    while (now := time.perf_counter()) < start + seconds:
        while client.idle and start + sent / rate <= now:
            client.send(start + sent / rate)
            sent += 1
        times += client.receive(max(0.0, min(start + sent / rate - time.perf_counter(), 0.05)))
        watch()
    while len(client.idle) < len(client.sockets):
        times += client.receive(1.0)
    return times


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
    listening = 0
    try:
        for line in process.stderr:
            event = json.loads(line) if line.startswith("{") else {}
            if event.get("event") == "listening":
                host, port = event["address"].rpartition("/")[2].split(":")
                listening += 1
                if listening == workers:
                    break
            if event.get("level") != "info":
                print(line, end="", file=sys.stderr)
        else:
            raise RuntimeError("the server did not start")
        yield process, (host, int(port))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def percentiles(times):
    """Milliseconds that half, 90 % and 99 % of the responses take at most."""
    return [round(1e3 * float(value), 2) for value in np.percentile(times, [50, 90, 99])]


def spread(values):
    """The median, and the least and the largest."""
    return round(float(np.median(values)), 3), [round(float(value), 3) for value in (min(values), max(values))]


def measure(kind, arguments, *, is_last):
    """All results for one model; the long run follows the last one."""
    model, data = example_model(kind)
    u, expected = np.asarray(data.u), np.asarray(model.predict(data.u, data.y.points))
    requests = [request_bytes(each[None]) for each in u]
    found = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "versions": f"Python {platform.python_version()}, JAX {jax.__version__}",
        "shared": arguments.shared,
        "model": kind,
        "workers": arguments.workers,
        "values": [data.u[0].size, int(expected[0].size)],
        "connections": arguments.connections,
    }
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model").mkdir()
        loca.save(model, Path(folder) / "model/model.safetensors", data=data)
        with running_server(folder, arguments.workers) as (process, address):
            client = Client(address, arguments.connections, requests, expected)
            longer = [request_bytes(each) for each in np.split(u, len(u) // SEVERAL)]
            several = Client(address, arguments.connections, longer, np.split(expected, len(longer)))
            for each in (client, several):
                closed_loop(each, 1.0)
            one, four = (Wrk(address, arguments.connections, each, folder) for each in (requests, longer))
            bare, served, costs, shares, shares_of_several, shares_in_python = [], [], [], [], [], []
            for _ in range(arguments.rounds):  # in turns: other programs on the machine slow both
                rate, cost = bare_rate(model, data, arguments.seconds)
                used, count = processor_seconds(process.pid), one.count
                served.append(one(arguments.seconds))
                costs.append((cost, (processor_seconds(process.pid) - used) / (one.count - count)))
                bare.append((rate + bare_rate(model, data, arguments.seconds)[0]) / 2.0)  # before and after
                shares.append(served[-1] / bare[-1])
                shares_of_several.append(SEVERAL * four(arguments.seconds) / bare[-1])
                shares_in_python.append(closed_loop(client, arguments.seconds) / bare[-1])
            found["bare_per_second"], found["served_per_second"] = round(np.median(bare)), round(np.median(served))
            found["share"], found["share_range"] = spread(shares)
            found["share_of_several"], found["share_of_several_range"] = spread(shares_of_several)
            found["share_in_python"], found["share_in_python_range"] = spread(shares_in_python)
            found["processor_us"] = [round(1e6 * float(cost)) for cost in np.median(costs, axis=0)]
            found["full_load_ms"] = [round(float(value), 2) for value in np.median(one.times, axis=0)]
            half, clients = 0.5 * float(np.median(served)), [client, several, one, four]
            times, half_costs = [], []
            for _ in range(arguments.rounds):  # new connections, which the system distributes among the workers
                clients.append(Client(address, arguments.connections, requests, expected))
                used = processor_seconds(process.pid)
                times.append(percentiles(open_loop(clients[-1], 2.0 * arguments.seconds, half)))
                half_costs.append((processor_seconds(process.pid) - used) / clients[-1].count)
                clients[-1].close()
            found["half_load_processor_us"] = round(1e6 * float(np.median(half_costs)))
            found["half_load_ms"], found["half_load_range"] = zip(*map(spread, zip(*times, strict=True)), strict=True)
            if arguments.soak and is_last:
                print(f"{kind}: {found}; {arguments.soak:g} s at a constant rate follow", file=sys.stderr)
                found["soak"] = soak(client, arguments.soak, arguments.rate or half, process.pid)
                found["soak"] |= {"date": found["date"], "shared": arguments.shared}
            found["requests"], found["errors"] = (
                sum(getattr(c, name) for c in clients) for name in ("count", "errors")
            )
            found["worst_difference"] = max(each.worst for each in clients if isinstance(each, Client))
            client.close()
            several.close()
    return found


def soak(client, seconds, rate, process):
    """Memory during a long run at a constant rate: after its first tenth, and the largest later."""
    start, memory = time.perf_counter(), []

    def watch():
        if time.perf_counter() - start >= len(memory) * seconds / 100:
            memory.append(resident(process))

    times = open_loop(client, seconds, rate, watch)
    settled, largest = memory[len(memory) // 10], max(memory[len(memory) // 10 :])
    return {
        "seconds": seconds,
        "per_second": round(len(times) / seconds),
        "ms": percentiles(times),
        "megabytes": [round(settled, 1), round(largest, 1)],
        "growth": round(largest / settled - 1.0, 4),
        "errors": client.errors,
    }


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
        "share with a client in Python (least, most)": lambda found: "{} ({}, {})".format(
            found["share_in_python"], *found["share_in_python_range"]
        ),
        "processor time per function: bare model, server at full and at half load (µs)": lambda found: (
            "{}, {}, {}".format(*found["processor_us"], found["half_load_processor_us"])
        ),
        "full load: 50, 90, 99 % of responses within (ms)": lambda found: "{}, {}, {}".format(*found["full_load_ms"]),
        "half load: 50, 90, 99 % of responses within (ms)": lambda found: "{}, {}, {}".format(*found["half_load_ms"]),
        "the same, largest of all rounds (ms)": lambda found: "{}, {}, {}".format(
            *[b for _, b in found["half_load_range"]]
        ),
        "requests, errors": lambda found: f"{found['requests']}, {found['errors']}",
    }
    models = [found["model"] for found in results]
    lines = [f"| | {' | '.join(models)} |", f"| --- |{' ---: |' * len(models)}"]
    return "\n".join(
        lines + [f"| {name} | {' | '.join(str(cell(f)) for f in results)} |" for name, cell in rows.items()]
    )


def soak_sentence(results):
    """The long run in words."""
    run = next(found["soak"] for found in results if "soak" in found)
    others = " Other programs used the machine meanwhile, so the response times of that hour say little."
    return (
        f"In {run['seconds'] / 60:g} minutes at {run['per_second']} requests per second, memory grew by "
        f"{100 * run['growth']:.1f} % after the first tenth ({run['megabytes'][0]} MB to {run['megabytes'][1]} MB), "
        f"and {run['errors']} responses were errors.{others if run['shared'] else ''}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", action="append", choices=["LOCA", "FNO", "DeepONet"], help="LOCA and FNO by default")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes of the server")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--seconds", type=int, default=2, help="of every measurement")
    parser.add_argument("--rounds", type=int, default=9, help="of bare model and server, in turns")
    parser.add_argument("--soak", type=float, default=0.0, metavar="SECONDS", help="a long run at a constant rate")
    parser.add_argument("--rate", type=float, help="requests per second of the long run (default: half load)")
    parser.add_argument("--shared", action="store_true", help="note that other programs used the machine")
    parser.add_argument("--out", type=Path, help="write the results to this file")
    parser.add_argument("--table", action="store_true", help=f"print the table of {RESULTS.relative_to(ROOT)}")
    arguments = parser.parse_args()
    if arguments.table:
        results = json.loads(RESULTS.read_text())
        print(table(results), soak_sentence(results), sep="\n\n")
        return
    results = []
    kinds = arguments.model or ["FNO", "LOCA"]
    for kind in kinds:
        results.append(measure(kind, arguments, is_last=kind == kinds[-1]))
    print(json.dumps(results, indent=2))
    if arguments.out:
        earlier = json.loads(arguments.out.read_text()) if arguments.out.exists() else []
        long_runs = {found["model"]: {"soak": found["soak"]} for found in earlier if "soak" in found}
        results = [long_runs.get(found["model"], {}) | found for found in results]  # the last long run of each is kept
        arguments.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
