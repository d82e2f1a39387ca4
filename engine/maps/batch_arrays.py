"""Where the arrays of a batch of changes lie: read from numpy's objects by compiled code.

Python hands the arrays over as they are, so that a call costs no more than one with integers. Source: NumPy
documentation, "Python Types and C-Structures" (PyArrayObject); CPython documentation, "Common Object
Structures" (PyObject).
"""

import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import ChangeBatch
from orderbook.core.errors import DataError
from orderbook.core.jit import jit
from orderbook.engine.maps.memory import load, load_short, store

# Words of an object, and of an array.
_TYPE, _DATA, _DIMENSIONS, _SHAPE, _STRIDES, _DTYPE = 1, 2, 3, 4, 5, 7
_WORD = 8
_DTYPES = np.dtype(np.int16), np.dtype(np.uint8), np.dtype(np.int64)


def array_types(*dtypes: np.dtype) -> NDArray[np.int64]:
    """int64 addresses of the type of arrays, and of dtypes, which live as long as the process."""
    return np.array([id(np.ndarray), *map(id, dtypes)], np.int64)


_TYPES = array_types(*_DTYPES)
# Address of the addresses of the type of arrays, and of those of kinds, flags and values.
ARRAY_TYPES = _TYPES.ctypes.data


@jit()
def is_array(types, one, dtype, dimensions):
    """Whether an object is an array of the dtype of this number in ARRAY_TYPES, and of so many dimensions."""
    if load(one, _TYPE) != load(types, 0) or load(one, _DTYPE) != load(types, dtype):
        return False
    return load_short(one + 8 * _DIMENSIONS) == dimensions


@jit()
def describe_records(at, types, one, size):
    """Writes to words where the records of an array lie, each of `size` bytes, and how many they are.

    0 where it has another dtype than the first in `types` or several dimensions, or they are not side by
    side; else 1.
    """
    if not is_array(types, one, 1, 1):
        return 0
    count = load(load(one, _SHAPE), 0)
    if count > 1 and load(load(one, _STRIDES), 0) != size:
        return 0
    store(at, 0, load(one, _DATA))
    store(at, 1, count)
    return 1


@jit()
def describe_batch(at, types, kinds, flags, values):
    """Writes the address and stride of three arrays to words; how many changes, -1: they are not as said."""
    if not (is_array(types, kinds, 1, 1) and is_array(types, flags, 2, 1) and is_array(types, values, 3, 2)):
        return -1
    count = load(load(kinds, _SHAPE), 0)
    if load(load(flags, _SHAPE), 0) != count or load(load(values, _SHAPE), 0) != count:
        return -1
    if count != 0 and load(load(values, _SHAPE), 1) > 1 and load(load(values, _STRIDES), 1) != _WORD:
        return -1
    store(at, 0, load(kinds, _DATA))
    store(at, 1, load(load(kinds, _STRIDES), 0))
    store(at, 2, load(flags, _DATA))
    store(at, 3, load(load(flags, _STRIDES), 0))
    store(at, 4, load(values, _DATA))
    store(at, 5, load(load(values, _STRIDES), 0))
    return count


def plain_batch(batch: ChangeBatch) -> ChangeBatch:
    """The same changes in arrays that can be described. Raises DataError where there are none."""
    kinds = np.ascontiguousarray(batch.kinds, np.int16).view(np.int16)
    flags = np.ascontiguousarray(batch.flags, np.uint8).view(np.uint8)
    values = np.ascontiguousarray(batch.values, np.int64).view(np.int64)
    if kinds.ndim != 1 or flags.shape != kinds.shape or values.ndim != 2 or len(values) != len(kinds):
        shapes = ", ".join(str(array.shape) for array in (kinds, flags, values))
        raise DataError(f"changes are kinds [n], flags [n] and values [n, width]; these are {shapes}")
    return ChangeBatch(kinds, flags, values)
