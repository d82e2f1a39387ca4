"""States of nodes as files of a stream's own, and which of them count.

For programs of more levels than are chained as operators of Spark.
"""

import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from orderbook.errors import SourceError
from orderbook.whole_files import replace_file

_LISTING = "states.json"


class NodeFiles(msgspec.Struct, frozen=True):
    """A node's state: see NodeState; the file of each piece."""

    head: bytes
    pieces: dict[int, str]


class Listing(msgspec.Struct, frozen=True):
    """The states as of a batch (-1: none was done), by node."""

    batch: int = -1
    nodes: dict[str, NodeFiles] = {}

    @classmethod
    def read(cls, folder: Path) -> "Listing":
        """As of the last batch that was done. Raises SourceError where it is damaged."""
        path = folder / _LISTING
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except FileNotFoundError:
            return cls()
        except (OSError, msgspec.MsgspecError) as error:
            raise SourceError(f"{path}: cannot read: {error}") from None

    def after(self, batch: int, changed: Mapping[str, NodeFiles]) -> "Listing":
        """With the states that a batch has changed."""
        return Listing(batch, {**self.nodes, **changed})

    def write(self, folder: Path) -> None:
        """Replaces the listing as a whole, and removes files that it does not name."""
        replace_file(folder / _LISTING, msgspec.json.encode(self))
        named = {name for node in self.nodes.values() for name in node.pieces.values()}
        for path in folder.iterdir():
            if path.suffix == ".state" and path.name not in named:
                path.unlink(missing_ok=True)


class StoredFiles:
    """See NodeState; a node's state in files. `written`: what they are after a batch, None as before it."""

    def __init__(self, folder: Path, files: NodeFiles | None) -> None:
        self._folder, self._files = folder, files
        self.written: NodeFiles | None = None

    def head(self) -> bytes | None:
        """See NodeState."""
        return None if self._files is None else self._files.head

    def piece(self, number: int) -> bytes:
        """See NodeState. Raises SourceError where it cannot be read."""
        assert self._files is not None
        path = self._folder / self._files.pieces[number]
        try:
            return path.read_bytes()
        except OSError as error:
            raise SourceError(f"{path}: cannot read: {error.strerror or error}") from None

    def write(self, head: bytes, number: int, piece: bytes, dropped: Iterable[int]) -> None:
        """See NodeState."""
        before = {} if self._files is None else self._files.pieces
        name = f"{secrets.token_hex(8)}.state"
        replace_file(self._folder / name, piece)
        gone = set(dropped)
        kept = {one: path for one, path in before.items() if one not in gone}
        self.written = NodeFiles(head, {**kept, number: name})
