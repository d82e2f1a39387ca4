"""Batches of signed tuples: what books and readers hand to a runtime.

One change is one inserted or deleted row. Changes are grouped into events (an update is a delete
and an insert in one event) and events into messages (one exchange message may change many levels).
"""

from dataclasses import dataclass

import numpy as np

END_OF_EVENT = 1
END_OF_MESSAGE = 2
# The row was checked by its producer: deletes are known to name rows that are there.
CHECKED = 4


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """`n` changes in the order they apply.

    kinds: int16[n], index of the relation in the program's relations times two, plus one for a
        delete; -1 is skipped.
    flags: uint8[n], END_OF_EVENT on the last change of an event, END_OF_MESSAGE on the last of a
        message (which also ends its event).
    values: int64[n, width], C order. Row i holds the columns of its relation in declared order,
        encoded: scaled integers, ns, dictionary codes of strings, the bits of a double; NULL is
        `NULL_CODE`. Columns past the relation's are ignored.
    """

    kinds: np.ndarray
    flags: np.ndarray
    values: np.ndarray

    def __len__(self) -> int:
        return len(self.kinds)


# NULL in an encoded column; no declared type admits it as a value.
NULL_CODE = -(2**63)
