"""Does `loca.choose` find the best model within five minutes, and is it better than ridge regression on test functions?

    LOCA_DATA=/path/to/data python studies/chosen.py                  # all cases, five minutes each
    LOCA_DATA=/path/to/data python studies/chosen.py --case europe    # one case
    python studies/chosen.py --table                                  # print the tables of docs/benchmarks.md

Data are those of studies/solved.py, seed 0. Models are compared on validation functions; only the winner, ridge
regression and the mean field are evaluated on test functions, once. Errors are mean relative L2 errors. Results are
added to studies/chosen.json, one row per case; rows that exist are not computed again.
"""

import argparse
import dataclasses
import time
from pathlib import Path

from rows import Rows, markdown, read_rows
from solved import CACHE, channels, measure, shown, source, title

import loca
from loca.choosing import fit_ridge
from loca_reproduction.runs import BASELINES

RESULTS = Path(__file__).parent / "chosen.json"
CASES = ("darcy-literal-1000-128", "shallow-water", "mnist", "europe", "antiderivative-0.1")
MODELS = ("ridge", "Gaussian", "FNO", "LOCA", "DeepONet")
MINUTES = 5.0


def row(case: str) -> dict:
    """The choice of one case, and the test errors of its winner."""
    CACHE.mkdir(parents=True, exist_ok=True)
    data = source(case).load(0, CACHE)
    began = time.time()
    operator, report = loca.choose(data.train, minutes=MINUTES, validation=data.validation)
    print(report, flush=True)
    return {
        "case": case, "minutes": (time.time() - began) / 60.0, "report": dataclasses.asdict(report),
        "winner": report.winner.model, "test": measure(operator, data),
        "ridge": measure(fit_ridge(data.train, data.validation, transforms=True)[0], data),
        "mean field": measure(BASELINES["mean field"](data), data),
    }  # fmt: skip


def tables(results: list[dict]) -> list[str]:
    """Validation errors of all models, and test errors of the winner, as Markdown."""
    validation, tests = [], []
    for each in sorted(results, key=lambda each: CASES.index(each["case"])):
        errors = {entry["model"]: entry["error"] for entry in each["report"]["entries"]}
        cells = ["–" if errors.get(model) is None else shown("error", errors[model]) for model in MODELS]
        validation.append([title(each["case"]), *cells])
        for name in each["test"]:
            if name != "skill":
                label = title(each["case"]) if name == "test" else f"{title(each['case'])}, {name} inputs"
                for i, channel in enumerate(channels(each["case"])):
                    errors = [shown("error", each[who][name][i]) for who in ("test", "ridge", "mean field")]
                    tests.append([label + channel, *errors, format(each["minutes"], ".1f")])
    return [
        markdown(["validation functions", *MODELS], validation),
        markdown(["test functions", "winner", "ridge", "mean field", "minutes"], tests),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--table", action="store_true", help="print the results so far as Markdown")
    given = parser.parse_args()
    if given.table:
        print(*tables(read_rows(RESULTS)), sep="\n\n")
        return
    rows = Rows(RESULTS)
    for case in given.case or CASES:
        if {"case": case} not in rows:
            rows.add(row(case))


if __name__ == "__main__":
    main()
