"""Orders at Binance USD-M futures: what is asked over REST, what its user stream says, without I/O.

A driver tells a session what happened and when, does what `commands` says, and calls `wake` at `wake_at`;
what `take` gives are reports for the run's queue. Requests are here without signature and key, which the
driver adds. What is sent of orders: `binance_orders`. Sources: Binance documentation of USD-M Futures,
"General Info", "Error Code", "Exchange Information", "Current All Open Orders", "Account Trade List",
"Position Information V3", "Get Current Position Mode", "Start / Keepalive User Data Stream", "Event: Order
Update", "Event: Balance and Position Update", "Event: User Data Stream Expired".

A stream that begins, and every `reconcile_seconds` one that goes on, is followed by a reconciliation: open
orders, each of the run's that is not among them, executions from the last known one on, positions. What the
stream says meanwhile is reported too; whoever takes the reports counts nothing twice.
"""

import logging
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from math import inf

import msgspec

from orderbook.core.errors import KEPT_TEXT
from orderbook.strategies.execution.binance_messages import (
    STATUSES,
    UNUSABLE,
    RequestLimits,
    WireEnvelope,
    WireEvent,
    WireListenKey,
    WireListing,
    WireMode,
    WireOrder,
    WirePosition,
    WireProblem,
    WireStreamOrder,
    WireTime,
    WireTrade,
    check_numbers,
    trade_report,
)
from orderbook.strategies.execution.binance_orders import OrderLines, SessionOptions, Take
from orderbook.strategies.execution.venue_account import OpenOrder, VenueAccount
from orderbook.strategies.execution.venue_reports import (
    Lost,
    Opened,
    OrderState,
    PositionIs,
    Ready,
    Reconciled,
    Report,
    Rules,
    VenueTrade,
)

_log = logging.getLogger(__name__)

