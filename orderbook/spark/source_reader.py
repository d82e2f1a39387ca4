"""What the data sources of Spark read: rows of a view, events, or books by level, task by task.

There is no shuffle in a data source. So a view whose stages are all by symbol is read by a task for each
bucket of symbols, and another one by one task.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)
from sqlglot import exp

from orderbook.backtesting.following import ASSERTED, STATUS
from orderbook.backtesting.plan import SYMBOL, planned, without_shuffle
from orderbook.backtesting.settings import parsed_granularity, settings_of, view_file
from orderbook.backtesting.sources import SourceSpec, run_instruments, source_specs
from orderbook.backtesting.task_runner import read_task
from orderbook.backtesting.tasks import JobSettings, ReadTask, check_program
from orderbook.configuration.configuration import load_configuration
from orderbook.core.errors import SourceError, UserError, suggestion
from orderbook.engine.distribution.stage_runner import END
from orderbook.feeds.merge import VersionedEvents, read_slices
from orderbook.jobs.datasets import history_of
from orderbook.market.crossed_books import CROSSED_LIMIT
from orderbook.market.instruments import Instruments
from orderbook.spark.batch import sent_batch
from orderbook.spark.frames import only
from orderbook.spark.market_frames import EVENTS, events_table
from orderbook.spark.results import Shape, rows_of
from orderbook.spark.workers import columns_of
from orderbook.views.binding.parser import parse
from orderbook.views.m3_link import is_m3

# The books of all instruments by level.
BOOKS = """
CREATE VIEW books AS
SELECT venue, symbol, side, price, SUM(volume) AS volume, COUNT(*) AS orders
FROM (
    SELECT venue, symbol, 'bid' AS side, price, volume FROM bids
    UNION ALL SELECT venue, symbol, 'ask' AS side, price, volume FROM asks
) AS sides
GROUP BY venue, symbol, side, price
"""
_OPTIONS = {
    "path", "paths", "view", "sql", "history", "granularity", "partitions", "key", "config", "symbols",
    "allow_incomplete", "states", "maxfilespertrigger",
}  # fmt: skip
# The format of changes that may be taken back.
CHANGES = "orderbook.changes"


@dataclass(frozen=True, slots=True)
class Pushed:
    """What filters say: the symbols that are wanted (None: all), and the first and last stamp, ns."""

    symbols: frozenset[str] | None = None
    first: int | None = None
    last: int | None = None

    @property
    def plain(self) -> tuple[frozenset[str] | None, int | None, int | None]:
        """The same as values of Python."""
        return self.symbols, self.first, self.last

    def within(self, one: Filter) -> "Pushed":
        """With what a filter says as well, as far as it can be used."""
        value: Any = getattr(one, "value", None)
        column = getattr(one, "attribute", ())
        if column == (SYMBOL,) and isinstance(one, EqualTo | In):
            values: frozenset[str] = frozenset(value if isinstance(one, In) else (value,))
            return replace(self, symbols=values if self.symbols is None else self.symbols & values)
        stamp = _stamp(column, value)
        if stamp is None:
            return self
        if isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual):
            self = replace(self, first=stamp if self.first is None else max(self.first, stamp))
        if isinstance(one, EqualTo | LessThan | LessThanOrEqual):
            # A timestamp has all nanoseconds of its microsecond.
            last = stamp + (999 if column == ("time",) else 0)
            self = replace(self, last=last if self.last is None else min(self.last, last))
        return self


def _stamp(column: Sequence[str], value: Any) -> int | None:
    """A value that is compared with the column of stamps, or of times."""
    if tuple(column) == ("stamp",) and isinstance(value, int):
        return value
    if tuple(column) == ("time",) and isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.astimezone()
        since = aware - datetime(1970, 1, 1, tzinfo=UTC)
        return ((since.days * 86_400 + since.seconds) * 10**6 + since.microseconds) * 1000
    return None


class SourceReader:
    """One reading of a format with its options; names: the columns that are wanted, in order (none: all).

    Raises UserError for options that cannot be.
    """

    def __init__(self, kind: str, options: Mapping[str, str], names: Sequence[str]) -> None:
        self._kind, self._options, self._names = kind, {k.lower(): v for k, v in options.items()}, names
        for name in self._options:
            if name not in _OPTIONS and not name.startswith("parameters."):
                raise UserError(f"option {name!r}; {suggestion(name, _OPTIONS)}, and parameters.NAME")
        self.pushed = Pushed()
        if "symbols" in self._options:
            symbols = (one.strip() for one in self._options["symbols"].split(","))
            self.pushed = Pushed(frozenset(filter(None, symbols)))

    def push(self, filters: Sequence[Filter]) -> None:
        """Takes note of filters."""
        for one in filters:
            self.pushed = self.pushed.within(one)

    def keep(self, pushed: tuple[Any, ...]) -> None:
        """Goes on with the filters of another reading, see `Pushed.plain`."""
        self.pushed = Pushed(*pushed)

    def schema(self) -> str:
        """All columns, as Spark reads them."""
        if self._kind == "orderbook.events":
            return columns_of(EVENTS)
        schema = self.settings()[1].schema
        return columns_of(schema.append(pa.field(STATUS, pa.string())) if self._kind == CHANGES else schema)

    def flag(self, name: str) -> bool:
        """Whether an option is `true`. Raises UserError for another text."""
        text = self._options.get(name, "false").lower()
        if text not in ("true", "false"):
            raise UserError(f"option {name}: {text!r}; give true or false")
        return text == "true"

    def option(self, name: str, absent: str = "") -> str:
        """The text of an option."""
        return self._options.get(name, absent)

    @property
    def named(self) -> str:
        """A name that readings with other options have not."""
        return json.dumps([self._kind, sorted(self._options.items())])

    def texts(self) -> list[str]:
        """The files, as the user names them. Raises UserError where there are none."""
        found = [self._options["path"]] if "path" in self._options else []
        found += json.loads(self._options.get("paths", "[]"))
        if not found:
            raise UserError("name the files: .load('binance:days/*.gz')")
        return found

    def settings(self) -> tuple[JobSettings, Shape]:
        """The settings of one view, and the shape of its rows."""
        options = self._options
        history = self._kind == CHANGES or self.flag("history")
        looks = parsed_granularity(options.get("granularity", "message")) if history else END
        with TemporaryDirectory() as folder:
            if self._kind == "orderbook.books":
                given = BOOKS
            elif "sql" in options or "view" in options:
                given = options.get("sql") or options["view"]
            else:
                raise UserError("which view? .option('view', 'sobi'), or .option('sql', 'CREATE VIEW …')")
            chosen: dict[str, Any] = {"run.views": [view_file(given, Path(folder), 0)], "run.strategies": []}
            chosen |= {name: value for name, value in options.items() if name.startswith("parameters.")}
            config = Path(options["config"]) if "config" in options else None
            configuration = load_configuration(config, chosen)
            count = int(options.get("partitions") or os.cpu_count() or 1)
            settings = settings_of(configuration, None, looks, count, options.get("key"))
        wanted = options.get("view", "") if "sql" in options else ""
        if wanted and wanted not in settings.views:
            raise UserError(f"no view is named {wanted!r}; {suggestion(wanted, settings.views)}")
        if not wanted and len(settings.views) > 1:
            raise UserError(f"which of the views? .option('view', …): {', '.join(settings.views)}")
        name = wanted or settings.views[0]
        program = only(settings.program.compiled(), name)
        settings = replace(settings, program=type(settings.program).of(program), views=(name,))
        check_program(settings)
        keys = next([key.name for key in view.keys] for view in program.views if view.name == name)
        dataset = history_of(program.program.result(name), keys)
        return settings, Shape.changes(dataset) if history else Shape.rows(dataset)

    def partitions(self) -> list[Any]:
        """What each task is given: pickled with the reader's own options."""
        specs = source_specs(self.texts(), CROSSED_LIMIT)
        if self._kind == "orderbook.events":
            wanted = self.pushed.symbols
            places = enumerate(specs)
            return [
                (place, spec)
                for place, spec in places
                if wanted is None or any(one.symbol in wanted for one in spec.instruments)
            ]
        settings = without_shuffle(self.settings()[0])
        if any(spec.log is not None for spec in specs):
            settings = replace(settings, partitions=1)
        return [(settings, task) for task in self.tasks(settings, specs)]

    def tasks(self, settings: JobSettings, specs: Sequence[SourceSpec]) -> tuple[ReadTask, ...]:
        """The tasks of a view over sources, for the symbols that are wanted."""
        tasks = planned(settings, specs, []).tasks
        told = self._kind == "orderbook.books" or "symbols" in self._options or _shows_symbols(settings)
        if settings.partitions > 1 and self.pushed.symbols is not None and told:
            tasks = tuple(filter(None, (_of_symbols(task, self.pushed.symbols) for task in tasks)))
        return tasks

    def read(self, given: Any) -> Iterator[pa.RecordBatch]:
        """The rows of a task. Raises SourceError and others as `rows_of` does."""
        if self._kind == "orderbook.events":
            yield from self._events(*given)
            return
        settings, task = given
        shape = self.only(self.settings()[1])
        sent = map(sent_batch, read_task(settings, task))
        for batch in rows_of(settings.views[0], shape, self.flag("allow_incomplete"), sent):
            yield self.told(ASSERTED, batch)

    def only(self, shape: Shape) -> Shape:
        """A shape with the columns that are wanted."""
        return shape.only([name for name in self._names if name != self._status]) if self._names else shape

    @property
    def _status(self) -> str | None:
        return STATUS if self._kind == CHANGES else None

    def told(self, status: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of `only`, with their status where the format has one."""
        if self._status is None or (self._names and STATUS not in self._names):
            return batch
        column = pa.repeat(status, len(batch))
        batch = batch.append_column(pa.field(STATUS, pa.string()), column)
        return batch.select(self._names) if self._names else batch

    def _events(self, place: int, spec: SourceSpec) -> Iterator[pa.RecordBatch]:
        pushed, errors = self.pushed, list[SourceError]()
        wanted = [o for o in spec.instruments if pushed.symbols is None or o.symbol in pushed.symbols]
        instruments = run_instruments([replace(spec, instruments=tuple(wanted))])
        for part in read_slices([(place, spec)], instruments, errors):
            events = part.events
            stamps = events.versions["stamp"]
            if pushed.last is not None and len(stamps) and int(stamps[0]) > pushed.last:
                return
            start = 0 if pushed.first is None else int(np.searchsorted(stamps, pushed.first))
            if start < len(events):
                yield from self._table(events.part(start, len(events)), instruments)
        if errors and not self.flag("allow_incomplete"):
            raise SourceError(f"{errors[0]} (option allow_incomplete: what came before counts)")

    def _table(self, events: VersionedEvents, instruments: Instruments) -> list[pa.RecordBatch]:
        table = events_table(events, instruments)
        batches: list[pa.RecordBatch] = (table.select(self._names) if self._names else table).to_batches()
        return batches


def _shows_symbols(settings: JobSettings) -> bool:
    """Whether a column `symbol` is nothing else than the symbol of the books that a row is made of."""
    for file, text in settings.program.texts:
        for statement in () if is_m3(file, text) else parse(file, text):
            tree = statement.tree
            if next(tree.find_all(exp.SetOperation), None) or any(
                a.columns for a in tree.find_all(exp.TableAlias)
            ):
                return False
            if isinstance(tree, exp.Create) and isinstance(tree.this, exp.Schema):
                return False
            for alias in tree.find_all(exp.Alias):
                own = isinstance(alias.this, exp.Column) and alias.this.name.lower() == SYMBOL
                if alias.alias.lower() == SYMBOL and not own:
                    return False
    return True


def _of_symbols(task: ReadTask, symbols: frozenset[str]) -> ReadTask | None:
    """The task for some symbols alone; None: it has none of them."""
    instruments = tuple(one for one in task.instruments if one.symbol in symbols)
    if not instruments:
        return None
    own = set(instruments)
    sources = tuple((place, spec) for place, spec in task.sources if not own.isdisjoint(spec.instruments))
    return replace(task, instruments=instruments, sources=sources)
