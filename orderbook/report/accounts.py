"""What a strategy's account was worth at every moment, from its fills and the market's samples."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from orderbook.jobs.job import Job
from orderbook.report.market import Instrument, Mids


@dataclass(frozen=True, slots=True)
class Contract:
    """What profit of an instrument is counted in: a position gains with the worth of its price (see
    `orderbook.strategies.execution.contract_money`), whose sizes are those of the contract. currency: of its
    profit and fees, "" where it is not known."""

    size: float = 1.0
    inverse: bool = False
    currency: str = ""

    def worth(self, prices: NDArray[np.float64]) -> NDArray[np.float64]:
        """The worth of prices, both [n]."""
        if not self.inverse:
            return prices * self.size
        with np.errstate(divide="ignore"):
            return -self.size / prices


PLAIN = Contract()
Contracts = Mapping[Instrument, Contract]


@dataclass(frozen=True, slots=True)
class Holding:
    """An instrument over `times` (ns, int64[n]): position, mid and worth (cash less fees, with funding, and
    the position at the mid), float64[n] in the relation's units.

    exposure: the value of the position at the mid, below 0 of one that is short. kept: what the largest
    position, long, would have gained since the first mid, at the mid and without fees; both float64[n].
    """

    times: NDArray[np.int64]
    position: NDArray[np.float64]
    mid: NDArray[np.float64]
    worth: NDArray[np.float64]
    exposure: NDArray[np.float64]
    kept: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Account:
    """A strategy's holdings and, over `times`, their sum: equity and drawdown (from its highest until then,
    at most 0) in the quote currency, or of an inverse contract the base: `currency`, "" where it is not
    known, or there are several. contracts: of each holding.

    funding: what positions received, below 0 paid: see `funding_of`.

    net, gross: the sum of exposures, as they are and without their signs; benchmark: of what was `kept`, a
    buy and hold with the largest position of each instrument; all float64[n].
    """

    strategy: str
    fills: pl.DataFrame
    holdings: Mapping[Instrument, Holding]
    times: NDArray[np.int64]
    equity: NDArray[np.float64]
    drawdown: NDArray[np.float64]
    currency: str
    contracts: Contracts
    net: NDArray[np.float64]
    gross: NDArray[np.float64]
    benchmark: NDArray[np.float64]
    funding: pl.DataFrame


def contracts_of(job: Job) -> Contracts:
    """The contracts that a job's strategies traded."""
    return {
        (one.venue, one.symbol): Contract(float(one.size), one.inverse, one.currency)
        for one in job.manifest.contracts
    }


def _with_worth(fills: pl.DataFrame, contracts: Contracts) -> pl.DataFrame:
    """Fills with the column `worth`, of their prices."""
    worth = fills["price"].to_numpy().copy()
    for (venue, symbol), one in contracts.items():
        own = fills.select((pl.col("venue") == venue) & (pl.col("symbol") == symbol)).to_series().to_numpy()
        worth[own] = one.worth(worth[own])
    return fills.with_columns(worth=pl.Series(worth, dtype=pl.Float64))


def fills_of(fills: pl.DataFrame, contracts: Contracts | None = None) -> pl.DataFrame:
    """Fills as floats: time (ns), strategy, venue, symbol, order_id, change (below 0: sold), price, fee,
    maker."""
    sign = pl.when(pl.col("side") == "buy").then(1).otherwise(-1)
    plain = fills.select(
        pl.col("ts").dt.epoch("ns").alias("time"),
        "strategy", "venue", "symbol", "partition_key", "order_id",
        (pl.col("volume").cast(pl.Float64) * sign).alias("change"),
        pl.col("price").cast(pl.Float64),
        pl.col("fee").cast(pl.Float64),
        (pl.col("liquidity") == "maker").alias("maker"),
    )  # fmt: skip
    return _with_worth(plain, contracts or {})


_FUNDING = {
    "time": pl.Int64, **dict.fromkeys(("strategy", "venue", "symbol"), pl.String), "amount": pl.Float64,
}  # fmt: skip


def funding_of(job: Job) -> pl.DataFrame:
    """Funding that a job's strategies received, in order: time (ns), strategy, venue, symbol, amount."""
    found = job.table("payments")
    if found.is_empty():
        return pl.DataFrame(schema=_FUNDING)
    return found.select(
        pl.col("ts").dt.epoch("ns").alias("time"), "strategy", "venue", "symbol",
        pl.col("amount").cast(pl.Float64),
    ).sort("time")  # fmt: skip


