"""What tasks do: read sources and run what needs no travelling, or run one partition of a later stage."""

import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from orderbook.backtesting.book_stages import BookReader, StageChanges, fed_by_books, unread_fields
from orderbook.backtesting.market_samples import signals_of
from orderbook.backtesting.plan import Layout, layout_of
from orderbook.backtesting.relation_rows import RelationRows, timed_relations
from orderbook.backtesting.shuffle import NOWHERE, RESULT, ROWS, Fills, Sender, filled, taken_in
from orderbook.backtesting.sources import LoggedSlice, SourceSpec, logged_slices, whole_log
from orderbook.backtesting.strategy_run import StrategyRun
from orderbook.backtesting.tasks import CHANGES, SYMBOLS, JobSettings, ReadTask, TaskResult
from orderbook.core.changes import ChangeBatch
from orderbook.core.errors import Problems, SourceError
from orderbook.durability.journal import LoggedRun
from orderbook.engine.distribution.blocks import Block, Sent
from orderbook.engine.distribution.message_versions import MessageVersions
from orderbook.engine.distribution.stage_runner import History, StageRunner, StageState
from orderbook.feeds.merge import Slice, TickItem, read_slices
from orderbook.feeds.source import WatchedSource
from orderbook.jobs.datasets import DataFile, strategy_tables
from orderbook.jobs.folder import PartitionStatistics
from orderbook.jobs.writers import HistoryWriters, OrderWriters
from orderbook.market.book_relations import BookRelations
from orderbook.market.instruments import Instruments
from orderbook.run.event_queue import Stamped
from orderbook.run.findings import engine_findings
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine

# Told how many events have been read.
Report = Callable[[int], None]


def read_task(
    settings: JobSettings,
    task: ReadTask,
    report: Report = lambda _: None,
    read: Callable[[Instruments], Iterator[Slice]] | None = None,
) -> Iterator[Sent]:
    """Rows for later stages, rows of datasets that are not written, and at the end the task's TaskResult.

    read: gives the messages, where they are not those of the task's sources. Raises OrderbookError.
    """
    start = time.monotonic()
    layout = layout_of(settings)
    instruments = Instruments(task.instruments)
    histories = {number: _histories(layout, number) for number in task.stages}
    strategies = _Strategies(settings, task, instruments) if task.strategies or task.combinations else None
    sender = Sender(layout, 0, layout.program.dictionary) if task.sends else None
    if sender is not None:
        yield from sender.starts()
    fills = Fills(layout, task.number)
    read_so_far = _Read()
    resolution = settings.resolution if task.clock else 0
    apart = task.name == SYMBOLS and strategies is None and read is None
    alone = strategies is None and sender is None and read is None
    for sources, own in _groups(task, apart):
        runs = [StageRun(layout, number, task.number, histories[number]) for number in task.stages]
        reader = _book_reader(layout, task, sources, own, read_so_far.errors) if alone else None
        if reader is not None:
            for events in _through_books(reader, runs, read_so_far):
                for writers in histories.values():
                    yield from _untaken(task.number, writers)
                report(events)
            continue
        rows = RelationRows(layout.program, own, resolution=resolution, books=task.books)
        fills.begin()
        step = 0 if task.books else resolution
        for part in (
            read(own)
            if read is not None
            else _slices(sources, own, read_so_far.errors, step, read_so_far.opened)
        ):
            if strategies is not None:
                strategies.run.apply(part)
            if runs or sender is not None:
                yield from _staged(task, _blocks(rows, part), part.until, runs, sender, fills)
                for writers in histories.values():
                    yield from _untaken(task.number, writers)
            if strategies is not None:
                yield from _untaken(task.number, strategies.writers)
            # Each event counts once: those of books in the tasks that have their symbols.
            changes = sum(map(len, part.changes))
            read_so_far.changes += changes
            read_so_far.events += (0 if task.name == CHANGES else len(part.events)) + changes
            report(read_so_far.events)
        for run in runs:
            run.close()
        read_so_far.refused(rows.problems)
        if sender is not None:
            # Rows of a block are in the order of versions, and other sources begin anew.
            yield from sender.close()
    files = {name: tuple(own) for writers in histories.values() for name, own in writers.close().items()}
    for writers in histories.values():
        yield from _untaken(task.number, writers)
    made_rows = sum(writers.rows for writers in histories.values())
    seconds = time.monotonic() - start
    statistics = PartitionStatistics(task.name, task.number, read_so_far.events, made_rows, seconds)
    result = read_so_far.result(statistics, files, Problems() if strategies is None else strategies.problems)
    if strategies is not None:
        result = strategies.finished(result)
        yield from _untaken(task.number, strategies.writers)
    yield _told(task.number, result)


