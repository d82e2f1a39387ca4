"""A batch's arrays reach compiled code as they are, or as copies; what is no batch is refused whole."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from samples import examples

import orderbook
from orderbook.core.changes import END_OF_EVENT, END_OF_MESSAGE, ChangeBatch
from orderbook.core.errors import DataError
from orderbook.engine.runtime.program_start import Backend

PROGRAM = orderbook.compile(
    "CREATE STREAM t (k BIGINT NOT NULL, x BIGINT NOT NULL);"
    "CREATE VIEW v AS SELECT k, SUM(x) AS total, COUNT(*) AS n FROM t GROUP BY k"
)
KIND = 2 * [relation.name for relation in PROGRAM.relations].index("t")
Scalar = TypeVar("Scalar", bound=np.generic)
ENDS = END_OF_EVENT | END_OF_MESSAGE


def batch(count: int) -> ChangeBatch:
    rows = np.array([[i % 3, i] for i in range(count)], np.int64).reshape(count, 2)
    return ChangeBatch(np.full(count, KIND, np.int16), np.full(count, ENDS, np.uint8), rows)


def strided(given: ChangeBatch) -> ChangeBatch:
    kinds, flags = np.zeros((len(given), 3), np.int16), np.zeros((len(given), 5), np.uint8)
    values = np.zeros((len(given), 7), np.int64)
    kinds[:, 1], flags[:, 2], values[:, :2] = given.kinds, given.flags, given.values
    return ChangeBatch(kinds[:, 1], flags[:, 2], values[:, :2])


FORMS: dict[str, Callable[[ChangeBatch], ChangeBatch]] = {
    "as it is": lambda b: b,
    "strided": strided,
    "columns first": lambda b: ChangeBatch(b.kinds, b.flags, np.asfortranarray(b.values)),
    "reversed twice": lambda b: ChangeBatch(b.kinds[::-1][::-1], b.flags[::-1][::-1], b.values[::-1][::-1]),
    "other integers": lambda b: ChangeBatch(
        b.kinds.astype(np.int64),
        b.flags.astype(np.int32),
        b.values.astype(np.int32),
    ),
    "other order of bytes": lambda b: ChangeBatch(b.kinds.astype(">i2"), b.flags, b.values.astype(">i8")),
    "not to be written": lambda b: ChangeBatch(frozen(b.kinds), frozen(b.flags), frozen(b.values)),
    "a subclass": lambda b: ChangeBatch(b.kinds, b.flags, b.values.view(np.matrix)),
}


def frozen(array: NDArray[Scalar]) -> NDArray[Scalar]:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("check_rows", [True, False])
@pytest.mark.parametrize("count", [0, 1, 5, 200])
def test_any_form_of_the_arrays_gives_the_same(form: str, check_rows: bool, count: int) -> None:
    plain, other = (
        orderbook.Engine(PROGRAM, check_rows=check_rows),
        orderbook.Engine(PROGRAM, check_rows=check_rows),
    )
    plain.apply(batch(count))
    other.apply(FORMS[form](batch(count)))
    assert dict(other["v"]) == dict(plain["v"])
    assert len(plain["v"]) == min(count, 3)
    assert other.version == plain.version == (count, 0, count)


def test_what_is_no_batch_is_refused_and_nothing_applied() -> None:
    engine = orderbook.Engine(PROGRAM)
    good = batch(3)
    for wrong in (
        ChangeBatch(good.kinds, good.flags[:2], good.values),
        ChangeBatch(good.kinds, good.flags, good.values[:2]),
        ChangeBatch(good.kinds, good.flags, good.values[:, 0]),
        ChangeBatch(good.kinds.reshape(1, 3), good.flags, good.values),
    ):
        with pytest.raises(DataError, match="changes are kinds"):
            engine.apply(wrong)
    assert (engine.version[2], len(engine["v"])) == (0, 0)
    engine.apply(good)
    assert engine.version[2] == 3


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(1, 40)), max_size=12), st.booleans()
)
@examples(60)
def test_firings_and_events_are_those_of_the_interpreter(
    steps: list[tuple[int, int, int]], check_rows: bool
) -> None:
    """Batches with open messages, refused deletes and callbacks that insert, cut anywhere."""
    told: list[list[object]] = []
    backends: tuple[Backend, ...] = ("numba", "interpreter")
    for backend in backends:
        engine = orderbook.Engine(PROGRAM, backend, check_rows=check_rows)
        seen: list[object] = []

        def tell(
            event: orderbook.ViewEvent, engine: orderbook.Engine = engine, seen: list[object] = seen
        ) -> None:
            seen.append((event.key, event.old, event.new, event.version))
            if event.new is not None and event.new.total % 5 == 0:
                engine.insert("t", {"k": 7, "x": 3})

        engine.subscribe("v", tell)
        for number, (flag, kind, count) in enumerate(steps):
            one = batch(count)
            one.flags[-1] = (0, END_OF_EVENT, ENDS)[flag] if check_rows is False else ENDS
            one.kinds[0] = KIND + (kind == 0 and check_rows)
            engine.apply(one)
            seen.append((number, engine.version, engine.between_messages, sorted(dict(engine["v"]).items())))
        seen.append(dict(engine.problems.counts))
        told.append(seen)
    assert told[0] == told[1]
