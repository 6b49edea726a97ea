"""Our FNO, DeepONet and LOCA beside neuraloperator's FNO and DeepXDE's DeepONet: who is quicker per step, and to 5 %?

    parity/peers/environment.sh                  # once; downloads PyTorch and the peers
    python studies/peers.py                      # about 10 minutes on two quiet cores
    python studies/peers.py --rounds 3 --runs 1  # a glance

Writes studies/peers.json and prints it as a table. The rules of the match are in loca/benchmarks/peers.py, what is done
to the peers' advantage in parity/peers/side.py.
"""

import argparse
import dataclasses
import json
import os
import sys
import time
from pathlib import Path

from loca_reproduction.benchmarks import ComparisonFigures, measure_peers
from loca_reproduction.machine import commit, hardware

HERE = Path(__file__).parent
RESULTS = HERE / "peers.json"
NAMES = {
    "fno": "FNO, ours",
    "neuraloperator": "FNO, neuraloperator, default blocks",
    "neuraloperator-alike": "FNO, neuraloperator, our layers",
    "deeponet": "DeepONet, ours",
    "loca": "LOCA, ours",
    "deepxde": "DeepONet, DeepXDE, as in its demos",
    "deepxde-alike": "DeepONet, DeepXDE, our layers",
}


def table(matches: tuple[ComparisonFigures, ...]) -> str:
    """Markdown."""
    rows = [
        "| model | parameters | batch | ms per step | against ours | seconds to error | steps | run as |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for match in matches:
        for side in match.sides:
            arrived = side.seconds_to_target is not None
            reached = f"{side.seconds_to_target:.1f} to {match.target:.0%}" if arrived else "not reached"
            rows.append(
                f"| {NAMES[side.side]} | {side.parameters} | {match.batch_size} | {side.step_ms:.2f} | "
                f"{side.step_ratio:.2f} | {reached} | {side.steps_to_target or ''} | {side.way} |"
            )
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    began, load = time.time(), os.getloadavg()[0]
    matches = measure_peers(rounds=asked.rounds, runs=asked.runs, parity=HERE.parent / "parity")
    results = {
        "command": " ".join(["python", *sys.argv]),
        "commit": commit(),
        "hardware": hardware(),
        "load_before": load,
        "minutes": (time.time() - began) / 60,
        "matches": [dataclasses.asdict(match) for match in matches],
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(table(matches))


if __name__ == "__main__":
    main()
