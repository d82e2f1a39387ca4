"""The metrics endpoint: what it shows of a run, and whom it answers."""

import asyncio
import re
import socket
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line_support import FAST_FEED, EndsOnce, Program, Result, write
from command_line_support import ends_once as ends_once
from command_line_support import orderbook as orderbook
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from samples import PATIENCE

from orderbook.commands.common import configured
from orderbook.configuration.configuration import load_configuration
from orderbook.configuration.options import MetricsOptions
from orderbook.core.errors import ConfigurationError, OrderbookError, Problems
from orderbook.core.latency import LatencyHistogram, SignedLatencyHistogram, latency_text
from orderbook.feeds.source import FeedStatistics
from orderbook.market.events import EVENT, Flag
from orderbook.market.instruments import Instruments
from orderbook.operations import metrics_server
from orderbook.operations.metrics import (
    MOST_KINDS,
    RunMetrics,
    bounded,
    feed_families,
    feed_labels,
    latency_family,
)
from orderbook.operations.metrics_server import MetricsServer
from orderbook.run.assembly import piped, started
from orderbook.run.feed_runs import FeedReport, FeedRun, ReceiptDelay, open_runs
from orderbook.run.live_run import LiveRun

TOKEN = "a-token-of-sixteen"
# One that is never raised, so nothing is sent.
ALERT = """
[alerts.steep]
view = "sobi"
when = "pressure > 1000000"
channels = ["desk"]

[channels.desk]
webhook = "http://127.0.0.1:1/alerts"
secret = "$DESK_SECRET"
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def scrape(port: int) -> dict[str, Metric]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
        return {family.name: family for family in text_string_to_metric_families(answer.read().decode())}


def values(families: dict[str, Metric], name: str, **labels: str) -> list[float]:
    """Of the samples with these labels."""
    found = [s for family in families.values() for s in family.samples if s.name == name]
    return [s.value for s in found if labels.items() <= s.labels.items()]


def value(families: dict[str, Metric], name: str, **labels: str) -> float:
    (found,) = values(families, name, **labels)
    return found


def documented(project: Path) -> set[str]:
    """The names in the table of docs/operations.md."""
    rows = re.findall(r"^\| (`orderbook_[^|]*)\|", (project / "docs" / "operations.md").read_text(), re.M)
    return {name for row in rows for name in re.findall(r"`(orderbook_\w+)`", row)}


def exposed(families: dict[str, Metric]) -> set[str]:
    return {f"{name}_total" if family.type == "counter" else name for name, family in families.items()}


def all_is_told(found: dict[str, Metric]) -> bool:
    """Whether all books are known, the strategy was called and a checkpoint is there."""
    return (
        value(found, "orderbook_books", state="valid") == 3
        and value(found, "orderbook_strategy_callbacks_total") > 0
        and value(found, "orderbook_checkpoints_total") >= 1
        and value(found, "orderbook_receive_to_views_seconds_count") > 0
    )


def run_until_told(
    orderbook: Program, ends_once: EndsOnce, config: Path, port: int
) -> tuple[Result, list[dict[str, Metric]]]:
    """What a run says, and what it showed while it ran, until `all_is_told`."""
    scrapes: list[dict[str, Metric]] = []
    enough, ended = threading.Event(), threading.Event()

    def follow() -> None:
        while not ended.is_set() and not enough.is_set():
            with suppress(OSError):
                scrapes.append(scrape(port))
                if all_is_told(scrapes[-1]):
                    enough.set()
            ended.wait(0.1)

    following = threading.Thread(target=follow)
    following.start()
    ends_once(lambda pipeline, messages: enough.is_set())
    result = orderbook("run", "--config", config, "--duration", PATIENCE)
    ended.set()
    following.join()
    assert result.status == 0, result.err
    return result, scrapes


def test_a_live_run_shows_what_its_summary_says(
    orderbook: Program, ends_once: EndsOnce, tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESK_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    port = free_port()
    config = write(
        tmp_path / "fast.toml",
        FAST_FEED.format(imbalance=0.3)
        + f'[metrics]\nport = {port}\n[log]\nfolder = "log"\ncheckpoint_interval = "500ms"\n'
        + ALERT,
    )
    result, scrapes = run_until_told(orderbook, ends_once, config, port)
    last = scrapes[-1]
    assert exposed(last) == documented(project)

    feed = {"feed": "simulated:BTC-USD,ETH-USD,SOL-USD", "venue": "simulated"}
    said = re.search(r"frames ([\d,]+), messages ([\d,]+), events ([\d,]+)", result.out)
    assert said is not None
    for name, text in zip(("frames", "messages", "events"), said.groups(), strict=True):
        counts = [value(found, f"orderbook_feed_{name}_total", **feed) for found in scrapes]
        assert counts == sorted(counts)
        assert 0 < counts[-1] <= int(text.replace(",", ""))
    assert value(last, "orderbook_books", state="valid", **feed) == 3
    assert value(last, "orderbook_feed_bytes_total") > 100 * value(last, "orderbook_feed_frames_total")
    assert value(last, "orderbook_feed_stalled", feed=feed["feed"]) == 0
    assert value(last, "orderbook_queue_limit_events") == 65536
    assert 0 < value(last, "orderbook_queue_most_events") <= 65536
    assert value(last, "orderbook_log_bytes") == value(last, "orderbook_log_end_bytes") > 10_000
    # Notes of completion wait for the next batch; how much comes between two looks is the machine's affair.
    assert 0 <= value(last, "orderbook_log_lag_bytes") < value(last, "orderbook_log_end_bytes")
    assert value(last, "orderbook_checkpoints_total") >= 1
    assert value(last, "orderbook_checkpoint_bytes") > 1000
    assert 0 <= value(last, "orderbook_checkpoint_age_seconds") < 60
    assert value(last, "orderbook_view_bytes", view="sobi") > 1000
    calls = value(last, "orderbook_strategy_callbacks_total", strategy="Sobi")
    assert value(last, "orderbook_view_events_total", view="sobi") == calls
    assert value(last, "orderbook_strategy_failed", strategy="Sobi") == 0
    for name in ("exchange_to_receive", "receive_to_views"):
        buckets = values(last, f"orderbook_{name}_seconds_bucket")
        assert buckets == sorted(buckets)
        assert 0 < buckets[-1] == value(last, f"orderbook_{name}_seconds_count")
    # Each message has a latency of its own; those that go through together are counted at their end.
    views, events = (
        value(last, name)
        for name in ("orderbook_receive_to_views_seconds_count", "orderbook_feed_events_total")
    )
    assert 0 < views <= events
    assert value(last, "orderbook_receive_to_views_seconds_sum") > 0


def test_what_is_collected_at_the_end_is_exact(orderbook: Program, tmp_path: Path) -> None:
    flow = tmp_path / "flow.parquet"
    assert orderbook("generate", "--events", 3000, "--symbols", 2, "--out", flow).status == 0
    configuration = configured(None, ["sobi"], ["strategies.sobi:Sobi"], {"feeds": [f"record:{flow}"]})
    runs, instruments = asyncio.run(open_runs(configuration.feeds))
    assembly, engine = started(configuration)
    pipeline = piped(configuration, assembly, engine, instruments)
    counted: Counter[str] = Counter()
    engine.observe(callback=lambda event: counted.update([event.view]))

    async def run() -> LiveRun:
        live = LiveRun(configuration, pipeline, None, runs)
        live.start()
        await asyncio.gather(live.follow_all(), live.consume())
        live.finish()
        return live

    live = asyncio.run(run())
    found = {m.name: m for m in RunMetrics(live, pipeline, None, runs, counted).registry().collect()}
    assert value(found, "orderbook_engine_events_total") == pipeline.events == 3000
    assert value(found, "orderbook_engine_messages_total") == pipeline.messages
    assert value(found, "orderbook_epoch") == live.epoch
    (summary,) = pipeline.host.summary()
    for name in ("callbacks", "orders", "refused", "fills"):
        assert value(found, f"orderbook_strategy_{name}_total", strategy="Sobi") == getattr(summary, name)
    assert {s.labels["view"]: s.value for s in found["orderbook_view_bytes"].samples} == engine.view_bytes()
    assert values(found, "orderbook_feed_frames_total") == []
    assert len(values(found, "orderbook_books")) == 3


class Told(FeedRun):
    """A feed that has a report, and no instruments."""

    live = True

    def __init__(self, name: str, report: FeedReport | None = None) -> None:
        self.name, self.instruments, self.indexes = name, Instruments(()), np.empty(0, np.int32)
        self._report = report

    async def follow(self, put: Any) -> None: ...

    def report(self) -> FeedReport:
        assert self._report is not None
        return self._report


def test_feeds_have_labels_of_their_own() -> None:
    long = "kraken:" + ",".join(f"P{n}/USD" for n in range(100))
    labels = feed_labels([Told("a"), Told("b"), Told("a"), Told(long), Told(long), Told("a")])
    assert labels[:3] == ["a", "b", "a #2"] and labels[5] == "a #3"
    assert labels[3].startswith("kraken:P0/USD,") and len(labels[3]) == 64
    assert len(set(labels)) == 6


def test_troubles_are_counted_by_kind_and_kinds_are_bounded() -> None:
    statistics = FeedStatistics(frames=7, gaps=4, stale_seconds=1.5)
    for _ in range(3):
        statistics.problems.add("checksum", "X", "wrong")
    statistics.problems.add('odd "kind"\n', "X", "")
    delay = SignedLatencyHistogram()
    delay.record(np.array([-2_000_000_000, 3_000_000]))
    run = Told("f", FeedReport("f", {}, statistics.problems, statistics, delay))
    found = {m.name: m for m in feed_families([run], ["f"], None)}
    assert value(found, "orderbook_feed_gaps_total") == 4
    assert value(found, "orderbook_feed_checksum_failures_total") == 3
    assert value(found, "orderbook_feed_stale_seconds_total") == 1.5
    assert value(found, "orderbook_feed_problems_total", kind="checksum") == 3
    bucket = "orderbook_exchange_to_receive_seconds_bucket"
    below = [value(found, bucket, le=le) for le in ("-2.5", "-1", "0", "0.0025", "0.005", "+Inf")]
    assert below == [0, 1, 1, 1, 2, 2]
    counts = {str(n): n for n in range(100)}
    assert len(bounded(counts)) == MOST_KINDS + 1
    assert sum(bounded(counts).values()) == sum(counts.values())


def test_latencies_by_bucket() -> None:
    histogram = LatencyHistogram()
    for nanoseconds in (1, 9_000, 30_000, 4_000_000, 11 * 10**9):
        histogram.record(nanoseconds)
    family = {"x": latency_family("x_seconds", "", histogram)}
    found = [value(family, "x_seconds_bucket", le=le) for le in ("1e-05", "2.5e-05", "5e-05", "10", "+Inf")]
    assert found == [2, 2, 3, 4, 5]
    assert value(family, "x_seconds_sum") == pytest.approx(11.004, rel=0.02)


def test_only_messages_that_say_when_they_were_sent_have_a_delay() -> None:
    events = np.zeros(6, EVENT)
    events["receive_time"] = 1_000
    events["exchange_time"] = [900, 900, 0, 400, 1_500, 990]
    events["flags"] = [0, Flag.LAST, Flag.LAST, Flag.LAST | Flag.SNAPSHOT, Flag.LAST, Flag.LAST]
    delay = ReceiptDelay()
    delay.note(events)
    histogram = delay.histogram
    assert histogram.count == 3
    assert (histogram.minimum, histogram.maximum) == (-500, 100)
    assert histogram.percentile(50) == 10


class Static(Collector):
    """What a run shows; `before` is called in its event loop."""

    def __init__(self, before: Callable[[], object] = lambda: None) -> None:
        self.before = before

    def collect(self) -> Iterator[Metric]:
        self.before()
        yield GaugeMetricFamily("orderbook_x", "A number.", 5)


@contextmanager
def serving(collector: Collector, **options: Any) -> Iterator[int]:
    """A server beside a run's event loop that does nothing else."""
    port = free_port()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = MetricsServer(MetricsOptions(port=port, **options), collector, loop)
    try:
        yield port
    finally:
        server.close()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def asked(port: int, request: str) -> str:
    """The whole answer to raw bytes; empty where the connection is broken off."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        answer = b""
        try:
            connection.sendall(request.encode())
            while piece := connection.recv(65536):
                answer += piece
        except ConnectionError:
            pass
        return answer.decode()


def request(line: str = "GET /metrics HTTP/1.1", *headers: str) -> str:
    return "\r\n".join([line, "Host: 127.0.0.1", *headers, "", ""])


def test_requests() -> None:
    with serving(Static()) as port:
        answer = asked(port, request())
        head, _, body = answer.partition("\r\n\r\n")
        assert head.startswith("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=")
        assert f"Content-Length: {len(body)}" in head and "orderbook_x 5.0\n" in body
        assert asked(port, request("HEAD /metrics HTTP/1.1")).partition("\r\n\r\n")[::2] == (head, "")
        assert "orderbook_x 5.0" in asked(port, request("GET /metrics?name=x HTTP/1.0"))
        for line, status in (
            ("GET / HTTP/1.1", 404),
            ("GET /metrics/../secret HTTP/1.1", 404),
            ("POST /metrics HTTP/1.1", 405),
            ("GET /metrics", 400),
            ("nonsense", 400),
            ("GET /metrics HTTP/1.1\r\nX: " + "x" * 20_000, 431),
        ):
            assert asked(port, request(line)).startswith(f"HTTP/1.1 {status} "), line


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("Host: 127.0.0.1", 200), ("Host: localhost:9464", 200), ("host: [::1]:9464", 200),
        ("Host: evil.example", 403), ("Host: 127.0.0.1.evil.example", 403), ("Host: evil@127.0.0.1", 403),
        ("Host: ", 403), ("X: y", 403), ("Host: localhost\r\nHost: localhost", 403),
        ("Host: localhost\r\nOrigin: http://evil.example", 403), ("Host: evil.example\x1b[2J", 403),
    ],
)  # fmt: skip
def test_only_requests_for_this_server_are_answered(host: str, status: int) -> None:
    with serving(Static()) as port:
        told = asked(port, f"GET /metrics HTTP/1.1\r\n{host}\r\n\r\n")
        assert told.startswith(f"HTTP/1.1 {status} ")
        assert "\x1b" not in told
    with serving(Static(), token=TOKEN) as port:
        # By whatever name it is reached, the token is no other site's.
        told = asked(port, f"GET /metrics HTTP/1.1\r\n{host}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n")
        assert told.startswith("HTTP/1.1 200 ")


def test_labels_from_outside_are_one_visible_line() -> None:
    class Labelled(Collector):
        def collect(self) -> Iterator[Metric]:
            family = GaugeMetricFamily("orderbook_y", "A number.", labels=["kind"])
            family.add_metric(["a\nb\u2028c\x1b[2J\u202ed"], 5)
            yield family

    with serving(Labelled()) as port:
        told = asked(port, request())
        assert told.endswith('orderbook_y{kind="a\\\\nb\\\\u2028c\\\\x1b[2J\\\\u202ed"} 5.0\n')


def test_a_token_is_asked_for() -> None:
    with serving(Static(), token=TOKEN) as port:
        for headers in (
            [],
            ["Authorization: Bearer wrong"],
            [f"Authorization: Bearer {TOKEN}x"],
            [f"Authorization: Basic {TOKEN}"],
            [f"Authorization: {TOKEN}"],
            ["Authorization: Bearer \xff"],
            [f"Authorization: Bearer {TOKEN}", "Authorization: Bearer wrong"],
        ):
            for line in ("GET /metrics HTTP/1.1", "GET / HTTP/1.1"):
                answer = asked(port, request(line, *headers))
                assert answer.startswith("HTTP/1.1 401 Unauthorized\r\n"), headers
                assert "WWW-Authenticate: Bearer" in answer and "orderbook_x" not in answer
        for headers in ([f"Authorization: Bearer {TOKEN}"], [f"authorization:bearer  {TOKEN} "]):
            assert "orderbook_x 5.0" in asked(port, request("GET /metrics HTTP/1.1", *headers))


def test_clients_that_are_slow_or_many_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "_MOST_CLIENTS", 3)
    with serving(Static()) as port:
        with monkeypatch.context() as patch:
            patch.setattr(metrics_server, "_PATIENCE", 0.5)
            idle = [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) for _ in range(3)]
            for connection in idle:
                connection.sendall(b"GET /metrics HTTP/1.1\r\n")
            for connection in idle:
                with suppress(ConnectionError):
                    assert connection.recv(100) == b""
                connection.close()
        assert "orderbook_x 5.0" in asked(port, request())


def test_a_run_that_does_not_answer_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = threading.Event()
    with serving(Static(lambda: busy.wait(PATIENCE))) as port:
        with monkeypatch.context() as patch:
            patch.setattr(metrics_server, "_PATIENCE", 0.3)
            assert asked(port, request()) == ""
        busy.set()
        assert "orderbook_x 5.0" in asked(port, request())
    with serving(Static(lambda: 1 / 0)) as port:
        assert asked(port, request()).startswith("HTTP/1.1 500 ")


def test_a_run_that_is_over_is_not_waited_for() -> None:
    """The server ends while a request waits for a loop that has stopped."""
    busy = threading.Event()
    with (
        serving(Static(lambda: busy.wait(PATIENCE))) as port,
        socket.create_connection(("127.0.0.1", port)) as connection,
    ):
        connection.sendall(request().encode())
        time.sleep(0.2)
        threading.Timer(0.2, busy.set).start()


def test_a_port_in_use_is_one_clear_error(orderbook: Program, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OrderbookError, match=f"cannot be served at 127.0.0.1:{port}"):
            MetricsServer(MetricsOptions(port=port), Static(), asyncio.new_event_loop())
        config = write(tmp_path / "taken.toml", f"[metrics]\nport = {port}\n")
        result = orderbook("run", "--config", config, "--duration", 1)
    assert result.status == 1
    assert len(result.error_lines) == 1
    assert "choose another metrics.port" in result.error_lines[0]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7", "example.com", "127.0.0.1.example.com"])
def test_a_host_that_is_not_loopback_needs_a_token(tmp_path: Path, host: str) -> None:
    config = write(tmp_path / "open.toml", f'[metrics]\nport = 9464\nhost = "{host}"\n')
    with pytest.raises(ConfigurationError, match=r"because metrics\.host is not loopback"):
        load_configuration(config)
    write(config, f'[metrics]\nport = 9464\nhost = "{host}"\ntoken = "{TOKEN}"\n')
    assert load_configuration(config).metrics.token == TOKEN


def test_the_refusal_is_one_line_and_status_2(orderbook: Program, tmp_path: Path) -> None:
    config = write(tmp_path / "open.toml", '[metrics]\nport = 9464\nhost = "0.0.0.0"\n')
    result = orderbook("run", "--config", config)
    assert (result.status, len(result.error_lines)) == (2, 1)
    assert ":1: metrics.token: expected a token" in result.err


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.5", "::1", "localhost"])
def test_loopback_needs_none(host: str) -> None:
    assert MetricsOptions(port=9464, host=host, token="").host == host


def test_by_default_nothing_is_served() -> None:
    assert MetricsOptions() == MetricsOptions(port=0, host="127.0.0.1", token="")
    assert TOKEN not in repr(MetricsOptions(token=TOKEN))


def test_problems_without_statistics() -> None:
    problems = Problems()
    problems.add("malformed line", "x", "y")
    found = {m.name: m for m in feed_families([Told("f", FeedReport("f", {}, problems))], ["f"], None)}
    assert value(found, "orderbook_feed_problems_total", feed="f", kind="malformed line") == 1


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=50), st.integers(1, 100))
def test_signed_percentiles_are_close(times: list[int], percent: int) -> None:
    histogram = SignedLatencyHistogram()
    for part in (times[:7], times[7:]):
        histogram.record(np.array(part, np.int64))
    exact = sorted(times)[max(1, -(-len(times) * percent // 100)) - 1]
    assert exact <= histogram.percentile(percent) <= exact + abs(exact) / 31 + 1
    assert (histogram.count, histogram.minimum, histogram.maximum) == (len(times), min(times), max(times))
    bounds = np.array([-(2**63), -1, 0, 2**63 - 1], np.int64)
    below = [0, sum(t < 0 for t in times), sum(t <= 0 for t in times), len(times)]
    assert histogram.at_most(bounds).tolist() == below


def test_a_latency_below_zero_is_written_so() -> None:
    assert latency_text(-1_270_000_000) == "-1.27 s"
