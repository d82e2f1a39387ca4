"""Python calls machine code as a builtin function: its values come through, and what is wrong is raised."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numba import types
from numba.core import config

from orderbook.core.jit import called_with
from orderbook.core.native_code import BYTES, native_callable
from orderbook.engine.maps.memory import Block, load, store

pytestmark = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled")


def subtract(a, b):
    return a - b


def halve(x):
    return x / 2.0


def less(a, b):
    return a < b


def keep(at, value):
    store(at, 0, value)


def first_word(of):
    return load(of, 0)


def two_words(at):
    return at


def made(function: Any, *kinds: types.Type, nogil: bool = False) -> Callable[..., Any]:
    return native_callable(function, kinds, None, nogil)


@pytest.mark.parametrize("nogil", [False, True])
def test_values_come_through(nogil: bool) -> None:
    minus = made(subtract, types.int64, types.int64, nogil=nogil)
    for a, b in (
        (0, -1),
        (-1, 0),
        (-1, -1),
        (2**62, -(2**62) + 1),
        (-(2**63), 0),
        (True, 0),
        (np.int64(7), 1),
    ):
        assert minus(a, b) == int(a) - int(b)
    half = made(halve, types.float64, nogil=nogil)
    assert [half(x) for x in (-1.0, 0.0, 3.0, -2, np.float64(5.0), 1e308)] == [
        -0.5,
        0.0,
        1.5,
        -1.0,
        2.5,
        5e307,
    ]
    assert made(less, types.int64, types.int64)(1, 2) is True
    block = Block(1)
    assert made(keep, types.int64, types.int64)(block.address, -9) is None
    assert block[0] == -9


def test_what_is_wrong_is_raised_and_nothing_called() -> None:
    block = Block(1)
    put = made(keep, types.int64, types.int64)
    for wrong, error in (
        (2**63, OverflowError),
        (-(2**63) - 1, OverflowError),
        ("1", TypeError),
        (None, TypeError),
    ):
        with pytest.raises(error):
            put(block.address, wrong)
    for arguments in ((), (block.address,), (block.address, 1, 2)):
        with pytest.raises(TypeError):
            put(*arguments)
    with pytest.raises(TypeError):
        made(halve, types.float64)("x")
    assert block[0] == 0


def test_objects_are_told_by_their_address_and_not_kept() -> None:
    count = called_with("o")(first_word)
    one = object()
    before = sys.getrefcount(one)
    assert count(one) == before + 1 or count(one) == before
    assert sys.getrefcount(one) == before


def test_bytes_are_a_copy() -> None:
    words, held = Block(2), Block(3)
    words[0], words[1] = held.address, 24
    held[1] = 258
    taken = called_with("i", BYTES)(two_words)
    found = taken(words.address)
    held[1] = 0
    assert found == bytes(8) + b"\2\1" + bytes(14)
    words[1] = 0
    assert taken(words.address) == b""


def test_results_are_released() -> None:
    minus = made(subtract, types.int64, types.int64)
    before = sys.getallocatedblocks()
    for _ in range(10_000):
        minus(2**40, 1)
    assert sys.getallocatedblocks() - before < 1_000