Params = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Request:
    """Ask the venue; then `answered`, or `failed` where nobody knows what became of it.

    params are without key and signature; signed: they are to be signed, with a timestamp that is among them.
    """

    number: int
    method: str
    path: str
    params: Params
    signed: bool


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Open the user stream of a listen key; then `connected`, or `disconnected` where that fails."""

    listen_key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class CloseStream:
    """Break the stream; then `disconnected`."""


Command = Request | OpenStream | CloseStream


# Seconds: a listen key is renewed after (it lives for an hour); the clocks are compared again after, by
# answers that took this at most.
_RENEW, _COMPARE, _LONGEST_WAY = 30 * 60.0, 10 * 60.0, 2.0
_FIRST_DELAY, _LONGEST_DELAY = 0.2, 30.0
_INCOMPLETE = 1.0
# Executions of one answer.
_PAGE = 1000
# Answers that leave open what became of a request.
_UNKNOWN_CODES = frozenset({-1000, -1001, -1006, -1007})
_NO_SUCH_ORDER, _UNKNOWN_ORDER, _CLOCK, _NO_LISTEN_KEY, _DUPLICATE = -2013, -2011, -1021, -1125, -4116
_KEY_REFUSED = frozenset({-1022, -2014, -2015})
_WAITS = (418, 429)
# 503 that say that nothing was done.
_NOT_DONE = ("Service Unavailable", "Internal error; unable to process your request")


@dataclass(slots=True)
class _Pending:
    """A request under way, and who takes its answer: a status, what the body says is wrong, and the body.
    Status 0: nobody knows."""

    take: Take
    path: str


@dataclass(slots=True)
class _Reconciliation:
    """One that is under way: how many requests of its stage are."""

    waiting: int = 0
    failed: bool = False
    stage: int = 0
    # When positions were asked for, ms of the venue.
    time: int = 0
    before: dict[str, WirePosition | None] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)
    # Orders that were open when it began.
    asked: list[OpenOrder] = field(default_factory=list)


class BinanceSession:
    """The run's orders at the venue; see the module.

    clock: seconds of a clock that never goes back, by which requests are stamped as the venue's clock was
    found to differ. wall: ms since 1970 UTC, for as long as that is not known. name: gives the
    name of a new run's client order ids, eight of 0-9a-z.
    """

    def __init__(
        self,
        account: VenueAccount,
        options: SessionOptions,
        clock: Callable[[], float],
        wall: Callable[[], int],
        name: Callable[[], str],
        seed: int | None = None,
    ) -> None:
        self.limits = RequestLimits()
        # For people: what keeps it from its work, how often it has connected, reconciled, and when (clock).
        self.trouble: str | None = None
        self.connections = self.reconciliations = self.requests = 0
        self.reconciled_at: float | None = None
        self._account, self._options = account, options
        self._clock, self._name = clock, name
        self._random = random.Random(seed)
        self._commands: list[Command] = []
        self._reports: list[Report] = []
        self._pending: dict[int, _Pending] = {}
        self._orders = OrderLines(self, account, options, clock)
        # The venue's ms less those of `clock`, and when that was found; when this session began.
        self._offset = wall() - round(1000 * clock())
        self.begun = clock()
        self.compared = -inf
        self._listed = self._one_way = False
        self._key = ""
        self._key_renewed = -inf
        self._asking: set[str] = set()
        self._open = self._opening = False
        self._ready = False
        self._delay = _FIRST_DELAY
        self._retry_at = -inf
        self.waits_until = -inf
        self._reconciliation: _Reconciliation | None = None
        self._reconcile_at = inf
        self._incomplete_since: float | None = None
        self._begun = False

    # What a driver calls.

    @property
    def ready(self) -> bool:
        """Whether orders are taken."""
        return self._ready

    @property
    def cancelling(self) -> list[str]:
        """Client ids of orders that are to be cancelled, and have not been seen to have ended."""
        return [line.client_id for line in self._orders.lines.values() if line.cancel]

    def commands(self) -> list[Command]:
        """What is to be done now, in order; each is given once."""
        commands, self._commands = self._commands, []
        return commands

    def take(self) -> list[Report]:
        """What has been learned since the last call, in order."""
        reports, self._reports = self._reports, []
        return reports

    @property
    def wake_at(self) -> float:
        """When to call `wake`, by the session's clock; at once where the account has something to send."""
        now = self._clock()
        if self._account.outbox:
            return now
        times = [now + 1.0, self._orders.wake_at]
        if self._open and self._reconciliation is None:
            times.append(self._reconcile_at)
        if not self._asking:
            times.append(max(self._retry_at, self.compared + _COMPARE))
            if not self._open and not self._opening:
                times.append(self._retry_at)
        return max(now + 0.001, self.waits_until, min(times))

    def wake(self) -> None:
        """Do what is due."""
        now = self._clock()
        if not self._begun:
            self._begun = True
            if not self._account.session:
                self.report(Opened(self._name()))
            self.report(Lost("the order gateway has not reconciled yet"))
        self._orders.take_intents()
        if now < self.waits_until:
            return
        self._connect(now)
        self._orders.wake(now)
        if self._open and self._reconciliation is None and now >= self._reconcile_at:
            self._reconcile(now)
        self._complete(now)

    def connected(self) -> None:
        """The stream is open: what happens from now on is told, and what has happened is asked for."""
        self._open, self._opening = True, False
        self.connections += 1
        self._reconciliation = None
        self._reconcile_at = self._clock()

    def disconnected(self, reason: str) -> None:
        """The stream has ended, or could not be opened."""
        was_open, self._open, self._opening = self._open, False, False
        # Asked for again, it is the same one with an hour to live, or another where it has expired.
        self._key = ""
        self._reconciliation = None
        self._reconcile_at = inf
        if was_open or self._ready:
            _log.warning("%s: the user stream has ended: %s", self._account.venue, reason[:KEPT_TEXT])
        self._lose(f"the user stream is not there: {reason[:KEPT_TEXT]}")
        self._back_off()

    def frame(self, data: bytes) -> None:
        """A message of the stream."""
        try:
            event = msgspec.json.decode(data, type=WireEvent)
            if not event.e:
                event = msgspec.json.decode(msgspec.json.decode(data, type=WireEnvelope).data, type=WireEvent)
        except UNUSABLE as error:
            _log.warning("%s: a message that cannot be read: %s", self._account.venue, str(error)[:KEPT_TEXT])
            # What it said is asked for.
            self.reconcile_within(0.0)
            return
        if event.e == "ORDER_TRADE_UPDATE" and event.o is not None:
            self._order_event(event.o, event.o.T or event.T)
        elif event.e == "ACCOUNT_UPDATE" and event.a is not None:
            for position in event.a.P:
                if position.ps == "BOTH" and position.s in self._account.symbols:
                    with suppress(*UNUSABLE):
                        check_numbers(position.pa)
                        self.report(PositionIs(position.s, position.pa, event.T))
        elif event.e == "listenKeyExpired":
            self._key = ""
            self._lose("the listen key has expired")
            if self._open:
                self._commands.append(CloseStream())

    def answered(self, number: int, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """The venue has answered a request."""
        pending = self._pending.pop(number, None)
        if pending is None:
            return
        self.limits.note(headers, self.venue_ms())
        problem = WireProblem()
        if not 200 <= status < 300:
            try:
                problem = msgspec.json.decode(body, type=WireProblem)
            except UNUSABLE:
                problem = WireProblem(0, body[:KEPT_TEXT].decode(errors="replace"))
            if status in _WAITS:
                wait = _header(headers, "retry-after")
                seconds = float(wait) if wait.isascii() and wait.isdigit() else 60.0
                self.waits_until = max(self.waits_until, self._clock() + seconds)
                self.trouble = f"the venue asks to wait for {seconds:g} s ({status})"
                _log.warning("%s: %s", self._account.venue, self.trouble)
            if problem.code == _CLOCK:
                self.compared = -inf
            if problem.code in _KEY_REFUSED:
                self.trouble = f"the venue refuses the key: {problem.code}"
                _log.error("%s: %s", self._account.venue, self.trouble)
        unknown = problem.code in _UNKNOWN_CODES or status == 408
        if status >= 500:
            unknown = not problem.msg.startswith(_NOT_DONE) and problem.code != -1008
        pending.take(0 if unknown else status, problem, body)

    def failed(self, number: int, reason: str) -> None:
        """No answer came: nobody knows whether the request has arrived."""
        pending = self._pending.pop(number, None)
        if pending is not None:
            pending.take(0, WireProblem(0, reason[:KEPT_TEXT]), b"")

    def leave(self) -> None:
        """The run ends: what is open is cancelled, and nothing new is sent."""
        self._orders.leaving = True
        for order in self._account.open_orders():
            self._orders.line(order).cancel = True

    def reconcile_within(self, seconds: float) -> None:
        """Reconcile soon."""
        if self._open:
            self._reconcile_at = min(self._reconcile_at, self._clock() + seconds)

    # Requests.

    def ask(
        self,
        method: str,
        path: str,
        params: dict[str, str],
        take: Take,
        *,
        weight: int = 1,
        orders: int = 0,
        signed: bool = True,
    ) -> None:
        self.requests += 1
        now_ms = self.venue_ms()
        self.limits.count(weight, orders, now_ms)
        if signed:
            window = round(1000 * self._options.receive_window)
            params = {**params, "recvWindow": str(window), "timestamp": str(now_ms)}
        self._pending[self.requests] = _Pending(take, path)
        self._commands.append(Request(self.requests, method, path, params, signed))

    def _once(self, what: str, take: Callable[[bytes], None]) -> Take:
        """Of a request that is asked again until it is answered well."""
        self._asking.add(what)

        def answered(status: int, problem: WireProblem, body: bytes) -> None:
            self._asking.discard(what)
            if 200 <= status < 300:
                try:
                    take(body)
                    return
                except UNUSABLE as error:
                    problem = WireProblem(0, str(error))
            self.trouble = f"{what}: {problem.code or status or 'no answer'} {problem.msg}"[:KEPT_TEXT]
            self._back_off()

        return answered

    def venue_ms(self) -> int:
        return round(1000 * self._clock()) + self._offset

    def report(self, report: Report) -> None:
        self._reports.append(report)

    def _back_off(self) -> None:
        self._retry_at = self._clock() + self._delay * self._random.uniform(0.5, 1.0)
        self._delay = min(_LONGEST_DELAY, 2 * self._delay)

    def _lose(self, reason: str) -> None:
        if self._ready or self._account.problem is None:
            self.report(Lost(reason))
        self._ready = False
        self.trouble = reason

    # Connecting: clock, rules, position mode, listen key, stream.

    def _connect(self, now: float) -> None:
        if now < self._retry_at:
            return
        if now >= self.compared + _COMPARE:
            if "clock" not in self._asking:
                began = now
                take = self._once("clock", lambda body: self._told_time(body, began))
                self.ask("GET", "/fapi/v1/time", {}, take, signed=False)
            if self.compared == -inf:
                return
        if not self._listed:
            if "rules" not in self._asking:
                self.ask(
                    "GET", "/fapi/v1/exchangeInfo", {}, self._once("rules", self._told_rules), signed=False
                )
        elif not self._one_way:
            if "mode" not in self._asking:
                self.ask(
                    "GET", "/fapi/v1/positionSide/dual", {}, self._once("mode", self._told_mode), weight=30
                )
        elif not self._key:
            if "key" not in self._asking and not self._open:
                self.ask("POST", "/fapi/v1/listenKey", {}, self._once("key", self._told_key), signed=False)
        elif not self._open and not self._opening:
            self._opening = True
            self._commands.append(OpenStream(self._key))
        elif now >= self._key_renewed + _RENEW and "renewal" not in self._asking:
            self._asking.add("renewal")
            self.ask("PUT", "/fapi/v1/listenKey", {}, self._renewed, signed=False)

    def _told_time(self, body: bytes, began: float) -> None:
        ended = self._clock()
        if ended - began > _LONGEST_WAY:
            raise ValueError(f"its time took {ended - began:.1f} s to come")
        told = msgspec.json.decode(body, type=WireTime).serverTime
        # Half of the way back and forth has passed since.
        self._offset = told - round(500 * (began + ended))
        self.compared = self._clock()

    def _told_rules(self, body: bytes) -> None:
        listing = msgspec.json.decode(body, type=WireListing)
        self.limits.listed(listing.rateLimits)
        for one in listing.symbols:
            if one.symbol not in self._account.symbols:
                continue
            of = {str(entry.get("filterType")): entry for entry in one.filters}
            prices, lots = of.get("PRICE_FILTER", {}), of.get("LOT_SIZE", {})
            if not (
                Decimal(str(prices.get("tickSize", 0))) > 0 and Decimal(str(lots.get("stepSize", 0))) > 0
            ):
                continue
            market, value = of.get("MARKET_LOT_SIZE", {}), of.get("MIN_NOTIONAL", {})
            texts = (
                prices["tickSize"], lots["stepSize"], lots.get("minQty", ""), lots.get("maxQty", ""),
                market.get("maxQty", ""), value.get("notional", ""),
            )  # fmt: skip
            rules = Rules(one.symbol, *map(str, texts))
            for text in texts:
                Decimal(str(text) or "0")
            if self._account.rules.get(one.symbol) != rules:
                self.report(rules)
        self._listed = True

    def _told_mode(self, body: bytes) -> None:
        if msgspec.json.decode(body, type=WireMode).dualSidePosition:
            raise ValueError("the account is in hedge mode; switch it to one-way mode")
        self._one_way = True

    def _told_key(self, body: bytes) -> None:
        self._key = msgspec.json.decode(body, type=WireListenKey).listenKey
        self._key_renewed = self._clock()

    def _renewed(self, status: int, problem: WireProblem, body: bytes) -> None:
        self._asking.discard("renewal")
        if 200 <= status < 300:
            self._key_renewed = self._clock()
        elif problem.code == _NO_LISTEN_KEY:
            self._key = ""
            self._lose("the listen key has expired")
            self._commands.append(CloseStream())
        else:
            self._key_renewed = self._clock() - _RENEW + 60.0

    # Reconciliation.

    def _reconcile(self, now: float) -> None:
        self._reconcile_at = inf
        own = self._reconciliation = _Reconciliation()
        own.asked = list(self._account.open_orders())
        own.waiting = len(self._account.symbols)
        for symbol in self._account.symbols:
            self.ask(
                "GET", "/fapi/v1/openOrders", {"symbol": symbol}, self._step(own, self._told_open, symbol)
            )
        if not own.waiting:
            self._reconciled(own)

    def _step(
        self, own: _Reconciliation, take: Callable[[_Reconciliation, bytes, str], None], symbol: str
    ) -> Take:
        def answered(status: int, problem: WireProblem, body: bytes) -> None:
            if own is not self._reconciliation:
                return
            if 200 <= status < 300:
                try:
                    take(own, body, symbol)
                except UNUSABLE as error:
                    own.failed, problem = True, WireProblem(0, str(error))
            else:
                own.failed = True
            if own.failed:
                what = f"reconciliation: {problem.code or status or 'no answer'} {problem.msg}"
                self.trouble = what[:KEPT_TEXT]
            self._stepped(own)

        return answered

    def _stepped(self, own: _Reconciliation) -> None:
        own.waiting -= 1
        if own.waiting or own is not self._reconciliation:
            return
        if own.failed:
            self._reconciliation = None
            self._reconcile_at = self._clock() + self._delay
            self._delay = min(_LONGEST_DELAY, 2 * self._delay)
            return
        own.stage += 1
        if own.stage == 1:
            self._ask_missing(own)
        elif own.stage == 3:
            self._ask_trades(own)
        elif own.stage in (2, 4):
            # Where positions were the same before and after, the executions between are those they are of.
            own.waiting, own.time = 1, self.venue_ms()
            self.ask("GET", "/fapi/v3/positionRisk", {}, self._step(own, self._told_positions, ""), weight=5)
        else:
            self._reconciled(own)

    def _told_open(self, own: _Reconciliation, body: bytes, symbol: str) -> None:
        for order in msgspec.json.decode(body, type=list[WireOrder]):
            own.open.add(order.clientOrderId)
            self._orders.note(order)
            if self._account.is_stray(order.clientOrderId):
                self._orders.stray(order)

    def _ask_missing(self, own: _Reconciliation) -> None:
        """Of the orders that were open as far as was known, each that the venue did not name."""
        missing = []
        for order in own.asked:
            line = self._orders.lines.get(order.client_id)
            if order.client_id in own.open or (line is not None and line.busy):
                continue
            missing.append(order)
        own.waiting = len(missing) + 1
        for order in missing:
            line = self._orders.line(order)
            line.busy = True
            self._orders.query(line, lambda: self._stepped(own))
        self._stepped(own)

    def _ask_trades(self, own: _Reconciliation) -> None:
        own.waiting = len(self._account.symbols) + 1
        for symbol in self._account.symbols:
            self._ask_page(own, symbol, self._account.reconciled.get(symbol))
        self._stepped(own)

    def _ask_page(self, own: _Reconciliation, symbol: str, last: int | None) -> None:
        # The first time it is only asked where executions are now.
        page = {"limit": "1"} if last is None else {"fromId": str(last + 1), "limit": str(_PAGE)}

        def take(own: _Reconciliation, body: bytes, symbol: str) -> None:
            trades = sorted(msgspec.json.decode(body, type=list[WireTrade]), key=lambda trade: trade.id)
            newest = max((trade.id for trade in trades), default=-1 if last is None else last)
            if last is not None:
                for trade in trades:
                    self.report(trade_report(trade))
                if len(trades) >= _PAGE:
                    own.waiting += 1
                    self._ask_page(own, symbol, newest)
                    return
            self.report(Reconciled(symbol, newest, self.venue_ms()))

        self.ask(
            "GET", "/fapi/v1/userTrades", {"symbol": symbol, **page}, self._step(own, take, symbol), weight=5
        )

    def _told_positions(self, own: _Reconciliation, body: bytes, symbol: str) -> None:
        found = msgspec.json.decode(body, type=list[WirePosition])
        held = {one.symbol: one for one in found if one.positionSide == "BOTH"}
        for name in self._account.symbols:
            one = held.get(name)
            if own.stage == 2:
                own.before[name] = one
                continue
            # What is not listed is not held.
            volume, time = ("0", own.time) if one is None else (one.positionAmt, one.updateTime)
            Decimal(volume)
            self.report(PositionIs(name, volume, time, own.before[name] == one))

    def _reconciled(self, own: _Reconciliation) -> None:
        self._reconciliation = None
        self.reconciliations += 1
        now = self.reconciled_at = self._clock()
        self._reconcile_at = now + self._options.reconcile_seconds
        self._delay = _FIRST_DELAY
        self.trouble = None
        if not self._ready:
            self._ready = True
            self.report(Ready())

    def _complete(self, now: float) -> None:
        """Where an order has ended and executions of it are not there after a while, they are asked for."""
        if not self._account.incomplete():
            self._incomplete_since = None
        elif self._incomplete_since is None:
            self._incomplete_since = now
        elif now >= self._incomplete_since + _INCOMPLETE and self._open and self._reconciliation is None:
            self._incomplete_since = None
            self._reconcile_at = min(self._reconcile_at, now)

    def _order_event(self, order: WireStreamOrder, time: int) -> None:
        status = STATUSES.get(order.X)
        if status is None or order.s not in self._account.symbols:
            return
        try:
            check_numbers(order.q, order.p, order.z, order.last, order.L, order.n or "0")
        except UNUSABLE:
            self.reconcile_within(0.0)
            return
        self._orders.state(OrderState(order.c, order.i, status, order.q, order.p, order.z, time), order.s)
        if order.x in ("TRADE", "CALCULATED") and Decimal(order.last) > 0:
            self.report(
                VenueTrade(
                    order.s, order.t, order.i, order.c, "buy" if order.S == "BUY" else "sell", order.last,
                    order.L, order.n or "0", order.N, order.m, time,
                )
            )  # fmt: skip


def _header(headers: Mapping[str, str], name: str) -> str:
    return next((value for own, value in headers.items() if own.lower() == name), "")
