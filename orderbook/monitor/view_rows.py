"""Rows of a view as the engine holds them: compared as words, decoded only where somebody looks."""

from collections.abc import Iterator

import numpy as np

from engine.live_view import Key, LiveView, ViewRow
from engine.row_format import RowFormat, UnpackedRow, unpacker


class RowReader:
    """Decodes the words of `LiveView.row_words`, as long as the view has this layout."""

    def __init__(self, view: LiveView) -> None:
        self.layout = view.layout
        self._form = RowFormat(view.layout.result)
        self._unpack = unpacker(self._form.key + self._form.row)

    def count(self, words: np.ndarray) -> int:
        """How many rows these stand for: equal ones stand once among the words."""
        return int(words[:, self._form.key_count].sum())

    def rows(self, words: np.ndarray) -> Iterator[tuple[Key, ViewRow]]:
        """Keys and rows of int64[n, words of the key and of the row]."""
        form, layout = self._form, self.layout
        data, size = np.ascontiguousarray(words).tobytes(), 8 * words.shape[1]
        for number in range(len(words)):
            values = self._unpack(data, number * size)
            key = layout.key(form.decoded_key(values[: form.key_count]))
            yield key, ViewRow(layout, UnpackedRow(values[form.key_count :], form.columns))


def differences(before: np.ndarray, now: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows of each that the other has not, wherever they stand; both int64[n, words], rows distinct."""
    shared = min(len(before), len(now))
    moved = np.flatnonzero((before[:shared] != now[:shared]).any(axis=1))
    gone = np.concatenate([before[moved], before[shared:]])
    come = np.concatenate([now[moved], now[shared:]])
    if not len(gone) or not len(come):
        return gone, come
    old, new = ([row.tobytes() for row in rows] for rows in (gone, come))
    there, was = set(new), set(old)
    return (
        gone[[row not in there for row in old]],
        come[[row not in was for row in new]],
    )
