"""What a start finds of the run before: of other views, parameters or strategies, or not fit for use."""

import shutil
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest
from durable_support import INSTRUMENTS, Trader, items, rows
from recovery_support import SCORES, STREAM, VIEWS, feed, session, sql_of

from orderbook.durability import journal
from orderbook.durability.durable_run import checkpoints_of
from orderbook.engine.checkpoint import CheckpointError, checkpoints
from orderbook.engine.log.log import Log, SyncPolicy
from orderbook.engine.log.segments import LogError, Position, Record
from orderbook.feeds.change_stream import RelationChange
from orderbook.feeds.merge import ChangeItem
from orderbook.market.events import Action
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.order_views import strategies_of
from orderbook.strategies.strategy import Strategy, on_view
from orderbook.views.compilation import compile_views
from orderbook.views.types import Kind

TRADED = "CREATE VIEW traded AS SELECT symbol, COUNT(*) AS n FROM trades GROUP BY symbol;"


class Counter(Strategy):
    """Counts what it is told, and keeps that."""

    told: ClassVar[list[Any]] = []
    saved: ClassVar[Callable[[int], Any]] = lambda seen: str(seen).encode()
    mended: ClassVar[bool] = True

    def __init__(self) -> None:
        self.seen = 0

    def on_start(self) -> None:
        Counter.told.append("start")

    @on_view("depth", fire="change")
    def changed(self, event: Any) -> None:
        self.seen += 1
        if self.seen % 40 == 1:
            self.buy(event.key[0], 20, Decimal(95))

    def on_save(self) -> bytes | None:
        return Counter.saved(self.seen)  # type: ignore[no-any-return]

    def on_load(self, state: bytes) -> None:
        Counter.told.append(state)
        self.seen = int(state)
        if not Counter.mended:
            raise ValueError("cannot be read")


@pytest.fixture(autouse=True)
def fresh_counter() -> None:
    Counter.told.clear()
    Counter.saved = lambda seen: str(seen).encode()
    Counter.mended = True


def trimmed(folder: Path) -> None:
    """Takes what the log has before its newest checkpoint away, and with it the other checkpoints."""
    newest, *others = checkpoints(checkpoints_of(folder))
    for other in others:
        other.path.unlink()
    with Log.open(folder, journal.IDENTITY, policy=SyncPolicy.parse("never")) as log:
        log.truncate_before(Position(int(newest.position)))
        assert log.start > 0


def orders_of(pipeline: Pipeline) -> list[Any]:
    """Orders and fills, and what strategies hold."""
    engine, found = pipeline.engine, []
    for relation in ("orders", "fills"):
        kept, counts = engine.rows_of(relation)
        found.append(sorted(map(repr, zip(decoded(engine, relation, kept), counts.tolist(), strict=True))))
    held = [(s.name, s.orders, s.refused, s.fills, s.positions) for s in pipeline.host.summary()]
    return [*found, held]


def decoded(engine: GatedEngine, relation: str, kept: np.ndarray) -> Iterator[list[Any]]:
    columns = engine.program.program.relation(relation).columns
    for row in kept.tolist():
        yield [
            engine.dictionary.decode(word) if column.type.kind is Kind.TEXT and word >= 0 else word
            for column, word in zip(columns, row, strict=True)
        ]


def calls() -> list[Any]:
    """What the trader was told; versions are of the clock and of each program."""
    return [(what, detail if what in ("start", "fill") else detail[1]) for what, detail in Trader.calls]


