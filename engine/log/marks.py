"""The durable mark: the position up to which a log was known to be on the disk.

A record that does not verify is a torn tail above the mark, and damage below it. The mark is written
after each sync, but synced itself about once a second only: it may lag, and never leads. The file
`durable` has two slots, and the one that was synced last is never the one that is written.
"""

import zlib
from pathlib import Path
from struct import Struct

from .files import Files, write_all
from .records import Position

MARK_NAME = "durable"
_MAGIC = b"\x8bORDMRK\n"
# Magic, number of the mark, position; then the checksum, which starts from the log's identity.
_FIELDS = Struct("<8sQQ")
_CHECK = Struct("<I")
# Slots do not share a sector of a disk.
_SLOT = 512


def read_mark(files: Files, folder: Path, identity: bytes) -> tuple[int, Position] | None:
    """The newest mark and its number; None where no slot verifies or the file is absent."""
    try:
        data = files.read(folder / MARK_NAME, 0, 2 * _SLOT)
    except FileNotFoundError:
        return None
    found = []
    for start in (0, _SLOT):
        fields = data[start : start + _FIELDS.size]
        check = data[start + _FIELDS.size : start + _FIELDS.size + _CHECK.size]
        if fields.startswith(_MAGIC) and check == _CHECK.pack(zlib.crc32(fields, zlib.crc32(identity))):
            _, number, position = _FIELDS.unpack(fields)
            found.append((number, Position(position)))
    return max(found, default=None)


class Mark:
    """Writes the mark of one log."""

    def __init__(self, files: Files, folder: Path, identity: bytes):
        self._files, self._identity = files, identity
        found = read_mark(files, folder, identity)
        # A slot's parity is its number's.
        self._number = 0 if found is None else found[0]
        path = folder / MARK_NAME
        if MARK_NAME in files.names(folder):
            self._handle = files.open(path)
            return
        unnamed = path.with_name(path.name + ".new")
        self._handle = files.open(unnamed)
        files.truncate(self._handle, 0)
        write_all(files, self._handle, bytes(2 * _SLOT), 0)
        files.sync(self._handle)
        files.rename(unnamed, path)
        files.sync_folder(folder)

    def write(self, position: Position) -> None:
        """Writes the mark, into the slot that is not the last synced one."""
        fields = _FIELDS.pack(_MAGIC, self._number + 1, position)
        data = fields + _CHECK.pack(zlib.crc32(fields, zlib.crc32(self._identity)))
        write_all(self._files, self._handle, data, (self._number + 1) % 2 * _SLOT)

    def sync(self) -> None:
        """Makes the mark that was written last durable."""
        self._files.sync(self._handle)
        self._number += 1

    def seal(self, position: Position) -> None:
        """Writes the mark durably into both slots, so that one damaged slot loses nothing."""
        self._files.sync(self._handle)
        for _ in range(2):
            self.write(position)
            self.sync()

    def close(self) -> None:
        """Gives the file back."""
        self._files.close(self._handle)