@dataclass(slots=True)
class _Read:
    """What a task has read: how many events and changes of rows, what was wrong, and from where."""

    events: int = 0
    changes: int = 0
    problems: list[str] = field(default_factory=list)
    errors: list[SourceError] = field(default_factory=list)
    opened: list[WatchedSource | LoggedRun] = field(default_factory=list)
    _refused: Problems = field(default_factory=Problems)

    def refused(self, problems: Problems) -> None:
        """Notes the rows that were refused of some sources."""
        self.problems += problems.report()
        self._refused.extend(problems)

    def result(
        self, statistics: PartitionStatistics, files: Mapping[str, tuple[DataFile, ...]], strategies: Problems
    ) -> TaskResult:
        """What becomes of it, with the problems of the strategies."""
        problems, errors = list(self.problems), tuple(map(str, self.errors))
        found = [finding for source in self.opened for finding in source.findings()]
        problems += [f"{source.name}: {line}" for source in self.opened for line in source.problems.report()]
        found += engine_findings(self._refused, strategies, self.changes)
        own = tuple(dict.fromkeys(problems))
        return TaskResult(statistics, files, problems=own, errors=errors, findings=tuple(found))


def _book_reader(
    layout: Layout,
    task: ReadTask,
    sources: Sequence[tuple[int, SourceSpec]],
    instruments: Instruments,
    errors: list[SourceError],
) -> BookReader | None:
    """What reads a task's one source, where its stages read nothing but the books of that; else None."""
    stages = [layout.stages[number] for number in task.stages]
    of_books = bool(stages) and all(fed_by_books(stage, layout.program) for stage in stages)
    timed = task.clock and bool(timed_relations(layout.program))
    if len(sources) != 1 or not of_books or timed:
        return None
    place, spec = sources[0]
    if not spec.instruments or spec.log is not None:
        return None
    numbered = layout.settings.granularity.unit != "end"
    unread = unread_fields(stages, layout.program)
    reader = BookReader(place, spec, layout.program, errors, numbered, unread)
    return reader if reader.fits(instruments) else None


def _through_books(reader: BookReader, runs: Sequence["StageRun"], done: _Read) -> Iterator[int]:
    """Runs stages over a source's books; gives how many events have been read, again and again."""
    done.opened.append(reader.source)
    fits = [run.changes_of(reader.relations) for run in runs]
    for applied in reader:
        for run, fit in zip(runs, fits, strict=True):
            run.apply_messages(fit.of(applied.changes), applied.versions)
        done.events += applied.events
        yield done.events
    for run in runs:
        run.apply((), None)
        run.close()
    yield done.events
    done.refused(reader.problems)


def _staged(
    task: ReadTask,
    blocks: Sequence[Block],
    until: int | None,
    runs: Sequence["StageRun"],
    sender: Sender | None,
    fills: Fills,
) -> Iterator[Sent]:
    """What rows of relations come to in the task's own stages, and what of it all goes to later ones."""
    for run in runs:
        made = run.apply_relations(blocks, until)
        if sender is not None:
            yield from sender.add(made)
    if sender is not None:
        sent = [block for block in blocks if block.source in task.sends]
        yield from sender.add(sent)
        yield from fills.note(sent, until)


def _untaken(number: int, writers: HistoryWriters | OrderWriters) -> Iterator[Sent]:
    """The tables of a task that are in no file, as Arrow IPC."""
    for name, table in writers.taken():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        yield Sent(number, -1, f"{ROWS}{name}", NOWHERE, NOWHERE, len(table), sink.getvalue())


