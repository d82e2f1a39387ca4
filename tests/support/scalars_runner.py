"""Runs every value function through the generated code and the interpreter, and compares the words.

A script, so that it can be run with NUMBA_DISABLE_JIT=1, when generated modules are plain Python:

    python tests/support/scalars_runner.py --count 300 --seed 0
"""

import argparse
import math
import random
import sys
from functools import cache

import numpy as np

from orderbook.core.changes import END_OF_EVENT, END_OF_MESSAGE, ChangeBatch, Dictionary
from orderbook.engine.runtime.interpreter import Interpreter
from orderbook.engine.runtime.numba_runtime import NumbaRuntime
from orderbook.views.calculus import ONE, Apply, Const, MapRef, Rel, Scalar, Var, product
from orderbook.views.intervals import scalar_type
from orderbook.views.m3 import MapDeclaration, Program, Result, ResultColumn, ResultKey, Statement, Trigger
from orderbook.views.scalars import calendar, reals, texts
from orderbook.views.scalars.lists import Form, Order
from orderbook.views.types import BIGINT, DOUBLE, TEXT, TIMESTAMP, Column, Relation, Type

COLUMNS = {"a": BIGINT, "b": BIGINT, "c": Type(BIGINT.kind, 0, -40, 1000), "x": DOUBLE, "y": DOUBLE}
COLUMNS |= {"at": TIMESTAMP, "name": TEXT}
A, B, C, X, Y, AT, NAME = (Var(c) for c in COLUMNS)
LARGEST = 2**63 - 1
PATTERNS = ("", "%", "a%", "%b", "%a%b%", "_", "__%", "a_c", "%é%", "A%", "100%", "%\n%")
TEXTS = ("", "a", "ab", "abc", "ABC", "aéb", "a\nb", "100%", "xayb", "é", "aXc", "b")
MOMENTS = (0, -1, 1, -(10**9), 951_827_696 * 10**9, 1_709_208_000 * 10**9, TIMESTAMP.low, TIMESTAMP.high)


def wide(high: Var, low: Var) -> Scalar:
    """A scalar of up to 126 bits."""
    return Apply("+", (Apply("*", (high, Const(2**62))), low))


def scalars() -> list[Scalar]:
    """Every value function, of every kind of argument it takes."""
    w, v = wide(A, B), wide(B, A)
    found: list[Scalar] = []
    for op in ("floor_div", "ceil_div", "trunc_div", "round_div", "mod", "least", "greatest"):
        pairs = [
            (A, B),
            (w, v),
            (w, A),
            (B, v),
            (w, C),
            (A, C),
            (A, Const(7)),
            (w, Const(100)),
            (B, Const(-3)),
        ]
        found += [Apply(op, pair) for pair in [*pairs, (B, Const(-3))]]
    for op in ("abs", "sign"):
        found += [Apply(op, (s,)) for s in (A, w, X)]
    found += [Apply(op, (s, Y)) for op in ("power", "/", "*") for s in (X, A, w)]
    found += [Apply(op, (X, Y)) for op in ("least", "greatest")]
    found += [Apply(op, (C, A, B)) for op in ("least", "greatest")]
    for op in ("sqrt", "ln", "log10", "exp", "floor", "ceil", "trunc", "is_finite"):
        found += [Apply(op, (s,)) for s in (X, A, w)]
    found += [Apply(op, (s,)) for op in reals.TRIGONOMETRY for s in (X, C)] + [Apply("atan2", (X, Y))]
    found += [Apply("round", (X, Const(d))) for d in (-400, -3, 0, 2, 20, 400)] + [Apply("round", (Y, A))]
    found += [Apply("exact", (s, Const(d))) for s in (X, Y, A) for d in (0, 2, 38)]
    found += [Apply("rest", (s,)) for s in (A, w)]
    found += [Apply("double", (s, Const(d))) for s in (A, w) for d in (0, 8)] + [Apply("neg", (X,))]
    sums = ((C, w, v, w), (w, A, A, B), (A, B, C, A), (C, X, Y, X), (A, B, B, Y))
    found += [Apply("spread", args) for args in sums]
    found += [Apply("third", args) for args in ((C, w, v, w, v), (A, B, C, A, B), (C, X, Y, X, Const(0.0)))]
    nothing = (Const(0.0), Const(0.0))
    found += [
        Apply("fourth", args) for args in ((C, w, v, w, v, w, v, w), (C, X, Y, X, Const(0.0), Y, *nothing))
    ]
    found += [Apply("date_part", (Const(p), AT)) for p in (*calendar.PARTS, "epoch")]
    found += [Apply("date_trunc", (Const(u), AT)) for u in calendar.UNITS]
    found += [Apply(op, (NAME, Const(p))) for op in ("like", "ilike") for p in PATTERNS]
    listed = Apply(
        "listed", (Apply("list_value_t", (NAME, Apply("list_value_d", (X, Const(3))))), Const(1), Const(1))
    )
    form = Const(Form(3, (Order(False, False, False),), False, "TEXT", 0).text())
    found.append(Apply("list_text", (Apply("list_value_i", (listed, Const(4))), Const(0), form)))
    return found + [Apply(op, text_arguments(op)) for op in texts.FUNCTIONS if op not in texts.NOTED]


