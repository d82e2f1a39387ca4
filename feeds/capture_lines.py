"""The lines of a recording in the order of time, over all its files."""

from collections.abc import Iterator
from heapq import merge

import msgspec

from feeds import cryptofeed_text
from feeds.byte_stream import Lines, shown
from feeds.capture_head import CaptureHead
from feeds.raw_log import Line
from orderbook.errors import SourceError
from orderbook.problems import Problems

_decode = msgspec.json.Decoder(Line).decode


class RecordedLines:
    """Iterates over a recording's lines; every iteration starts at the beginning.

    Malformed lines are counted in `problems`. A file that is cut does not keep the next from being read:
    `raise_if_cut` tells afterwards. Raises SourceError where a file cannot be opened.
    """

    def __init__(self, head: CaptureHead) -> None:
        self.problems = Problems()
        self._head = head
        self._files = [Lines(path) for path in head.files]

    @property
    def progress(self) -> float:
        """Fraction of the files' bytes read, 0 to 1, each file counted alike."""
        return sum(lines.progress for lines in self._files) / len(self._files)

    def raise_if_cut(self) -> None:
        """Raise SourceError where a file ended early."""
        cut = [lines for lines in self._files if lines.cut is not None]
        if len(cut) > 1:
            names = ", ".join(str(lines.path) for lines in cut)
            raise SourceError(f"{names}: each is cut at its end; everything before that was read")
        for lines in cut:
            lines.raise_if_cut()

    def __iter__(self) -> Iterator[Line]:
        self.problems.clear()
        head = self._head
        if not head.connections:
            for lines in self._files:
                yield from self._read(lines)
            return
        if head.text:
            yield from merge(sorted(head.answers, key=_time), *map(self._text, head.connections), key=_time)
            return
        # A foreign recording may hold one connection after another, and answers first.
        first, path = self._files[0], head.files[0]
        parts = [first, *(Lines(path) for _ in head.connections[1:])]
        streams = (self._of(name, lines) for name, lines in zip(head.connections, parts, strict=True))
        yield from merge(sorted(head.answers, key=_time), *streams, key=_time)

    def _text(self, connection: str) -> Iterator[Line]:
        """What was sent and received on a connection, part after part."""
        for lines in self._files:
            if cryptofeed_text.connection_of(lines.path) == connection:
                found = cryptofeed_text.read_lines(lines, self.problems)
                yield from (line for line in found if line.t != "http")

    def _of(self, connection: str, lines: Lines) -> Iterator[Line]:
        return (line for line in self._read(lines) if line.t != "http" and line.conn == connection)

    def _read(self, lines: Lines) -> Iterator[Line]:
        for text in lines:
            try:
                yield _decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                lines.malformed(self.problems, "malformed line", f"{error}: {shown(text)}")


def _time(line: Line) -> int:
    return line.time
