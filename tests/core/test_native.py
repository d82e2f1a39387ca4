"""Functions compiled by `native` give what Python gives where 64 bits hold it, beyond what numba gives."""

import math
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit, types, uint64
from numba.core import config
from paths import PROJECT
from samples import examples

import orderbook.engine.maps.wide_numbers  # noqa: F401  what divides 128 bits
from orderbook.core.native import NativeModule
from orderbook.core.native_code import native_callable
from orderbook.core.native_types import WIDENS, NativeError
from orderbook.market.block_memory import record_at

pytestmark = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled")

POWERS = (1.0, 10.0, 100.0, 1000.0)
LIMIT = 2**40


def arithmetic(a, b):
    return a + b * 3 - (a ^ b) + (a & 12345) - (b | 7) + ~a


def floors(a, b):
    return a // b * 1000 + a % b if b != 0 else -1


def shifts(a, b):
    by = b & 31
    return (a << by) ^ (a >> by)


def comparisons(a, b):
    found = 0
    if a < b <= LIMIT or not a >= b:
        found += 1
    if a == b and b != 3:
        found += 2
    elif a in (1, 2, 3):
        found += 4
    else:
        found -= 8
    return found + (16 if a > b else 32) + min(a, b, 5) - max(a, b) + abs(a)


def loops(a, b):
    total = 0
    for i in range(b % 20):
        if i % 3 == 1:
            continue
        if i > 11:
            break
        total += i * a
    for i in range(10, 0, -3):
        total -= i
    for factor, offset in ((1, 2), (3, 4)):
        total += factor * a + offset
    while total > 1000:
        total //= 7
    return total


def pair(a, b):
    return (b, a) if a > b else (a, b)


def tuples(a, b):
    low, high = pair(a, b)
    both = pair(high, low)
    return both[0] * 3 + both[1] - low


def either(a, b):
    return (a > 0 and b > 0 and a * b % 7 == 3) or a < b


def doubles(x, y):
    total = 0.0
    if x > y:
        total = x * 0.5
    total += y - x / 4.0
    rounded = float(int(x)) if abs(x) < 1e9 else x
    root = math.sqrt(abs(x)) if math.isfinite(x) else 0.0
    return total + rounded * POWERS[int(abs(y)) % 4] + root + min(x, y) + x % 3.0


def powers_of_whole(a, b):
    return a**2 + (a & 1023) ** 3 - 10**9 + 2**0 + (b & 3) ** 1


