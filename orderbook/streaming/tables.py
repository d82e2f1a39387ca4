"""States of nodes as files of a stream's own: what changed in each batch, and which files count.

For programs of more levels than are chained as operators of Spark.
"""

import os
import pickle
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from orderbook.errors import SourceError

_LISTING = "states.json"
# Changes of a node that are read one after the other, until all of it is written anew.
_MOST_CHANGES = 32
Key = tuple[int, int, int]
Messages = dict[Key, tuple[bytes, bytes]]


class NodeFiles(msgspec.Struct, frozen=True):
    """A node's state: a file with all of it, then changes, in order; `mark` names the last."""

    mark: str
    files: tuple[str, ...]


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
        _appear(folder, _LISTING, msgspec.json.encode(self))
        named = {name for node in self.nodes.values() for name in node.files}
        for path in folder.iterdir():
            if path.suffix == ".state" and path.name not in named:
                path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class _Change:
    """What a batch wrote of a node. whole: nothing of before counts."""

    status: bytes
    base: bytes | None
    added: Messages
    dropped: tuple[Key, ...]
    whole: bool = False


class StoredFiles:
    """See NodeState; a node's state in files. `written`: what they are after a batch, None as before it."""

    def __init__(self, folder: Path, files: NodeFiles | None) -> None:
        self._folder, self._files = folder, files
        self.written: NodeFiles | None = None

    def mark(self) -> str | None:
        """See NodeState."""
        return None if self._files is None else self._files.mark

    def status(self) -> bytes:
        """See NodeState."""
        return self._whole().status

    def base(self) -> bytes | None:
        """See NodeState."""
        return self._whole().base

    def received(self) -> Iterable[tuple[Key, tuple[bytes, bytes]]]:
        """See NodeState."""
        return self._whole().added.items()

    def write(
        self,
        mark: str,
        status: bytes,
        base: bytes | None,
        added: Iterable[tuple[Key, tuple[bytes, bytes]]],
        dropped: Iterable[Key],
    ) -> None:
        """See NodeState."""
        change = _Change(status, base, dict(added), tuple(dropped))
        before = () if self._files is None else self._files.files
        if base is not None or len(before) >= _MOST_CHANGES:
            change, before = self._joined(change), ()
        name = f"{secrets.token_hex(8)}.state"
        _appear(self._folder, name, pickle.dumps(change, pickle.HIGHEST_PROTOCOL))
        self.written = NodeFiles(mark, (*before, name))

    def _joined(self, change: _Change) -> _Change:
        if self._files is None:
            return _Change(change.status, change.base, change.added, (), True)
        return _after(self._whole(), change)

    def _whole(self) -> _Change:
        """All of the state as one change."""
        found: _Change | None = None
        assert self._files is not None
        for name in self._files.files:
            try:
                change: _Change = pickle.loads((self._folder / name).read_bytes())
            except (OSError, pickle.UnpicklingError, EOFError) as error:
                raise SourceError(f"{self._folder / name}: cannot read: {error}") from None
            found = change if found is None or change.whole else _after(found, change)
        assert found is not None
        return found


def _after(before: _Change, change: _Change) -> _Change:
    messages = {key: value for key, value in before.added.items() if key not in change.dropped}
    base = before.base if change.base is None else change.base
    return _Change(change.status, base, {**messages, **change.added}, (), True)


def _appear(folder: Path, name: str, data: bytes) -> None:
    partial = folder / f".{name}.{secrets.token_hex(4)}"
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(folder / name)
    except OSError as error:
        raise SourceError(f"{folder / name}: cannot write: {error.strerror or error}") from None
