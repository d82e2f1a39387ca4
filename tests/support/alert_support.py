"""A receiver of webhooks on loopback that fails, hangs and takes repeats, and runs of alerts with a log."""

import base64
import hashlib
import hmac
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from samples import PATIENCE

from orderbook.alerts.run_alerts import RunAlerts
from orderbook.configuration.configuration import Configuration, load_configuration
from orderbook.durability import journal
from orderbook.durability.durable_run import DurableRun, checkpoints_of
from orderbook.engine.checkpoint import newest_checkpoint
from orderbook.engine.log.log import Log, SyncPolicy
from orderbook.engine.runtime.engine_state import program_hash
from orderbook.feeds.change_stream import RelationChange
from orderbook.feeds.merge import ChangeItem
from orderbook.market.events import Events
from orderbook.market.instruments import Instruments
from orderbook.run.event_queue import Stamped
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.compilation import compile_views
from orderbook.views.program import Sql

SQL = """
CREATE STREAM quotes (symbol TEXT, volume BIGINT CHECK (volume BETWEEN 0 AND 1000000));
CREATE VIEW totals AS SELECT symbol, SUM(volume) AS volume FROM quotes GROUP BY symbol;
"""
SECRET = "whsec_" + base64.b64encode(b"a secret of a receiver").decode()


class Receiver:
    """Keeps what it is told, by `webhook-id`; `answers` says what becomes of each request: a status, a number
    of seconds to hang as a float, or "repeat": it is taken, but the sender never hears of it.
    """

    def __init__(self, answers: Callable[[int], int | float | str] = lambda _: 200) -> None:
        self.answers = answers
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.taken: dict[str, dict[str, Any]] = {}
        self.unsigned = 0
        self.released = threading.Event()
        lock, receiver = threading.Lock(), self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                id_, moment = self.headers["webhook-id"], self.headers["webhook-timestamp"]
                key = base64.b64decode(SECRET.removeprefix("whsec_"))
                signed = hmac.new(key, b".".join([id_.encode(), moment.encode(), body]), hashlib.sha256)
                good = self.headers["webhook-signature"] == f"v1,{base64.b64encode(signed.digest()).decode()}"
                with lock:
                    number = len(receiver.requests)
                    receiver.requests.append((id_, json.loads(body)))
                    receiver.unsigned += not good or abs(time.time() - int(moment)) > PATIENCE
                    answer = receiver.answers(number)
                    if answer in (200, "repeat"):
                        receiver.taken.setdefault(id_, json.loads(body))
                if isinstance(answer, float):
                    receiver.released.wait(answer)
                    return
                if answer == "repeat":
                    return
                self.send_response(int(answer))
                self.send_header("Content-Length", "0")
                if answer == 429:
                    self.send_header("Retry-After", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def told(self) -> list[tuple[str, str, str]]:
        """Kind, name and key of everything taken, once."""
        return [
            (one["type"].removeprefix("alert."), one["data"]["name"], "".join(one["data"].get("key", "")))
            for one in list(self.taken.values())
        ]

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()


def settle(holds: Callable[[], object], doing: Callable[[], object] = lambda: None) -> None:
    """Until something holds."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        doing()
        time.sleep(0.005)


def configuration(folder: Path, alerts: str) -> Configuration:
    """One with these tables."""
    folder.mkdir(exist_ok=True)
    path = folder / "alerts.toml"
    path.write_text(alerts)
    return load_configuration(path)


class AlertRun:
    """A process with a log, from what the folder holds; `now` is the clock of its alerts. sql: its views.

    instruments: those whose events it is given.
    """

    def __init__(
        self,
        folder: Path,
        options: Configuration,
        now: Callable[[], int] = time.time_ns,
        sql: Sql = SQL,
        instruments: Instruments = Instruments(()),
    ) -> None:
        own = compile_views(sql)
        self.engine = GatedEngine(own, "interpreter")
        self.pipeline = Pipeline(self.engine, instruments)
        self.log = Log.open(folder / "log", journal.IDENTITY, policy=SyncPolicy(0))
        checkpoints = checkpoints_of(folder / "log")
        self.durable = DurableRun(self.pipeline, self.log, checkpoints, keep=1)
        kept = options.alerting.model_copy(update={"folder": folder / "alerts"})
        self.alerts = RunAlerts(options.model_copy(update={"alerting": kept}), now)
        self.alerts.attach(self.engine)
        self.durable.recover(newest_checkpoint(checkpoints, program_hash(own)))
        self.durable.before_checkpoint = self.alerts.save
        self._delivering = self.alerts.delivering()
        self._delivering.__enter__()

    def apply(self, changes: Sequence[tuple[str, str, int]]) -> None:
        """A message of (op, symbol, volume)."""
        message = [
            RelationChange(
                0, "quotes", "+" if op == "+" else "-", {"symbol": symbol, "volume": volume}, False
            )
            for op, symbol, volume in changes
        ]
        message[-1] = message[-1]._replace(last=True)
        self.accept(ChangeItem("test", message))

    def accept(self, message: ChangeItem | Events) -> None:
        """A message of changes or events."""
        item = Stamped(self.durable.clock.stamp(), 0, message)
        self.durable.accept([item])
        self.durable.apply(item)
        self.alerts.look()

    def close(self) -> None:
        self._delivering.__exit__(None, None, None)
        self.alerts.release()
        self.log.close()


@contextmanager
def crashed(run: AlertRun, folder: Path, other: Path) -> Iterator[None]:
    """What a killed process leaves: its files as they are now. What it was sending may still arrive."""
    with run.alerts._store._lock:
        shutil.copytree(folder, other)
    yield
    run.close()