def roundings(x, y):
    found = math.floor(x) + math.ceil(y) * 3 + round(x) * 5 + math.trunc(y) * 7
    return found + round(int(x)) + int(x // 0.25)


def functions(x, y):
    z = abs(x) % 8.0 + 0.5
    found = x**2 + z**y if abs(y) < 9.0 else z**-0.5 + z**3
    found += math.log2(z) + math.log1p(z) + math.expm1(z) + math.hypot(x, y) + math.copysign(z, y)
    if math.isnan(x - x) or math.isinf(y) or not (x or y):
        found += 1.0
    return found + x // z + math.fabs(y) + (z and y) + 10.0**-3


def mixed(x, y):
    total = 0
    for i in range(3):
        total = total + i * x
    return total - y


whole = st.integers(-LIMIT, LIMIT)
real = st.floats(-1e12, 1e12)


def compiled(function: Callable[..., Any], kind: types.Type, count: int = 2) -> Callable[..., Any]:
    assert isinstance(function, FunctionType)
    return native_callable(function, [kind] * count, None, nogil=False)


@pytest.mark.parametrize(
    "function", [arithmetic, floors, shifts, comparisons, loops, tuples, either, powers_of_whole]
)
def test_integers_are_those_of_python(function: Callable[..., Any]) -> None:
    native = compiled(function, types.int64)

    @examples(200)
    @given(whole | st.integers(-20, 20), whole | st.integers(-20, 20))
    def check(a: int, b: int) -> None:
        expected = function(a, b)
        if isinstance(expected, bool) or abs(expected) < 2**63:
            assert native(a, b) == expected and type(native(a, b)) is type(expected)

    check()


@pytest.mark.parametrize("function", [doubles, mixed, functions])
def test_doubles_are_those_of_python(function: Callable[..., Any]) -> None:
    native = compiled(function, types.float64)

    @examples(200)
    @given(real, real)
    def check(x: float, y: float) -> None:
        assert native(x, y) == function(x, y)

    check()


def test_rounding_is_that_of_python() -> None:
    native = compiled(roundings, types.float64)

    @examples(200)
    @given(real | st.integers(-99, 99).map(lambda x: x / 2), real)
    def check(x: float, y: float) -> None:
        assert native(x, y) == roundings(x, y)

    check()


def wraps(a, b):
    return a * b + (a - b) * 3


@examples(100)
@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_beyond_64_bits_is_as_numba_has_it(a: int, b: int) -> None:
    assert NATIVE_WRAPS(a, b) == NUMBA_WRAPS(a, b)


NUMBA_WRAPS = njit("int64(int64, int64)")(wraps)
NATIVE_WRAPS = compiled(wraps, types.int64)


def divided(a, b):
    return a // b + a % b


def widened(a, b):
    total = 0
    for k in range(3):
        total += a * b - k * a
    mean = (total * 7 + a * a) // (abs(b) + 1) + int(total) % (b * b + 1)
    found = min(mean, total) if mean != 0 and a else -mean
    ratio = (a * b) / (b * b + 1) + total * 0.5
    return found // 2**70 + (found % 2**20) * (1 if ratio > mean else 3) + a**2 // (a * a + 1) + b**0


KEPT = np.dtype([("beyond", "i8"), ("value", "i8")])
kept_record = record_at(KEPT)


def kept(row, a, b):
    row.value = a * b
    return a**3


def keeps(address, a, b):
    kept(kept_record(address), a, b)
    return 0


def keeps_widened(address, a, b):
    keep_widened(kept_record(address), a, b)
    return 0


def keep_widened(row, a, b):
    row.value = widened(a, b)


@examples(200)
@given(whole | st.integers(-20, 20), whole | st.integers(-20, 20))
def test_products_of_functions_that_widen_are_those_of_python(a: int, b: int) -> None:
    rows = np.zeros(1, KEPT)
    KEEPS_WIDENED(rows.ctypes.data, a, b)
    assert rows["value"] == widened(a, b) and rows["beyond"] == 0


@examples(100)
@given(st.integers(-(2**63), 2**63 - 1), st.integers(-3, 3) | st.integers(-(2**62), 2**62))
def test_what_64_bits_do_not_hold_is_noted_with_its_line(a: int, b: int) -> None:
    rows = np.zeros(1, KEPT)
    KEEPS(rows.ctypes.data, a, b)
    first, size = kept.__code__.co_firstlineno, 2.0**127
    beyond, rest = abs(a * b + 0.5) > 2**63, abs(float(a) ** 3) >= size
    assert rows["value"] == max(-(2**63), min(2**63 - 1, a * b))
    assert rows["beyond"] == (first + 1 if beyond else first + 2 if rest else 0)


for function in (kept, keep_widened):
    setattr(function, WIDENS, True)
KEEPS, KEEPS_WIDENED = (compiled(function, types.int64, 3) for function in (keeps, keeps_widened))


def test_a_divisor_of_nothing_gives_nothing() -> None:
    assert compiled(divided, types.int64)(7, 0) == 0


def test_the_least_integer_divided_by_minus_one_wraps() -> None:
    assert compiled(divided, types.int64)(-(2**63), -1) == -(2**63)


RECORD = np.dtype([("word", "i8"), ("short", "i2"), ("byte", "u1"), ("real", "f8")])
record = record_at(RECORD)


def fields(address, value):
    row: Any = record(address)
    row.word, row.short = value, value
    row.byte = value
    row.real = value * 0.5
    row.short += 1
    return row.word * 7 + row.short * 5 + row.byte * 3 + int(row.real)


@given(st.integers(-LIMIT, LIMIT))
def test_fields_of_records_are_those_of_numpy(value: int) -> None:
    wanted, rows = np.zeros(1, RECORD), np.zeros(1, RECORD)
    numbers = np.array([value])
    wanted["word"], wanted["byte"], wanted["real"] = value, numbers.astype("u1")[0], value * 0.5
    wanted["short"] = (numbers.astype("i2") + np.int16(1)).astype("i2")[0]
    one = wanted[0]
    total = int(one["word"]) * 7 + int(one["short"]) * 5 + int(one["byte"]) * 3 + int(one["real"])
    assert FIELDS(rows.ctypes.data, value) == total
    assert rows.tobytes() == wanted.tobytes()


FIELDS = compiled(fields, types.int64)


def mixed_bits(a, b):
    x = uint64(a) * uint64(0x9E3779B97F4A7C15) ^ uint64(b)
    return np.int64(x >> uint64(29)) + (1 if uint64(a) < uint64(b) else 0)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_unsigned_integers_are_shifted_and_compared_as_such(a: int, b: int) -> None:
    mask = 2**64 - 1
    x = (a & mask) * 0x9E3779B97F4A7C15 & mask ^ (b & mask)
    assert MIXED_BITS(a, b) == (x >> 29) + ((a & mask) < (b & mask))


MIXED_BITS = compiled(mixed_bits, types.int64)


def of_two_signs(a, b):
    return uint64(a) + b


def no_field(a, b):
    return record(a).missing


def lists(a, b):
    return [a, b][0]


def unknown(a, b):
    return a + missing  # type: ignore[name-defined] # noqa: F821


def of_two_kinds(a, b):
    value = a
    if a > b:
        value = (a, b)
    return value


def itself(a, b):
    return itself(a - 1, b)


def power_of_what_comes(a, b):
    return a**b


def logarithm_of_two(a, b):
    return math.log(a, b)


def rounded_to_places(a, b):
    return round(a * 0.1, b)


def truth_of_a_record(a, b):
    return a if record(b) else b


@pytest.mark.parametrize(
    "function",
    [
        lists, unknown, of_two_kinds, of_two_signs, no_field, itself, pair, power_of_what_comes,
        logarithm_of_two, rounded_to_places, truth_of_a_record,
    ],
)  # fmt: skip
def test_what_is_not_compiled_says_so(function: FunctionType) -> None:
    with pytest.raises(NativeError):
        NativeModule().add(function, "function", [types.int64, types.int64])


@pytest.mark.parametrize(("value", "whole"), [(math.nan, 0), (1e30, 2**63 - 1), (-math.inf, -(2**63))])
def test_doubles_that_no_integer_holds_are_the_nearest(value: float, whole: int) -> None:
    assert compiled(to_whole, types.float64, 1)(value) == whole


def to_whole(x):
    return int(x)


def test_a_variable_without_a_value_is_nothing() -> None:
    def sometimes(a, b):
        if a > b:
            found = a
        return found

    native = compiled(sometimes, types.int64)
    assert [native(a, 5) for a in (7, 3, 9, 1)] == [7, 0, 9, 0]


def test_a_terminal_is_told_of_the_first_start(tmp_path: Path) -> None:
    """And of no other; nor is what is no terminal."""
    environment = {**os.environ, "ORDERBOOK_CACHE": str(tmp_path), "PYTHONPATH": str(PROJECT)}
    command = [sys.executable, "-c", "import orderbook.engine.maps.hash_index"]
    said = []
    for _ in range(2):
        own, terminal = pty.openpty()
        with open(own, "rb", buffering=0) as read:
            subprocess.run(command, env=environment, stderr=terminal, check=True)
            # So that there is something to read.
            os.write(terminal, b"end")
            os.close(terminal)
            said.append(read.read(1000).decode())
    assert "first start: compiling, once, what is then kept in" in said[0] and str(tmp_path) in said[0]
    assert said[1] == "end"
    elsewhere = {**environment, "ORDERBOOK_CACHE": str(tmp_path / "elsewhere")}
    assert not subprocess.run(command, env=elsewhere, capture_output=True, check=True).stderr
