"""The lines of several files of one feed in the order of time."""

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heapreplace

from feeds.byte_stream import Lines
from feeds.places import Place
from orderbook.errors import SourceError
from orderbook.problems import Problems

# Lines at the start of a file that are searched for a time.
_HEAD_LINES = 100
# A gap in so many lines from a file's start may be a file that is missing before it.
_NEAR_START = 100


class OrderedLines:
    """Iterates over lines of files that go on from each other, whatever order they are named in.

    time: of a line, in any unit; None where it has none, which is then that of the line before it.

    Files follow each other by the times of their first lines, and are read one after the other; where they
    overlap their lines are merged. `current` is the file of the line last given, and `before` the file that
    came before it in the order. One file is read as it stands. Raises SourceError where one cannot be opened.
    """

    def __init__(self, paths: Sequence[Place], time: Callable[[bytes], int | None]) -> None:
        self._time = time
        found: list[tuple[int, str, Lines]] = []
        for path in dict.fromkeys(paths):
            insort(found, (self._first(path) if len(paths) > 1 else 0, str(path), Lines(path)))
        self._begins = [begin for begin, _, _ in found]
        self.files = [lines for _, _, lines in found]
        self.current = self.files[0]

    @property
    def progress(self) -> float:
        """Fraction of the files' bytes read, 0 to 1, each file counted alike."""
        return sum(lines.progress for lines in self.files) / len(self.files)

    @property
    def where(self) -> str:
        """The line last given as FILE:LINE."""
        return f"{self.current.path.name}:{self.current.number}"

    @property
    def before(self) -> Lines | None:
        """The file before the current one."""
        place = self.files.index(self.current)
        return self.files[place - 1] if place else None

    def malformed(self, problems: Problems, kind: str, detail: str) -> None:
        """Count the line last given, see `Lines.malformed`."""
        self.current.malformed(problems, kind, detail)

    def raise_if_cut(self) -> None:
        """Raise SourceError where a file ended early."""
        cut = [lines for lines in self.files if lines.cut is not None]
        if len(cut) > 1:
            names = ", ".join(str(lines.path) for lines in cut)
            raise SourceError(f"{names}: each is cut at its end; everything before that was read")
        for lines in cut:
            lines.raise_if_cut()

    def __iter__(self) -> Iterator[bytes]:
        self.current = self.files[0]
        if len(self.files) == 1:
            yield from self.current
            return
        waiting = deque(range(len(self.files)))
        # (time of the line, place of its file, the line, what comes after it)
        open_files: list[tuple[int, int, bytes, Iterator[bytes]]] = []
        while open_files or waiting:
            while waiting and (not open_files or self._begins[waiting[0]] <= open_files[0][0]):
                place = waiting.popleft()
                rest = iter(self.files[place])
                if (line := next(rest, None)) is not None:
                    open_files.append((self._begins[place], place, line, rest))
                    heapify(open_files)
            if not open_files:
                return
            time, place, line, rest = open_files[0]
            self.current = self.files[place]
            yield line
            if (line := next(rest, None)) is None:
                heappop(open_files)
            else:
                heapreplace(open_files, (max(time, self._time(line) or time), place, line, rest))

    def _first(self, path: Place) -> int:
        """The time at which a file begins; 0 where its first lines tell none."""
        for number, line in enumerate(Lines(path)):
            if (time := self._time(line)) is not None:
                return time
            if number == _HEAD_LINES:
                break
        return 0


class LineProblems(Problems):
    """Hands problems on by their lines; JSON that ends before its time may be where the file was cut."""

    def __init__(self, lines: OrderedLines, problems: Problems) -> None:
        super().__init__()
        self._lines, self._problems = lines, problems

    def add(self, kind: str, where: str, detail: str) -> None:
        """Count one problem of `kind` in the line last read."""
        detail = f"{where}: {detail}"
        if kind == "malformed JSON":
            self._lines.malformed(self._problems, kind, detail)
            return
        before = self._lines.before
        if kind == "gap" and before is not None and self._lines.current.number <= _NEAR_START:
            detail += f"; the file before is {before.path.name}: is one missing between the two?"
        self._problems.add(kind, self._lines.where, detail)
