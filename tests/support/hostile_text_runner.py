"""Hostile texts on their ways into an engine whose code is generated: rows are right, nothing else happens.

A script, so that it can be run with NUMBA_DISABLE_JIT=1, when generated modules are plain Python, and in an
empty folder, where it makes sure that nothing was written:

    python tests/support/hostile_text_runner.py local|follow [--count 3] [--seed 0]
"""

import argparse
import asyncio
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice

from backends import new_row
from checkpoint_runner import contents, through_file
from hostile_texts import EXPLOIT, NAMES, literal, quoted
from monitor_support import client, running

import orderbook
from orderbook.core.errors import ExactnessError
from orderbook.monitor.run_monitor import RunMonitor

STREAM = "CREATE STREAM {0} ({1} TEXT NOT NULL, {2} INTEGER NOT NULL);"
VIEW = """
CREATE VIEW {3} AS SELECT {1}, SUM({2}) AS {4} FROM {0} WHERE {1} <> {text} AND {1} <> :given GROUP BY {1};
"""
ADDED = """
CREATE VIEW added AS SELECT {1}, COUNT(*) AS n FROM {0} WHERE {1} = {text} OR {1} ILIKE {text} GROUP BY {1};
"""
M3 = """
MAP ever[{1} TEXT] INTEGER[0..1000] = {0}({1}, {2}) * {{{1} = {text}}};
ON + {0}({1}, {2}) {{ ever[{1}] += {{{1} = {text}}}; }}
VIEW seen[{1} TEXT {1}] GROUPS ever {{ n = ever[{1}]; COLUMN n BIGINT = n; }}
"""


def texts(count: int, seed: int) -> Iterator[str]:
    yield from (EXPLOIT, '5"""', "a\0b", "'''\n", "\\", "#\nopen('x', 'w')\n")
    generator = random.Random(seed)
    yield from (literal(generator) for _ in range(count))


def in_an_engine(text: str, given: str, names: tuple[str, ...]) -> None:
    """Rows of symbols `text`, `given` and a plain one, through all that an engine is asked."""
    stream, symbol, volume, view, total = names

    def written(sql: str) -> str:
        return sql.format(*names, text=quoted(text))

    program = orderbook.compile([written(STREAM + VIEW), written(M3)], params={"given": given})
    engine = orderbook.Engine(program, keep_rows=True)
    fired: list[str] = []
    when = f"{symbol} <> {quoted(text)} AND ({symbol} LIKE {quoted(given)} OR {symbol} = 'plain')"
    engine.subscribe(view, lambda event: fired.append(str(new_row(event)[symbol])), when=when)
    for row in ({symbol: text, volume: 1}, {symbol: given, volume: 2}, {symbol: "plain", volume: 3}):
        engine.insert(stream, row)
    assert [(row[symbol], row[total]) for row in engine[view].values()] == [("plain", 3)], names
    assert fired == ["plain"]
    engine.add_view(written(ADDED))
    assert (text, 1) in [(row[symbol], row["n"]) for row in engine["added"].values()]
    seen = {key: row["n"] for key, row in engine["seen"].items()}
    assert seen == {(text,): 1}
    again = orderbook.Engine(engine.program, keep_rows=True)
    through_file(engine, again)
    for each in (engine, again):
        each.insert(stream, {symbol: "plain", volume: 4})
    assert [(row[symbol], row[total]) for row in again[view].values()] == [("plain", 7)]
    assert contents(again) == contents(engine)


def beyond_128_bits() -> None:
    """A constant that no word holds is no other number: it decides comparisons, as a value it is an error."""
    for constant in (2**127, -(2**127) - 1, 10**50):
        stream = "CREATE STREAM r (v INTEGER NOT NULL);"
        view = f"CREATE VIEW w AS SELECT v FROM r WHERE v {'<' if constant > 0 else '>'} {constant};"
        engine = orderbook.Engine(orderbook.compile(stream + view))
        engine.insert("r", {"v": 2})
        assert [row["v"] for row in engine["w"].values()] == [2]
        try:
            engine = orderbook.Engine(orderbook.compile(f"{stream} SELECT {constant} AS n, v FROM r"))
            engine.insert("r", {"v": 2})
            raise AssertionError([row["n"] for row in engine["view"].values()])
        except ExactnessError:
            pass


def local(count: int, seed: int) -> None:
    beyond_128_bits()
    kept = [name for name in NAMES if len(name) < 100] + ["a" * 10_000]
    for number, text in enumerate(texts(count, seed)):
        names = tuple((kept[5 * number % len(kept) :] + kept)[:5])
        in_an_engine(text, text[::-1] + "?", names)


async def follow(count: int, seed: int) -> None:
    """A client without a token follows SQL with hostile texts."""
    # Books are compiled code alone, and none is needed here.
    RunMonitor._warm_up = lambda self: None  # type: ignore[method-assign]
    async with running(backend="numba") as run, client(run) as one:
        sent: Counter[str] = Counter()
        for number, text in enumerate(islice(texts(count, seed), count)):
            run.engine.insert("quotes", {"symbol": text, "volume": "1"})
            run.engine.insert("quotes", {"symbol": "plain", "volume": "1"})
            sent.update((text, "plain"))
            sql = f"SELECT symbol, COUNT(*) AS n FROM quotes WHERE symbol <> {quoted(text)} GROUP BY symbol"
            answer = await one.ask(id=number, op="follow", sql=sql)
            assert answer["type"] == "snapshot", answer
            expected = {symbol: n for symbol, n in sent.items() if symbol != text}
            assert dict(answer["rows"]) == expected, (text, answer)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way", choices=("local", "follow"))
    parser.add_argument("--count", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.way == "local":
        local(options.count, options.seed)
    else:
        asyncio.run(follow(options.count, options.seed))
    assert not os.listdir(), os.listdir()
    return 0


if __name__ == "__main__":
    sys.exit(main())
