"""How much of labelled abuse the detectors find, by its strength, and what they report without any.

An episode is found by a row of its detector whose time lies in the episode's, or within the detector's window
after it, on the side that the label names. Episodes that the stream cut short are left out.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple, Protocol

import numpy as np
import polars as pl

from orderbook.market.abuse_injection import Injector
from orderbook.market.abuse_plan import KINDS, Survey
from orderbook.market.events import Events, Side
from orderbook.market.instruments import Instruments
from orderbook.market.synthetic_flow import generate, synthetic_instruments
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.library import described, shipped_views
from orderbook.views.program import CompiledProgram

from .abuse_as_described import with_abuse
from .measure import table

PREFIX = "surveillance/"
DETECTORS = tuple(name.removeprefix(PREFIX) for name in shipped_views() if name.startswith(PREFIX))
# Detectors of a kind of abuse that have other names than it.
_OTHERS = {"wash_trades": ("wash_trades", "wash_brokers")}
# The parameter that is how long the span of a row is; rows of the others tell when their case began.
_WINDOWS = {
    "iceberg": "iceberg_window", "momentum_ignition": "ignition_window",
    "pinging": "ping_window", "quote_stuffing": "stuffing_window", "wash_brokers": "wash_window",
    "wash_trades": "wash_window",
}  # fmt: skip
_UNITS = {
    "milliseconds": 10**6,
    "second": 10**9,
    "seconds": 10**9,
    "minute": 60 * 10**9,
    "hours": 3_600 * 10**9,
}
_DAY = 24 * 3_600 * 10**9
_SIDES = {"bid": int(Side.BID), "ask": int(Side.ASK), "buy": int(Side.BID), "sell": int(Side.ASK)}
# 20:00 UTC, the detectors' close.
_CLOSE = 20 * 3_600 * 10**9


class Episode(Protocol):
    """What is known of an episode of abuse, whoever made it; times in ns."""

    kind: str
    side: int
    begin: int
    end: int
    cut_short: bool


class Evidence(NamedTuple):
    """A row of a detector: the time of its case in ns, and its side, None where it has none."""

    begin: int
    end: int
    side: int | None


class Found(NamedTuple):
    """Episodes of a kind that were not cut short, those found, and rows that belong to none."""

    episodes: int
    found: int
    cut_short: int


def detectors_of(kind: str, brokers: bool) -> tuple[str, ...]:
    """The detectors of a kind of abuse, of streams that tell brokers or do not."""
    return _OTHERS.get(kind, (kind,)) if brokers else (kind,)


def evidence(program: CompiledProgram, events: Events, instruments: Instruments) -> dict[str, list[Evidence]]:
    """The rows of all detectors after a stream of one instrument."""
    pipeline = Pipeline(GatedEngine(program, "numba"), instruments)
    pipeline.warm_up()
    pipeline.apply(events.copy())
    assert pipeline.book_problems == {}, pipeline.book_problems
    return {name: list(_rows(name, pipeline.engine.frame(name))) for name in DETECTORS}


def recall(
    labels: Iterable[Episode], found: Mapping[str, Sequence[Evidence]], brokers: bool
) -> dict[tuple[str, str], Found]:
    """By kind and detector, how many episodes there were and how many were found."""
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for label in labels:
        for detector in detectors_of(label.kind, brokers):
            count = counts[label.kind, detector]
            if label.cut_short:
                count[2] += 1
            else:
                count[0] += 1
                count[1] += any(_is_of(row, label, detector) for row in found[detector])
    return {key: Found(*count) for key, count in counts.items()}


def recall_by_strength(
    title: str,
    program: CompiledProgram,
    streams: Callable[[int], tuple[Events, Instruments]],
    abuse: Sequence[tuple[str, int]],
    strengths: Sequence[float],
    seeds: Sequence[int],
) -> None:
    """Prints what share of the injected episodes each detector finds, a column for each strength."""
    totals: dict[tuple[str, str], dict[float, Found]] = defaultdict(dict)
    for seed in seeds:
        events, instruments = streams(seed)
        survey = Survey()
        survey.read(events)
        for strength in strengths:
            injector = Injector(survey, abuse, strength=strength, seed=seed)
            injected = np.concatenate([injector.apply(events), injector.finish()])
            found = evidence(program, injected, instruments)
            for key, one in recall(injector.labels, found, _brokers(events)).items():
                before = totals[key].get(strength, Found(0, 0, 0))
                totals[key][strength] = Found(*(a + b for a, b in zip(before, one, strict=True)))
    table(
        f"Episodes found of those injected, {title}, by strength; {len(seeds)} seeds",
        ("abuse", "detector", *(f"{strength:g}" for strength in strengths), "cut short"),
        [
            (
                kind,
                detector,
                *(_share(found.get(strength)) for strength in strengths),
                str(sum(one.cut_short for one in found.values())),
            )
            for (kind, detector), found in sorted(totals.items())
        ],
    )


def recall_as_described(
    title: str,
    program: CompiledProgram,
    streams: Callable[[int], tuple[Events, Instruments]],
    episodes: int,
    seeds: Sequence[int],
) -> None:
    """Prints recall of what the second injector adds: the worst and the median seed, and all together."""
    shares: dict[tuple[str, str], list[float]] = defaultdict(list)
    totals: dict[tuple[str, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for seed in seeds:
        events, instruments = streams(seed)
        with_cases, cases = with_abuse(events, episodes, seed)
        rows = evidence(program, with_cases, instruments)
        for key, one in recall(cases, rows, _brokers(events)).items():
            shares[key].append(one.found / one.episodes)
            totals[key] = totals[key][0] + one.found, totals[key][1] + one.episodes
    table(
        f"Episodes found of those of the second injector, {title}; {len(seeds)} seeds",
        ("abuse", "detector", "worst", "median", "found"),
        [
            (
                kind,
                detector,
                f"{min(shares[kind, detector]):.0%}",
                f"{median(shares[kind, detector]):.0%}",
                f"{found}/{of}",
            )
            for (kind, detector), (found, of) in sorted(totals.items())
        ],
    )


def generated_day(seed: int, events: int, rate: float = 60.0) -> tuple[Events, Instruments]:
    """Generated flow of one symbol, `rate` events a second, that ends as the detectors' close comes."""
    flow = np.concatenate(list(generate(events, 1, 60, seed, resting=200, rate=rate)))
    last = int(flow["exchange_time"][-1])
    shift = last - last % _DAY + _CLOSE - 10**6 - last
    flow["exchange_time"] += shift
    flow["receive_time"] += shift
    return flow, synthetic_instruments(1)


