"""The view events of a run or replay, written to a file while it goes on."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.subscriptions import ViewEvent
from orderbook.assembly import Assembly
from orderbook.errors import OrderbookError
from orderbook.pipeline import Pipeline
from orderbook.view_output import open_output


@contextmanager
def written_views(out: Path | None, assembly: Assembly, pipeline: Pipeline) -> Iterator[list[Exception]]:
    """Writes every change of the chosen views' rows, from the rows there are, until it ends or writing fails.

    Gives the list that what failed is put into; without a file nothing is written.
    """
    failures: list[Exception] = []
    if out is None:
        yield failures
        return
    program = assembly.program
    results = {name: program.program.result(name) for name in assembly.views}
    keys = {view.name: [key.name for key in view.keys] for view in program.views}
    output = open_output(out, results, keys)
    try:

        def write(event: ViewEvent) -> None:
            try:
                output.write(event, pipeline.time)
            except Exception as error:
                failures.append(error)
                raise

        for view in assembly.views:
            # A view has rows before the first event where it groups by nothing, or after a recovery.
            live = pipeline.engine[view]
            for key, row in live.items():
                output.write(ViewEvent.between(live.layout, key, None, row, (0, 0, 0)), 0)
            pipeline.engine.watch_rows(view, write)
        yield failures
    finally:
        try:
            output.close()
        except OrderbookError as error:
            failures.append(error)