def text_arguments(op: str) -> tuple[Scalar, ...]:
    """Arguments of every kind for a function of texts: two that vary, then constants."""
    if op in ("lpad", "rpad", "repeat"):
        return (NAME, Const(3), Const("*"))[: len(texts.FUNCTIONS[op].arguments)]
    if op == "text_of_moment":
        return (AT,)
    constants: dict[str, tuple[Scalar, ...]] = {
        "strftime": (AT, Const("%Y-%j %H:%M:%S.%n")),
        "months_later": (AT, C),
        "format_integer": (A, Const("{:,}")),
        "format_double": (X, Const("%.3e")),
        "format_text": (NAME, Const("{:>5}")),
        "regexp_extract": (NAME, Const("(a)|b+"), Const(1)),
        **{op: (NAME, Const("a.*b|É")) for op in ("regexp_matches", "regexp_full_match")},
        **{op: (NAME, Const("a|(b)"), Const("<\\1>")) for op in ("regexp_replace", "regexp_replace_all")},
    }
    if op in constants:
        return constants[op]
    given: dict[str, list[Scalar]] = {
        "t": [NAME, Apply("text_of_double", (Y,)), Const("b")],
        "i": [Const(2), C],
        "w": [wide(A, B)],
        "d": [X],
    }
    return tuple(given[letter].pop(0) for letter in texts.FUNCTIONS[op].arguments)


@cache
def program() -> Program:
    """One stream and a view of its rows, with a column for every scalar."""
    keys = tuple(Var(c) for c in COLUMNS)
    kinds = tuple(COLUMNS.values())
    relation = Relation("s", tuple(Column(n, t, False) for n, t in COLUMNS.items()))
    rows = MapDeclaration("rows", keys, kinds, BIGINT, product(Rel("s", keys)))
    statement = Statement("rows", keys, "+=", ONE)
    columns = [
        ResultColumn(f"c{i}", scalar_type(s, dict(zip(keys, kinds, strict=True))), s, Const(1))
        for i, s in enumerate(scalars())
    ]
    result = Result(
        "v",
        tuple(ResultKey(k, k.name, t) for k, t in zip(keys, kinds, strict=True)),
        "rows",
        True,
        ((Var("here"), product(MapRef("rows", keys))),),
        tuple(columns),
    )
    return Program((relation,), (rows,), (), (Trigger("s", True, keys, (statement,)),), (result,))


def random_row(generator: random.Random, dictionary: Dictionary) -> tuple[int | float, ...]:
    r = generator

    def whole() -> int:
        bits = r.choice((0, 1, 3, 8, 31, 32, 33, 53, 62, 63))
        size = r.choice((2**bits - 1, 2**bits, r.getrandbits(bits)))
        return r.choice((-1, 1)) * min(size, LARGEST)

    def real() -> float:
        kinds = (
            lambda: r.randrange(-2000, 2000) / r.choice((1, 2, 4, 100)),
            lambda: math.ldexp(r.uniform(-1, 1), r.randrange(-1074, 1024)),
            lambda: math.ldexp(r.uniform(-1, 1), r.randrange(-60, 140)),
            lambda: r.choice((0.0, 0.5, 1.5, -2.5, 2.0**127, -(2.0**126), 1e38, 5e-324, 1e308)),
        )
        return r.choice(kinds)() + 0.0

    moment = r.choice((r.choice(MOMENTS), r.randint(TIMESTAMP.low, TIMESTAMP.high), r.randrange(2 * 10**18)))
    text = dictionary.encode(r.choice((*TEXTS, "".join(r.choices("abcé\nA%_", k=r.randrange(9))))))
    return whole(), whole(), r.randrange(-40, 1001), real(), real(), moment, text


def check(count: int, seed: int) -> int:
    """Compares the columns of `count` random rows, bit by bit; how many values were compared."""
    generator, dictionary = random.Random(seed), Dictionary()
    runtime = NumbaRuntime(program(), dictionary)
    compared = 0
    for _ in range(count):
        row = random_row(generator, dictionary)
        interpreter = Interpreter(program(), dictionary)
        interpreter.change("s", True, row)
        ((_, _, expected),) = interpreter.rows("v")
        words = [int(np.float64(w).view(np.int64)) if isinstance(w, float) else w for w in row]
        batch = ChangeBatch(
            np.array([0], np.int16), np.array([END_OF_EVENT | END_OF_MESSAGE], np.uint8), np.array([words])
        )
        runtime.apply(batch, 0)
        found = runtime.row("v", row)
        assert found is not None
        for column, want, got in zip(program().results[0].columns, expected, found.columns, strict=True):
            assert same(want, got), f"{column.scalar} of {row}: {want}, generated {got}"
            if column.type != DOUBLE:
                assert want is not None and column.type.low <= want <= column.type.high, (column, row, want)
            compared += 1
    return compared


def same(want: int | float | None, got: int | float | None) -> bool:
    if isinstance(want, float) and isinstance(got, float):
        return want.hex() == got.hex() or (math.isnan(want) and math.isnan(got))
    return want == got


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(check(options.count, options.seed), "values compared")
    return 0


if __name__ == "__main__":
    sys.exit(main())
