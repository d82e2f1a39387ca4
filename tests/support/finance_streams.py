"""Streams for the finance workload: `bids` and `asks` of (t, id, broker_id, volume, price)."""

import random
from collections.abc import Iterator
from pathlib import Path

import zstandard
from fuzz import Change
from paths import VIEWS

FINANCE = VIEWS / "finance"
QUERIES = ("vwap", "axfinder", "brokerspread", "brokervariance", "pricespread", "missedtrades")
BROKERS = 10
_SIDES = {"1": "bids", "-1": "asks"}
_ADD, _CANCEL, _DELETE, _EXECUTE = "1", "2", "3", "4"


def finance_sql(*names: str) -> str:
    """The schema and the queries of these names."""
    return "".join((FINANCE / f"{name}.sql").read_text(encoding="utf-8") for name in ("schema", *names))


def random_market(generator: random.Random, count: int, resting: int, levels: int) -> Iterator[list[Change]]:
    """Events of about `resting` orders a side: adds, cancels and reductions, then everything leaves.

    Few prices and brokers, so that ties are common; some volumes are 0 and some times equal.
    """
    live: dict[str, list[tuple[int, int, int, int, int]]] = {"bids": [], "asks": []}
    for number in range(count):
        side = generator.choice(("bids", "asks"))
        rows = live[side]
        if len(rows) < 2 or generator.random() < (0.35 if len(rows) >= resting else 0.8):
            row = (
                number // 3,
                number,
                generator.randrange(1, 4),
                generator.choice((0, 1, 1, 2, 5, 100)),
                10_000 + generator.randrange(levels) * 150 + (900 if side == "asks" else 0),
            )
            rows.append(row)
            yield [(side, True, row)]
            continue
        t, i, broker, volume, price = rows.pop(generator.randrange(len(rows)))
        event: list[Change] = [(side, False, (t, i, broker, volume, price))]
        if volume > 1 and generator.random() < 0.4:
            rows.append((number // 3, i, broker, volume - 1, price))
            event.append((side, True, rows[-1]))
        yield event
    for side, rows in live.items():
        for row in rows:
            yield [(side, False, row)]


def lobster_market(path: Path, count: int) -> Iterator[list[Change]]:
    """Events of the first `count` messages of a LOBSTER file, the book empty at first.

    Prices in cents, times in ns of the day. The files know no brokers: an order's is its id's last digit.
    Orders from before the file, and hidden ones, are left out.
    """
    live: dict[str, tuple[str, tuple[int, int, int, int, int]]] = {}
    with zstandard.open(path, "rt", encoding="utf-8") as lines:
        for _, line in zip(range(count), lines, strict=False):
            time, kind, order, volume, price, direction = line.strip().split(",")[:6]
            if kind == _ADD:
                row = (_nanoseconds(time), int(order), int(order) % BROKERS, int(volume), int(price) // 100)
                live[order] = (_SIDES[direction], row)
                yield [(_SIDES[direction], True, row)]
            elif kind in (_CANCEL, _DELETE, _EXECUTE) and order in live:
                side, row = live.pop(order)
                event: list[Change] = [(side, False, row)]
                left = 0 if kind == _DELETE else row[3] - int(volume)
                if left > 0:
                    live[order] = (side, (_nanoseconds(time), *row[1:3], left, row[4]))
                    event.append((side, True, live[order][1]))
                yield event


def _nanoseconds(seconds: str) -> int:
    whole, _, places = seconds.partition(".")
    return int(whole) * 1_000_000_000 + int(places.ljust(9, "0")[:9])
