"""A run's log asked afterwards: views as of any version, and why a row is as it is."""

import json
import re
import shlex
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from command_line_support import Program, orderbook  # noqa: F401
from durable_support import INSTRUMENTS, SQL, items
from websockets.sync.server import ServerConnection, serve

from orderbook.configuration.configuration import Configuration, load_configuration
from orderbook.core.errors import SourceError, UserError
from orderbook.durability import journal, past_states
from orderbook.durability.durable_run import DurableRun, checkpoints_of
from orderbook.durability.past_states import LAST, open_past_run
from orderbook.engine.log.log import Log, LogReader, SyncPolicy
from orderbook.engine.runtime.subscriptions import Version
from orderbook.feeds.merge import TickItem
from orderbook.market.instruments import Instruments
from orderbook.operations.why import Explanation, Why, why_text
from orderbook.run.assembly import piped, started, warm_up
from orderbook.run.event_queue import HybridClock, Stamped
from orderbook.run.pipeline import Pipeline
from orderbook.views.program import CompiledProgram

VIEWS = ("depth", "my_orders")
# No view reads the books' states, which then are numbered only where all rows are kept.
OWN_SQL = re.sub(r"CREATE VIEW books.*?;", "", SQL, flags=re.DOTALL)
Rows = dict[str, dict[Any, dict[str, Any]]]


@dataclass
class Recorded:
    """A run that has ended: its configuration, and the rows of views after each event."""

    configuration: Configuration
    config: Path
    history: dict[Version, Rows]
    callbacks: list[Any]
    orders: list[tuple[Version, int]]
    later: list[Any]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("run")
    (folder / "own.sql").write_text(OWN_SQL)
    (folder / "run.toml").write_text(
        f'[run]\nviews = ["{folder}/own.sql"]\nstrategies = ["durable_support:Trader"]\n'
        f'backend = "interpreter"\n'
        f'[log]\nfolder = "{folder}/log"\nkeep_log = true\n'
    )
    configuration = load_configuration(folder / "run.toml", {})
    assembly, engine = started(configuration)
    pipeline = piped(configuration, assembly, engine, Instruments(INSTRUMENTS))
    warm_up(pipeline)
    now: Rows = {view: {key: dict(row) for key, row in engine[view].items()} for view in VIEWS}
    found = Recorded(configuration, folder / "run.toml", {}, [], [], [])

    def changed(event: Any) -> None:
        if event.new is None:
            del now[event.view][event.key]
        else:
            now[event.view][event.key] = dict(event.new)
        found.history[event.version] = {view: dict(rows) for view, rows in now.items()}

    for view in VIEWS:
        # Not as strategies are told: every row, also while books are stale.
        super(type(engine), engine).subscribe(view, changed, None, "event", "change")
    engine.observe(
        callback=found.callbacks.append,
        order=lambda row: found.orders.append((engine.version, row["id"])),
    )
    tell = engine.books_changed

    def books_changed() -> None:
        before = len(found.callbacks)
        tell()
        found.later.extend(found.callbacks[before:])

    engine.books_changed = books_changed  # type: ignore[method-assign]
    wall, random = iter(range(1_000, 10**9, 7)), Random(3)
    with Log.open(
        folder / "log", journal.IDENTITY, policy=SyncPolicy.parse("never"), segment_bytes=1 << 14
    ) as log:
        clock = HybridClock(lambda: next(wall))
        where = checkpoints_of(folder / "log")
        run = DurableRun(pipeline, log, where, clock=clock, keep=99, keep_log=True)
        run.recover(None)
        run.start()
        for place, item in enumerate(items(5, 700)):
            stamped = Stamped(clock.stamp(), random.randrange(3), item, True)
            run.accept([stamped])
            run.apply(stamped)
            if place % 12 == 9:
                run.checkpoint()
        run.stop()
    return found


def state(rows: Any) -> Rows:
    return {view: {key: dict(row) for key, row in rows[view].items()} for view in VIEWS}


def test_views_at_any_version_are_as_they_were(recorded: Recorded) -> None:
    versions = sorted(recorded.history)
    chosen = [versions[0], versions[-1], *Random(1).sample(versions, 6)]
    used = set()
    for version in chosen:
        past = open_past_run(recorded.configuration, version)
        past.go_to(version)
        assert state(past.engine) == recorded.history[version], version
        assert past.engine.version == version
        used.add(past.checkpoint)
    assert len(used) > 2 and None in used
    past = open_past_run(recorded.configuration, None)
    past.go_to((LAST, LAST, LAST))
    assert state(past.engine) == recorded.history[versions[-1]]
    folder = recorded.configuration.log.folder
    assert folder is not None
    assert past.checkpoint == max(checkpoints_of(folder).iterdir())


