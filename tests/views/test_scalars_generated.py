"""Value functions in generated code, as plain Python and compiled, against the interpreter."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit
from scalars_runner import check, program, scalars
from uncompiled import run_uncompiled

from orderbook.core.changes import Dictionary
from orderbook.engine.maps.wide_numbers import high_word, low_word, words_to_wide
from orderbook.engine.runtime.numba_memory import Constants, PatternTable
from orderbook.views.calculus import Apply
from orderbook.views.intervals import function_interval
from orderbook.views.m3 import program_text
from orderbook.views.m3_parse import parse
from orderbook.views.scalars import integers
from orderbook.views.scalars import integers as precise
from orderbook.views.scalars.evaluate import Pattern, evaluate

LARGEST = 2**127 - 1
EDGES = [
    s * (2**bits + d) for bits in (0, 1, 31, 32, 53, 62, 63, 64, 65, 126) for s in (1, -1) for d in (-1, 0, 1)
]
WIDE = st.one_of(st.integers(-LARGEST, LARGEST), st.sampled_from([*EDGES, LARGEST, -LARGEST]))


def test_uncompiled_functions_equal_the_interpreter() -> None:
    compared = run_uncompiled("scalars_runner.py", "--count=100", "--seed=0")
    assert compared == f"{100 * len(scalars())} values compared\n"


def test_compiled_functions_equal_the_interpreter() -> None:
    assert check(200, 1) == 200 * len(scalars())


@pytest.mark.exhaustive
def test_functions_equal_the_interpreter_on_many_rows(sample_seed: int, sample_count: int) -> None:
    run_uncompiled("scalars_runner.py", f"--count={sample_count}", f"--seed={sample_seed}")
    check(10 * sample_count, sample_seed)


def test_every_function_is_run() -> None:
    def names(scalar: object) -> set[str]:
        return {scalar.op}.union(*map(names, scalar.args)) if isinstance(scalar, Apply) else set()

    found = set().union(*map(names, scalars()))
    documented = "abs sign least greatest floor_div ceil_div trunc_div round_div mod sqrt ln log10 exp power"
    documented += " floor ceil trunc round is_finite exact spread third fourth like"
    documented += " sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh"
    documented += " ilike date_part date_trunc double neg / *"
    assert set(documented.split()) <= found


def test_functions_print_and_parse_back() -> None:
    assert parse(program_text(program()))[0] == program()


def words(value: int) -> tuple[int, int]:
    low = value & (2**64 - 1)
    return (low - 2**64 if low >= 2**63 else low), value >> 64


def value_of(low: int, high: int) -> int:
    return (high << 64) | (low & (2**64 - 1))


@njit
def quotients(low, high, by_low, by_high):  # type: ignore[no-untyped-def]
    a, b = words_to_wide(low, high), words_to_wide(by_low, by_high)
    f, c = integers.floor_div(a, b), integers.ceil_div(a, b)
    t, r, m = integers.trunc_div(a, b), integers.round_div(a, b), integers.mod(a, b)
    return (
        (low_word(f), high_word(f)),
        (low_word(c), high_word(c)),
        (low_word(t), high_word(t)),
        (low_word(r), high_word(r)),
        (low_word(m), high_word(m)),
    )


@given(WIDE, WIDE)
def test_compiled_quotients_of_128_bits(dividend: int, divisor: int) -> None:
    found = [value_of(*w) for w in quotients(*words(dividend), *words(divisor))]
    operations = ("floor_div", "ceil_div", "trunc_div", "round_div", "mod")
    assert found == [evaluate(op, [dividend, divisor]) for op in operations]


@njit
def exact(value, scale):  # type: ignore[no-untyped-def]
    result = precise.exact(value, scale)
    return low_word(result), high_word(result)


@given(st.floats(), st.integers(0, 38))
def test_compiled_conversions_of_doubles_are_exact(value: float, scale: int) -> None:
    assert value_of(*exact(value, scale)) == evaluate("exact", [value, scale])


@njit
def moments(count, a, b, c, d, e, f, g):  # type: ignore[no-untyped-def]
    first, second, third = words_to_wide(*a), words_to_wide(*b), words_to_wide(*c)
    more, low, middle, high = words_to_wide(*d), words_to_wide(*e), words_to_wide(*f), words_to_wide(*g)
    return (
        precise.spread(first, second, third, more),
        precise.third(count, first, second, third, more),
        precise.fourth(count, first, second, third, more, low, middle, high),
    )


@given(st.integers(0, 2**62), st.lists(WIDE, min_size=7, max_size=7))
def test_compiled_moments_of_128_bits_are_rounded_once(count: int, sums: list[int]) -> None:
    found = moments(count, *map(words, sums))
    wanted = (("spread", sums[:4]), ("third", [count, *sums[:4]]), ("fourth", [count, *sums]))
    assert found == tuple(evaluate(op, args) for op, args in wanted)


SMALL = st.tuples(st.integers(-5, 5), st.integers(0, 4)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@pytest.mark.parametrize(
    "op", ["floor_div", "ceil_div", "trunc_div", "round_div", "mod", "least", "greatest", "+", "-", "*"]
)
@given(a=SMALL, b=SMALL)
def test_intervals_hold_every_result(op: str, a: tuple[int, int], b: tuple[int, int]) -> None:
    values = [evaluate(op, pair) for pair in product(range(a[0], a[1] + 1), range(b[0], b[1] + 1))]
    low, high = function_interval(op, [a, b])
    assert low <= min(values) and max(values) <= high
    if op != "mod":
        assert (low, high) == (min(values), max(values))


@pytest.mark.parametrize("op", ["abs", "sign", "neg"])
@given(a=SMALL)
def test_intervals_of_one_argument_are_tight(op: str, a: tuple[int, int]) -> None:
    values = [evaluate(op, [v]) for v in range(a[0], a[1] + 1)]
    assert function_interval(op, [a]) == (min(values), max(values))


def test_a_pattern_meets_strings_that_come_while_running() -> None:
    dictionary = Dictionary()
    constants = Constants(dictionary)
    constants.places[Pattern("a%")] = 0
    constants.places["plain"] = 1
    constants.store()
    table = constants.tables[Pattern("a%")]
    for i in range(1000):
        dictionary.encode(f"{'ab'[i % 3 == 0]}{i}")
        constants.follow()
        known = [bool(table._words[1 + (c >> 6)] >> (c & 63) & 1) for c in range(len(dictionary))]
        assert known == [dictionary.decode(c).startswith("a") for c in range(len(dictionary))]


def test_a_table_is_extended_by_what_is_new() -> None:
    dictionary, table = Dictionary(["a", "b"]), PatternTable(Pattern("a"))
    table.extend(dictionary)
    table._words[1] = 0
    dictionary.encode("c")
    table.extend(dictionary)
    assert list(table._words[:2]) == [3, 0]
