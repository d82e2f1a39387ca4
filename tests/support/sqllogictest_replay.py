"""Replays sqllogictest files: every query a view, compared with SQLite after every change of a row.

    python tests/support/sqllogictest_replay.py [--seed 1] [--take 10] [--processes 2] FILE...

prints how many queries were maintained, and why the others were not. Where a query stands in its file
the view must also be what the file recorded: its values, in order, or their MD5. Views run in the interpreter
and in generated code, which is plain Python in the processes started here.
"""

import argparse
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from math import isclose
from multiprocessing import get_context
from pathlib import Path
from unittest.mock import patch

import zstandard
from fuzz import InterpreterRuntime, Runtime
from generated_runner import GeneratedRuntime
from sqllogictest_dialect import converted, declared
from sqllogictest_format import Query, Row, Value, parse
from sqllogictest_segments import Change, Segment, Tables, disturbed, segments

from orderbook.core.errors import OrderbookError, SqlError
from orderbook.views.compilation import compile_views
from orderbook.views.program import CompiledProgram

# Views that one program maintains.
TOGETHER = 40


@dataclass(slots=True)
class Tally:
    """What became of the queries of a file; `compile_seconds` is the longest, with how many views."""

    maintained: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    compared: int = 0
    recorded: int = 0
    mismatches: list[str] = field(default_factory=list)
    compile_seconds: tuple[float, int] = (0.0, 0)

    def add(self, other: "Tally") -> None:
        self.maintained += other.maintained
        self.skipped += other.skipped
        self.compared += other.compared
        self.recorded += other.recorded
        self.mismatches += other.mismatches
        self.compile_seconds = max(self.compile_seconds, other.compile_seconds)

    @property
    def skipped_share(self) -> float:
        skipped = self.skipped.total()
        return skipped / max(1, skipped + self.maintained)

    def text(self) -> str:
        """A summary of several lines, the commonest reasons first."""
        seconds, views = self.compile_seconds
        lines = [
            f"{self.maintained} maintained, {self.skipped.total()} skipped ({self.skipped_share:.1%}), "
            f"{self.compared} comparisons, {self.recorded} recorded results, "
            f"{len(self.mismatches)} mismatches; slowest program: {views} views in {seconds:.2f} s"
        ]
        lines += [f"  {count:6} {reason}" for reason, count in self.skipped.most_common()]
        return "\n".join(lines + self.mismatches)


@dataclass(frozen=True, slots=True)
class Maintained:
    """A query as a view: its name, the positions that its rows are ordered by, and what it reads."""

    name: str
    query: Query
    order: tuple[int, ...]
    tables: frozenset[str]


def text_of(path: Path) -> str:
    """The text of a file, which may be compressed with zstd."""
    if path.suffix != ".zst":
        return path.read_text(encoding="utf-8")
    with zstandard.open(path, "rt", encoding="utf-8") as text:
        return str(text.read())


def replay(path: Path, seed: int, take: int, processes: int) -> Tally:
    """Replays a file, every `take`-th query of it."""
    tally = Tally()
    parts = [part for segment in segments(parse(text_of(path))) for part in _parts(segment, seed, take)]
    run = partial(replay_segment, seed=seed)
    uncompiled = patch.dict(os.environ, NUMBA_DISABLE_JIT="1")
    with uncompiled, ProcessPoolExecutor(processes, get_context("spawn")) as executor:
        for result in executor.map(run, parts):
            tally.add(result)
    return tally


def _parts(segment: Segment, seed: int, take: int) -> Iterator[Segment]:
    """The segment with `TOGETHER` of its queries at a time."""
    places = [i for i, action in enumerate(segment.actions) if isinstance(action, Query)]
    places = places[seed % take :: take]
    for start in range(0, len(places), TOGETHER):
        kept = set(places[start : start + TOGETHER])
        actions = [a for i, a in enumerate(segment.actions) if isinstance(a, Change) or i in kept]
        yield replace(segment, actions=actions)


def replay_segment(segment: Segment, seed: int) -> Tally:
    """Maintains what can be of the segment's queries over its changes, some rows leaving and returning."""
    tally = Tally()
    compiled, views = _views(segment, tally)
    runtimes: dict[str, Runtime] = {
        "interpreter": InterpreterRuntime(compiled.program),
        "generated": GeneratedRuntime(compiled.program),
    }
    reference = Tables(segment.schema)
    wrong: set[str] = set()
    for action in disturbed(segment.actions, random.Random(seed)):
        if isinstance(action, Query):
            touched = [views[action.sql]] if action.sql in views else []
        else:
            reference.apply(action)
            for runtime in runtimes.values():
                runtime.change(action.table, action.insert, action.row)
            touched = [v for v in views.values() if action.table in v.tables]
        for view in touched:
            for kind, runtime in runtimes.items():
                if view.name in wrong:
                    continue
                found = [tuple(map(_plain, row)) for row in runtime.rows(view.name)]
                message = _compare(action, view, reference, found, tally)
                if message:
                    wrong.add(view.name)
                    tally.mismatches.append(f"line {view.query.line}, {kind}: {view.query.sql}\n  {message}")
    return tally