def check_programs(folder: Path, seed: int) -> None:
    """Views, orders and callbacks are those of a run that had always been of the other program."""
    random = Random(seed)
    first, second = (random.sample(list(VIEWS)[1:], random.randrange(5)) for _ in range(2))
    whole, short, k = folder / "whole", folder / "short", random.choice([3, 25])
    received = items(seed, 400)
    half, later = len(received) // 2, len(received) * 3 // 4
    with session(short, sql_of(["depth", *first])) as (_, durable):
        durable.start()
        feed(durable, received[:half])
        assert durable.checkpoint()
        feed(durable, received[half:later])
    shutil.copytree(short, whole)
    shutil.rmtree(checkpoints_of(whole))
    trimmed(short)
    found = []
    for place in (whole, short):
        Trader.calls.clear()
        with session(place, sql_of(["depth", *second]), k=k) as (pipeline, durable):
            durable.start()
            begun = rows(pipeline), orders_of(pipeline)
            feed(durable, received[later:])
            found.append((begun, rows(pipeline), orders_of(pipeline), calls()))
    for one, other in zip(*found, strict=True):
        assert one == other, (first, second)


def test_any_program_goes_on_from_a_checkpoint_of_any_other(tmp_path: Path, sample_seed: int) -> None:
    for seed in range(sample_seed, sample_seed + 6):
        check_programs(tmp_path / str(seed), seed)


@pytest.mark.exhaustive
def test_many_programs_go_on(tmp_path: Path, sample_seed: int, sample_count: int) -> None:
    for seed in range(sample_seed, sample_seed + sample_count):
        check_programs(tmp_path / str(seed), seed)


