"""Write docs/commands.md, the reference of the command line, from the commands themselves.

python tools/commands.py           # print the page
python tools/commands.py --write   # write it
"""

import inspect
import sys
import typing
from collections.abc import Callable
from pathlib import Path

import typer

from loca.cli.app import COMMANDS
from loca.cli.arguments import plain, with_options

PAGE = Path(__file__).parents[1] / "docs/commands.md"

HEAD = """\
---
description: Every command of loca, with its arguments and options.
---

# Commands

[A first run](tour.md) shows the output of the main commands, and [Quick start](quick-start.md) uses them on a file of
your own. `loca COMMAND --help` prints the same as this page, which `python tools/commands.py --write` writes.

Every command ends with exit code 0 if it succeeded, 1 if it failed, 2 if the command line is wrong, 130 after Ctrl-C
and 143 after SIGTERM. Set `LOCA_DEBUG=1` for the traceback of an error.
"""

VALUES = {int: "INTEGER", float: "NUMBER", Path: "PATH"}


def page() -> str:
    """The page: a table of every group of commands, and a section for every command."""
    parts = [HEAD]
    for group, commands in COMMANDS.items():
        rows = [(f"[`{each.__name__}`](#{each.__name__})", split(each)[0]) for each in commands]
        parts.append(table((group, "what it does"), rows))
    return "\n".join([*parts, *(section(each) for commands in COMMANDS.values() for each in commands)])


def split(command: Callable[..., None]) -> tuple[str, str]:
    """The first sentence of a command's help, and the rest."""
    first, _, rest = (inspect.getdoc(command) or "").partition("\n\n")
    return " ".join(first.split()), rest


def section(command: Callable[..., None]) -> str:
    """What a command does, its usage, its arguments, and its options in their groups."""
    first, rest = split(command)
    usage, arguments, panels = ["loca", command.__name__], [], dict[str, list[tuple[str, ...]]]()
    for each in inspect.signature(with_options(command)).parameters.values():
        kind, info = typing.get_args(each.annotation)[:2]
        is_required = each.default is inspect.Parameter.empty
        if isinstance(info, typer.models.ArgumentInfo):
            value = info.metavar or each.name.upper()
            usage.append(value)
            arguments.append((f"`{value}`", info.help if is_required else f"{info.help} Optional."))
            continue
        kind = plain(kind)
        value = info.metavar or VALUES.get(kind, "TEXT")
        spelled = [each for each in (info.default, *info.param_decls) if isinstance(each, str)]  # as Typer reads them
        names = ", ".join(spelled).replace("/", "`, `") or f"--{each.name.replace('_', '-')}"
        usage += [names, value] if is_required else []
        known = is_required or each.default is None or kind is bool
        text = f"{info.help}{' Required.' if is_required else '' if known else f' Default: {each.default}.'}"
        row = f"`{names}`", "" if kind is bool else f"`{value}`", text
        panels.setdefault(info.rich_help_panel or "Options", []).append(row)
    shown = f"```text\n{' '.join([*usage, '[OPTIONS]'])}\n```\n"
    parts = [f"## {command.__name__}\n", f"{first}\n", shown, *([f"{rest}\n"] if rest else [])]
    parts += [table(("Argument", "Meaning"), arguments)]
    return "\n".join([*parts, *(table((panel, "Value", "Meaning"), rows) for panel, rows in panels.items())])


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page()) if "--write" in sys.argv else sys.stdout.write(page())
