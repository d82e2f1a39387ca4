"""A stage in one partition: equal to the engine, however its rows come."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples
from stage_support import (
    OUTPUTS,
    Stream,
    coarser,
    engine_history,
    program,
    runner,
    stage_history,
    streams,
)

from orderbook.core.errors import DataError
from orderbook.engine.distribution.blocks import VERSION, Block, NetEffect, in_pieces
from orderbook.engine.distribution.stage_runner import Granularity, StageResult, StageRunner
from orderbook.engine.runtime.engine import Engine
from orderbook.views.encoding.values import decoder, unpack_word

GRANULARITIES = [Granularity("event"), Granularity("message"), Granularity("interval", 4), Granularity("end")]
_shared: dict[Granularity, StageRunner] = {}


def compiled(granularity: Granularity) -> StageRunner:
    """A compiled runner as new: making one takes longer than running it."""
    if granularity not in _shared:
        _shared[granularity] = runner("numba", granularity)
        _shared[granularity].fresh = _shared[granularity].copy()  # type: ignore[attr-defined]
    shared = _shared[granularity]
    shared.restore(shared.fresh)  # type: ignore[attr-defined]
    return shared


def shuffled(draw: Any, blocks: list[Block]) -> list[Block]:
    """The rows of blocks in more blocks, in any order."""
    parts = []
    for block in blocks:
        cut = draw(st.integers(0, len(block)))
        for rows in (slice(None, cut), slice(cut, None)):
            if len(block.versions[rows]):
                parts.append(
                    Block(block.source, block.versions[rows], block.deletes[rows], block.values[rows])
                )
    mixed: list[Block] = draw(st.permutations(parts))
    return mixed


def calls(draw: Any, stream: Stream) -> Iterator[tuple[list[Block], int | None]]:
    """The stream in several calls, cut anywhere but inside a part."""
    count = len(stream.versions)
    cuts = sorted(draw(st.sets(st.integers(0, count), max_size=4)))
    start = 0
    for end in cuts:
        if end < count:
            until = int(stream.versions["stamp"][end]) - draw(st.integers(0, 2))
            yield shuffled(draw, stream.blocks(start, end)), until
            start = end
    yield shuffled(draw, stream.blocks(start, count)), None


def gathered(results: list[StageResult]) -> tuple[set[Any], dict[str, list[Any]]]:
    history = stage_history(h for result in results for h in result.history.values())
    outputs: dict[str, list[Any]] = {}
    for result in results:
        for name, block in result.outputs.items():
            rows = zip(block.versions.tolist(), block.deletes.tolist(), block.values.tolist(), strict=True)
            outputs.setdefault(name, []).extend((v, d, tuple(r)) for v, d, r in rows)
    return history, outputs


def expected(stream: Stream, granularity: Granularity) -> set[Any]:
    if granularity.unit == "event" or granularity.unit == "message":
        return engine_history(stream, granularity.unit)
    return coarser(engine_history(stream, "event"), granularity.length or None)


@examples(25)
@given(st.data(), streams(), st.sampled_from(GRANULARITIES))
def test_any_cuts_give_the_engine_s_history_and_one_output(
    data: st.DataObject, stream: Stream, granularity: Granularity
) -> None:
    whole, outputs = gathered([compiled(granularity).apply(stream.blocks(0, len(stream.versions)))])
    assert whole == expected(stream, granularity)
    for backend in ("numba", "interpreter"):
        stage = compiled(granularity) if backend == "numba" else runner(backend, granularity)
        results = [stage.apply(blocks, until) for blocks, until in calls(data.draw, stream)]
        history, rows = gathered(results)
        assert history == whole
        assert {n: sorted(r) for n, r in rows.items()} == {n: sorted(r) for n, r in outputs.items()}


@examples(25)
@given(st.data(), streams(), st.sampled_from(GRANULARITIES[:3]))
def test_a_filled_stage_goes_on_as_one_that_saw_all(
    data: st.DataObject, stream: Stream, granularity: Granularity
) -> None:
    blocks = stream.blocks(0, len(stream.versions))
    whole = gathered([compiled(granularity).apply(blocks)])
    step = granularity.length or 1
    stamp = data.draw(st.integers(99, 110)) // step * step
    parts = [(piece, part) for block in blocks for piece, part in in_pieces(block, [stamp])]
    results = [compiled(granularity).apply([part for piece, part in parts if piece == 0])]
    net = NetEffect(program().relations)
    for piece, part in parts:
        if piece == 0:
            net.add(part)
    stage = compiled(granularity)
    stage.fill(shuffled(data.draw, net.blocks(0, 0)))
    assert gathered([*results, stage.apply([part for piece, part in parts if piece])]) == whole


@examples(25)
@given(streams())
def test_output_rows_add_up_to_the_view_after_every_part(stream: Stream) -> None:
    result = compiled(GRANULARITIES[0]).apply(stream.blocks(0, len(stream.versions)))
    engine = Engine(program(), "interpreter", check_rows=False)
    engine.apply(stream.batch())
    for view in OUTPUTS:
        block = result.outputs[f"{view} rows"]
        assert set(block.versions.tolist()) <= set(stream.versions.tolist())
        assert (np.diff(block.versions["stamp"]) >= 0).all()
        changed = np.hstack([block.versions.view(np.int64).reshape(len(block), 4), block.values])
        assert len(np.unique(changed, axis=0)) == len(block), "a row that stays does not travel"
        held: Counter[tuple[int, ...]] = Counter()
        for delete, row in zip(block.deletes.tolist(), block.values.tolist(), strict=True):
            held[tuple(row)] += -1 if delete else 1
            assert held[tuple(row)] in (0, 1)
        expected = [(*key, *row.values()) for key, row in engine[view].items()]
        # A view of one row that is zero and NULL has no row.
        assert Counter(map(decoded(view), held.elements())) == Counter(r for r in expected if any(r))


def decoded(view: str) -> Callable[[tuple[int, ...]], tuple[Any, ...]]:
    """A function from a row of an output to its key and columns as users see them."""
    result = program().program.result(view)
    names = next(tuple(k.name for k in v.keys) for v in program().views if v.name == view)
    places = [next(i for i, k in enumerate(result.keys) if k.name == name) for name in names]
    kinds = [k.type for k in result.keys] + [c.type for c in result.columns]
    order = [*places, *range(len(places), len(kinds))]
    decoders = [decoder(kind, program().dictionary) for kind in kinds]

    def decode(row: tuple[int, ...]) -> tuple[Any, ...]:
        return tuple(decoders[i](unpack_word(kinds[i], row[i])) for i in order)

    return decode


@examples(25)
@given(st.data(), streams(), st.sampled_from(GRANULARITIES))
def test_a_copy_rewinds_what_was_speculated(
    data: st.DataObject, stream: Stream, granularity: Granularity
) -> None:
    backend = data.draw(st.sampled_from(["numba", "numba", "interpreter"]))
    stage = compiled(granularity) if backend == "numba" else runner(backend, granularity)
    results = []
    for blocks, until in calls(data.draw, stream):
        state = stage.copy()
        guess = stage.apply(blocks, until)
        stage.restore(state)
        results.append(stage.apply(blocks, until))
        assert gathered([guess])[0] == gathered(results[-1:])[0]
    assert gathered(results)[0] == expected(stream, granularity)


def one_row(stream: str, version: tuple[int, int, int, int, int], width: int = 2) -> Block:
    return Block(stream, np.array([version], VERSION), np.zeros(1, bool), np.zeros((1, width), np.int64))


def test_rows_out_of_order_and_of_no_stream_are_refused() -> None:
    stage = runner("interpreter", GRANULARITIES[0])
    stage.apply([one_row("u", (5, 0, 0, 1, 1))], until=5)
    with pytest.raises(DataError, match=r"stage 1: a row of version \(5, 0, 1, 0\) came after"):
        stage.apply([one_row("u", (5, 0, 0, 1, 1))])
    with pytest.raises(DataError, match="'v', which is no stream of the stage"):
        stage.apply([one_row("v", (6, 0, 0, 2, 2))])
    with pytest.raises(DataError, match="has 1 columns, the stream has 2"):
        stage.apply([one_row("u", (6, 0, 0, 2, 2), width=1)])
