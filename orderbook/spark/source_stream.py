"""What the data source gives a stream: the changes of a view as files come, batch by batch.

An offset names the files that were taken, each with the batch that it came in: a batch that is read again,
after a failure or from a checkpoint, has the files that it had, and gives the rows that it gave.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from orderbook.backtesting.following import ASSERTED, changed_rows
from orderbook.backtesting.plan import without_shuffle
from orderbook.backtesting.sources import GrowingSources
from orderbook.backtesting.tasks import ReadTask
from orderbook.core.errors import DataError, UserError
from orderbook.market.crossed_books import CROSSED_LIMIT
from orderbook.spark.source_reader import CHANGES, SourceReader

Offset = Mapping[str, Any]
_FILES, _BATCHES = "files", "batches"


class SourceStream:
    """One stream of a format with its options; names: see SourceReader.

    Raises UserError for what cannot be.
    """

    def __init__(self, kind: str, options: Mapping[str, str], names: Sequence[str]) -> None:
        if kind not in ("orderbook", CHANGES):
            raise UserError(f"{kind} is no stream; changes of views are one: readStream.format({CHANGES!r})")
        self._reader = reader = SourceReader(kind, options, names)
        settings, shape = reader.settings()
        if shape.final:
            raise UserError(
                f"a stream gives changes: readStream.format({CHANGES!r}), or .option('history', 'true')"
            )
        self._settings, self._shape, self._told = (
            without_shuffle(settings),
            reader.only(shape),
            kind == CHANGES,
        )
        self._growing = GrowingSources(reader.texts(), CROSSED_LIMIT)
        most = reader.option("maxfilespertrigger", "0")
        if not most.isdigit():
            raise UserError(f"option maxFilesPerTrigger: {most!r}; give a number of files")
        self.most_files = int(most)
        # The files of a query that ends with those that are there.
        self._last: frozenset[str] | None = None

    def initial(self) -> dict[str, Any]:
        """Nothing was taken."""
        return {_BATCHES: 0, _FILES: {}}

    def end_here(self) -> None:
        """Files that come from now on are not taken."""
        self._last = frozenset(self._growing.files())

    def latest(self, start: Offset, most: int = 0) -> dict[str, Any]:
        """The offset after a batch of the files that are new, at most so many (0: all)."""
        taken = dict(start[_FILES])
        new = [name for name in self._growing.files() if name not in taken]
        if self._last is not None:
            new = [name for name in new if name in self._last]
        if not new:
            return dict(start)
        batch = int(start[_BATCHES])
        return {_BATCHES: batch + 1, _FILES: taken | dict.fromkeys(new[: most or None], batch)}

    def partitions(self, start: Offset, end: Offset) -> list[Any]:
        """The tasks that new files concern, each as it was before and as it is."""
        before = {task.number: task for task in self._tasks(start)}
        made = []
        for task in self._tasks(end):
            earlier = before.get(task.number)
            if earlier is None or earlier.sources != task.sources:
                made.append((earlier, task))
        return made

    def _tasks(self, offset: Offset) -> Sequence[ReadTask]:
        files = offset[_FILES]
        return self._reader.tasks(self._settings, self._growing.specs(files)) if files else ()

    def read(self, given: tuple[ReadTask | None, ReadTask]) -> Iterator[pa.RecordBatch]:
        """The rows of a task. Raises SourceError where a file is damaged, IncompleteError for findings."""
        before, task = given
        states, stream = self._reader.option("states"), self._reader.named
        changed = changed_rows(
            self._settings, before, task, stream, Path(states) if states else None,
            self._reader.flag("allow_incomplete"),
        )  # fmt: skip
        for status, table in changed:
            if status != ASSERTED and not self._told and len(table):
                raise DataError(
                    "files came late, or with a source that has to be read anew, and change rows that were "
                    f"given; readStream.format({CHANGES!r}) takes them back"
                )
            for batch in self._shape.shaped(table).to_batches():
                yield self._reader.told(status, batch)