def test_a_stamp_alone_is_the_last_of_it(recorded: Recorded) -> None:
    versions = sorted(recorded.history)
    stamp = versions[len(versions) // 2][0]
    last = max(v for v in versions if v[0] == stamp)
    for version in ((stamp, LAST, LAST), (stamp, last[1], LAST), (stamp + 1, 0, 0)):
        past = open_past_run(recorded.configuration, version)
        past.go_to(version)
        assert state(past.engine) == recorded.history[last]


def explained(recorded: Recorded, view: str, version: Version) -> Why:
    past = open_past_run(recorded.configuration, version)
    return Explanation(past, view, version).found()


def test_why_tells_rows_statements_callbacks_and_orders(recorded: Recorded) -> None:
    versions = sorted(recorded.history)
    event = next(e for e in recorded.callbacks[9:] if e.view == "depth" and e.version in recorded.history)
    before, after = (recorded.history[versions[versions.index(event.version) - i]]["depth"] for i in (1, 0))
    found = explained(recorded, "depth", event.version)
    changed = {key for key in {**before, **after} if before.get(key) != after.get(key)}
    assert set(found.rows) == changed
    for key, (old, new) in found.rows.items():
        assert (dict(old) if old else None, dict(new) if new else None) == (before.get(key), after.get(key))
    assert [(e.view, e.key, e.version) for e in found.callbacks] == [
        (e.view, e.key, e.version) for e in recorded.callbacks if e.version == event.version
    ]
    volume = {cast(int, change.row[-2]) * (1 if change.insert else -1) for change in found.changes}
    ran = [s for c in found.changes for s in c.statements if "volume" in repr(s.statement.value)]
    writes = [write for one in ran for write in one.writes.values()]
    assert writes and all(new - old in volume for old, new in writes)


def test_why_finds_the_orders_that_followed(recorded: Recorded) -> None:
    followed = [explained(recorded, "depth", e.version) for e in recorded.callbacks[:6]]
    assert sum(len(why.requests) for why in followed) >= 1
    assert any(why.orders for why in followed)
    for why in followed:
        assert {r.id for r in why.requests if r.kind == "order"} <= {row["id"] for row in why.orders} | {
            r.id for r in why.requests
        }


def test_why_of_what_was_told_when_books_became_valid(recorded: Recorded) -> None:
    later, without, placed = recorded.later, 0, 0
    for event in later:
        why = explained(recorded, event.view, event.version)
        (told,) = [e for e in why.callbacks if (e.view, e.key) == (event.view, event.key)]
        assert told.new is not None
        assert (told.version, dict(told.new)) == (event.version, dict(event.new))
        if not why.changes:
            without += 1
            assert why.rows[event.key][1] == told.new and event.version not in recorded.history
            stamp = event.version[0]
            ids = {id_ for version, id_ in recorded.orders if version[0] == stamp}
            asked = {request.id for request in why.requests if request.kind == "order"}
            assert asked <= ids and {row["id"] for row in why.orders} <= ids
            placed += len(asked)
            assert "no event: what had been held back was told" in why_text(why, compiled(recorded))
    assert 3 < without < len(later) and placed


def compiled(recorded: Recorded) -> CompiledProgram:
    return open_past_run(recorded.configuration, None).engine.program


def test_why_of_no_event_says_which_there_are(recorded: Recorded) -> None:
    stamp, switch, _ = version = sorted(recorded.history)[40]
    with pytest.raises(UserError, match=rf"{stamp},{switch},99999; that stamp and switch has"):
        explained(recorded, "depth", (stamp, switch, 99999))
    with pytest.raises(UserError, match="nothing of that stamp"):
        explained(recorded, "depth", (stamp + 1, switch, version[2]))
    folder = recorded.configuration.log.folder
    assert folder is not None
    entries = [journal.entry_of(record) for _, record in LogReader(folder, journal.IDENTITY).read()]
    ticks = [e for e in entries if isinstance(e, Stamped) and isinstance(e.item, TickItem)]
    said = []
    for tick in ticks:
        before = max((v[2] for v in recorded.history if v[0] < tick.stamp), default=0)
        with pytest.raises(UserError) as error:
            explained(recorded, "depth", (tick.stamp, tick.switch, before))
        said.append(str(error.value).partition("; ")[2])
    # The last event before a tick may have left the views as they were, and so have a later number.
    assert set(said) <= {
        "nothing changed then, and what was told had waited for its books",
        "what came then changed nothing",
    }
    assert len(set(said)) == 2


def test_the_commands(recorded: Recorded, orderbook: Program, tmp_path: Path) -> None:  # noqa: F811
    versions = sorted(recorded.history)
    version = versions[len(versions) // 2]
    at, config = ",".join(map(str, version)), ["--config", str(recorded.config)]
    expected = recorded.history[version]["depth"]
    result = orderbook("query", "SELECT symbol, orders FROM depth ORDER BY 1", "--at", at, *config)
    assert result.status == 0 and f"as of {at}, from checkpoint-" in result.out
    for key, row in expected.items():
        assert f"│ {key[0]} " in result.out and f"┆ {row['orders']} " in result.out
    sql = "SELECT symbol, COUNT(*) AS orders FROM bids WHERE volume > 0 GROUP BY symbol"
    result = orderbook("query", sql, "--at", at, *config)
    assert result.status == 0 and f"as of {at}, from the log's beginning" in result.out, result.err
    for row in expected.values():
        assert f"┆ {row['orders']} " in result.out
    result = orderbook("query", "--view", "depth", "--key", "none", *config)
    assert result.status == 2
    assert "view depth: no row has the key none; the nearest of 2 are AAA-USD" in result.err
    result = orderbook("why", "depth", "--at", at, *config)
    assert result.status == 0 and result.out.startswith(f"depth at {at}\n")
    for arguments, message in (
        (["why", "depth", "--at", str(version[0])], "STAMP,SWITCH,SEQUENCE"),
        (["why", "nope", "--at", at], "no view 'nope'"),
        (["query", "SELECT 1", "--log", str(tmp_path)], "no log there"),
        (["query", "SELECT 1", "--log", str(tmp_path), "--url", "ws://x"], "give one of --log and --url"),
        (["query", "SELECT 1", "--url", "nowhere"], "is a monitor there?"),
        (["query", "SELECT 1", "--url", "ws://127.0.0.1:9"], "is a monitor there?"),
    ):
        result = orderbook(*arguments, *config)
        assert result.status != 0 and len(result.error_lines) == 1 and message in result.error_lines[0]


def test_the_documented_commands(recorded: Recorded, orderbook: Program, project: Path) -> None:  # noqa: F811
    version = next(e.version for e in recorded.callbacks[9:] if e.version in recorded.history)
    text = (project / "docs" / "clients.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    commands = [line for block in blocks for line in block.splitlines()]
    assert len(commands) == 4
    for command in commands:
        command = command.replace("STAMP,SWITCH,SEQUENCE", ",".join(map(str, version)))
        command = command.replace("STAMP", str(version[0]))
        command = command.replace("LOG", str(recorded.configuration.log.folder))
        result = orderbook(*shlex.split(command)[1:], "--config", recorded.config)
        assert result.status == 0 and ("rows" in result.out or "1 row" in result.out), result.err


def test_a_monitor_is_asked_by_its_address(orderbook: Program) -> None:  # noqa: F811
    asked = []

    def answer(socket: ServerConnection) -> None:
        for text in socket:
            asked.append(message := json.loads(text))
            columns = [["symbol", "text"], ["n", "int"]]
            reply = {"id": 1, "type": "table", "columns": columns, "rows": [["A", 7]]}
            wrong = {"id": 1, "type": "error", "error": "no view there"}
            socket.send(json.dumps({"id": 9, "type": "status"}))
            socket.send(json.dumps(wrong if "nope" in message["sql"] else reply))

    with serve(answer, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        port = server.socket.getsockname()[1]
        result = orderbook("query", "SELECT 1", "--url", f"http://127.0.0.1:{port}/")
        refused = orderbook("query", "SELECT nope", "--url", f"ws://127.0.0.1:{port}/ws")
        server.shutdown()
        thread.join()
    assert result.status == 0 and "│ A      ┆ 7   │" in result.out, result.err
    assert refused.status == 2 and "no view there" in refused.err
    assert asked[0] == {"id": 1, "op": "sql", "sql": "SELECT 1", "whole": True}


def test_a_log_whose_beginning_is_gone(recorded: Recorded, tmp_path: Path) -> None:
    source = recorded.configuration.log.folder
    assert source is not None
    segments = sorted(source.glob("*.log"))
    assert len(segments) > 1
    for file in (*segments[1:], source / "durable"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    options = recorded.configuration.log.model_copy(update={"folder": tmp_path})
    configuration = recorded.configuration.model_copy(update={"log": options})
    with pytest.raises(UserError, match="beginning is gone"):
        open_past_run(configuration, sorted(recorded.history)[3])
    gone = options.model_copy(update={"folder": tmp_path / "none"})
    configuration = configuration.model_copy(update={"log": gone})
    with pytest.raises(SourceError, match="no log there"):
        open_past_run(configuration, None)


def test_a_checkpoint_that_goes_while_it_is_read_is_as_if_it_had_never_been(
    recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert recorded.configuration.log.folder is not None
    shutil.copytree(recorded.configuration.log.folder, tmp_path / "log")
    options = recorded.configuration.log.model_copy(update={"folder": tmp_path / "log"})
    configuration = recorded.configuration.model_copy(update={"log": options})
    removed: list[Path] = []

    def removing(pipeline: Pipeline) -> None:
        # As the run does between the choice of a checkpoint and its load.
        if len(removed) < 2:
            removed.append(max(checkpoints_of(tmp_path / "log").iterdir()))
            removed[-1].unlink()
        warm_up(pipeline)

    monkeypatch.setattr(past_states, "warm_up", removing)
    past = open_past_run(configuration, None)
    past.go_to((LAST, LAST, LAST))
    assert past.checkpoint is not None and past.checkpoint < min(removed)
    assert state(past.engine) == recorded.history[max(recorded.history)]


def test_a_why_reads_as_a_person_does(recorded: Recorded) -> None:
    version = next(e.version for e in recorded.callbacks[9:] if e.version in recorded.history)
    past = open_past_run(recorded.configuration, version)
    text = why_text(Explanation(past, "depth", version).found(), past.engine.program)
    assert " bids(" in text and "wrote " in text and " -> " in text and "callback depth" in text