def _slices(
    sources: Sequence[tuple[int, SourceSpec]],
    instruments: Instruments,
    errors: list[SourceError],
    step: int,
    opened: list[WatchedSource | LoggedRun],
) -> Iterator[Slice]:
    """See `read_slices`; a log is alone."""
    for _, spec in sources:
        if spec.log is not None:
            run = whole_log(spec.log)
            opened.append(run)
            yield from logged_slices(run, errors)
            return
    watched: list[WatchedSource] = []
    for part in read_slices(sources, instruments, errors, step, watched):
        if watched:
            opened += watched
            watched.clear()
        yield part


def _blocks(rows: RelationRows, part: Slice) -> list[Block]:
    """The rows of a slice; of a time alone, its ticks."""
    entry = part.entry if isinstance(part, LoggedSlice) else None
    if isinstance(entry, Stamped) and isinstance(entry.item, TickItem):
        return rows.passed(entry.item.time)
    return rows.blocks(part)


def _groups(task: ReadTask, apart: bool) -> list[tuple[Sequence[tuple[int, SourceSpec]], Instruments]]:
    """The task's sources with their instruments; `apart`: those that share no symbol, one after the other.

    Stages that run where sources are read are cut by symbol, so that nothing needs their common order.
    """
    if not apart:
        return [(task.sources, Instruments(task.instruments))]
    groups: list[tuple[set[str], list[tuple[int, SourceSpec]]]] = []
    own = set(task.instruments)
    for place, spec in task.sources:
        symbols = {one.symbol for one in spec.instruments if one in own}
        joined = [group for group in groups if not group[0].isdisjoint(symbols)]
        groups = [group for group in groups if group[0].isdisjoint(symbols)]
        sources = [source for group in joined for source in group[1]]
        groups.append((symbols.union(*(group[0] for group in joined)), [*sources, (place, spec)]))
    return [
        (sources, Instruments(one for one in task.instruments if one.symbol in symbols))
        for symbols, sources in groups
    ]


def stage_task(settings: JobSettings, level: int, partition: int, sent: Iterable[Sent]) -> Iterator[Sent]:
    """Runs the stages of a level over what was sent to a partition; passes on what is for later levels.

    What was sent comes by stage and first version. Gives rows for later stages, and at the end a TaskResult.
    """
    layout = layout_of(settings)
    dictionary = layout.program.dictionary
    for number, group in groupby(sent, key=lambda one: one.stage):
        if layout.levels.get(number) != level or number < 0:
            yield from group
            continue
        start, events = time.monotonic(), 0
        piece = partition % layout.pieces(layout.stages[number])
        writers = _histories(layout, number, piece)
        run, sender = StageRun(layout, number, partition, writers, piece), Sender(layout, level, dictionary)
        if piece:
            before, group = filled(group, dictionary)
            run.fill(before)
        for blocks, until in taken_in(group, dictionary):
            events += sum(map(len, blocks))
            yield from sender.add(run.apply(blocks, until))
            yield from _untaken(partition, writers)
        yield from sender.close()
        run.close()
        files = {name: tuple(own) for name, own in writers.close().items()}
        yield from _untaken(partition, writers)
        seconds = time.monotonic() - start
        statistics = PartitionStatistics(f"stage {number}", partition, events, writers.rows, seconds)
        yield _told(partition, TaskResult(statistics, files))


def _told(partition: int, result: TaskResult) -> Sent:
    """A result on its way to the driver, before all stages, so that later tasks pass it on first."""
    return Sent(partition, -1, RESULT, NOWHERE, NOWHERE, 0, pickle.dumps(result))


def compile_stages(settings: JobSettings) -> None:
    """Compile what tasks of this machine run, once for all of them, into the folder of compiled programs."""
    layout = layout_of(settings)
    dictionary = layout.program.dictionary
    for stage in layout.distribution.stages:
        runner = StageRunner(layout.recorded(stage), dictionary, settings.backend, settings.granularity)
        runner.apply([], None)
        runner.close()
    if layout.cut_stages:
        Fills(layout, 0).compile()


def compile_common(settings: JobSettings, tasks: Iterable[ReadTask]) -> None:
    """Compile what several tasks of a sweep run, once for all, into the folder of compiled programs."""
    programs = {one.program.hash: one.program for one in settings.combinations}
    own = [task for task in tasks if task.combinations]
    runs = Counter(settings.combinations[task.combinations[0]].program.hash for task in own)
    for program in (programs[name] for name, count in runs.items() if count > 1):
        instruments = own[0].instruments
        Pipeline(GatedEngine(program.compiled(), settings.backend), Instruments(instruments)).warm_up()


