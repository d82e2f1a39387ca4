"""`orderbook generate` and `orderbook inject`: flow for tests, with abuse that is labelled.

Labels are a Parquet file beside the record, FILE.labels.parquet of FILE.parquet, a row an episode.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from orderbook.core.errors import UserError
from orderbook.core.files import ParquetFile
from orderbook.core.summaries import told
from orderbook.feeds.merge import Merger, is_event_source
from orderbook.feeds.recording.parquet_record import LABELS, RecordWriter
from orderbook.feeds.source_kinds import open_sources
from orderbook.market.abuse_injection import Injector
from orderbook.market.abuse_plan import Label, Survey
from orderbook.market.events import Events
from orderbook.market.instruments import Instruments
from orderbook.market.synthetic_flow import START, synthetic_instruments
from orderbook.market.synthetic_flow import generate as generated
from orderbook.run.display import progress_bar

# The close of the detectors, 20:00 UTC: what `close_at` is in views/surveillance unless it is set.
_DAY, _CLOSE = 86_400 * 10**9, 20 * 3_600 * 10**9
_SIDES = ("bid", "ask")
_IDS = pa.list_(pa.int64())
_LABELS = pa.schema([
    ("kind", pa.string()), ("venue", pa.string()), ("symbol", pa.string()), ("side", pa.string()),
    ("strength", pa.float64()), ("begin", pa.timestamp("ns", "UTC")), ("end", pa.timestamp("ns", "UTC")),
    ("non_bona_fide", _IDS), ("bona_fide", _IDS), ("counterparties", _IDS), ("taken", _IDS),
    ("messages", pa.int64()), ("dropped", pa.int64()), ("cut_short", pa.bool_()),
])  # fmt: skip


def generate(
    out: Path,
    events: int,
    symbols: int,
    levels: int,
    seed: int,
    imbalance: float,
    rate: float,
    abuse: Sequence[str],
    strength: float,
) -> None:
    """Write a synthetic flow to a record, with abuse where some is asked for. Raises UserError."""

    start = START

    def batches() -> Iterator[Events]:
        return generated(events, symbols, levels, seed, imbalance=imbalance, rate=rate, start=start)

    _checked(out)
    if any(_counted(text)[0] == "marking_the_close" for text in abuse):
        start += _until_close(batches())
    injector = _injector(abuse, batches, strength, seed)
    # Whatever is wrong with the arguments is told before there is a file.
    flow, instruments, done = batches(), synthetic_instruments(symbols), 0
    with progress_bar("generating") as bar, RecordWriter(out, instruments) as writer:
        for batch in flow:
            writer.write(batch if injector is None else injector.apply(batch))
            done += len(batch)
            bar(done / events, f"{done:,} events")
        if injector is not None:
            writer.write(injector.finish())
        done = writer.rows
    print(f"{out}: {done:,} events of {symbols:,} symbols, {out.stat().st_size:,} bytes")
    figures = {"out": str(out), "events": done, "symbols": symbols, "bytes": out.stat().st_size}
    told(**figures, **({} if injector is None else _labelled(out, injector, instruments)))


def inject(sources: Sequence[str], out: Path, abuse: Sequence[str], strength: float, seed: int) -> None:
    """Write recorded sources, merged in order of time, to a record, with abuse between their messages.

    Raises UserError for sources without orders; SourceError where one is cut, after all before was written.
    """
    _checked(out)
    if not abuse:
        raise UserError("say what to add: --abuse spoofing=5")
    # A replay of the record finds crossed books for itself.
    merger = Merger(open_sources(sources), 0)
    for source in merger.sources:
        if not is_event_source(source):
            raise UserError(f"{source.name}: changes of relations have no orders to add abuse to")

    def batches() -> Iterator[Events]:
        return (item for item in merger if isinstance(item, np.ndarray))

    injector = _injector(abuse, batches, strength, seed)
    assert injector is not None
    with progress_bar("injecting") as bar, RecordWriter(out, merger.instruments) as writer:
        for batch in batches():
            writer.write(injector.apply(batch))
            bar(merger.progress, f"{writer.rows:,} events")
        writer.write(injector.finish())
    print(
        f"{out}: {writer.rows:,} events of {len(merger.instruments):,} symbols, {out.stat().st_size:,} bytes"
    )
    told(
        out=str(out),
        events=writer.rows,
        bytes=out.stat().st_size,
        **_labelled(out, injector, merger.instruments),
    )
    for error in merger.errors:
        raise error


def _until_close(batches: Iterable[Events]) -> int:
    """How much later a stream must begin to end just before a close, ns; below 0 where that is earlier."""
    last = max((int(batch["exchange_time"][-1]) for batch in batches if len(batch)), default=0)
    return _CLOSE - last % _DAY - 10**6


def _checked(out: Path) -> None:
    if out.suffix != ".parquet":
        raise UserError(f"--out {out}: a record is Parquet, its name must end in .parquet")


def _injector(
    abuse: Sequence[str], batches: Callable[[], Iterable[Events]], strength: float, seed: int
) -> Injector | None:
    if not abuse:
        return None
    wanted = [_counted(text) for text in abuse]
    survey = Survey()
    for batch in batches():
        survey.read(batch)
    return Injector(survey, wanted, strength=strength, seed=seed)


def _counted(text: str) -> tuple[str, int]:
    """KIND or KIND=COUNT."""
    kind, _, count = text.partition("=")
    if count and not count.isdecimal():
        raise UserError(f"--abuse {text}: not a number of episodes; write {kind}=5")
    return kind, int(count or 1)


def _labelled(out: Path, injector: Injector, instruments: Instruments) -> dict[str, object]:
    """Writes the labels beside a record and says what was added; the figures of that."""
    file = out.with_suffix(LABELS)
    writer = ParquetFile(file, _LABELS)
    writer.write(pa.Table.from_pylist([_row(label, instruments) for label in injector.labels], _LABELS))
    writer.close()
    counts = Counter(label.kind for label in injector.labels if not label.cut_short)
    cut = sum(label.cut_short for label in injector.labels)
    listed = ", ".join(f"{kind} {count}" for kind, count in counts.items()) or "nothing"
    print(f"{file}: {listed}" + (f"; {cut} more cut short by the stream" if cut else ""))
    if injector.not_placed:
        missing = ", ".join(f"{kind} {count}" for kind, count in injector.not_placed.items())
        print(f"no room was found for {missing}: the stream is short or trades fast, or its spread is narrow")
    return {
        "labels": str(file),
        "episodes": dict(counts),
        "cut_short": cut,
        "not_placed": dict(injector.not_placed),
    }


def _row(label: Label, instruments: Instruments) -> dict[str, object]:
    instrument = instruments[label.instrument]
    own = {name: getattr(label, name) for name in _LABELS.names if hasattr(label, name)}
    return own | {"venue": instrument.venue, "symbol": instrument.symbol, "side": _SIDES[label.side]}
