"""`orderbook inject` and `generate --abuse`: a record, labels beside it, and detectors that find them."""

from pathlib import Path

import polars as pl
import pytest
from command_line_support import EndsOnce, Program, ends_once, lobster, orderbook

from orderbook.market.abuse_plan import KINDS
from orderbook.market.events import Action

__all__ = ["EndsOnce", "ends_once", "orderbook"]

FLOW = ("--events", 6_000, "--rate", 60, "--seed", 3)


def test_generated_abuse_is_labelled_and_found(orderbook: Program, tmp_path: Path) -> None:
    record = tmp_path / "flow.parquet"
    abuse = ("--abuse", "spoofing=4", "--abuse", "iceberg", "--strength", 3)
    made = orderbook("generate", *FLOW, *abuse, "--out", record)
    assert (made.status, made.err) == (0, "")
    labels = pl.read_parquet(tmp_path / "flow.labels.parquet")
    assert sorted(labels["kind"]) == ["iceberg", *["spoofing"] * 4]
    assert set(labels["venue"]) == {"SIM"} and set(labels["strength"]) == {3.0}
    assert "spoofing 4" in made.out and f"{pl.read_parquet(record).height:,} events" in made.out
    out = tmp_path / "found.ndjson"
    # The folder holds labels too, which are no market data.
    result = orderbook("replay", tmp_path, "--view", "surveillance/spoofing", "--out", out)
    assert result.status == 0, result.err
    found = set(pl.read_ndjson(out)["key"].struct.field("id"))
    labelled = set(labels.filter(pl.col("kind") == "spoofing")["non_bona_fide"].explode())
    # A level may hold more than the order itself.
    assert len(labelled) == 4 and 2 <= len(found) <= 4 and found <= labelled


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


def test_a_stream_without_room_is_told(orderbook: Program, tmp_path: Path) -> None:
    source = lobster(tmp_path, ("34200.1,1,1,100,2239500,1", "34200.2,1,2,50,2239600,-1"))
    result = orderbook("inject", source, "--abuse", "layering=3", "--out", tmp_path / "x.parquet")
    assert (result.status, result.err) == (0, "")
    assert "no room was found for layering 3" in result.out
    assert pl.read_parquet(tmp_path / "x.labels.parquet").height == 0
