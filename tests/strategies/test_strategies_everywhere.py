"""The same strategy file in `run`, `replay` and `backtest`, here and on Spark: the same orders, fills, PnL.

Compared is what users see: every column of every change of an order and of every fill, and the summary's
lines. `--seed` is the first seed of the generated flow, `--count` how many hundred seeds are tried.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from command_line_support import Program, orderbook, write  # noqa: F401
from everywhere_support import (
    ALL,
    APART,
    BY_VENUE,
    PARAMETERS,
    TOGETHER,
    TRADING,
    VENUES,
    Outcome,
    Setting,
    write_cut,
    write_flow,
)
from hypothesis import given
from hypothesis import strategies as st

from orderbook.market.events import EVENT, Flag
from orderbook.strategies.message_dispatcher import LastTimes

GENERATED = {
    "sobi": 1.3, "edge": "-0.0003", "spread": "0.0001", "volume": 2, "most": 6, "limit": 60, "drawdown": 50,
    "fee": "0.25",
}  # fmt: skip
PARTITIONS = (1, 2, 7)
SETS = {"apart": APART, "together": TOGETHER, "venues": VENUES, "by venue": BY_VENUE, "sql": ("restless",)}
# Of each symbol, in generated flow.
VENUE_COUNT = {"venues": 2, "by venue": 3}

# A strategy in SQL that does all that one can do: rows come, move and go with the touch, what is held.
RESTLESS = """
CREATE STRATEGY restless WITH (min_life = '5ms', min_move = 2, max_requests = 200, refill) AS
WITH books AS (
    SELECT t.venue, t.symbol, t.bid, t.ask, t.imbalance, COALESCE(p.volume, 0) AS held
    FROM touch t LEFT JOIN positions p ON p.venue = t.venue AND p.symbol = t.symbol
)
SELECT venue, symbol, 'buy' AS side, 1 AS tag, bid AS price,
       CASE WHEN held < 0 THEN 3 ELSE 1 END AS volume, 'post only' AS kind
FROM books WHERE held < 6 AND imbalance > -0.7
UNION ALL
SELECT venue, symbol, 'sell' AS side, 1 AS tag, ask AS price, 2 AS volume,
       CASE WHEN held > 2 THEN 'limit' ELSE 'post only' END AS kind
