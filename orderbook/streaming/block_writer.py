"""Writing block logs: rows cut into what several switches would have sent, with epochs.

The switches' messages go to block logs; switches go on with logs that they have begun.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from orderbook.backtesting.relation_rows import RelationRows
from orderbook.backtesting.sources import SourceSpec, run_instruments
from orderbook.core.changes import Dictionary
from orderbook.core.errors import Problems, SourceError
from orderbook.engine.distribution.blocks import Block, joined, parted, taken
from orderbook.engine.protocol.messages import (
    SWITCHES,
    Address,
    DeadLetter,
    EndRequest,
    EpochEnd,
    Marker,
    Message,
    Output,
    RowsMessage,
)
from orderbook.engine.protocol.switch import Switch, SwitchLinks, SwitchState
from orderbook.feeds.merge import read_slices
from orderbook.feeds.source import WatchedSource
from orderbook.streaming.block_log import (
    FORMAT_VERSION,
    BlockLogWriter,
    EndRequests,
    Entry,
    Header,
    LoggedRelation,
    decoded,
    encoded,
    read_entries,
)
from orderbook.views.program import CompiledProgram

# All that a switch sends goes to its log.
_LOG = Address(0, 0)
_EVENT = ["stamp", "switch", "sequence"]


@dataclass(frozen=True, slots=True)
class SwitchesState:
    """Switches between two calls, and how many messages, rows, epochs and rows too late there were."""

    switches: tuple[SwitchState, ...]
    counts: tuple[int, int, int, int]


class LoggedSwitches:
    """Switches that hold the token in turn, each with a log in the folder `switch-N`.

    length: ns that an epoch lasts at least. Rows must be of relations of `program`. resumes: the logs may
    have been begun; then what is sent, from their beginning or from a state that was saved, must be what was
    sent then, and only what follows is written. followed, note: see EndRequests. resolution: see Header.
    """

    def __init__(
        self,
        program: CompiledProgram,
        folder: Path,
        switches: int,
        length: int,
        sources: Sequence[str] = (),
        resumes: bool = False,
        followed: Mapping[int, int] | None = None,
        note: Callable[[Mapping[int, int]], None] = lambda _: None,
        resolution: int = 0,
    ) -> None:
        self._program = program
        relations = tuple(LoggedRelation.of(relation) for relation in program.relations)
        self._logs, self._switches = [], []
        folders = [folder / f"switch-{number}" for number in range(switches)]
        for number, own in enumerate(folders):
            header = Header(FORMAT_VERSION, number, switches, relations, tuple(sources), resolution)
            self._logs.append(_Log(own, BlockLogWriter(own, header, resumes=resumes)))
            links = SwitchLinks(number, switches, (_LOG,), {_LOG: ()})
            self._switches.append(Switch(links, _everything, length, resends=False))
        self.requests = EndRequests(folders, followed, note)
        self.messages = self.rows = self.epochs = self.late = 0

    def send(self, switch: int, blocks: Sequence[Block]) -> None:
        """Rows of whole messages, none with a stamp below what the switch has promised or sent.

        Raises OutputError where a log cannot be written, SourceError where it has another message there.
        """
        self._take(self._switches[switch].send(blocks))

    def promise(self, stamp: int) -> None:
        """No switch will send anything below `stamp`. An epoch whose end a stream asked for ends with it."""
        epoch = self.requests.at(stamp, any(log.number < log.writer.last for log in self._logs))
        if epoch is not None:
            self._end_early(epoch)
        for switch in self._switches:
            self._take(switch.promise(stamp))

    def _end_early(self, epoch: int) -> None:
        """Ends an epoch with what comes next, however short it is; nothing where it has ended."""
        holder = Address(SWITCHES, (epoch - 1) % len(self._switches))
        self._take(self._switches[holder.partition].receive([EndRequest(_LOG, holder, epoch)]))

    def flush(self) -> None:
        """Lets readers see everything so far."""
        for log in self._logs:
            log.writer.flush()

    def save(self) -> SwitchesState:
        """What other switches with the same logs go on from."""
        counts = self.messages, self.rows, self.epochs, self.late
        return SwitchesState(tuple(switch.save() for switch in self._switches), counts)

    def load(self, state: SwitchesState) -> None:
        """Goes on from what was saved."""
        for switch, log, saved in zip(self._switches, self._logs, state.switches, strict=True):
            switch.load(saved)
            log.number = saved.numbers[0]
        self.messages, self.rows, self.epochs, self.late = state.counts

    def _take(self, sent: Iterable[Message | Output]) -> None:
        for message in sent:
            match message:
                case RowsMessage():
                    rows = sum(map(len, message.asserted))
                    data = encoded(message.asserted, self._program.relations, self._program.dictionary)
                    self._append(message, rows=rows, bytes=data)
                    self.rows += rows
                case Marker():
                    self._append(message, epoch=message.epoch, end=message.end)
                    self.epochs = max(self.epochs, message.epoch)
                case EpochEnd():
                    self._take(self._switches[message.receiver.partition].receive([message]))
                case DeadLetter():
                    self.late += sum(map(len, message.blocks))
                case _:
                    raise ValueError(f"a switch sent {message}")

    def _append(self, message: RowsMessage | Marker, **rest: int | bytes) -> None:
        number = message.sender.partition
        entry = Entry(number, message.number, **rest)  # type: ignore[arg-type]
        self._logs[number].append(entry, self._program.dictionary)
        self.messages += 1


class _Log:
    """The log of one switch. number: of the last message that the switch has sent."""

    def __init__(self, folder: Path, writer: BlockLogWriter) -> None:
        self.writer, self.number = writer, 0
        self._folder = folder
        self._there: Iterator[Entry] | None = None

    def append(self, entry: Entry, dictionary: Dictionary) -> None:
        """Writes a message unless it is there. Raises SourceError where another one is."""
        self.number = entry.number
        if entry.number > self.writer.last:
            self.writer.append(entry)
            return
        if self._there is None:
            self._there = read_entries(self._folder, entry.number)
        there = next((one for one in self._there if one.number == entry.number), None)
        if there is None or not _same(there, entry, dictionary):
            raise SourceError(
                f"{self._folder}: message {entry.number} is another one than what the source gives now; "
                "the source has changed since, write its blocks to another folder"
            )


def _same(there: Entry, entry: Entry, dictionary: Dictionary) -> bool:
    """Whether messages are of the same events; rows that one event deletes have no order among themselves."""
    if (there.epoch, there.end, there.rows) != (entry.epoch, entry.end, entry.rows):
        return False
    mine, other = ({b.source: b.versions[_EVENT] for b in decoded(e, dictionary)} for e in (there, entry))
    return mine.keys() == other.keys() and all(np.array_equal(mine[name], other[name]) for name in mine)


def _everything(rows: Block) -> Iterator[tuple[Address, Block]]:
    yield _LOG, rows


Report = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class CutSettings:
    """How sources are cut: rows for `program`, into logs of so many switches in `folder`.

    epoch, span: ns of stamps that epochs and blocks last. resolution: of the clock, ns.
    """

    program: CompiledProgram
    folder: Path
    switches: int
    epoch: int
    span: int
    resolution: int = 10**9


class BlockCutter:
    """Sends rows in the order of their stamps, those of one span of stamps together, once it is over.

    So messages do not depend on how many rows come at a time. sources: how many there are; each is of one
    switch, and where switches are more, its messages go round.
    """

    def __init__(self, settings: CutSettings, logs: LoggedSwitches, sources: int) -> None:
        self._settings, self._logs, self._sources = settings, logs, sources
        self.held: list[Block] = []
        self.last = 0

    def take(self, blocks: Sequence[Block], until: int | None) -> None:
        """Rows that come next; what follows has stamps of at least `until` (None: nothing follows)."""
        self.held += [found for found in blocks if len(found)]
        span = self._settings.span
        bound = None if until is None else until // span * span
        if not self.held or (bound is not None and all(_first(found) >= bound for found in self.held)):
            return
        held, self.held = _by_source(self.held), []
        for end, cut in self._cuts(held, bound):
            for switch, own in self._owned(cut):
                self._logs.send(switch, own)
            self.last = max(self.last, end)
            self._logs.promise(end)

    def finish(self) -> None:
        """Sends what is held, and ends the epoch that it is in."""
        self.take((), None)
        # So late a time ends an epoch that holds all that is left.
        self._logs.promise(self.last + self._settings.epoch + 1)
        self._logs.flush()

    def _cuts(self, blocks: Sequence[Block], until: int | None) -> Iterator[tuple[int, list[Block]]]:
        """The rows of each span of stamps before `until`, and the last stamp of them; others are held."""
        span = self._settings.span
        stamps = np.concatenate([found.versions["stamp"] for found in blocks])
        if until is not None:
            stamps = stamps[stamps < until]
        for number in np.unique(stamps // span).tolist():
            inside, blocks = parted(blocks, (number + 1) * span)
            yield max(int(found.versions["stamp"][-1]) for found in inside), inside
        self.held = list(blocks)

    def _owned(self, blocks: Sequence[Block]) -> Iterator[tuple[int, list[Block]]]:
        """The rows that each switch sends."""
        switches = self._settings.switches
        for switch in range(switches):
            own = []
            for found in blocks:
                owner = found.versions["switch"] if self._sources >= switches else found.versions["last"]
                rows = owner % switches == switch
                if rows.any():
                    own.append(found if rows.all() else taken(found, np.flatnonzero(rows)))
            if own:
                yield switch, own


def write_block_logs(
    specs: Sequence[SourceSpec],
    settings: CutSettings,
    report: Report = lambda _: None,
    opened: list[WatchedSource] | None = None,
) -> tuple[LoggedSwitches, Problems]:
    """Cut sources, which `opened` is given, into the logs of switches; `report` is told how many events are
    done.

    Versions are those of a backtest of the same sources. Raises SourceError where a source is damaged, and as
    BlockLogWriter does.
    """
    names, instruments = [spec.text for spec in specs], run_instruments(specs)
    program, resolution = settings.program, settings.resolution
    rows = RelationRows(program, instruments, True, resolution)
    logs = LoggedSwitches(
        program, settings.folder, settings.switches, settings.epoch, names, resolution=resolution
    )
    cutter, events = BlockCutter(settings, logs, len(names)), 0
    for part in read_slices(list(enumerate(specs)), instruments, opened=opened):
        cutter.take(rows.blocks(part), part.until)
        events += len(part.events) + sum(map(len, part.changes))
        report(events)
    cutter.finish()
    return logs, rows.problems


def _first(block: Block) -> int:
    return int(block.versions["stamp"][0])


def _by_source(blocks: Sequence[Block]) -> list[Block]:
    """One block for each relation, of blocks in order."""
    found: dict[str, list[Block]] = {}
    for block in blocks:
        found.setdefault(block.source, []).append(block)
    return [joined(own) for own in found.values()]
