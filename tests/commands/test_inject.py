"""`orderbook inject` and `generate --abuse`: a record, labels beside it, and detectors that find them."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from command_line_support import EndsOnce, Program, ends_once, lobster, orderbook

from orderbook.market.abuse_plan import KINDS
from orderbook.market.events import Action

__all__ = ["EndsOnce", "ends_once", "orderbook"]

SECOND = 10**9
FLOW = ("--events", 6_000, "--rate", 60, "--seed", 3)


def test_generated_abuse_is_labelled(orderbook: Program, tmp_path: Path) -> None:
    record = tmp_path / "flow.parquet"
    abuse = ("--abuse", "spoofing=4", "--abuse", "iceberg", "--strength", 3)
    made = orderbook("generate", *FLOW, *abuse, "--out", record)
    assert (made.status, made.err) == (0, "")
    labels = pl.read_parquet(tmp_path / "flow.labels.parquet")
    assert sorted(labels.filter(~pl.col("cut_short"))["kind"]) == ["iceberg", *["spoofing"] * 4]
    assert set(labels["venue"]) == {"SIM"} and set(labels["strength"]) == {3.0}
    assert "spoofing 4" in made.out and f"{pl.read_parquet(record).height:,} events" in made.out


# The columns of a detector's rows that say when its case began and ended, and what a span lasts, ns.
SPANS = {
    "flipping": ("placed_at", "cancelled_at", 0),
    "iceberg": ("span", "span", 10 * SECOND), "layering": ("placed", "cancelled", 0),
    "marking_the_close": ("day", "day", 24 * 3_600 * SECOND), "momentum_ignition": ("span", "span", SECOND),
    "pinging": ("span", "span", SECOND), "quote_stuffing": ("span", "span", SECOND // 10),
    "spoofing": ("placed_at", "cancelled_at", 0), "wash_trades": ("span", "span", SECOND),
}  # fmt: skip


@pytest.mark.sampled(2)
def test_the_first_try_finds_every_episode_and_next_to_nothing_else(
    orderbook: Program, tmp_path: Path
) -> None:
    """All settings are the defaults, but for fewer events."""
    record, out = tmp_path / "flow.parquet", tmp_path / "found.ndjson"
    abuse = [text for kind in KINDS for text in ("--abuse", kind)]
    made = orderbook("generate", "--events", 12_000, *abuse, "--out", record)
    assert (made.status, made.err) == (0, "") and "no room" not in made.out
    labels = pl.read_parquet(tmp_path / "flow.labels.parquet").filter(~pl.col("cut_short"))
    views = [text for kind in KINDS for text in ("--view", f"surveillance/{kind}")]
    # The folder holds labels too, which are no market data.
    result = orderbook("replay", tmp_path, *views, "--out", out)
    assert result.status == 0, result.err
    rows: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    for line in out.read_text().splitlines():
        change = json.loads(line)
        if change["view"] in rows and change["row"] is not None:
            rows[change["view"]].append(change["row"])
    episodes = list(zip(*(labels[name].cast(int).to_list() for name in ("begin", "end")), strict=True))
    others = []
    for kind, found in rows.items():
        first, last, lasts = SPANS[kind]
        near = [
            {k for k, (begin, end) in enumerate(episodes) if row[first] <= end and begin <= row[last] + lasts}
            for row in found
        ]
        own = {k for k, label in enumerate(labels["kind"]) if label == kind}
        assert len(own) == 1 and own <= set().union(*near), (kind, episodes, found)
        others += [(kind, row) for row, of in zip(found, near, strict=True) if not of]
    assert len(others) <= 1, others


def test_inject_adds_to_a_recording(orderbook: Program, tmp_path: Path) -> None:
    clean, record = tmp_path / "clean.parquet", tmp_path / "with.parquet"
    assert orderbook("generate", *FLOW, "--out", clean).status == 0
    one = orderbook("inject", clean, "--abuse", "pinging=2", "--strength", 0.5, "--out", record)
    assert (one.status, one.err) == (0, "")
    labels = pl.read_parquet(tmp_path / "with.labels.parquet")
    assert labels["kind"].to_list() == ["pinging"] * 2 and set(labels["strength"]) == {0.5}
    events, before = pl.read_parquet(record), pl.read_parquet(clean)
    own = events.filter(pl.col("order_id").is_in(labels["non_bona_fide"].explode().implode()))
    own = own.filter(pl.col("action") != Action.TRADE)
    assert own.height == 2 * labels["non_bona_fide"].list.len().sum() > 0
    assert events.height == before.height + own.height
    same = orderbook("generate", *FLOW, "--out", tmp_path / "both.parquet", "--abuse", "pinging=2")
    assert same.status == 0
    again = orderbook("inject", clean, "--abuse", "pinging=2", "--seed", 3, "--out", record)
    assert again.status == 0
    assert pl.read_parquet(record).equals(pl.read_parquet(tmp_path / "both.parquet"))


@pytest.mark.parametrize(
    ("abuse", "words"),
    [
        ((), "--abuse spoofing=5"),
        (("--abuse", "spoof"), "no abuse spoof; give one of " + ", ".join(KINDS)),
        (("--abuse", "spoofing=many"), "write spoofing=5"),
        (("--abuse", "spoofing=0"), "at least one episode"),
        (("--abuse", "marking_the_close=2"), "once a day"),
        (("--abuse", "spoofing", "--strength", 0), "strength must be above 0"),
        (("--abuse", "spoofing", "--seed", -1), "seed must be at least 0"),
        (("--abuse", "spoofing", "--out", "x.csv"), "must end in .parquet"),
    ],
)
def test_what_cannot_be_injected_is_told(
    orderbook: Program, tmp_path: Path, abuse: tuple[object, ...], words: str
) -> None:
    source = lobster(tmp_path, ("34200.1,1,1,100,2239500,1", "34200.2,1,2,50,2239600,-1"))
    out = () if "--out" in abuse else ("--out", tmp_path / "x.parquet")
    result = orderbook("inject", source, *abuse, *out)
    assert result.status == 2 and len(result.error_lines) == 1 and words in result.err
    assert not list(tmp_path.glob("*.parquet*"))


def test_a_stream_that_is_too_short_is_told(orderbook: Program, tmp_path: Path) -> None:
    source = lobster(tmp_path, ("34200.1,1,1,100,2239500,1", "34200.2,1,2,50,2239600,-1"))
    result = orderbook("inject", source, "--abuse", "layering=3", "--out", tmp_path / "x.parquet")
    assert result.status == 2 and len(result.error_lines) == 1
    assert "3 episodes take up to 1.8 s" in result.err and "room for 0.09 s" in result.err
    assert not list(tmp_path.glob("*.parquet*"))


def test_a_stream_without_room_is_told(orderbook: Program, tmp_path: Path) -> None:
    source = lobster(tmp_path, ("34200.1,1,1,100,2239500,1", "34300.2,1,2,50,2239600,-1"))
    result = orderbook("inject", source, "--abuse", "layering=3", "--out", tmp_path / "x.parquet")
    assert (result.status, result.err) == (0, "")
    assert "no room was found for layering 3" in result.out
    assert pl.read_parquet(tmp_path / "x.labels.parquet").height == 0
