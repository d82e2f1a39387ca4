"""The recorder of the numba executor: compiled looks write to lists in memory, which become arrays here."""

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .changes import ChangeBatch
from .recorded import Recording, Records
from .row_format import RowFormat

if TYPE_CHECKING:
    from .numba_runtime import NumbaRuntime

_Words = ctypes.Array[ctypes.c_int64]
_ADDRESS, _USED = 0, 1


class NumbaRecorder:
    """See Recorder. `lists` are address, words used and capacity of what each recording has noted."""

    def __init__(self, runtime: "NumbaRuntime", recordings: Sequence[Recording], lists: Sequence[_Words]):
        self._runtime = runtime
        results = runtime.plan.program.result
        self._lists = lists
        self._recordings = tuple(recordings)
        self._forms = [RowFormat(results(r.view)) for r in recordings]

    def apply(self, batch: ChangeBatch) -> tuple[Records, ...]:
        """See Recorder."""
        try:
            self._runtime.apply(batch)
        except BaseException:
            self._taken()
            raise
        return self._taken()

    def rows(self, view: str) -> tuple[np.ndarray, np.ndarray]:
        """See Recorder."""
        form = RowFormat(self._runtime.plan.program.result(view))
        words = self._runtime.row_words(view)
        return words[:, : form.key_count], words[:, form.key_count :]

    def pending(self) -> tuple[Records, ...]:
        """See Recorder."""
        self._runtime.look()
        found = self._taken()
        self.restore(found)
        return found

    def restore(self, pending: Sequence[Records]) -> None:
        """See Recorder."""
        runtime = self._runtime
        for recording, records in zip(self._recordings, pending, strict=True):
            if len(records):
                rows = np.ascontiguousarray(np.hstack([records.keys, records.old]))
                runtime.unlook(recording.view, recording.per_message, rows)

    def _taken(self) -> tuple[Records, ...]:
        """What was noted since it was last taken."""
        return tuple(_records(held, form) for held, form in zip(self._lists, self._forms, strict=True))


def _records(held: _Words, form: RowFormat) -> Records:
    keys, size = form.key_count, 1 + form.key_count + 2 * form.words
    noted = np.empty((0, size), np.int64)
    if held[_USED]:
        words = (ctypes.c_int64 * held[_USED]).from_address(held[_ADDRESS])
        noted = np.ctypeslib.as_array(words).reshape(-1, size).copy()
        held[_USED] = 0
    old, new = 1 + keys, 1 + keys + form.words
    return Records(noted[:, 0], noted[:, 1:old], noted[:, old:new], noted[:, new:])
