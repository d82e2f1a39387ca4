"""A Binance USD-M futures account without I/O: orders, a book of others' orders, executions, the user stream.

Answers have the forms and codes of the documentation; what is not documented is refused. Whoever drives it
carries requests and messages, and may lose, repeat and delay them. Amounts are exact decimals.
"""

import hashlib
import hmac
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qsl

Answer = tuple[int, dict[str, str], bytes]

_LISTEN_KEY_MS = 3_600_000
_DONE = ("FILLED", "CANCELED", "EXPIRED", "REJECTED")


class Refusal(Exception):
    """A code and a message, with an HTTP status."""

    def __init__(self, code: int, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code, self.status = code, status


@dataclass
class ServerOrder:
    """An order as the venue has it."""

    symbol: str
    id: int
    client_id: str
    side: str
    kind: str
    tif: str
    quantity: Decimal
    price: Decimal
    status: str = "NEW"
    filled: Decimal = Decimal(0)
    cost: Decimal = Decimal(0)
    time: int = 0

    @property
    def open(self) -> bool:
        return self.status not in _DONE

    @property
    def left(self) -> Decimal:
        return self.quantity - self.filled

    def answer(self) -> dict[str, Any]:
        """As REST says it."""
        average = self.cost / self.filled if self.filled else Decimal(0)
        return {
            "orderId": self.id, "symbol": self.symbol, "status": self.status, "clientOrderId": self.client_id,
            "price": f"{self.price:f}", "avgPrice": f"{average:.5f}", "origQty": f"{self.quantity:f}",
            "executedQty": f"{self.filled:f}", "cumQuote": f"{self.cost:f}", "timeInForce": self.tif,
            "type": self.kind, "reduceOnly": False, "closePosition": False, "side": self.side,
            "positionSide": "BOTH", "stopPrice": "0", "workingType": "CONTRACT_PRICE", "origType": self.kind,
            "updateTime": self.time,
        }  # fmt: skip


@dataclass
class ServerTrade:
    """An execution of the account."""

    id: int
    order: ServerOrder
    price: Decimal
    quantity: Decimal
    fee: Decimal
    asset: str
    maker: bool
    time: int

    def answer(self) -> dict[str, Any]:
        """As REST says it."""
        return {
            "buyer": self.order.side == "BUY", "commission": f"{self.fee:f}", "commissionAsset": self.asset,
            "id": self.id, "maker": self.maker, "orderId": self.order.id, "price": f"{self.price:f}",
            "qty": f"{self.quantity:f}", "quoteQty": f"{self.price * self.quantity:f}", "realizedPnl": "0",
            "side": self.order.side, "positionSide": "BOTH", "symbol": self.order.symbol, "time": self.time,
        }  # fmt: skip


@dataclass
class Listing:
    """Filters of a symbol, and the others' best prices and what they show there."""

    tick: Decimal = Decimal("0.10")
    step: Decimal = Decimal("0.001")
    least: Decimal = Decimal("0.001")
    most: Decimal = Decimal("1000")
    most_at_market: Decimal = Decimal("120")
    notional: Decimal = Decimal("5")
    bid: Decimal = Decimal("50000.00")
    ask: Decimal = Decimal("50000.10")
    shown: Decimal = Decimal("10")


@dataclass
class BinanceAccount:
    """One account and its book.

    now: the venue's clock, ms. `sent` is the user stream's messages in order; whoever listens takes them.
    """

    now: Callable[[], int]
    key: str = "the-key"
    secret: str = "the-secret"
    listings: dict[str, Listing] = field(default_factory=lambda: {"BTCUSDT": Listing()})
    weight_limit: int = 2400
    order_limits: dict[str, tuple[int, int]] = field(
        default_factory=lambda: {"10S": (10, 300), "1M": (60, 1200)}
    )
    fee_asset: str = "USDT"

    def __post_init__(self) -> None:
        self.orders: dict[int, ServerOrder] = {}
        self.trades: list[ServerTrade] = []
        self.positions: Counter[str] = Counter()
        self.sent: list[dict[str, Any]] = []
        self.listen_key, self.listen_key_until = "", 0
        self.keys = 0
        self.countdowns: dict[str, int] = {}
        self.used_weight = 0
        self.window = 0
        self.order_windows: dict[str, list[int]] = {name: [0, 0] for name in self.order_limits}
        self.dual = False
        # Client ids of every POST that came, whatever became of it.
        self.placed: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()

    # What comes over HTTP.

    def http(self, method: str, path: str, query: str, headers: Mapping[str, str]) -> Answer:
        """A request with its query, whose signature and key are checked where they are asked for."""
        params = dict(parse_qsl(query, keep_blank_values=True))
        keyed = not path.endswith(("/time", "/exchangeInfo"))
        if keyed and headers.get("x-mbx-apikey") != self.key:
            return self._answer(401, {"code": -2015, "msg": "Invalid API-key, IP, or permissions for action"})
        if keyed and not path.endswith("/listenKey"):
            text, _, signature = query.rpartition("&signature=")
            expected = hmac.new(self.secret.encode(), text.encode(), hashlib.sha256).hexdigest()
            if signature != expected:
                return self._answer(400, {"code": -1022, "msg": "Signature for this request is not valid."})
            del params["signature"]
        return self.handle(method, path, params)

    def handle(self, method: str, path: str, params: Mapping[str, str]) -> Answer:
        """A request that has proved itself."""
        self.pass_time()
        what = f"{method} {path.removeprefix('/fapi/')}"
        self.calls[what] += 1
        handler = {
            "GET v1/time": self._time, "GET v1/exchangeInfo": self._info,
            "GET v1/positionSide/dual": self._mode, "POST v1/listenKey": self._open_key,
            "PUT v1/listenKey": self._renew_key, "DELETE v1/listenKey": self._close_key,
            "POST v1/order": self._place, "PUT v1/order": self._modify, "DELETE v1/order": self._cancel,
            "GET v1/order": self._query, "GET v1/openOrders": self._open_orders,
            "DELETE v1/allOpenOrders": self._cancel_all, "GET v1/userTrades": self._user_trades,
            "GET v3/positionRisk": self._positions, "POST v1/countdownCancelAll": self._countdown,
        }.get(what)  # fmt: skip
        if handler is None:
            return self._answer(404, {"code": -5000, "msg": f"Path {path}, Method {method} is invalid"})
        if what == "POST v1/order":
            self.placed[params.get("newClientOrderId", "")] += 1
        try:
            self._weigh(what)
            if "timestamp" in params:
                stamp, window = int(params["timestamp"]), int(params.get("recvWindow", 5000))
                if stamp >= self.now() + 1000 or self.now() - stamp > window:
                    raise Refusal(-1021, "Timestamp for this request is outside of the recvWindow.")
            elif what not in (
                "GET v1/time", "GET v1/exchangeInfo", "POST v1/listenKey", "PUT v1/listenKey",
                "DELETE v1/listenKey",
            ):  # fmt: skip
                raise Refusal(-1102, "Mandatory parameter 'timestamp' was not sent")
            return self._answer(200, handler(params))
        except Refusal as refusal:
            body = {"code": refusal.code, "msg": str(refusal)}
            extra = {"Retry-After": "3"} if refusal.status in (418, 429) else {}
            return self._answer(refusal.status, body, extra)

    def _answer(self, status: int, body: Any, extra: Mapping[str, str] = {}) -> Answer:
        headers = {"X-MBX-USED-WEIGHT-1M": str(self.used_weight), **extra}
        for name, (_, used) in self.order_windows.items():
            headers[f"X-MBX-ORDER-COUNT-{name}"] = str(used)
        return status, headers, json.dumps(body).encode()

    def _weigh(self, what: str) -> None:
        window = self.now() // 60_000
        if window != self.window:
            self.window, self.used_weight = window, 0
        weights = {
            "GET v1/userTrades": 5, "GET v3/positionRisk": 5, "POST v1/countdownCancelAll": 10,
            "GET v1/positionSide/dual": 30, "POST v1/order": 0,
        }  # fmt: skip
        self.used_weight += weights.get(what, 1)
        if self.used_weight > self.weight_limit:
            raise Refusal(-1003, "Too many requests; current limit is exceeded.", 429)
        if what in ("POST v1/order", "PUT v1/order"):
            for name, (seconds, limit) in self.order_limits.items():
                one = self.order_windows[name]
                if one[0] != self.now() // (1000 * seconds):
                    one[:] = [self.now() // (1000 * seconds), 0]
                one[1] += 1
                if one[1] > limit:
                    raise Refusal(-1015, "Too many new orders.", 429)

    # Reference data, and the stream.

    def _time(self, _: Mapping[str, str]) -> Any:
        return {"serverTime": self.now()}

    def _info(self, _: Mapping[str, str]) -> Any:
        limits = [
            {
                "rateLimitType": "REQUEST_WEIGHT",
                "interval": "MINUTE",
                "intervalNum": 1,
                "limit": self.weight_limit,
            },
            {
                "rateLimitType": "ORDERS",
                "interval": "MINUTE",
                "intervalNum": 1,
                "limit": self.order_limits["1M"][1],
            },
            {
                "rateLimitType": "ORDERS",
                "interval": "SECOND",
                "intervalNum": 10,
                "limit": self.order_limits["10S"][1],
            },
        ]
        symbols = []
        for name, one in self.listings.items():
            filters = [
                {
                    "filterType": "PRICE_FILTER",
                    "minPrice": "0.10",
                    "maxPrice": "1000000",
                    "tickSize": f"{one.tick:f}",
                },
                {
                    "filterType": "LOT_SIZE",
                    "minQty": f"{one.least:f}",
                    "maxQty": f"{one.most:f}",
                    "stepSize": f"{one.step:f}",
                },
                {
                    "filterType": "MARKET_LOT_SIZE",
                    "minQty": f"{one.least:f}",
                    "maxQty": f"{one.most_at_market:f}",
                    "stepSize": f"{one.step:f}",
                },
                {"filterType": "MAX_NUM_ORDERS", "limit": 200},
                {"filterType": "MIN_NOTIONAL", "notional": f"{one.notional:f}"},
            ]
            symbols.append(
                {"symbol": name, "status": "TRADING", "contractType": "PERPETUAL", "filters": filters}
            )
        return {"timezone": "UTC", "serverTime": self.now(), "rateLimits": limits, "symbols": symbols}

    def _mode(self, _: Mapping[str, str]) -> Any:
        return {"dualSidePosition": self.dual}

    def _open_key(self, _: Mapping[str, str]) -> Any:
        if not self.listen_key:
            self.keys += 1
            self.listen_key = f"listenkey{self.keys}" + "x" * 40
        self.listen_key_until = self.now() + _LISTEN_KEY_MS
        return {"listenKey": self.listen_key}

    def _renew_key(self, _: Mapping[str, str]) -> Any:
        if not self.listen_key:
            raise Refusal(-1125, "This listenKey does not exist.")
        self.listen_key_until = self.now() + _LISTEN_KEY_MS
        return {"listenKey": self.listen_key}

    def _close_key(self, _: Mapping[str, str]) -> Any:
        self.listen_key = ""
        return {}

    def expire_key(self) -> None:
        """The listen key ends now."""
        self.sent.append({"e": "listenKeyExpired", "E": self.now(), "listenKey": self.listen_key})
        self.listen_key = ""

    def pass_time(self) -> None:
        """What is due happens."""
        for symbol, due in list(self.countdowns.items()):
            if self.now() >= due:
                del self.countdowns[symbol]
                for order in self.open(symbol):
                    self._end(order, "CANCELED")
        if self.listen_key and self.now() >= self.listen_key_until:
            self.expire_key()

    def open(self, symbol: str) -> list[ServerOrder]:
        """The open orders of a symbol."""
        return [order for order in self.orders.values() if order.symbol == symbol and order.open]

    # Orders.

    def _listing(self, params: Mapping[str, str]) -> Listing:
        if params.get("symbol") not in self.listings:
            raise Refusal(-1121, "Invalid symbol.")
        return self.listings[params["symbol"]]

    def _checked(self, params: Mapping[str, str]) -> tuple[Decimal, Decimal]:
        one, quantity = self._listing(params), Decimal(params["quantity"])
        price = Decimal(params.get("price", "0"))
        if quantity % one.step or price % one.tick:
            raise Refusal(-1111, "Precision is over the maximum defined for this asset.")
        if quantity < one.least:
            raise Refusal(-4003, "Quantity less than or equal to zero.")
        if quantity > one.most:
            raise Refusal(-4005, "Quantity greater than max quantity.")
        if price and price * quantity < one.notional:
            raise Refusal(
                -4164, "Order's notional must be no smaller than 5.0 (unless you choose reduce only)"
            )
        return quantity, price

    def _place(self, params: Mapping[str, str]) -> Any:
        quantity, price = self._checked(params)
        client_id = params.get("newClientOrderId") or f"web_{len(self.orders)}"
        if any(order.client_id == client_id and order.open for order in self.orders.values()):
            raise Refusal(-4116, "ClientOrderId is duplicated.")
        kind = params["type"]
        if kind == "LIMIT" and not price:
            raise Refusal(-1102, "Mandatory parameter 'price' was not sent")
        tif = params["timeInForce"] if kind == "LIMIT" else "GTC"
        order = ServerOrder(
            params["symbol"], 1_000_000 + len(self.orders), client_id, params["side"], kind, tif, quantity,
            price, time=self.now(),
        )  # fmt: skip
        if tif == "GTX" and self._crosses(order):
            raise Refusal(
                -5022,
                "Due to the order could not be executed as maker, the Post Only order will be rejected.",
            )
        self.orders[order.id] = order
        self._tell(order, "NEW")
        self._take(order)
        if order.open and (kind == "MARKET" or tif == "IOC"):
            self._end(order, "EXPIRED")
        return order.answer()

    def _crosses(self, order: ServerOrder) -> bool:
        one = self.listings[order.symbol]
        if order.kind == "MARKET":
            return True
        return order.price >= one.ask if order.side == "BUY" else order.price <= one.bid

    def _take(self, order: ServerOrder) -> None:
        one = self.listings[order.symbol]
        if self._crosses(order):
            self.execute(
                order, min(order.left, one.shown), one.ask if order.side == "BUY" else one.bid, False
            )

    def _found(self, params: Mapping[str, str], code: int, message: str) -> ServerOrder:
        for order in reversed(self.orders.values()):
            own = str(order.id) == params.get("orderId") or order.client_id == params.get("origClientOrderId")
            if own and order.symbol == params.get("symbol"):
                return order
        raise Refusal(code, message)

    def _query(self, params: Mapping[str, str]) -> Any:
        self._listing(params)
        return self._found(params, -2013, "Order does not exist.").answer()

    def _cancel(self, params: Mapping[str, str]) -> Any:
        order = self._found(params, -2011, "Unknown order sent.")
        if not order.open:
            raise Refusal(-2011, "Unknown order sent.")
        self._end(order, "CANCELED")
        return order.answer()

    def _cancel_all(self, params: Mapping[str, str]) -> Any:
        self._listing(params)
        for order in self.open(params["symbol"]):
            self._end(order, "CANCELED")
        return {"code": 200, "msg": "The operation of cancel all open order is done."}

    def _modify(self, params: Mapping[str, str]) -> Any:
        quantity, price = self._checked(params)
        order = self._found(params, -2013, "Order does not exist.")
        if not order.open:
            raise Refusal(-2013, "Order does not exist.")
        if (quantity, price) == (order.quantity, order.price):
            raise Refusal(-5027, "No need to modify the order.")
        self.amend(order, quantity, price)
        return order.answer()

    def amend(self, order: ServerOrder, quantity: Decimal, price: Decimal) -> None:
        """An open order has another volume and price, also where somebody does that by hand."""
        if order.filled and quantity <= order.filled:
            self._end(order, "CANCELED")
            return
        order.quantity, order.price, order.time = quantity, price, self.now()
        if order.tif == "GTX" and self._crosses(order):
            self._end(order, "CANCELED")
            return
        self._tell(order, "AMENDMENT")
        self._take(order)

    def cancel(self, order: ServerOrder) -> None:
        """Somebody cancels an order by hand."""
        self._end(order, "CANCELED")

    def by_hand(self, symbol: str, side: str, quantity: str) -> None:
        """Somebody trades on the account at market by hand."""
        self._place({"symbol": symbol, "side": side, "quantity": quantity, "type": "MARKET"})

    def _open_orders(self, params: Mapping[str, str]) -> Any:
        self._listing(params)
        return [order.answer() for order in self.open(params["symbol"])]

    def _user_trades(self, params: Mapping[str, str]) -> Any:
        self._listing(params)
        own = [trade for trade in self.trades if trade.order.symbol == params["symbol"]]
        limit = int(params.get("limit", "500"))
        if "fromId" in params:
            return [trade.answer() for trade in own if trade.id >= int(params["fromId"])][:limit]
        return [trade.answer() for trade in own[-limit:]]

    def _positions(self, _: Mapping[str, str]) -> Any:
        last = {trade.order.symbol: trade.time for trade in self.trades}
        return [
            {
                "symbol": symbol, "positionSide": "BOTH", "positionAmt": f"{self.positions[symbol]:f}",
                "entryPrice": "0", "markPrice": "0", "updateTime": last.get(symbol, 0),
            }
            for symbol in self.listings
            if self.positions[symbol] or self.open(symbol)
        ]  # fmt: skip

    def _countdown(self, params: Mapping[str, str]) -> Any:
        self._listing(params)
        milliseconds = int(params["countdownTime"])
        if milliseconds:
            self.countdowns[params["symbol"]] = self.now() + milliseconds
        else:
            self.countdowns.pop(params["symbol"], None)
        return {"symbol": params["symbol"], "countdownTime": params["countdownTime"]}

    # The market.

    def move(self, symbol: str, bid: str) -> None:
        """The others' best bid is there now, and their ask a tick above; what they cross is executed."""
        one = self.listings[symbol]
        one.bid, one.ask = Decimal(bid), Decimal(bid) + one.tick
        for order in self.open(symbol):
            if self._crosses(order):
                self.execute(order, order.left, order.price, True)

    def execute(self, order: ServerOrder, quantity: Decimal, price: Decimal, maker: bool) -> None:
        """A part of an order is executed."""
        order.filled += quantity
        order.cost += quantity * price
        order.time = self.now()
        order.status = "FILLED" if order.filled >= order.quantity else "PARTIALLY_FILLED"
        rate = Decimal("0.0002") if maker else Decimal("0.0005")
        fee = (quantity * price * rate).quantize(Decimal("1e-8"))
        trade = ServerTrade(
            5000 + 3 * len(self.trades), order, price, quantity, fee, self.fee_asset, maker, self.now()
        )
        self.trades.append(trade)
        self.positions[order.symbol] += quantity if order.side == "BUY" else -quantity  # type: ignore[assignment]
        self._tell(order, "TRADE", trade)
        self.sent.append({
            "e": "ACCOUNT_UPDATE", "E": self.now(), "T": self.now(),
            "a": {"m": "ORDER", "B": [], "P": [
                {"s": order.symbol, "pa": f"{self.positions[order.symbol]:f}", "ep": "0", "ps": "BOTH"}
            ]},
        })  # fmt: skip

    def _end(self, order: ServerOrder, status: str) -> None:
        order.status, order.time = status, self.now()
        self._tell(order, "EXPIRED" if status == "EXPIRED" else "CANCELED")

    def _tell(self, order: ServerOrder, what: str, trade: ServerTrade | None = None) -> None:
        own = {
            "s": order.symbol, "c": order.client_id, "S": order.side, "o": order.kind, "f": order.tif,
            "q": f"{order.quantity:f}", "p": f"{order.price:f}", "ap": "0", "sp": "0", "x": what,
            "X": order.status, "i": order.id, "l": "0", "z": f"{order.filled:f}", "L": "0",
            "T": self.now(), "t": 0, "b": "0", "a": "0", "m": False, "R": False, "ps": "BOTH", "rp": "0",
        }  # fmt: skip
        if trade is not None:
            own |= {
                "l": f"{trade.quantity:f}", "L": f"{trade.price:f}", "t": trade.id, "m": trade.maker,
                "n": f"{trade.fee:f}", "N": trade.asset,
            }  # fmt: skip
        self.sent.append({"e": "ORDER_TRADE_UPDATE", "E": self.now(), "T": self.now(), "o": own})
