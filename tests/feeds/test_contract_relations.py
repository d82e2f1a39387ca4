"""What exchanges tell of contracts, from frames to a user's views: live, replayed, recorded, in jobs."""

import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from random import Random

import numpy as np
import pytest
from backtest_support import contents, job_settings, run
from capture_support import CONN, joined, served, session, without_receive_times, write_lines

from orderbook.feeds.raw_log import Line
from orderbook.feeds.recording.capture_replay import CaptureSource
from orderbook.feeds.recording.parquet_record import RecordSource, RecordWriter
from orderbook.market.events import Action
from orderbook.market.instruments import Instrument, Instruments
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.compilation import compile_views

VIEWS = """
CREATE VIEW rates AS SELECT symbol, AVG(rate) AS rate, COUNT(*) AS n, MAX(next_time) AS due
FROM funding GROUP BY symbol;
CREATE VIEW premium AS SELECT m.symbol, MAX(m.price) AS high, COUNT(m.index_price) AS told
FROM mark_prices m GROUP BY m.symbol;
CREATE VIEW closed AS SELECT symbol, side, SUM(volume) AS volume, SUM(price * volume) AS turnover
FROM liquidations GROUP BY symbol, side;
CREATE VIEW interest AS SELECT venue, SUM(volume) AS volume FROM open_interest GROUP BY venue;
CREATE VIEW levels AS SELECT symbol, COUNT(*) AS n FROM bids GROUP BY symbol;
"""
NAMES = ("rates", "premium", "closed", "interest", "levels")
PRODUCTS = ("BTCUSD_PERP", "ETHUSD_PERP")
STEP = Decimal("0.1")
INSTRUMENTS = Instruments(
    [Instrument.listed("binance_delivery", name, STEP, Decimal(1), contract="inverse") for name in PRODUCTS]
)


def recording(path: Path, messages: int = 200) -> tuple[Path, dict[str, list[Decimal]]]:
    """A recording of COIN-M futures, and the funding rates in it by symbol."""
    chance, rates = Random(7), defaultdict(list)
    lines = [session("binance_delivery", INSTRUMENTS), Line("connect", CONN, 10)]
    lines.append(Line("recv", CONN, 20, '{"result":null,"id":1}'))
    for number, name in enumerate(PRODUCTS):
        url = f"https://dapi.binance.com/dapi/v1/depth?symbol={name}&limit=1000"
        book = {"lastUpdateId": 10, "E": 1, "T": 1, "bids": [["99.5", "3"]], "asks": [["100.5", "4"]]}
        lines.append(Line("http", CONN, 30 + number, json.dumps(book), url=url))
    for number in range(messages):
        name, time = chance.choice(PRODUCTS), 1_700_000_000_000 + number
        kind = chance.choice(("markPrice@1s", "markPrice@1s", "forceOrder"))
        if kind == "forceOrder":
            order = {"s": name, "S": chance.choice(("BUY", "SELL")), "q": str(chance.randint(1, 9)),
                     "p": f"{chance.randint(1, 999) / 10}", "T": time}  # fmt: skip
            data = {"e": "forceOrder", "E": time, "o": order}
        else:
            rate = f"{chance.randint(-900, 900) / 10**8:.8f}"
            price = f"{chance.randint(1, 10**9) / 10**8:.8f}"
            data = {"e": "markPriceUpdate", "E": time, "s": name, "p": price, "r": rate, "T": time + 1000}
            rates[f"{name[:3]}-USD-PERP"].append(Decimal(rate))
        frame = {"stream": f"{name.lower()}@{kind}", "data": data}
        lines.append(Line("recv", CONN, 100 + number, json.dumps(frame)))
    return write_lines(path, lines), rates


def rows(pipeline: Pipeline) -> dict[str, list[str]]:
    return {name: sorted(map(repr, pipeline.engine[name].items())) for name in NAMES}


def applied(events: np.ndarray, backend: str) -> Pipeline:
    pipeline = Pipeline(GatedEngine(compile_views(VIEWS), backend), INSTRUMENTS)
    pipeline.apply(events.copy())
    return pipeline


@pytest.mark.parametrize("backend", ["interpreter", "numba"])
def test_views_over_what_contracts_tell(tmp_path: Path, backend: str) -> None:
    path, rates = recording(tmp_path / "a.jsonl")
    pipeline = applied(joined(CaptureSource([path])), backend)
    found = {key[0]: (row.rate, row.n) for key, row in pipeline.engine["rates"].items()}
    assert found.keys() == rates.keys()
    for symbol, told in rates.items():
        assert found[symbol][1] == len(told)
        assert float(found[symbol][0]) == pytest.approx(float(sum(told) / len(told)), abs=1e-15)
    assert len(pipeline.engine["closed"]) == 4 and len(pipeline.engine["levels"]) == 2
    # COIN-M futures tell no index price.
    assert {row.told for row in pipeline.engine["premium"].values()} == {0}


def test_live_replay_record_and_jobs_agree(tmp_path: Path) -> None:
    path, _ = recording(tmp_path / "a.jsonl")
    events = joined(CaptureSource([path]))
    for action in (Action.FUNDING, Action.MARK, Action.LIQUIDATION):
        assert (events["action"] == action).any()
    live, statistics = served(path)
    assert without_receive_times(live)[: 64 * len(events)] == without_receive_times(events)
    assert statistics.problems.unusable == 0
    interest = events[:2].copy()
    interest["action"], interest["volume"], interest["flags"] = Action.OPEN_INTEREST, 5 * 10**8, 1
    interest["exchange_time"] = interest["receive_time"] = events["receive_time"][-1]
    events = np.concatenate([events, interest])
    with RecordWriter(tmp_path / "days.parquet", INSTRUMENTS) as writer:
        writer.write(events)
    assert joined(RecordSource([tmp_path / "days.parquet"])).tobytes() == events.tobytes()
    expected = rows(applied(events, "interpreter"))
    histories = []
    for partitions in (1, 3):
        settings = job_settings(tmp_path / f"p{partitions}", partitions, views=NAMES, sql=VIEWS)
        job, _ = run(settings, [tmp_path / "days.parquet"])
        histories.append(contents(job))
        assert all(histories[-1][name] for name in NAMES)
    assert histories[0] == histories[1]
    assert all(expected.values())
