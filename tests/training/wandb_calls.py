"""Calls of wandb's public interface, as tests see them: wandb itself has no interface that reads offline runs."""

import json
from pathlib import Path


def observe(path: Path) -> None:
    """From now on, append every call to a file, one JSON object per line; the calls are carried out as well."""
    import wandb

    init = wandb.init

    def note(**call):
        with path.open("a") as file:
            file.write(json.dumps(call) + "\n")

    def observed(**arguments):
        run = init(**arguments)
        note(init=arguments["id"], config=arguments["config"])
        log, finish = run.log, run.finish
        run.log = lambda row, step: (note(row=row, step=step), log(row, step=step))
        run.finish = lambda exit_code: (finish(exit_code=exit_code), note(finish=exit_code))
        return run

    wandb.init = observed


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]