def crashed(folder: Path, sql: str, seed: int = 3, count: int = 700, **options: Any) -> list[Any]:
    """A run that ends without a word, its early log gone; what would have come next."""
    received = items(seed, count)
    half = len(received) // 2
    with session(folder, sql, **options) as (_, run):
        run.start()
        feed(run, received[: half // 2])
        assert run.checkpoint()
        feed(run, received[half // 2 : half])
        assert run.checkpoint()
    return received[half:]


def test_a_view_of_rows_that_nobody_kept_is_refused_with_the_way_out(tmp_path: Path) -> None:
    """With all of the log, or the rows, it is filled."""
    folder = tmp_path / "log"
    crashed(folder, sql_of(["depth"]))
    with session(folder, sql_of(["depth"]) + TRADED) as (pipeline, _):
        expected = rows(pipeline)["traded"]
    assert expected
    trimmed(folder)
    with pytest.raises(CheckpointError) as raised, session(folder, sql_of(["depth"]) + TRADED):
        pass
    for part in ("view traded cannot be filled", "rows of trades", "keep_log = true", "another folder"):
        assert part in str(raised.value)
    with session(folder, sql_of(["depth"])) as (pipeline, _):
        assert rows(pipeline)["depth"]
    kept = tmp_path / "kept"
    crashed(kept, sql_of(["depth"]), keep_rows=True)
    trimmed(kept)
    with session(kept, sql_of(["depth"]) + TRADED, keep_rows=True) as (pipeline, _):
        assert rows(pipeline)["traded"] == expected


LOW = "CREATE VIEW low AS SELECT symbol, score FROM news WHERE score < :k;\n"


def with_news(folder: Path) -> None:
    received = items(5, 500)
    with session(folder, sql_of(["depth"]) + STREAM + SCORES) as (_, run):
        run.start()
        for number, item in enumerate(received):
            row: dict[str, Any] = {"symbol": "AAA-USD", "score": Decimal(number % 9)}
            feed(run, [item])
            if number < 40:
                feed(run, [ChangeItem("here", [RelationChange(1, "news", "+", row)])])
        assert run.checkpoint()
    trimmed(folder)


@pytest.mark.parametrize(
    ("then", "now", "why"),
    [
        ("score DECIMAL(6, 2)", "score DECIMAL(6, 3)", "score was DECIMAL of scale 2"),
        ("score DECIMAL(6, 2)", "points DECIMAL(6, 2)", "its columns were symbol, score"),
        ("score DECIMAL(6, 2)", "score DECIMAL(6, 2) NOT NULL", "score took NULL"),
        ("score DECIMAL(6, 2)", "score DECIMAL(4, 2)", "score took more values"),
        ("max_rows = 50", "max_rows = 45", "it took max_rows = 50 rows"),
    ],
)
def test_a_stream_that_takes_less_than_before_is_refused_by_name(
    then: str, now: str, why: str, tmp_path: Path
) -> None:
    with_news(tmp_path)
    other = (STREAM + SCORES.replace("score", "points" if "points" in now else "score")).replace(then, now)
    told = f"news is declared otherwise than in the run before: {why}"
    with pytest.raises(CheckpointError, match=told), session(tmp_path, sql_of(["depth"]) + other):
        pass


def test_a_stream_may_take_more_and_new_views_of_it_are_filled(tmp_path: Path) -> None:
    with_news(tmp_path)
    wider = (STREAM + LOW + SCORES).replace("50", "60").replace("DECIMAL(6, 2)", "DECIMAL(9, 2)")
    with session(tmp_path, sql_of(["depth"]) + wider, k=2) as (pipeline, _):
        assert pipeline.engine["scores"]["AAA-USD"].n == 40
        assert sum(row.multiplicity for row in pipeline.engine["low"].values()) == 10
        # The rows that deletes are checked against are there too.
        pipeline.engine.delete("news", {"symbol": "AAA-USD", "score": 8})
        assert pipeline.engine["scores"]["AAA-USD"].n == 39


def test_a_stream_that_is_not_declared_any_more_goes_with_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with_news(tmp_path)
    with session(tmp_path, sql_of(["depth", "levels"])) as (pipeline, _):
        assert rows(pipeline)["levels"]
    assert any("rows of news are dropped" in message for message in caplog.messages)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"seen": 3}, "gave dict, not bytes"),
        ("3", "gave str, not bytes"),
        (3, "gave int, not bytes"),
        (float("nan"), "gave float, not bytes"),
        ((b"3",), "gave tuple, not bytes"),
        (object(), "gave object, not bytes"),
        (b"3" * (5 << 20), "gave 5,242,880 bytes, and the most is"),
        (ZeroDivisionError("no"), "on_save raised ZeroDivisionError: no"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value[:12],
)
def test_a_state_that_cannot_be_kept_leaves_the_one_before(
    given: object, why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sql, received = sql_of(["depth"]), items(3, 300)
    half = len(received) // 2

    def wrong(seen: int) -> Any:
        if isinstance(given, Exception):
            raise given
        return given

    with session(tmp_path, sql, [Counter]) as (_, run):
        run.start()
        feed(run, received[:half])
        Counter.saved, good = wrong, Counter.saved
        feed(run, received[half:])
        assert run.checkpoint() and run.checkpoint()
    (said,) = [message for message in caplog.messages if "its state is not saved" in message]
    assert said.startswith("Counter: ") and why in said
    Counter.saved = good
    with session(tmp_path, sql, [Counter]) as (pipeline, run):
        seen = int(Counter.told[-1])
        assert seen > 3 and not pipeline.host.failures
        run.start()
        feed(run, received[1:])
        assert run.checkpoint()
    with session(tmp_path, sql, [Counter]):
        assert int(Counter.told[-1]) > seen
    assert Counter.told.count("start") == 1


@pytest.mark.parametrize("given", [bytearray(b"7"), memoryview(b"7")])
def test_a_state_may_be_any_bytes(given: Any, tmp_path: Path) -> None:
    Counter.saved = lambda seen: given
    crashed(tmp_path, sql_of(["depth"]), strategies=[Counter])
    with session(tmp_path, sql_of(["depth"]), [Counter]):
        assert Counter.told[-1] == b"7" and type(Counter.told[-1]) is bytes


def test_states_that_no_version_should_have_written_are_passed_over() -> None:
    """Logs of versions that did not look hold what strategies gave, whatever it was."""
    payload = msgspec.msgpack.encode({"A": {"seen": 3}, "B": b"good", "C": "text"})
    entry = journal.entry_of(Record(journal.Kind.COMPLETED, 5, 0, 0, payload))
    assert entry == journal.Completed(5, {"B": b"good"})


def test_a_strategy_that_takes_up_no_state_comes_back_once_it_is_mended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sql = sql_of(["depth", "my_orders"])
    later = crashed(tmp_path, sql, strategies=[Counter])
    Counter.told.clear()
    Counter.mended = False
    with session(tmp_path, sql, [Counter]) as (pipeline, run):
        run.start()
        tried = list(Counter.told)
        # That of the log's end, and those of the checkpoints.
        assert len(tried) >= 2 and sorted(tried, key=int, reverse=True) == tried
        assert [failure.method for failure in pipeline.host.failures] == ["on_load"]
        feed(run, later[: len(later) // 2])
        assert run.checkpoint()
        status = {key[1] for key in pipeline.engine["my_orders"]}
        assert not status & {"open", "sent"} and "cancelled" in status
    assert any("takes up none of its states" in message for message in caplog.messages)
    Counter.mended = True
    Counter.told.clear()
    with session(tmp_path, sql, [Counter]) as (pipeline, run):
        assert Counter.told == tried[:1] and not pipeline.host.failures
        run.start()
        feed(run, later[len(later) // 2 :])
        assert pipeline.host.callbacks
    assert "start" not in Counter.told


def test_a_state_of_before_is_taken_up_where_the_last_is_not(tmp_path: Path) -> None:
    crashed(tmp_path, sql_of(["depth"]), strategies=[Counter])

    class Picky(Counter):
        def on_load(self, state: bytes) -> None:
            super().on_load(state)
            if len(Counter.told) == 1:
                raise KeyError("not this one")

    Picky.__name__ = "Counter"
    Counter.told.clear()
    with session(tmp_path, sql_of(["depth"]), [Picky]) as (pipeline, _):
        assert len(Counter.told) == 2 and int(Counter.told[1]) < int(Counter.told[0])
        assert not pipeline.host.failures


def test_strategies_come_and_go(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A new one is started once; one that is left out has no orders any more, and its positions later."""
    sql = sql_of(["depth", "my_orders"])
    later = crashed(tmp_path, sql, strategies=[Trader])
    trimmed(tmp_path)
    third = len(later) // 3
    with session(tmp_path, sql, [Trader]) as (pipeline, _):
        held = {s.name: s.positions for s in pipeline.host.summary()}["Trader"]
        assert held
    with session(tmp_path, sql, [Counter]) as (pipeline, run):
        run.start()
        assert Counter.told == ["start"]
        assert not {key for key in pipeline.engine["my_orders"] if key[0] == "Trader" and key[1] == "open"}
        feed(run, later[:third])
        assert run.checkpoint() and run.checkpoint()
    assert any(m.startswith("Trader is not among the run's strategies any more") for m in caplog.messages)
    trimmed(tmp_path)
    with session(tmp_path, sql, [Counter, Trader]) as (pipeline, run):
        run.start()
        assert Counter.told.count("start") == 1
        found = {s.name: s.positions for s in pipeline.host.summary()}["Trader"]
        assert [(p.position, p.cash) for p in found] == [(p.position, p.cash) for p in held]
        feed(run, later[third:])


def damaged(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.mark.parametrize(
    ("at", "data", "why"),
    [
        (8, (1).to_bytes(4, "little"), "format 1, which an earlier version"),
        (8, (99).to_bytes(4, "little"), "format 99, which a later version"),
        (-9, b"\xff\xff\xff", "checksum"),
    ],
)
def test_a_checkpoint_that_does_not_fit_costs_time_not_the_run(
    at: int, data: bytes, why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sql = sql_of(["depth", "levels"])
    crashed(tmp_path, sql)
    with session(tmp_path, sql) as (pipeline, _):
        expected = rows(pipeline), orders_of(pipeline)
    paths = [one.path for one in checkpoints(checkpoints_of(tmp_path))]
    assert len(paths) == 2
    for path in paths:
        caplog.clear()
        damaged(path, at % path.stat().st_size, data)
        with session(tmp_path, sql) as (pipeline, _):
            assert (rows(pipeline), orders_of(pipeline)) == expected
        assert any(str(path) in message and why in message for message in caplog.messages)


def test_a_checkpoint_that_verifies_and_cannot_be_loaded_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = sql_of(["depth"])
    crashed(tmp_path, sql)
    with session(tmp_path, sql) as (pipeline, _):
        expected = rows(pipeline), orders_of(pipeline)
    newest, older = (one.path for one in checkpoints(checkpoints_of(tmp_path)))
    load, broken = Pipeline.load, {newest}

    def fail_once(self: Pipeline, *arguments: Any) -> int:
        if broken:
            broken.pop()
            raise RuntimeError("half way")
        return load(self, *arguments)

    monkeypatch.setattr(Pipeline, "load", fail_once)
    caplog.clear()
    with session(tmp_path, sql) as (pipeline, _):
        assert (rows(pipeline), orders_of(pipeline)) == expected
    (said,) = [message for message in caplog.messages if "half way" in message]
    assert str(newest) in said and f"{older} is used instead" in said


def test_without_anything_to_go_on_from_the_run_says_so(tmp_path: Path) -> None:
    sql = sql_of(["depth"])
    crashed(tmp_path, sql)
    trimmed(tmp_path)
    for path in checkpoints_of(tmp_path).iterdir():
        damaged(path, 20, b"\0\0\0\0")
    told = "no checkpoint to go on from; restore the checkpoints from a copy"
    with pytest.raises(LogError, match=told), session(tmp_path, sql):
        pass


RESTLESS = """
CREATE STRATEGY restless WITH (min_life = '1ms', min_move = 2, max_requests = 400, refill) AS
WITH books AS (
    SELECT b.venue, b.symbol, MAX(b.price) AS bid, COUNT(*) AS orders, COALESCE(SUM(p.volume), 0) AS held
    FROM bids b LEFT JOIN positions p ON p.venue = b.venue AND p.symbol = b.symbol GROUP BY b.venue, b.symbol
)
SELECT venue, symbol, 'buy' AS side, bid + 0.01 AS price, 3 + orders % 3 AS volume
FROM books WHERE orders % 5 > 0
UNION ALL
SELECT venue, symbol, 'sell' AS side, bid AS price, 2 AS volume FROM books WHERE held > 0 AND orders % 4 > 0;
"""


def _tells_steps(item: Any) -> bool:
    return isinstance(item, np.ndarray) and bool((item["action"] == Action.INSTRUMENT).any())


def test_a_strategy_in_sql_goes_on_from_the_log_and_from_a_checkpoint(
    tmp_path: Path, sample_seed: int
) -> None:
    # An exchange tells ticks and lots anew when it is connected again, a log does not.
    received = [item for item in items(sample_seed, 900) if not _tells_steps(item)]
    half, later = len(received) // 2, len(received) * 3 // 4
    (restless,) = strategies_of(compile_views(RESTLESS))
    found, known = [], list(INSTRUMENTS)

    def opened(name: str) -> Any:
        # Ticks and lots change in a run.
        return session(tmp_path / name, RESTLESS, (restless.kind,), instruments=known)

    with opened("uncut") as (pipeline, durable):
        durable.start()
        feed(durable, received)
        found.append(orders_of(pipeline))
    with opened("short") as (_, durable):
        durable.start()
        feed(durable, received[:half])
        assert durable.checkpoint()
        feed(durable, received[half:later])
    shutil.copytree(tmp_path / "short", tmp_path / "whole")
    shutil.rmtree(checkpoints_of(tmp_path / "whole"))
    trimmed(tmp_path / "short")
    for place in ("whole", "short"):
        with opened(place) as (pipeline, durable):
            durable.start()
            feed(durable, received[later:])
            found.append(orders_of(pipeline))
    orders, fills, _ = found[0]
    assert len(orders) > 5 and fills
    assert found[1] == found[0]
    assert found[2] == found[0]
