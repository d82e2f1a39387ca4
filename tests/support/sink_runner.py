"""A process whose sinks write to a server until it is killed: FOLDER URL TABLE SEED COUNT."""

import sys
import time
from pathlib import Path
from typing import Any

from sink_support import Run, messages

from orderbook.core.errors import Problems
from orderbook.engine.runtime.engine_state import program_hash
from orderbook.sinks.delivery import ChangeDelivery, Delivery, RowDelivery
from orderbook.sinks.outbox import Outbox
from orderbook.sinks.postgres import PostgresChanges, PostgresRows


def postgres_sinks(url: str, table: str) -> Any:
    """Of the rows of `totals` in a table, and of its changes in TABLE_changes."""

    def made(own: Any, folder: Path) -> list[Delivery]:
        view, problems = own.program.result("totals"), Problems()
        outbox = Outbox(folder / "sinks" / "totals", program_hash(own).hex(), segment_bytes=1 << 14)
        changes = PostgresChanges(url, f"{table}_changes", view, problems)
        return [
            RowDelivery("rows", "totals", PostgresRows(url, table, view, problems), 0.0, 1000, problems),
            ChangeDelivery("changes", "totals", changes, 0.0, outbox, 10**9, problems),
        ]

    return made


def main(folder: str, url: str, table: str, seed: str, count: str) -> None:
    run = Run(Path(folder), postgres_sinks(url, table))
    print("began", flush=True)
    for number, message in enumerate(messages(int(seed), int(count))):
        if number >= run.items:
            run.apply(message)
            if number % 40 == 39:
                run.durable.checkpoint()
            time.sleep(0.001)
    run.settle()
    run.close()
    print("ended", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
