"""Writing block logs: rows cut into what several switches would have sent, with epochs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine.distribution.block import Block, joined, rows_between, taken
from orderbook.backtest.reading import read_slices
from orderbook.backtest.relation_rows import RelationRows
from orderbook.backtest.sources import SourceSpec, run_instruments
from orderbook.findings import WatchedSource
from orderbook.problems import Problems
from orderbook.streaming.logged_switches import LoggedSwitches
from views.compiler.program import CompiledProgram

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
        starts = [0] * len(blocks)
        for number in np.unique(stamps // span).tolist():
            bound, inside = (number + 1) * span, []
            for place, found in enumerate(blocks):
                end = int(np.searchsorted(found.versions["stamp"], bound))
                if starts[place] < end:
                    inside.append(rows_between(found, starts[place], end))
                starts[place] = end
            yield max(int(found.versions["stamp"][-1]) for found in inside), inside
        rest = [rows_between(f, start, len(f)) for f, start in zip(blocks, starts, strict=True)]
        self.held = [found for found in rest if len(found)]

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
