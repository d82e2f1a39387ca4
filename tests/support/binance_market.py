"""An invented Binance market: the book after each update id, and the messages that the exchange sends."""

from random import Random
from typing import Any

Book = dict[str, dict[str, str]]


class Market:
    """The truth of one product; `history` has the book by update id, prices and volumes as text."""

    def __init__(self, random: Random, futures: bool, symbol: str = "ABCUSDT") -> None:
        self.random, self.futures, self.symbol = random, futures, symbol
        self.update_id = 1000
        self.last_sent = 1000
        self.trade_id = 0
        self.book: Book = {"b": {}, "a": {}}
        self.history = {1000: self.copy()}

    def copy(self) -> Book:
        return {side: dict(levels) for side, levels in self.book.items()}

    def stream(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        return {"stream": f"{self.symbol.lower()}@{kind}", "data": data}

    def depth(self) -> dict[str, Any]:
        """A few updates, as one message."""
        first = self.update_id + (self.random.randint(1, 3) if self.futures else 1)
        # Ids between two messages are of other products.
        for skipped in range(self.update_id + 1, first):
            self.history[skipped] = self.copy()
        changed: Book = {"b": {}, "a": {}}
        self.update_id = first - 1
        for _ in range(self.random.randint(1, 4)):
            self.update_id += 1
            side = self.random.choice("ba")
            price = f"{100 + self.random.randint(1, 9) * (0.5 if side == 'a' else -0.5):.2f}"
            volume = self.random.choice(("0.000", "1.500", "2.250", "0.001"))
            changed[side][price] = volume
            self.book[side].pop(price, None)
            if volume != "0.000":
                self.book[side][price] = volume
            self.history[self.update_id] = self.copy()
        data: dict[str, Any] = {
            "e": "depthUpdate",
            "E": 1_700_000_000_000,
            "s": self.symbol,
            "U": first,
            "u": self.update_id,
            "b": list(changed["b"].items()),
            "a": list(changed["a"].items()),
        }
        if self.futures:
            data["pu"] = self.last_sent
        self.last_sent = self.update_id
        return self.stream("depth@100ms", data)

    def trade(self, **fields: Any) -> dict[str, Any]:
        self.trade_id += 1
        data = {"e": "trade", "T": 1_700_000_000_000, "s": self.symbol, "t": self.trade_id}
        return self.stream("trade", data | {"p": "100.00", "q": "1.500", "m": False} | fields)

    def answer(self, update_id: int) -> dict[str, Any]:
        """The answer to a snapshot request as of an update id."""
        known = self.history[update_id]
        bids, asks = list(known["b"].items()), list(known["a"].items())
        return {"lastUpdateId": update_id, "bids": bids, "asks": asks}
