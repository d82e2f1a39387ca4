"""Writing block logs: sources cut into what several switches would have sent, with epochs."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine.distribution.block import Block, rows_between, taken
from engine.protocol.messages import (
    SWITCHES,
    Address,
    DeadLetter,
    EndRequest,
    EpochEnd,
    Marker,
    Message,
    Output,
    Rows,
)
from engine.protocol.switch import Switch, SwitchLinks
from orderbook.backtest.reading import Slice, read_slices
from orderbook.backtest.relation_rows import RelationRows
from orderbook.backtest.sources import SourceSpec, run_instruments
from orderbook.block_log import FORMAT_VERSION, BlockLogWriter, Entry, Header, LoggedRelation, encoded
from orderbook.instruments import Instruments
from orderbook.logged_run import LoggedRun
from orderbook.problems import Problems
from orderbook.streaming.end_requests import requested_end
from orderbook.streaming.logged import logged_slices
from views.compiler.program import CompiledProgram

Report = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class CutSettings:
    """How sources are cut: rows for `program`, into logs of so many switches in `folder`.

    epoch, span: ns of stamps that epochs and blocks last.
    """

    program: CompiledProgram
    folder: Path
    switches: int
    epoch: int
    span: int


# All that a switch sends goes to its log.
_LOG = Address(0, 0)


class LoggedSwitches:
    """Switches that hold the token in turn, each with a log in the folder `switch-N`.

    length: ns that an epoch lasts at least. Rows must be of relations of `program`.
    """

    def __init__(
        self, program: CompiledProgram, folder: Path, switches: int, length: int, sources: Sequence[str] = ()
    ) -> None:
        self._program = program
        relations = tuple(LoggedRelation.of(relation) for relation in program.relations)
        self._writers, self._switches = [], []
        self._folders = [folder / f"switch-{number}" for number in range(switches)]
        for number in range(switches):
            header = Header(FORMAT_VERSION, number, switches, relations, tuple(sources))
            self._writers.append(BlockLogWriter(self._folders[number], header))
            links = SwitchLinks(number, switches, (_LOG,), {_LOG: ()})
            self._switches.append(Switch(links, _everything, length, resends=False))
        self.messages = self.rows = self.epochs = self.late = self._asked = 0

    def send(self, switch: int, blocks: Sequence[Block]) -> None:
        """Rows of whole messages, none with a stamp below what the switch has promised or sent."""
        self._take(self._switches[switch].send(blocks))

    def promise(self, stamp: int) -> None:
        """No switch will send anything below `stamp`. An epoch whose end a stream asked for ends with it."""
        asked = max(map(requested_end, self._folders))
        if asked > self._asked:
            self._asked = asked
            self.end_early(asked)
        for switch in self._switches:
            self._take(switch.promise(stamp))

    def end_early(self, epoch: int) -> None:
        """Ends an epoch with what comes next, however short it is; nothing where it has ended."""
        holder = Address(SWITCHES, (epoch - 1) % len(self._switches))
        self._take(self._switches[holder.partition].receive([EndRequest(_LOG, holder, epoch)]))

    def flush(self) -> None:
        """Lets readers see everything so far."""
        for writer in self._writers:
            writer.flush()

    def _take(self, sent: Iterable[Message | Output]) -> None:
        for message in sent:
            match message:
                case Rows():
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

    def _append(self, message: Rows | Marker, **rest: int | bytes) -> None:
        number = message.sender.partition
        self._writers[number].append(Entry(number, message.number, **rest))  # type: ignore[arg-type]
        self.messages += 1


def _everything(rows: Block) -> Iterator[tuple[Address, Block]]:
    yield _LOG, rows


def write_block_logs(
    specs: Sequence[SourceSpec], settings: CutSettings, report: Report = lambda _: None
) -> tuple[LoggedSwitches, Problems]:
    """Cut sources into the logs of switches; `report` is told how many events are done.

    Versions are those of a backtest of the same sources. Each source is of one switch; where switches are
    more, its messages go round. Raises SourceError where a source is damaged, and as BlockLogWriter does.
    """
    names = [spec.text for spec in specs]
    slices = read_slices(list(enumerate(specs)), run_instruments(specs))
    return _written(slices, run_instruments(specs), names, settings, report)


def write_logged_blocks(
    run: LoggedRun, settings: CutSettings, report: Report = lambda _: None
) -> tuple[LoggedSwitches, Problems]:
    """The same of a recorded run, under the stamps that its switches gave.

    Raises LogError where the log is damaged.
    """
    return _written(logged_slices(run), run.instruments, [run.name], settings, report)


def _written(
    slices: Iterable[Slice],
    instruments: Instruments,
    names: Sequence[str],
    settings: CutSettings,
    report: Report,
) -> tuple[LoggedSwitches, Problems]:
    rows = RelationRows(settings.program, instruments, len(instruments) > 0, every=True)
    logs = LoggedSwitches(settings.program, settings.folder, settings.switches, settings.epoch, names)
    events = last = 0
    for part in slices:
        blocks = [found for found in rows.blocks(part) if len(found)]
        for end, cut in _cuts(blocks, settings.span):
            for switch, own in _owned(cut, len(names), settings.switches):
                logs.send(switch, own)
            last = max(last, *(int(b.versions["stamp"][-1]) for b in cut))
            logs.promise(end)
        events += len(part.events) + sum(map(len, part.changes))
        report(events)
    # So late a time ends an epoch that holds all that is left.
    logs.promise(last + settings.epoch + 1)
    logs.flush()
    return logs, rows.problems


def _cuts(blocks: Sequence[Block], span: int) -> Iterator[tuple[int, list[Block]]]:
    """The rows of each `span` of stamps, and the last stamp of them."""
    if not blocks:
        return
    stamps = np.concatenate([found.versions["stamp"] for found in blocks])
    for number in np.unique(stamps // span).tolist():
        bound = (number + 1) * span
        inside = []
        for found in blocks:
            low, high = np.searchsorted(found.versions["stamp"], [number * span, bound])
            if low < high:
                inside.append(rows_between(found, int(low), int(high)))
        yield int(stamps[stamps < bound].max()), inside


def _owned(blocks: Sequence[Block], sources: int, switches: int) -> Iterator[tuple[int, list[Block]]]:
    """The rows that each switch sends."""
    for switch in range(switches):
        own = []
        for found in blocks:
            owner = found.versions["switch"] if sources >= switches else found.versions["last"]
            rows = owner % switches == switch
            if rows.any():
                own.append(found if rows.all() else taken(found, np.flatnonzero(rows)))
        if own:
            yield switch, own