def account_of(
    strategy: str,
    fills: pl.DataFrame,
    mids: Mapping[Instrument, Mids],
    contracts: Contracts | None = None,
    funding: pl.DataFrame | None = None,
) -> Account:
    """The account of a strategy; `fills` as of `fills_of`, `funding` as of `funding_of`, its own or of all.

    Where some of its instruments are inverse contracts, and others are not, or of another base, the sum
    counts in the quote currency, what inverse ones earn at the mid of each time.
    """
    contracts = contracts or {}
    own = fills.filter(pl.col("strategy") == strategy)
    paid = pl.DataFrame(schema=_FUNDING) if funding is None else funding
    paid = paid.filter(pl.col("strategy") == strategy)
    holdings: dict[Instrument, Holding] = {}
    for (venue, symbol), of_one in own.group_by(["venue", "symbol"], maintain_order=True):
        instrument = str(venue), str(symbol)
        received = paid.filter((pl.col("venue") == venue) & (pl.col("symbol") == symbol))
        contract = contracts.get(instrument, PLAIN)
        holdings[instrument] = _holding(of_one, received, mids.get(instrument), contract)
    seen = holdings.values() if holdings else mids.values()
    times = np.empty(0, np.int64)
    for one in seen:
        times = one.times if not len(times) else merged(times, one.times)
    equity, net, gross, benchmark = (np.zeros(len(times)) for _ in range(4))
    coins = {
        instrument[1].split("-")[0] if contracts.get(instrument, PLAIN).inverse else ""
        for instrument in holdings
    }
    currencies = set[str]()
    for instrument, one in holdings.items():
        contract = contracts.get(instrument, PLAIN)
        quoted = len(coins) > 1 and contract.inverse
        currencies.add("".join(instrument[1].split("-")[1:2]) if quoted else contract.currency)
        price = np.nan_to_num(one.mid) if quoted else 1.0
        equity += _as_of(one, times, one.worth * price)
        net += _as_of(one, times, one.exposure * price)
        gross += _as_of(one, times, np.abs(one.exposure) * price)
        benchmark += _as_of(one, times, one.kept * price)
    held = {instrument: contracts.get(instrument, PLAIN) for instrument in holdings}
    currency = currencies.pop() if len(currencies) == 1 else ""
    # An account begins with nothing, so that a first loss is one.
    highest = np.maximum(np.maximum.accumulate(equity), 0) if len(equity) else equity
    return Account(
        strategy, own, holdings, times, equity, equity - highest, currency, held, net, gross, benchmark, paid
    )


def _holding(fills: pl.DataFrame, funding: pl.DataFrame, mids: Mids | None, contract: Contract) -> Holding:
    filled, due = fills["time"].to_numpy(), funding["time"].to_numpy()
    market = np.empty(0, np.int64) if mids is None else mids.times
    times = merged(merged(market, filled), due)
    done = np.searchsorted(filled, times, side="right")
    change, price, worth, fee = (fills[name].to_numpy() for name in ("change", "price", "worth", "fee"))
    position, cash = (
        np.concatenate([[0.0], np.cumsum(amounts)])[done] for amounts in (change, -change * worth - fee)
    )
    received = np.concatenate([[0.0], np.cumsum(funding["amount"].to_numpy())])
    cash = cash + received[np.searchsorted(due, times, side="right")]
    # What rounding leaves of a position that was closed.
    position[np.abs(position) < 1e-9] = 0
    paid = np.concatenate([[np.nan], price])[done]
    mid = paid if mids is None else mids.at(times)
    mid = np.where(np.isnan(mid), paid, mid)
    value = contract.worth(mid)
    held, known = position * np.nan_to_num(value), np.flatnonzero(~np.isnan(value))
    largest = float(np.abs(position).max())
    kept = np.nan_to_num(largest * (value - value[known[0]])) if len(known) else np.zeros(len(times))
    exposure = position * np.abs(np.nan_to_num(value))
    return Holding(times, position, mid, cash + np.where(position == 0, 0, held), exposure, kept)


def closed_profits(fills: pl.DataFrame) -> list[float | None]:
    """What each fill of an instrument earned by what it closed, the oldest first, less its fee; None where it
    closed nothing."""
    held: deque[list[float]] = deque()
    found = list[float | None]()
    for change, price, fee in fills.select("change", "worth", "fee").iter_rows():
        left, earned = change, 0.0
        while held and abs(left) > 1e-12 and (held[0][0] > 0) is not (left > 0):
            closed = min(abs(held[0][0]), abs(left)) * (1 if held[0][0] > 0 else -1)
            earned += closed * (price - held[0][1])
            held[0][0], left = held[0][0] - closed, left + closed
            if abs(held[0][0]) <= 1e-12:
                held.popleft()
        found.append(None if left == change else earned - fee)
        if abs(left) > 1e-12:
            held.append([left, price])
    return found


def merged(times: NDArray[np.int64], more: NDArray[np.int64]) -> NDArray[np.int64]:
    """Ascending times, each once, with more that ascend; `np.union1d` would sort or hash them all again."""
    own = more[np.concatenate([[True], more[1:] != more[:-1]])] if len(more) else more
    places = np.searchsorted(times, own)
    new = np.append(times, -1).take(places) != own if len(times) else np.full(len(own), True)
    return np.insert(times, places[new], own[new])


def _as_of(holding: Holding, times: NDArray[np.int64], worth: NDArray[np.float64]) -> NDArray[np.float64]:
    places = np.searchsorted(holding.times, times, side="right") - 1
    return np.where(places >= 0, worth[np.maximum(places, 0)], 0.0)
