"""Streams without Spark: batches of a block log's entries through the functions that Spark's workers run."""

import os
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from backtest_support import job_settings, run, write_records

from orderbook.backtesting import tasks
from orderbook.backtesting.sources import source_specs
from orderbook.backtesting.tasks import JobSettings
from orderbook.engine.protocol.messages import Address
from orderbook.streaming import nodes as node_run
from orderbook.streaming import plan
from orderbook.streaming.block_log import HEADER, SCHEMA, Entry, read_entries, request_end
from orderbook.streaming.block_writer import CutSettings, write_block_logs
from orderbook.streaming.encoding import routed
from orderbook.streaming.job import StreamSink, checkpoint, node_name, start_stream
from orderbook.streaming.nodes import Head, loaded, run_level
from orderbook.streaming.plan import plan_of
from orderbook.streaming.shuffle import SINK, ShuffleRow, batch_of, shuffle_rows_of
from orderbook.views.program import CompiledProgram

# By symbol and broker, by broker, and of everything: one level after the other.
DEEP = """
CREATE VIEW sides AS SELECT symbol, broker_id, COUNT(*) AS total FROM bids GROUP BY symbol, broker_id;
CREATE VIEW brokers AS SELECT broker_id, SUM(total * total) AS squares FROM sides GROUP BY broker_id;
CREATE VIEW largest AS SELECT MAX(squares) AS most FROM brokers;
"""
SHOWN = ("sides", "brokers", "largest")


class Interrupted(Exception):
    """A driver that a test ends at a place of its choice."""


@dataclass
class PlainState:
    """A node's state in memory; Spark's in tests without it."""

    own_head: bytes | None = None
    pieces: dict[int, bytes] = field(default_factory=dict)

    def copy(self) -> "PlainState":
        return PlainState(self.own_head, dict(self.pieces))

    def head(self) -> bytes | None:
        return self.own_head

    def piece(self, number: int) -> bytes:
        return self.pieces[number]

    def write(self, head: bytes, number: int, piece: bytes, dropped: Iterable[int]) -> None:
        self.own_head = head
        for one in dropped:
            del self.pieces[one]
        self.pieces[number] = piece


class LocalStream:
    """One start of a stream's driver; states outlive it. interrupt: called with the place of each step."""

    def __init__(
        self,
        settings: JobSettings,
        logs: Path,
        states: dict[tuple[int, Address], PlainState],
        interrupt: Callable[[str], None] = lambda place: None,
        log_limit: int = 0,
    ) -> None:
        self.settings, folders = start_stream(settings, [str(logs)], log_limit)
        checkpoint(self.settings).mkdir(parents=True, exist_ok=True)
        self.plan = plan_of(self.settings)
        shown = [node_name(node) for node in self.plan.shown]
        self.sink = StreamSink(Path(settings.folder), shown, partial(request_end, folders))
        self.states, self._interrupt = states, interrupt

    def batch(self, number: int, entries: Sequence[Entry]) -> None:
        """One batch: nothing of it counts in the states unless it comes to its end."""
        generation = self.settings.generation
        changed: dict[tuple[int, Address], PlainState] = {}
        moving = [t for entry in entries for t in routed(self.plan, entry)]
        for level in range(self.plan.levels):
            groups: dict[tuple[int, int], list[ShuffleRow]] = {}
            for one in shuffle_rows_of(batch_of(moving)):
                groups.setdefault(one.node, []).append(one)
            moving = []
            for node, taken in groups.items():
                place = generation, Address(*node)
                state = self.states.get(place, PlainState()).copy()
                changed[place] = state
                moving += run_level(self.settings, level, node, taken, state)
                if state.own_head is None:
                    del changed[place]
            self._interrupt(f"level {level}")
        assert all(one.stage == SINK for one in moving)
        self._interrupt("before sink")
        self.states |= changed  # Spark's tasks have stored it when the sink has read all rows
        self.sink.take(number, moving)
        self._interrupt("after sink")

    def log_sizes(self) -> list[int]:
        """How much the logs of each node of this generation hold, as it is stored."""
        mine = {a: state for (of, a), state in self.states.items() if of == self.settings.generation}
        nodes = [loaded(self.plan, a, Head.of(state), state).node for a, state in mine.items()]
        return [sum(node.log_sizes().values()) for node in nodes]


def forget() -> None:
    """As in a process of its own."""
    node_run.forget()
    plan.forget()
    tasks.forget()


def make_logs(
    folder: Path,
    sources: Sequence[Path],
    program: CompiledProgram,
    switches: int,
    epoch: int,
    resolution: int = 10**9,
) -> Path:
    """Block logs of folders of records, and of other files."""
    cut = CutSettings(program, folder, switches, epoch, epoch // 4, resolution)
    write_block_logs(source_specs([str(source) for source in sources]), cut)
    return folder


def entries_of(logs: Path) -> list[Entry]:
    """All entries, as they were sent: by switch and number."""
    return [entry for folder in sorted(logs.iterdir()) for entry in read_entries(folder)]


def arrivals(entries: Sequence[Entry], epochs: int, seed: int) -> list[list[Entry]]:
    """Batches in which entries come: each up to so many epochs late, some twice, in any order."""
    choose = random.Random(seed)
    batches: dict[int, list[Entry]] = {}
    epoch: dict[int, int] = {}
    for entry in entries:
        own = epoch.setdefault(entry.switch, 0)
        if entry.epoch:
            epoch[entry.switch] = entry.epoch
        for _ in range(1 + (choose.random() < 0.2)):
            batches.setdefault(2 * own + choose.randrange(2 * epochs + 1), []).append(entry)
    for batch in batches.values():
        choose.shuffle(batch)
    return [batches[number] for number in sorted(batches)]


class Recorded:
    """One small history: its logs, and the job of a backtest in one process."""

    def __init__(self, folder: Path) -> None:
        write_records(folder / "flow", 300, 3, 2, 5, apart=True)
        self.folder = folder
        self.expected, _ = run(settings(folder / "serial", 1), [folder / "flow"])
        program = settings(folder / "none", 1).program.compiled()
        self.logs = make_logs(folder / "logs", [folder / "flow"], program, 2, 1_000_000)
        self.entries = entries_of(self.logs)
        self.epochs = max(entry.epoch for entry in self.entries)


def settings(folder: Path, partitions: int, compute: str = "source") -> JobSettings:
    """Of three levels; two with "auto"."""
    plain = job_settings(folder, partitions, sql=DEEP, views=SHOWN)
    return replace(plain, forced="symbol,broker_id", compute=compute)


def write_arrivals(logs: Path, folder: Path, batches: Sequence[Sequence[Entry]]) -> Path:
    """Logs whose files, in the order of their times, hold the entries of each batch."""
    for log in sorted(logs.iterdir()):
        own = folder / log.name
        own.mkdir(parents=True)
        header = read_headers_of(log)
        (own / HEADER).write_bytes((log / HEADER).read_bytes())
        for number, batch in enumerate(batches, 1):
            rows = [asdict(entry) for entry in batch if entry.switch == header]
            path = own / f"{number:012d}.parquet"
            pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path)
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return folder


def read_headers_of(log: Path) -> int:
    """The number of a log's switch."""
    return int(msgspec.json.decode((log / HEADER).read_bytes())["switch"])


def grouped(batches: Sequence[list[Entry]], count: int) -> list[list[Entry]]:
    """The same in fewer batches."""
    groups: list[list[Entry]] = [[] for _ in range(count)]
    for number, batch in enumerate(batches):
        groups[number * count // len(batches)] += batch
    return groups
