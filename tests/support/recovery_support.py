"""Runs with a log in a folder, which recover and end without a word, and the views that they have."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from durable_support import INSTRUMENTS, Trader

from orderbook.configuration.configuration import load_configuration
from orderbook.durability.durable_run import DurableRun, open_past
from orderbook.market.instruments import Instrument, Instruments
from orderbook.run.event_queue import Stamped
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.strategy import Strategy, StrategyDefinition
from orderbook.views.compilation import compile_views

DEPTH = "SELECT symbol, COUNT(*) AS orders, SUM(volume) AS volume FROM bids GROUP BY symbol"
VIEWS = {
    "depth": DEPTH,
    "asked": "SELECT symbol, SUM(volume * price) AS turnover FROM asks WHERE volume > :k GROUP BY symbol",
    "levels": "SELECT symbol, price, SUM(volume) AS v FROM bids GROUP BY symbol, price",
    "both": "SELECT b.symbol, COUNT(*) AS n FROM bids b JOIN asks a ON a.symbol = b.symbol GROUP BY b.symbol",
    "my_orders": "SELECT strategy, status, COUNT(*) AS n, SUM(filled) AS f FROM orders "
    "GROUP BY strategy, status",
    "my_fills": "SELECT side, COUNT(*) AS n, SUM(volume * price) AS turnover FROM fills GROUP BY side",
    "states": "SELECT symbol, state, reason, COUNT(*) AS n FROM book_states GROUP BY symbol, state, reason",
    "listed": "SELECT symbol, tick, lot, COUNT(*) AS n FROM instruments GROUP BY symbol, tick, lot",
    "aged": "SELECT symbol, COUNT(*) AS n FROM bids WHERE ts > NOW() - INTERVAL '1 second' GROUP BY symbol",
}
STREAM = "CREATE STREAM news (symbol TEXT NOT NULL, score DECIMAL(6, 2)) WITH (max_rows = 50);\n"
SCORES = "CREATE VIEW scores AS SELECT symbol, SUM(score) AS s, COUNT(*) AS n FROM news GROUP BY symbol;\n"


def sql_of(names: Sequence[str]) -> str:
    return "".join(f"CREATE VIEW {name} AS {VIEWS[name]};\n" for name in names)


@contextmanager
def session(
    folder: Path,
    sql: str,
    strategies: Sequence[type[Strategy]] = (Trader,),
    k: int = 3,
    keep_rows: bool = False,
    backend: Any = "interpreter",
    instruments: Iterable[Instrument] = INSTRUMENTS,
    segment: str = "16 KB",
) -> Iterator[tuple[Pipeline, DurableRun]]:
    """A process: it recovers, and ends without a word, as one that is killed."""
    options = {"log.folder": str(folder), "log.segment": segment, "log.sync": "never", "log.keep_log": True}
    configuration = load_configuration(None, options)
    program = compile_views(sql, {"k": k})

    def make(known: Instruments) -> Pipeline:
        engine = GatedEngine(program, backend, keep_rows=keep_rows)
        return Pipeline(engine, known, [StrategyDefinition(kind) for kind in strategies])

    with open_past(configuration, program, Instruments(instruments)) as past:
        pipeline, run = past.recovered(make)
        assert run is not None
        yield pipeline, run


def feed(run: DurableRun, received: Sequence[Any]) -> None:
    for item in received:
        stamped = Stamped(run.clock.stamp(), 0, item, True)
        run.accept([stamped])
        run.apply(stamped)
