"""The rows of Bybit's public history of trades: CSV, of derivatives or of spot.

Source: public.bybit.com, `trading/SYMBOL/SYMBOLyyyy-mm-dd.csv.gz` (times in seconds, with a fraction; the
taker's side) and `spot/SYMBOL/SYMBOL_yyyy-mm-dd.csv.gz` (times in ms). Columns may follow those named.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from feeds.decimal_text import scaled
from orderbook.events import Side

_DERIVATIVES = ("timestamp", "symbol", "side", "size", "price", "tickDirection", "trdMatchID")
_SPOT = ("id", "timestamp", "price", "volume", "side")
# BitMEX's history has the same header, with times as 2018-12-05D00:00:25.948313000.
_DERIVATIVES_ROW = re.compile(rb'"?\d{9,10}(?:\.\d*)?"?,')
_SPOT_ROW = re.compile(rb'"?\d+"?,"?\d{12,13}(?:\.\d*)?"?,')
_SIDES = {"buy": Side.BID, "sell": Side.ASK}


class TradeRow(NamedTuple):
    """A trade; `time` in ns, `exact` where that is what the file says; numbers are its text."""

    time: int
    exact: bool
    symbol: str
    side: Side
    price: str
    size: str
    trade_id: int


class TradeColumns:
    """Where the columns of a file of trades are, by its header. Raises ValueError for another file's."""

    def __init__(self, header: bytes) -> None:
        names = _fields(header)
        self.spot = names[: len(_SPOT)] == list(_SPOT)
        wanted = _SPOT if self.spot else _DERIVATIVES
        if names[: len(wanted)] != list(wanted):
            raise ValueError("no header of Bybit's trades")

    def row(self, line: bytes) -> TradeRow:
        """A row. Raises ValueError, which names the field, for one that cannot be read."""
        fields = _fields(line)
        wanted = _SPOT if self.spot else _DERIVATIVES
        if len(fields) < len(wanted):
            raise ValueError(f"{len(fields)} columns, not {len(wanted)}")
        named = dict(zip(wanted, fields, strict=False))
        side = _SIDES.get(named["side"].lower())
        if side is None:
            raise ValueError(f"side {named['side'][:40]!r} is neither Buy nor Sell")
        try:
            time, exact = scaled(named["timestamp"], 6 if self.spot else 9)
        except ValueError as error:
            raise ValueError(f"timestamp {error}") from None
        if not 0 < time < 2**63:
            raise ValueError(f"timestamp {named['timestamp'][:40]!r} is out of range")
        size = named["volume" if self.spot else "size"]
        trade_id = _trade_id(named["id" if self.spot else "trdMatchID"])
        return TradeRow(time, exact, named.get("symbol", ""), side, named["price"], size, trade_id)


def is_bybit_trades(line: bytes, rows: Sequence[bytes]) -> bool:
    """Whether a line is the header of Bybit's trades, by the first of the rows behind it."""
    try:
        spot = TradeColumns(line).spot
    except ValueError:
        return False
    pattern = _SPOT_ROW if spot else _DERIVATIVES_ROW
    return all(pattern.match(row) for row in rows[:1])


def _fields(line: bytes) -> list[str]:
    return [field.strip(' "\t') for field in line.decode("utf-8", "replace").split(",")]


def _trade_id(text: str) -> int:
    """A number, or the first 63 bits of a UUID. Raises ValueError."""
    if text.isascii() and text.isdigit() and int(text) < 2**63:
        return int(text)
    return UUID(text).int >> 65
