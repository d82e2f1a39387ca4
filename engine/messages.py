"""Batches cut at the ends of messages."""

from collections.abc import Iterator

import numpy as np

from .changes import END_OF_MESSAGE, ChangeBatch


def part_of(batch: ChangeBatch, start: int, end: int) -> ChangeBatch:
    """The changes start .. end - 1, not copied."""
    return ChangeBatch(batch.kinds[start:end], batch.flags[start:end], batch.values[start:end])


def messages(batch: ChangeBatch) -> Iterator[ChangeBatch]:
    """The batch cut at the ends of messages; what follows the last end is a part of its own."""
    ends = (np.flatnonzero(batch.flags & END_OF_MESSAGE) + 1).tolist()
    if len(batch) and (not ends or ends[-1] != len(batch)):
        ends.append(len(batch))
    for start, end in zip([0, *ends], ends, strict=False):
        yield part_of(batch, start, end)


def to_message_end(batch: ChangeBatch, start: int) -> ChangeBatch:
    """The batch up to the end of the message that change `start` belongs to."""
    ends = np.flatnonzero(batch.flags[start:] & END_OF_MESSAGE)
    return part_of(batch, 0, start + int(ends[0]) + 1) if len(ends) else batch