def default_flow(seed: int, events: int) -> tuple[Events, Instruments]:
    """What `orderbook generate` makes by default, of so many events: 20 a second, a book of 2,000 orders."""
    return np.concatenate(list(generate(events, 1, 200, seed, rate=20.0))), synthetic_instruments(1)


def alerts_an_hour(
    program: CompiledProgram, streams: Mapping[str, Sequence[tuple[Events, Instruments]]]
) -> None:
    """Prints how many rows an hour each detector has on streams without injected abuse."""
    columns: list[Counter[str]] = []
    hours: list[float] = []
    for several in streams.values():
        count, spent = Counter[str](), 0.0
        for events, instruments in several:
            count.update({name: len(rows) for name, rows in evidence(program, events, instruments).items()})
            times = events["exchange_time"]
            spent += float(times.max() - times.min()) / 3.6e12
        columns.append(count)
        hours.append(spent)
    table(
        "Alerts an hour without injected abuse, and rows in all",
        ("detector", *(f"{name}, {spent:.1f} h" for name, spent in zip(streams, hours, strict=True))),
        [
            (
                name,
                *(
                    f"{count[name] / spent:.1f} ({count[name]})"
                    for count, spent in zip(columns, hours, strict=True)
                ),
            )
            for name in DETECTORS
        ],
    )


def every_kind(episodes: int) -> list[tuple[str, int]]:
    """So many episodes of each kind, and one close."""
    return [(kind, 1 if kind == "marking_the_close" else episodes) for kind in KINDS]


def _brokers(events: Events) -> bool:
    return bool(events["broker_id"].any())


def _share(found: Found | None) -> str:
    return "" if found is None or not found.episodes else f"{found.found}/{found.episodes}"


def _window(detector: str) -> int:
    """The default of a detector's window, ns; 0 where its rows have none."""
    wanted = _WINDOWS.get(detector)
    for parameter in described(shipped_views()[PREFIX + detector]).parameters:
        if parameter.name == wanted:
            number, unit = str(parameter.default).split()
            return int(number) * _UNITS[unit]
    return 0


def _rows(detector: str, frame: pl.DataFrame) -> Iterable[Evidence]:
    window = _window(detector)
    for row in frame.with_columns(pl.col(pl.Datetime).cast(pl.Int64)).iter_rows(named=True):
        yield _evidence(detector, row, window)


def _evidence(detector: str, row: Mapping[str, Any], window: int) -> Evidence:
    side = _SIDES.get(row.get("side", ""))
    if detector in ("spoofing", "flipping"):
        return Evidence(row["placed_at"], row["cancelled_at"], side)
    if detector == "layering":
        return Evidence(row["placed"], row["cancelled"], side)
    if detector == "marking_the_close":
        return Evidence(row["day"], row["day"] + _DAY, side)
    return Evidence(row["span"], row["span"] + window, side)


def _is_of(row: Evidence, label: Episode, detector: str) -> bool:
    if row.side is not None and row.side != label.side:
        return False
    return row.begin <= label.end + _window(detector) and row.end >= label.begin
