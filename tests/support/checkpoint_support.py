"""Checkpoints of two parts, written and read back."""

from pathlib import Path
from typing import Any

import numpy as np

from orderbook.engine.checkpoint import Checkpoint, write_checkpoint

PROGRAM, OTHER = b"p" * 32, b"q" * 32
ARRAY = np.arange(12, dtype=np.int64).reshape(4, 3)
FIELDS = np.array([(1, 2), (3, 4)], np.dtype([("a", "i8"), ("b", "i4")]))


def written(folder: Path, stamp: int, program: bytes = PROGRAM, **options: Any) -> Any:
    parts: dict[str, Any] = {
        "one": {"array": ARRAY * stamp, "text": b"bytes %d" % stamp, "none": b""},
        "two": {"array": [ARRAY[:1], ARRAY[1:1], ARRAY[1:]], "fields": FIELDS},
    }
    return write_checkpoint(folder, parts, program=program, position=f"at {stamp}", stamp=stamp, **options)


def read(checkpoint: Checkpoint | None) -> int:
    """The stamp of a checkpoint whose contents are as `written` has them."""
    assert checkpoint is not None and checkpoint.position == f"at {checkpoint.stamp}"
    one, two = checkpoint.part("one"), checkpoint.part("two")
    assert np.array_equal(one["array"][:], ARRAY * checkpoint.stamp)
    assert np.array_equal(one["array"][1:3], ARRAY[1:3] * checkpoint.stamp)
    assert (one["text"].bytes(), one["none"].bytes()) == (b"bytes %d" % checkpoint.stamp, b"")
    assert np.array_equal(two["array"][:], ARRAY) and np.array_equal(two["fields"][:], FIELDS)
    assert checkpoint.part("on") == {}
    return checkpoint.stamp