def _histories(layout: Layout, number: int, piece: int = 0) -> HistoryWriters:
    """The files of a stage's views."""
    stage = layout.recorded(layout.stages[number], piece)
    keys = {view.name: [key.name for key in view.keys] for view in layout.program.views}
    results = [stage.program.result(name) for name in stage.views]
    return HistoryWriters(layout.settings.written_to, results, keys, layout.program.dictionary)


class Histories(Protocol):
    """What takes the history of views."""

    def write(self, history: Mapping[str, History]) -> None: ...


class StageRun:
    """One partition of a stage, or a piece of its history, whose views' history goes into given files."""

    def __init__(
        self, layout: Layout, number: int, partition: int, histories: Histories, piece: int = 0
    ) -> None:
        settings, dictionary = layout.settings, layout.program.dictionary
        self._program = layout.program
        self._stage = stage = layout.recorded(layout.stages[number], piece)
        self._partition = partition
        self._router = layout.router(stage, dictionary)
        self._runner = StageRunner(stage, dictionary, settings.backend, settings.granularity)
        self._histories = histories

    def fill(self, blocks: Sequence[Block]) -> None:
        """Begin with rows of the stage's streams that were there before."""
        self._runner.fill(blocks)

    def apply_relations(self, blocks: Sequence[Block], until: int | None) -> list[Block]:
        """Apply rows of relations, all of which are this partition's."""
        routed = [
            part
            for entry in self._stage.inputs
            for block in blocks
            if block.source == entry.source
            for partition, part in self._router.route(block, entry)
            if partition == self._partition
        ]
        return self.apply(routed, until)

    def apply(self, blocks: Sequence[Block], until: int | None) -> list[Block]:
        """Apply rows of the stage's streams, write histories; what became of the outputs."""
        result = self._runner.apply(blocks, until)
        self._histories.write(result.history)
        return [block for block in result.outputs.values() if len(block)]

    def changes_of(self, relations: BookRelations) -> StageChanges:
        """What makes changes of books those of the stage's streams."""
        return StageChanges(self._stage, self._program, relations)

    def apply_messages(self, changes: ChangeBatch, versions: MessageVersions) -> None:
        """Apply changes of the stage's streams, write histories; see StageRunner."""
        self._histories.write(self._runner.apply_messages(changes, versions))

    def copy(self) -> StageState:
        """See StageRunner."""
        return self._runner.copy()

    def restore(self, state: StageState, codes: NDArray[np.int64]) -> None:
        """See StageRunner."""
        self._runner.restore(state, codes)

    def size(self) -> int:
        """How many entries the maps have."""
        return self._runner.size()

    def close(self) -> None:
        """Give back what the stage holds."""
        self._runner.close()


class _Strategies:
    """The strategies of a task, and the files of their orders and fills."""

    def __init__(self, settings: JobSettings, task: ReadTask, instruments: Instruments) -> None:
        combinations = [settings.combinations[place] for place in task.combinations]
        seen = combinations[0].program if combinations else settings.strategy_program
        assert seen is not None
        program = seen.compiled()
        chosen = settings.definitions(task.strategies)
        chosen += [definition for one in combinations for definition in one.definitions()]
        self.writers = OrderWriters(settings.written_to)
        self.run = StrategyRun(
            program, instruments, chosen, self.writers, settings.backend, settings.resolution,
            settings.trading, signals_of(chosen, program) if task.samples else None,
            logged=any(spec.log is not None for _, spec in task.sources),
        )  # fmt: skip

    @property
    def problems(self) -> Problems:
        """Those of the engine that strategies see."""
        return self.run.pipeline.engine.problems

    def finished(self, result: TaskResult) -> TaskResult:
        """A result with what became of the strategies."""
        summaries = self.run.finish()
        files = self.writers.close()
        tables = {name: tuple(files[name]) for name in strategy_tables()}
        return replace(
            result,
            orders=tuple(files["orders"]),
            fills=tuple(files["fills"]),
            tables=tables,
            summaries=summaries,
        )