FROM books WHERE held > -6 AND imbalance < 0.7
UNION ALL
SELECT venue, symbol, 'buy' AS side, 2 AS tag, NULL AS price, 1 AS volume, 'limit' AS kind
FROM books WHERE held < 0 AND imbalance > 0.2
"""
IN_SQL = '[views]\npaths = ["restless.sql"]\n'


def setting(
    program: Program,
    folder: Path,
    strategies: tuple[str, ...],
    trading: str,
    seed: int,
    backend: str = "numba",
    more: str = "",
    sizes: Mapping[str, object] = GENERATED,
) -> Setting:
    """Commands with strategies, of which the configuration knows more."""
    folder.mkdir(exist_ok=True)
    text = f'[run]\nbackend = "{backend}"\nstrategies = {list(ALL)}\n' + PARAMETERS + TRADING[trading]
    master = '[spark]\nmaster = "local[2]"\n'
    config = write(folder / "config.toml", text.format(seed=seed, **sizes) + master + more)
    return Setting(program, folder, config, strategies)


def check(what: str, tested: Outcome, *others: Outcome) -> None:
    """Every other outcome is the one tested, which traded."""
    for other in others:
        assert other.orders == tested.orders
        assert other.fills == tested.fills
        assert other.lines == tested.lines
    orders, fills = tested.counts()
    said = f"{what}: {orders:,} changes of orders, {fills:,} fills, equal in {1 + len(others)} runs"
    # Commands read away what is printed to sys.stdout.
    print(f"\n{said}", file=sys.__stdout__, flush=True)
    assert min(orders, fills) > 5


def check_spark(what: str, one: Setting, tested: Outcome, sources: Sequence[Path | str]) -> None:
    """Spark has the outcome of a backtest on this node, however it is cut."""
    for partitions in PARTITIONS:
        options = ("--engine", "spark", "--partitions", partitions)
        on_spark = one.tested(sources, f"spark{partitions}", *options)
        check(f"{what}, {partitions} partitions on Spark", tested, on_spark)


def check_traded(outcomes: Iterable[Outcome], strategies: Sequence[str]) -> None:
    """Every strategy had fills somewhere, and none failed."""
    filled, lines = set(), []
    for one in outcomes:
        filled |= {name for name, _ in one.fills}
        lines += one.lines
    assert filled == {name.partition(":")[2] for name in strategies}
    assert not [line for line in lines if "disabled" in line]


one_venue = pytest.mark.parametrize("kinds", ["apart", "together"])
two_settings = pytest.mark.parametrize(("kinds", "trading"), [("apart", "sampled"), ("together", "constant")])


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("kinds", "trading"), [("apart", "sampled"), ("together", "constant"), ("sql", "sampled")]
)
def test_orders_are_the_same_everywhere(
    orderbook: Program,  # noqa: F811
    tmp_path: Path,
    kinds: str,
    trading: str,
) -> None:
    sources = write_flow(tmp_path / "flow", 200, 2, 1, apart=kinds == "together", resting=20)
    write(tmp_path / "restless.sql", RESTLESS)
    more = IN_SQL if kinds == "sql" else ""
    one = setting(orderbook, tmp_path, SETS[kinds], trading, 1, "interpreter", more)
    given = [f"record:{source}" for source in sources]
    check(kinds, one.tested(sources, "job"), one.replayed(*given), one.live(*given))


@pytest.mark.spark
def test_orders_are_the_same_on_spark(
    spark: object,
    orderbook: Program,  # noqa: F811
    tmp_path: Path,
) -> None:
    sources = write_flow(tmp_path / "flow", 250, 2, 2, apart=True, resting=20)
    one = setting(orderbook, tmp_path / "one", APART, "sampled", 2, "interpreter")
    on_spark = one.tested(sources, "spark", "--engine", "spark", "--partitions", 2)
    check("apart", one.tested(sources, "job"), on_spark)


# Instruments, the first of which is known, and the times of receipt (0: not told) and at the exchange.
messages = st.lists(
    st.tuples(
        st.tuples(st.integers(0, 2), st.integers(-1, 3)), st.integers(0, 50), st.integers(1, 50)
    ),
    max_size=20,
)  # fmt: skip


@given(messages, st.data())
def test_a_partition_ends_at_its_last_message(
    told: list[tuple[tuple[int, int], int, int]], data: st.DataObject
) -> None:
    """What instances see at `on_stop` is the run's time at the last message of their own instruments."""
    events = np.zeros(2 * len(told), EVENT)
    for number, (own, received, sent) in enumerate(told):
        message = events[2 * number : 2 * number + 2]
        message["instrument"], message["receive_time"], message["exchange_time"] = own, received, sent
        message["flags"][-1] = Flag.LAST
    now, plain, times = 0, [0, 0, 0], LastTimes(3)
    for part in np.split(events, sorted(2 * cut for cut in data.draw(st.sets(st.integers(0, len(told)))))):
        times.note(part)
        if data.draw(st.booleans()):
            saved, times = times.save(), LastTimes(3)
            times.load(saved, range(3))
    for own, received, sent in told:
        now = max(now, received or sent)
        for index in own:
            if 0 <= index < 3:
                plain[index] = now
    assert [times.of([index]) for index in range(3)] == plain
    assert times.of(range(3)) == max(plain) and times.of([]) == 0


