"""`orderbook views`: the views that ship and those on the search path, listed, or one of them described."""

import sys
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from orderbook.configuration.configuration import Configuration, load_configuration
from orderbook.core.errors import SqlError, visible, visible_lines
from orderbook.engine.plan.describe import statement_cost
from orderbook.engine.plan.planner import plan
from orderbook.run.assembly import compiled_beside, view_files
from orderbook.views.library import Description, described, shipped_views, text_of

# Columns of a list that is piped.
_WIDTH = 110


def views(view: str | None, config: Path | None) -> None:
    """Print a line for each view, or what there is to know of one. Raises ConfigurationError for one that
    there is not, SqlError for a file that cannot be read."""
    configuration = load_configuration(config)
    if view is None:
        _list(configuration)
    else:
        _describe(configuration, view)


def _list(configuration: Configuration) -> None:
    shipped = shipped_views()
    own = [file for file in view_files(configuration) if file not in shipped.values()]
    table = Table("view", "what it measures", "an event costs", box=box.SIMPLE_HEAD, pad_edge=False)
    for name, file in (*((file.stem, file) for file in own), *shipped.items()):
        try:
            found = described(file)
        except SqlError as error:
            found = Description(str(error), "", "", ())
        table.add_row(name, visible(_first_sentence(found.measures)), found.cost)
    console = Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False, markup=False)
    console.print(table)
    print("`orderbook views VIEW` shows one; `--view VIEW` uses it, `--set NAME=VALUE` sets its parameters")


def _first_sentence(text: str) -> str:
    return text.split(". ")[0]


def _describe(configuration: Configuration, view: str) -> None:
    file = configuration.view_file(view)
    found, sql = described(file), text_of(file)
    parameters = {**{one.name: one.default for one in found.parameters}, **configuration.parameters}
    program = compiled_beside(configuration, file)
    read = [trigger.relation for trigger in program.program.triggers]
    lines = [view, "", f"  {found.measures}."]
    lines += [f"  source: {found.source}"] if found.source else []
    lines += [f"  reads: {', '.join(dict.fromkeys(read))}"]
    planned = plan(program.program)
    cost = max(statement_cost(planned, s) for t in planned.triggers for s in t.statements)
    lines += [f"  an event costs: {found.cost or cost}"]
    lines += [f"  --set {one.name}={parameters[one.name]}: {one.meaning}" for one in found.parameters]
    lines += ["", *sql.splitlines()]
    print(visible_lines(lines) if sys.stdout.isatty() else "\n".join(lines))
