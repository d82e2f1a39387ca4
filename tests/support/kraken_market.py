"""Kraken's side of its book channel, for tests: a whole book, of which the best levels are published."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from session_support import Levels, plain_crc32

# Of ticks and lots on the wire.
PRICE_PLACES, SIZE_PLACES = 1, 8

# The example of a checksum in the documentation of Kraken's websocket v2.
ASKS_V2 = (
    ("45285.2", "0.00100000"), ("45286.4", "1.54571953"), ("45286.6", "1.54571109"),
    ("45289.6", "1.54560911"), ("45290.2", "0.15890660"), ("45291.8", "1.54553491"),
    ("45294.7", "0.04454749"), ("45296.1", "0.35380000"), ("45297.5", "0.09945542"),
    ("45299.5", "0.18772827"),
)  # fmt: skip
BIDS_V2 = (
    ("45283.5", "0.10000000"), ("45283.4", "1.54582015"), ("45282.1", "0.10000000"),
    ("45281.0", "0.10000000"), ("45280.3", "1.54592586"), ("45279.0", "0.07990000"),
    ("45277.6", "0.03310103"), ("45277.5", "0.30000000"), ("45277.3", "1.54602737"),
    ("45276.6", "0.15445238"),
)  # fmt: skip


def decimal(number: int, places: int) -> str:
    text = str(number).rjust(places + 1, "0")
    return f"{text[:-places]}.{text[-places:]}"


def price(ticks: int) -> str:
    return decimal(ticks, PRICE_PLACES)


def size(lots: int) -> str:
    return decimal(lots, SIZE_PLACES)


@dataclass
class Market:
    """One product. Prices in ticks, sizes in lots; `shown` is what subscribers hold of each side."""

    symbol: str
    depth: int
    bids: dict[int, int] = field(default_factory=dict)
    asks: dict[int, int] = field(default_factory=dict)
    shown: tuple[dict[int, int], dict[int, int]] = ({}, {})

    def best(self) -> tuple[Levels, Levels]:
        """The published levels, best first."""
        bids = sorted(self.bids.items(), reverse=True)[: self.depth]
        return bids, sorted(self.asks.items())[: self.depth]

    def checksum(self) -> int:
        # Written in full precision, digits without leading zeros are ticks and lots themselves.
        bids, asks = self.best()
        return plain_crc32("".join(f"{ticks}{lots}" for ticks, lots in asks[:10] + bids[:10]))

    def change(self, changes: Iterable[tuple[str, int, int]]) -> tuple[list[tuple[int, int]], ...]:
        """Set sizes of levels ("b" or "a", ticks, lots); the updates of bids and asks that tell of it.

        Levels that leave the published depth are not told of; those that enter it are.
        """
        for side, ticks, lots in changes:
            levels = self.bids if side == "b" else self.asks
            levels.pop(ticks, None)
            if lots:
                levels[ticks] = lots
        updates = []
        shown: list[dict[int, int]] = []
        for before, now, whole in zip(self.shown, self.best(), (self.bids, self.asks), strict=True):
            gone = [(ticks, 0) for ticks in before if ticks not in whole]
            updates.append(gone + [level for level in now if before.get(level[0]) != level[1]])
            shown.append(dict(now))
        self.shown = (shown[0], shown[1])
        return tuple(updates)

    def snapshot(self) -> tuple[Levels, Levels]:
        bids, asks = self.best()
        self.shown = dict(bids), dict(asks)
        return bids, asks


def frame_v2(market: Market, kind: str, levels: tuple[list[tuple[int, int]], ...], removed: str = "0") -> str:
    """A book message; `removed` is how a size of nothing is written."""

    def side(rows: list[tuple[int, int]]) -> str:
        texts = (f'{{"price":{price(p)},"qty":{size(q) if q else removed}}}' for p, q in rows)
        return f"[{','.join(texts)}]"

    bids, asks = map(side, levels)
    return (
        f'{{"channel":"book","type":"{kind}","data":[{{"symbol":"{market.symbol}","bids":{bids},'
        f'"asks":{asks},"checksum":{market.checksum()},"timestamp":"2023-10-06T17:35:55.440295Z"}}]}}'
    )


def frame_v1(market: Market, kind: str, levels: tuple[list[tuple[int, int]], ...]) -> str:
    """A book message, in two parts where both sides change."""

    def side(name: str, rows: list[tuple[int, int]]) -> str:
        texts = (f'["{price(p)}","{size(q)}","1618678145.920470"]' for p, q in rows)
        return f'"{name}":[{",".join(texts)}]'

    bids, asks = levels
    if kind == "snapshot":
        parts = [side("as", asks) + "," + side("bs", bids)]
    else:
        parts = [side(name, rows) for name, rows in (("a", asks), ("b", bids)) if rows] or ['"b":[]']
        parts[-1] += f',"c":"{market.checksum()}"'
    whole = ",".join(f"{{{part}}}" for part in parts)
    return f'[1920,{whole},"book-{market.depth}","{market.symbol}"]'


Frame = Callable[[Market, str, tuple[list[tuple[int, int]], ...]], str]