def seeds(config: pytest.Config) -> range:
    """The seeds of an exhaustive run."""
    first = config.getoption("seed")
    return range(first, first + max(1, config.getoption("count") // 100))


@pytest.mark.exhaustive
@pytest.mark.parametrize("trading", TRADING)
@pytest.mark.parametrize("kinds", SETS)
def test_seeds_on_one_node(
    orderbook: Program,  # noqa: F811
    tmp_path: Path,
    pytestconfig: pytest.Config,
    kinds: str,
    trading: str,
) -> None:
    found = []
    for seed in seeds(pytestconfig):
        folder = tmp_path / str(seed)
        one = setting(orderbook, folder, SETS[kinds], trading, seed)
        venues = VENUE_COUNT.get(kinds, 1)
        (source,) = write_flow(folder / "flow.parquet", 3_000, 3, seed, venues=venues)
        tested, what = one.tested([source], "job"), f"{kinds}, {trading}, seed {seed}"
        check(what, tested, one.replayed(f"record:{source}"), one.live(f"record:{source}"))
        # Receipts of one source never go back; of several, each for itself.
        sources = write_flow(folder / "flow", 1_000, 3, seed, venues=venues, apart=True)
        given = [f"record:{source}" for source in sources]
        check(f"{what}, parts", one.tested(sources, "parts"), one.replayed(*given), one.live(*given))
        found.append(tested)
    check_traded(found, SETS[kinds])


@pytest.mark.exhaustive
@pytest.mark.spark
@pytest.mark.parametrize("trading", TRADING)
@pytest.mark.parametrize("kinds", SETS)
def test_seeds_on_spark(
    spark: object,
    orderbook: Program,  # noqa: F811
    tmp_path: Path,
    pytestconfig: pytest.Config,
    kinds: str,
    trading: str,
) -> None:
    for seed in seeds(pytestconfig):
        folder = tmp_path / str(seed)
        one, venues = setting(orderbook, folder, SETS[kinds], trading, seed), VENUE_COUNT.get(kinds, 1)
        for name, apart in (("flow.parquet", False), ("flow", True)):
            sources = write_flow(folder / name, 2_000, 8, seed, venues=venues, apart=apart)
            what = f"{kinds}, {trading}, seed {seed}, {len(sources)} sources"
            check_spark(what, one, one.tested(sources, "job"), sources)


CAPTURES = {
    "AMZN": "lobster/AMZN_2012-06-21_34200000_57600000_message_1.csv.zst",
    "AAPL": "lobster/AAPL_2012-06-21_first999_message_10.csv.zst",
    "spot": "hftbacktest/spot_btcusdt_20240808.gz",
    "futures": "hftbacktest/usdm_btcusdt_20240808.gz",
    **{
        name: f"cryptofeed/{name}.jsonl.zst"
        for name in ("BINANCE", "BINANCE_FUTURES", "BITFINEX", "BITSTAMP", "COINBASE", "KRAKEN", "OKX")
    },
}
# Days of which the beginning is enough.
LONG = ("AMZN", "spot", "futures")
RECORDED = {
    "sobi": 1.3, "edge": "0.0003", "spread": "0.00005", "volume": 1, "most": 5, "limit": 1_000,
    "drawdown": 50_000, "fee": "0.00000025",
}  # fmt: skip


def capture_setting(program: Program, folder: Path, kinds: str, trading: str, more: str = "") -> Setting:
    """Commands over recorded data."""
    sizes = {**RECORDED, "volume": 100, "most": 500, "limit": 5_000} if "lobster" in folder.name else RECORDED
    return setting(program, folder, SETS[kinds], trading, 1, "numba", more, sizes)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CAPTURES)
@two_settings
def test_captures_on_one_node(
    orderbook: Program,  # noqa: F811
    shared_data: Path,
    tmp_path: Path,
    kinds: str,
    trading: str,
    name: str,
) -> None:
    source = shared_data / CAPTURES[name]
    one = capture_setting(orderbook, tmp_path / source.parent.name, kinds, trading)
    if name in LONG:
        source = write_cut(source, tmp_path / f"{name}.parquet", 8_000)
    check(f"{name}, {kinds}", one.tested([source], "job"), one.replayed(source), one.live(source))


@pytest.mark.exhaustive
@pytest.mark.spark
@one_venue
def test_captures_on_spark(
    spark: object,
    orderbook: Program,  # noqa: F811
    shared_data: Path,
    tmp_path: Path,
    kinds: str,
) -> None:
    one = capture_setting(orderbook, tmp_path / "all", kinds, "sampled")
    sources = [shared_data / path for path in CAPTURES.values() if path.startswith("cryptofeed")]
    tested = one.tested(sources, "job")
    check(kinds, tested, one.replayed(*sources), one.live(*sources))
    check_spark(kinds, one, tested, sources)


@pytest.mark.exhaustive
@pytest.mark.spark
def test_recorded_venues_that_cross(
    spark: object,
    orderbook: Program,  # noqa: F811
    shared_data: Path,
    tmp_path: Path,
) -> None:
    """A coin and its perpetual future at the same time, as one symbol of two venues."""
    one = capture_setting(orderbook, tmp_path / "all", "venues", "constant")
    sources = [
        write_cut(shared_data / CAPTURES[name], tmp_path / f"{name}.parquet", 8_000, "BTC-USD")
        for name in ("spot", "futures")
    ]
    tested = one.tested(sources, "job")
    check_traded([tested], VENUES)
    check("venues", tested, one.replayed(*sources), one.live(*sources))
    check_spark("venues", one, tested, sources)


@pytest.mark.exhaustive
@one_venue
def test_a_capture_as_it_was_logged(
    orderbook: Program,  # noqa: F811
    shared_data: Path,
    tmp_path: Path,
    kinds: str,
) -> None:
    """A capture played now has times of its own; the log of that run has the same orders."""
    log = tmp_path / "log"
    more = f'[log]\nfolder = "{log}"\nkeep_log = true\n'
    one = capture_setting(orderbook, tmp_path / "run", kinds, "constant", more)
    lived = one.live(f"capture:{shared_data / CAPTURES['KRAKEN']}?speed=0")
    again = capture_setting(orderbook, tmp_path / "replay", kinds, "constant")
    check(kinds, lived, again.replayed(f"log:{log}"))
