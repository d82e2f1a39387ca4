"""Views that come while events go on: copies in pieces, the process that compiles, queues, failures."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import numpy as np
import polars
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import PATIENCE, examples

from orderbook.clients.client_engine import ClientEngine as Engine
from orderbook.clients.queries import snapshot_between
from orderbook.core.changes import CHECKED, END_OF_EVENT, END_OF_MESSAGE, ChangeBatch, Dictionary
from orderbook.core.code_cache import CacheFolder
from orderbook.core.errors import CompileError, DataError, SqlError
from orderbook.engine.runtime import compile_process, store_entries
from orderbook.engine.runtime import compile_process as compile_request
from orderbook.engine.runtime.compile_process import CompileRequest, Setting
from orderbook.engine.runtime.program_replacement import yielding
from orderbook.engine.runtime.relation_store import RelationStore
from orderbook.views.compilation import AddViews, SqlCompiler, compile_source, compile_views
from orderbook.views.program import CompiledProgram

STREAMS = """
CREATE STREAM quotes (symbol TEXT NOT NULL, volume DECIMAL(10, 2) NOT NULL, price BIGINT NOT NULL);
CREATE STREAM pairs (n BIGINT NOT NULL, v BIGINT NOT NULL);
CREATE VIEW totals AS SELECT symbol, SUM(volume) AS volume, COUNT(*) AS n FROM quotes GROUP BY symbol;
"""
ADDED = """
CREATE VIEW added AS SELECT q.symbol, SUM(q.price * q.volume) AS v, COUNT(*) AS n FROM quotes q
WHERE q.price > {least} GROUP BY q.symbol
"""
PRICES = """
CREATE VIEW kept AS SELECT symbol, volume, price FROM quotes;
CREATE VIEW prices AS SELECT price, SUM(volume) AS v FROM quotes GROUP BY price;
"""
SEEN = CHECKED | END_OF_EVENT | END_OF_MESSAGE
WORDS = Dictionary("ABC")
QUOTES, PAIRS = ([r.name for r in compile_views(STREAMS).relations].index(n) for n in ("quotes", "pairs"))


@pytest.fixture(scope="module")
def program() -> CompiledProgram:
    return compile_views(STREAMS, dictionary=WORDS)


def engine_of(program: CompiledProgram, backend: Any = "interpreter") -> Engine:
    return Engine(program, backend, check_rows=False, keep_rows=True)


def quotes(start: int, count: int, delete: bool = False) -> ChangeBatch:
    """Rows of quotes by their numbers, each a message."""
    numbers = np.arange(start, start + count)
    values = np.stack([numbers % 3, numbers % 7 * 100, numbers], axis=1).astype(np.int64)
    kinds = np.full(count, 2 * QUOTES + delete, np.int16)
    return ChangeBatch(kinds, np.full(count, SEEN, np.uint8), values)


def contents(engine: Engine, view: str) -> dict[Any, Any]:
    return {key: (row.multiplicity, dict(row)) for key, row in engine[view].items()}


def advance(engine: Engine) -> None:
    """No change, with which replacements go on."""
    engine.apply(
        ChangeBatch(np.array([-1], np.int16), np.array([SEEN], np.uint8), np.zeros((1, 1), np.int64))
    )


@examples(12)
@given(st.integers(0, 2**32), st.integers(0, 30_000), st.lists(st.sampled_from("+-x."), max_size=12))
def test_a_copy_in_pieces_has_the_rows_of_its_last_moment(seed: int, held: int, steps: list[str]) -> None:
    relations = compile_views("CREATE VIEW v AS SELECT COUNT(*) AS n FROM bids").relations
    index, random = [r.name for r in relations].index("bids"), np.random.default_rng(seed)
    width, kept = len(relations[index].columns), RelationStore(relations, WORDS, check=False, keep=True)
    model: Counter[bytes] = Counter()

    def change(rows: np.ndarray, delete: int) -> None:
        kinds, flags = np.full(len(rows), 2 * index + delete, np.int16), np.full(len(rows), SEEN, np.uint8)
        batch = ChangeBatch(kinds, flags, np.ascontiguousarray(rows))
        kept.record(batch)
        kept.note(batch)
        for row in rows:
            model[row.tobytes()] += 1 - 2 * delete

    def some(count: int) -> np.ndarray:
        there = sorted(row for row, n in model.items() if n)
        chosen = random.permutation(len(there))[:count].tolist()
        return np.array([np.frombuffer(there[i], np.int64) for i in chosen], np.int64).reshape(-1, width)

    rows = random.integers(0, 2**40, (held, width))
    change(rows, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_entries, "_PIECE", 3)
        copy = kept.copy(index)
        for step in (*steps, "."):
            if step == "+":
                change(random.integers(0, 2**40, (200, width)), 0)
                change(some(20), 0)
            elif step == "-":
                change(some(200), 1)
            elif step == "x":
                # So many that slabs go.
                change(np.concatenate([rows[:0], some(len(model) // 2)]), 1)
            if copy.piece():
                break
        while not copy.piece():
            pass
        copy.finish()
        expected = +model
        change(random.integers(0, 2**40, (50, width)), 0)
        found, counts = copy.rows()
    assert Counter({r.tobytes(): n for r, n in zip(found, counts.tolist(), strict=True)}) == expected
    assert len({row.tobytes() for row in found}) == len(found)


def test_a_copy_begins_again_where_all_rows_are_replaced() -> None:
    relations = compile_views("CREATE VIEW v AS SELECT COUNT(*) AS n FROM bids").relations
    index = [r.name for r in relations].index("bids")
    kept, width = RelationStore(relations, WORDS, check=False, keep=True), len(relations[index].columns)
    batch = [
        ChangeBatch(np.full(1, 2 * index, np.int16), np.full(1, SEEN, np.uint8), np.full((1, width), n))
        for n in (1, 2)
    ]
    kept.record(batch[0])
    saved, copy = kept.kept_rows(), kept.copy(index)
    kept.record(batch[1])
    kept.restore((), saved, (), None)
    while not copy.piece():
        pass
    copy.finish()
    assert copy.rows()[0].tolist() == [[1] * width]


def test_a_query_beside_changes_sees_all_relations_at_one_moment(
    program: CompiledProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_entries, "_PIECE", 1)
    engine = engine_of(program)
    engine.apply(quotes(0, 16_000))
    pieces, piece = [], store_entries.StoreCopy.piece

    def counted(copy: store_entries.StoreCopy) -> bool:
        pieces.append(copy)
        return piece(copy)

    monkeypatch.setattr(store_entries.StoreCopy, "piece", counted)

    async def main() -> None:
        # Every row of quotes comes with one of pairs, and goes with it.
        sql = "SELECT (SELECT COUNT(*) FROM quotes), (SELECT COUNT(*) FROM pairs)"
        pairs = np.stack([np.arange(16_000)] * 2, axis=1)
        kinds = np.full(16_000, 2 * PAIRS, np.int16)
        engine.apply(ChangeBatch(kinds, np.full(16_000, SEEN, np.uint8), pairs))
        for asked in range(3):
            answer = asyncio.create_task(engine.query_async(sql))
            n, moved = 16_000 + 10_000 * asked, 0
            while not answer.done():
                # Less than 0.1 ms keeps the interpreter from the thread that answers.
                await asyncio.sleep(1e-4)
                batch = quotes(n, 1)
                values = np.zeros((2, 3), np.int64)
                values[0], values[1, :2] = batch.values[0], (n, n)
                kinds = np.array([2 * QUOTES, 2 * PAIRS], np.int16)
                engine.apply(ChangeBatch(kinds, np.array([CHECKED, SEEN], np.uint8), values))
                n, moved = n + 1, moved + 1
            there, beside = (await answer).row(0)
            assert there == beside and moved > 2
        assert len(pieces) > 6

    asyncio.run(main())


def test_views_of_many_rows_are_copied_in_pieces_at_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    from orderbook.engine.runtime import numba_runtime
    from orderbook.engine.runtime.view_copies import NumbaViewCopy

    monkeypatch.setattr(store_entries, "_PIECE", 1)
    monkeypatch.setattr(numba_runtime, "FEWEST", 500)
    pieces, piece = [], NumbaViewCopy.piece

    def counted(copy: NumbaViewCopy) -> bool:
        pieces.append(copy)
        return piece(copy)

    monkeypatch.setattr(NumbaViewCopy, "piece", counted)
    engine = engine_of(compile_views(STREAMS + PRICES, dictionary=WORDS), "numba")
    engine.apply(quotes(0, 8_000))
    random = Random(1)

    async def main() -> None:
        watched = 0
        for asked in range(6):
            before = len(pieces)
            taken = asyncio.create_task(snapshot_between(engine, ("kept", "prices", "quotes", "totals")))
            other = asyncio.create_task(snapshot_between(engine, ("prices",)))
            while not (taken.done() and other.done()):
                await asyncio.sleep(1e-4)
                start, count = random.randrange(7_500), random.randrange(1, 40)
                engine.apply(quotes(start, count))
                engine.apply(quotes(start, count))
                engine.apply(quotes(start, count, delete=True))
                # Another set of watches, and another program, while pieces are taken.
                if asked == 3 and watched < 2 and len(pieces) > before + 2 * watched:
                    engine.subscribe("totals", lambda _: None, on="event").cancel()
                    watched += 1
                if asked == 4 and "more" not in engine.views and len(pieces) > before:
                    engine.add_view("CREATE VIEW more AS SELECT symbol, n FROM totals")
            found = {name: polars.DataFrame(table) for name, table in (await taken).tables().items()}
            held = found["quotes"].cast({"symbol": polars.String}).sort("price", "symbol", "volume")
            kept = found["kept"].cast({"symbol": polars.String}).sort("price", "symbol", "volume")
            assert kept.equals(held.select(kept.columns))
            volumes = held.group_by("price").agg(polars.col("volume").sum())
            assert sorted(found["prices"].iter_rows()) == sorted(volumes.iter_rows())
            assert found["totals"]["n"].sum() == len(held)
            assert (await other).tables()["prices"].num_rows == len(volumes)
        assert len(pieces) > 12 and watched > 0 and "more" in engine.views

    asyncio.run(main())


def test_rows_that_a_map_holds_are_those_of_the_program_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    from orderbook.engine.runtime import held_rows as relation_rows
    from orderbook.engine.runtime import numba_runtime

    monkeypatch.setattr(store_entries, "_PIECE", 1)
    monkeypatch.setattr(numba_runtime, "FEWEST", 1000)
    program = compile_views(STREAMS + PRICES, dictionary=WORDS)
    engine = Engine(program, "numba", check_rows=False, keep_rows=False)
    engine.apply(quotes(0, 15_000))
    read, rows_of_map = [], relation_rows._rows_of_map

    def noted(runtime: Any, *map_: Any) -> relation_rows.Rows:
        read.append(runtime is engine._runtime)
        return rows_of_map(runtime, *map_)

    monkeypatch.setattr(relation_rows, "_rows_of_map", noted)

    async def main() -> None:
        taken = asyncio.create_task(snapshot_between(engine, ("prices", "quotes")))
        turns = 0
        while not taken.done():
            await asyncio.sleep(0)
            turns += 1
            if turns == 3:
                engine.add_view("CREATE VIEW more AS SELECT symbol, n FROM totals")
        assert (await taken).tables()["quotes"].num_rows == 15_000

    asyncio.run(main())
    assert read and all(read)


def test_what_is_queued_is_checked_at_once_and_done_in_order(
    program: CompiledProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiling, go = threading.Event(), threading.Event()

    def slow(_: SqlCompiler, *arguments: Any) -> CompiledProgram:
        compiling.set()
        assert go.wait(PATIENCE)
        return compile_source(*arguments)

    monkeypatch.setattr(SqlCompiler, "compiled", slow)
    sql = ADDED.format(least=4)
    late, early = engine_of(program), engine_of(compile_views(STREAMS + sql, dictionary=WORDS))
    first = late.add_view(sql, background=True)
    wrong = late.add_view("CREATE VIEW w AS SELECT nothing FROM quotes", background=True)
    taken = late.add_view(sql, background=True)
    upon = late.add_view("CREATE VIEW upon AS SELECT SUM(n) AS n FROM added", background=True)
    gone = late.drop_view("totals", background=True)
    at = 0
    while not (wrong.done and taken.done and compiling.is_set()):
        for engine in (late, early):
            engine.apply(quotes(at, 1))
        at += 1
        # Else rows come faster than the interpreter fills the new maps.
        time.sleep(0.002)
    assert isinstance(wrong.error, SqlError) and "nothing" in str(wrong.error)
    assert isinstance(taken.error, SqlError) and "declared twice" in str(taken.error)
    assert not (first.done or upon.done or gone.done) and late.views == ("totals",)
    assert late["totals"] == early["totals"]
    go.set()
    while not gone.done:
        for engine in (late, early):
            engine.apply(quotes(at, 1))
        at += 1
        time.sleep(0.002)
    assert (first.error, upon.error, gone.error) == (None, None, None)
    assert late.views == ("added", "upon")
    assert contents(late, "added") == contents(early, "added")
    assert late["upon"][()].n == sum(row.n for row in early["added"].values())
    assert late.problems.counts["program change failed"] == 2


class Started(subprocess.Popen[bytes]):
    """The processes that were started."""

    all: ClassVar[list["Started"]] = []

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        Started.all.append(self)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[Started]]:
    """What is started to compile, which no earlier run has answered."""
    Started.all = []
    compile_process._spares.end()
    monkeypatch.setattr(subprocess, "Popen", Started)
    handle = os.open(tmp_path, os.O_RDONLY)
    monkeypatch.setattr(compile_process, "code_folder", lambda: CacheFolder(tmp_path, handle))
    yield Started.all
    compile_process._spares.end()
    os.close(handle)


def test_a_process_that_is_killed_is_one_error_and_the_engine_goes_on(
    program: CompiledProgram, started: list[Started]
) -> None:
    late, early = engine_of(program, "numba"), engine_of(program)
    handle = late.add_view(ADDED.format(least=4), background=True)
    at = 0
    while not handle.done:
        if started:
            started[0].kill()  # says nothing where the engine has already seen it end
        for engine in (late, early):
            engine.apply(quotes(at, 3))
        at += 3
    assert isinstance(handle.error, CompileError)
    assert str(handle.error) == "the process that compiles ended by signal 9; nothing was changed, try again"
    assert late.views == ("totals",) and contents(late, "totals") == contents(early, "totals")


@pytest.mark.sampled(2)
def test_the_next_process_is_started_ahead(program: CompiledProgram, started: list[Started]) -> None:
    own = Setting(None, None, False, frozenset({"quotes"}), (), compiles=False)

    def added(least: int) -> bool:
        source = AddViews.of(ADDED.format(least=least))(program.source)
        found = compile_process.compiled_elsewhere(
            CompileRequest(program.source, source, own), program.dictionary
        )
        return any(result.name == "added" for result in found.program.results)

    assert added(1) and added(2)
    assert [process.returncode for process in started] == [0, 0, None]
    # One that has ended meanwhile is not asked.
    started[-1].kill()
    started[-1].wait()
    assert added(3)
    assert [process.returncode for process in started] == [0, 0, -9, 0, None]


def test_a_process_that_fails_says_why(
    program: CompiledProgram, started: list[Started], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho first >&2\necho no room >&2\nexit 3\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    handle = (engine := engine_of(program, "numba")).add_view(ADDED.format(least=4), background=True)
    with pytest.raises(CompileError, match="process that compiles failed: no room; nothing was changed"):
        handle.wait()
    assert engine.views == ("totals",)


def compare_added(least: int, program: CompiledProgram, drops: bool = False) -> None:
    """Adds a view under load, perhaps drops and adds it again, beside the interpreter that always has it."""
    sql = ADDED.format(least=least)
    late, early = engine_of(program, "numba"), engine_of(compile_views(STREAMS + sql, dictionary=WORDS))
    for engine in (late, early):
        engine.apply(quotes(0, 500))
    at, random = 500, Random(1)
    for adds in (True, False, True) if drops else (True,):
        change = late.add_view(sql, background=True) if adds else late.drop_view("added", background=True)
        handle, meanwhile = change, 0
        while not handle.done:
            count, gone = random.randrange(1, 4), random.randrange(at)
            for engine in (late, early):
                engine.apply(quotes(at, count))
                engine.apply(quotes(gone, 1))
                engine.apply(quotes(gone, 1, delete=True))
            at, meanwhile = at + count, meanwhile + 1
            if "added" in late.views and handle.done:
                assert contents(late, "added") == contents(early, "added")
        assert handle.error is None and meanwhile > 1
        assert contents(late, "totals") == contents(early, "totals")
    for engine in (late, early):
        engine.apply(quotes(3, 40, delete=True))
    assert contents(late, "added") == contents(early, "added")


@pytest.mark.sampled(2)
def test_a_view_added_under_load_equals_one_from_the_start(
    program: CompiledProgram, started: list[Started]
) -> None:
    for _ in range(2):
        compare_added(4, program)
    # The second time the answer was there. The other process is the next one to be asked.
    assert [process.returncode for process in started] == [0, None]


@pytest.mark.exhaustive
def test_a_view_that_nobody_has_compiled_compiles_nothing_here(
    program: CompiledProgram, started: list[Started]
) -> None:
    from numba.core import event

    compiled = []

    class Noted(event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            """See numba."""

        def on_end(self, event: Any) -> None:
            compiled.append(event.data["dispatcher"].py_func.__qualname__)

    engine_of(program, "numba").apply(quotes(0, 5))
    least = Random().randrange(5, 10**9)
    with event.install_listener("numba:compile", Noted()):
        compare_added(least, program, drops=True)
    assert [process.returncode for process in started] == [0, 0, None] and compiled == []


def test_rows_that_are_not_there_are_missed_before_anything_is_compiled(
    program: CompiledProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("compiled")

    monkeypatch.setattr(compile_request, "rehearse", never)
    new = AddViews.of(ADDED.format(least=4))(program.source)
    for known, error in (({"pairs"}, DataError), ({"quotes"}, AssertionError)):
        setting = Setting(None, None, False, frozenset(known), ())
        with pytest.raises(error):
            CompileRequest(program.source, new, setting).compiled()


def test_a_request_is_known_again_by_all_that_it_asks(program: CompiledProgram) -> None:
    def key(least: int, known: str = "quotes", measured: bool = False) -> str:
        new = AddViews.of(ADDED.format(least=least))(program.source)
        return CompileRequest(
            program.source, new, Setting(None, None, measured, frozenset({known}), ())
        ).key()

    assert key(4) == key(4)
    assert len({key(4), key(5), key(4, "pairs"), key(4, measured=True)}) == 4


def test_threads_take_turns_sooner_while_anybody_asks_for_it() -> None:
    before = sys.getswitchinterval()
    with yielding():
        with yielding():
            assert sys.getswitchinterval() < 0.001
        assert sys.getswitchinterval() < 0.001
    assert sys.getswitchinterval() == before


def test_a_replacement_without_rows_to_wait_for_needs_no_change(program: CompiledProgram) -> None:
    engine = engine_of(program)
    handle = engine.add_view("CREATE VIEW more AS SELECT symbol, n FROM totals", background=True)
    while not handle.done:
        advance(engine)
    assert handle.error is None and engine.views == ("totals", "more")
