"""Checksums of exchanges: states recorded with them, documented examples, and another implementation."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kraken_market import ASKS_V2, BIDS_V2
from session_support import plain_crc32

from orderbook.feeds.exchanges.books import kraken_checksum, okx_checksum

# "Book checksum (WebSocket v2)", and "Book checksum (WebSocket v1)", of Kraken's documentation.
ASKS_V1 = [(f"0.0{ticks}", "0.00000500") for ticks in range(5005, 5055, 5)]
BIDS_V1 = [(f"0.0{ticks}", "0.00000500") for ticks in range(5000, 4945, -5) if ticks != 4985]


@pytest.mark.parametrize(("name", "checksum"), [("kraken_v1", kraken_checksum), ("okx", okx_checksum)])
def test_recorded_states(shared_data: Path, name: str, checksum: Any) -> None:
    states = json.loads((shared_data / "checksums" / "captured_vectors.json").read_text())[name]
    compared = 0
    for state in states:
        asks, bids = ([(price, size) for price, size, *_ in state[side]] for side in ("asks", "bids"))
        assert checksum(asks, bids) == int(state["checksum"]), state["symbol"]
        assert checksum([*asks[1:], asks[0]], bids) != int(state["checksum"])
        compared += 1
    print(f"{name}: {compared} recorded states")
    assert compared == {"kraken_v1": 19, "okx": 6}[name]


def test_the_documented_states_of_kraken() -> None:
    assert kraken_checksum(ASKS_V2, BIDS_V2) == 3310070434
    assert kraken_checksum([*ASKS_V2, ("45300.0", "1.00000000")], BIDS_V2) == 3310070434
    assert kraken_checksum(ASKS_V1, BIDS_V1) == 974947235


def plain_kraken(asks: list[tuple[str, str]], bids: list[tuple[str, str]]) -> int:
    digits = [t.replace(".", "").lstrip("0") for level in asks[:10] + bids[:10] for t in level]
    return plain_crc32("".join(digits))


def plain_okx(asks: list[tuple[str, str]], bids: list[tuple[str, str]]) -> int:
    texts = []
    for place in range(25):
        for side in (bids, asks):
            if place < len(side):
                texts += [side[place][0], side[place][1]]
    number = plain_crc32(":".join(texts))
    return number - 2**32 if number >= 2**31 else number


numbers = st.decimals(min_value=0, max_value=10**6, places=8).map(lambda n: format(n, "f")) | st.sampled_from(
    ["0.00000001", "100", "0.1", "1000.50", "007.0"]
)
sides = st.lists(st.tuples(numbers, numbers), max_size=30)


@given(sides, sides)
def test_another_implementation_agrees(asks: list[tuple[str, str]], bids: list[tuple[str, str]]) -> None:
    assert kraken_checksum(asks, bids) == plain_kraken(asks, bids)
    assert okx_checksum(asks, bids) == plain_okx(asks, bids)
    assert -(2**31) <= okx_checksum(asks, bids) < 2**31


def test_levels_below_those_that_count_are_ignored() -> None:
    deep = [(str(price), "1") for price in range(1, 40)]
    assert okx_checksum(deep, deep) == okx_checksum(deep[:25], deep[:25]) == plain_okx(deep, deep)
    assert okx_checksum(deep, deep) != okx_checksum(deep[:24], deep)
    assert kraken_checksum(deep, deep) == kraken_checksum(deep[:10], deep[:10]) == plain_kraken(deep, deep)
    assert kraken_checksum(deep, deep) != kraken_checksum(deep[:9], deep)


def test_trailing_zeros_count() -> None:
    short = [("45285.2", "0.001"), *ASKS_V2[1:]]
    assert Decimal(short[0][1]) == Decimal(ASKS_V2[0][1])
    assert kraken_checksum(short, BIDS_V2) != kraken_checksum(ASKS_V2, BIDS_V2)
    assert okx_checksum(short, BIDS_V2) != okx_checksum(ASKS_V2, BIDS_V2)
