"""Every entry of a map store, for tests."""

from types import ModuleType

import numpy as np

from orderbook.engine.maps.store_layout import WORDS


def rows(shape: ModuleType, handle: int) -> dict[tuple[int, ...], tuple[int | float, ...]]:
    """Every entry of a store, from key words (prefix, then ordered key) to values."""
    out = np.zeros((shape.size(handle), shape.WORDS), np.int64)
    shape.export(handle, out.ctypes.data, len(out))
    keys = shape.WORDS - sum(WORDS[kind] for kind in shape.LAYOUT)
    result = {}
    for row in out:
        values: list[int | float] = []
        at = keys
        for kind in shape.LAYOUT:
            if kind == "i":
                values.append(int(row[at]))
            elif kind == "d":
                values.append(float(row[at : at + 2].view(np.float64).sum()))
            else:
                values.append((int(row[at + 1]) << 64) | (int(row[at]) & (2**64 - 1)))
            at += WORDS[kind]
        result[tuple(int(word) for word in row[:keys])] = tuple(values)
    return result
