"""Compiled decoders make of frames what those in Python make of them: recorded, spoilt, and together."""

import random
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import pytest
from wire_support import (
    InPython,
    Script,
    batches,
    generated_bitstamp_orders,
    generated_bybit,
    generated_coinbase_full,
    generated_kraken,
    mutant,
    played,
    script,
    valid,
)

from orderbook.feeds.live.session import Session

MUTANTS, OF_A_SCRIPT = 150, 2


@dataclass(frozen=True)
class Recorded:
    """A recording; which share of its frames compiled code takes at least, and what spoilt ones are made of:
    its first steps, of one product where a name is given; slim: with short snapshots."""

    name: str
    compiled: float
    product: str = ""
    steps: int = 200
    slim: bool = False


RECORDED = {
    "binance": Recorded("cryptofeed/BINANCE.jsonl.zst", 0.95, "NKNUSDT"),
    "binance_futures": Recorded("cryptofeed/BINANCE_FUTURES.jsonl.zst", 0.98, "SUSHIUSDT"),
    "binance_btcusdt": Recorded("hftbacktest/spot_btcusdt_20240808.gz", 0.99),
    "binance_futures_btcusdt": Recorded("hftbacktest/usdm_btcusdt_20240808.gz", 0.99),
    "bitfinex": Recorded("cryptofeed/BITFINEX.jsonl.zst", 0.8, steps=400),
    "bitstamp": Recorded("cryptofeed/BITSTAMP.jsonl.zst", 0.8, steps=500),
    "bitstamp_l3": Recorded("generated", 0.9, steps=400),
    "bybit": Recorded("generated", 0.9),
    "coinbase": Recorded("cryptofeed/COINBASE.jsonl.zst", 0.97, steps=80, slim=True),
    "coinbase_full": Recorded("generated", 0.9, steps=400),
    "kraken": Recorded("generated", 0.99),
    "kraken_v1": Recorded("cryptofeed/KRAKEN.jsonl.zst", 0.95, "SC/EUR"),
    "okx": Recorded("cryptofeed/OKX.jsonl.zst", 0.85),
}
GENERATED = {
    "bitstamp_l3": generated_bitstamp_orders,
    "bybit": generated_bybit,
    "coinbase_full": generated_coinbase_full,
    "kraken": generated_kraken,
}
LINES = 3000


def recorded(name: str, shared_data: Path, folder: Path, exhaustive: bool) -> Script:
    if RECORDED[name].name == "generated":
        return GENERATED[name](folder)
    return script(shared_data / RECORDED[name].name, folder, 10**9 if exhaustive else LINES)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", RECORDED)
def test_recordings_are_decoded_alike(
    name: str, shared_data: Path, tmp_path: Path, request: pytest.FixtureRequest, sample_seed: int
) -> None:
    exhaustive = request.config.getoption("exhaustive")
    whole = recorded(name, shared_data, tmp_path, exhaustive)
    reference = played(InPython, whole, repeat(1))
    frames = reference.counts["frames"]
    assert reference.left == frames and len(reference.events) and valid(reference)
    chance = random.Random(sample_seed)
    for together in (repeat(1), repeat(64), repeat(100_000), batches(chance), batches(chance)):
        found = played(Session, whole, together)
        assert found.same(reference)
        assert 1 - found.left / frames >= RECORDED[name].compiled
    print(
        f"{name}: {len(reference.events):,} events of {frames:,} frames, {found.left} of them left to Python"
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", RECORDED)
def test_spoilt_frames_are_decoded_alike(
    name: str,
    shared_data: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    sample_seed: int,
    sample_count: int,
) -> None:
    exhaustive = request.config.getoption("exhaustive")
    mutants = sample_count if exhaustive else MUTANTS
    one, known = recorded(name, shared_data, tmp_path, False), RECORDED[name]
    base = Script(one.kind, one.instruments, one.steps[: known.steps])
    base = base.slim() if known.slim else base
    if known.product:
        base = one.of(known.product, known.steps)
    taken = kept = 0
    for number in range(-(-mutants // OF_A_SCRIPT)):
        chance = random.Random(sample_seed * 1_000_003 + number)
        spoilt = mutant(base, chance, OF_A_SCRIPT)
        reference = played(InPython, spoilt, repeat(1))
        found = played(Session, spoilt, batches(chance))
        assert found.same(reference), f"seed {sample_seed}, script {number}"
        taken += found.counts["frames"] - found.left
        kept += valid(found) > 0
    # Most is decoded by compiled code, and books live through some of it.
    assert taken > 10 * mutants and kept > mutants / (10 * OF_A_SCRIPT)