def _compare(
    action: Change | Query, view: Maintained, reference: Tables, found: list[Row], tally: Tally
) -> str | None:
    if isinstance(action, Query):
        tally.recorded += 1
        found.sort(key=lambda row: [_place(row[i]) for i in view.order] + [_place(v) for v in row])
        return None if action.holds(found) else f"recorded {action.result}, found {found}"
    tally.compared += 1
    expected = reference.rows(view.query.sql)
    same = len(expected) == len(found) and all(map(_same, _ordered(expected), _ordered(found)))
    return None if same else f"after {action}: expected {expected}, found {found}"


def _views(segment: Segment, tally: Tally) -> tuple[CompiledProgram, dict[str, Maintained]]:
    """One program of all views that compile, and the views by their query's SQL."""
    texts, views = dict[str, str](), dict[str, Maintained]()
    refused: dict[str, OrderbookError] = {}
    for query in segment.queries:
        if query.sql in views or query.sql in refused:
            continue
        name = f"v{len(views)}"
        try:
            select, order = converted(query.sql, segment.schema)
        except OrderbookError as error:
            refused[query.sql] = error
            continue
        tables = frozenset(t for t in segment.schema if re.search(rf"\b{t}\b", query.sql))
        views[query.sql] = Maintained(name, query, order, tables)
        texts[query.sql] = f"CREATE VIEW {name} AS {select};\n"
    start = time.perf_counter()
    program, alone = _compiled(declared(segment.schema), texts)
    tally.compile_seconds = max(tally.compile_seconds, (time.perf_counter() - start, len(texts)))
    refused |= alone
    for query in segment.queries:
        if query.sql in refused:
            tally.skipped[_reason(refused[query.sql])] += 1
        else:
            tally.maintained += 1
    return program, {sql: view for sql, view in views.items() if sql not in refused}


def _compiled(head: str, texts: Mapping[str, str]) -> tuple[CompiledProgram, dict[str, OrderbookError]]:
    """The program of all texts but those refused, which are found by halves, and why they are."""
    try:
        return compile_views(head + "".join(texts.values())), {}
    except OrderbookError as error:
        if len(texts) == 1:
            return compile_views(head), dict.fromkeys(texts, error)
    listed = list(texts.items())
    halves = (dict(listed[: len(listed) // 2]), dict(listed[len(listed) // 2 :]))
    refused = {sql: error for half in halves for sql, error in _compiled(head, half)[1].items()}
    kept = [text for sql, text in listed if sql not in refused]
    return compile_views(head + "".join(kept)), refused


def _reason(error: OrderbookError) -> str:
    message = error.message if isinstance(error, SqlError) else f"{type(error).__name__}: {error}"
    return re.sub(r"\d+", "N", message.split(";")[0])


def _plain(value: object) -> Value:
    """A value of a view as SQLite has it."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, Decimal):
        return int(value) if value == int(value) else float(value)
    assert value is None or isinstance(value, int | float | str)
    return value


def _place(value: Value) -> tuple[int, float, str]:
    """Where SQLite orders a value: NULL, numbers, text."""
    if value is None:
        return 0, 0.0, ""
    return (2, 0.0, value) if isinstance(value, str) else (1, round(float(value), 6), "")


def _ordered(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: [*map(_place, row)])


def _same(expected: Row, found: Row) -> bool:
    return len(expected) == len(found) and all(map(_same_value, expected, found))


def _same_value(expected: Value, found: Value) -> bool:
    if isinstance(expected, int | float) and isinstance(found, int | float):
        return expected == found or isclose(expected, found, rel_tol=1e-9, abs_tol=1e-9)
    return expected == found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--take", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    failed = False
    for path in options.files:
        start = time.perf_counter()
        tally = replay(path, options.seed, options.take, options.processes)
        print(f"{path.name}, {time.perf_counter() - start:.1f} s: {tally.text()}", flush=True)
        failed |= bool(tally.mismatches)
    return failed


if __name__ == "__main__":
    sys.exit(main())
