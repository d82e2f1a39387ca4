"""A run's account at a venue that trades: what was asked for, and what the venue has reported of it.

`VenueAccount` is the venue's side, one for all strategies of a run; `VenueClient` one strategy's orders
there. Both follow from requests and reports alone, which a log has, and do no I/O. Reports may come twice, in
any order: an execution counts once, by its id; an order has ended once its executions are all there; of two
states the later one by the venue's time holds.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import msgspec
from msgspec.structs import replace

from orderbook.core.errors import DataError
from orderbook.market.books import Books
from orderbook.market.events import Side
from orderbook.market.instruments import FIXED_POINT, Instrument, Instruments
from orderbook.strategies.execution.account import Execution, Fill, Ledger, Order, OrderUpdate
from orderbook.strategies.execution.client import CheckedOrder, Requests
from orderbook.strategies.execution.order_terms import Number
from orderbook.strategies.execution.risk import Exposure, Risk
from orderbook.strategies.execution.venue_orders import SavedVenue, SavedVenueClient, VenueOrder
from orderbook.strategies.execution.venue_reports import (
    CancelAll,
    CancelOrder,
    Intent,
    Lost,
    Missing,
    Modify,
    NotModified,
    Opened,
    OrderState,
    Place,
    PositionIs,
    Ready,
    Reconciled,
    Refused,
    Report,
    Rules,
    VenueTrade,
    client_id_of,
    line_of,
    parts_of,
)

_log = logging.getLogger(__name__)
_MILLISECOND = 10**6
_HOUR_MS = 3_600_000
# Orders that have ended and are kept, for what is reported late.
_ENDED_KEPT = 1_000
_NOT_OPENED = "the order gateway has not connected yet"


@dataclass(frozen=True, slots=True)
class OpenOrder:
    """An order that is open as far as was reported. confirmed: the venue has said that it has it."""

    client_id: str
    symbol: str
    side: str
    confirmed: bool


class VenueAccount:
    """A run's account at one venue.

    `outbox` is what is to be sent; nothing is put there before `sending` is set, so that what a log says is
    applied again without being asked for again.
    """

    def __init__(self, venue: str, instruments: Instruments) -> None:
        self.venue = venue
        self.session = ""
        self.problem: str | None = _NOT_OPENED
        self.sending = False
        self.outbox: deque[Intent] = deque()
        # Whether orders that are asked for are not sent any more.
        self.blocked = False
        # Called when something has been put there.
        self.asked: Callable[[], object] = lambda: None
        self.rules: dict[str, Rules] = {}
        self.symbols = {
            one.native_symbol: index for index, one in enumerate(instruments) if one.venue == venue
        }
        # By symbol: the last execution before which all are known, and those after it that are.
        self.reconciled: dict[str, int] = {}
        self._seen: dict[str, set[int]] = {}
        # Executions of orders whose client id is not known yet.
        self._orphans: list[VenueTrade] = []
        self._names: dict[int, str] = {}
        # By symbol: what others have traded, what the account holds and since when, and had before the run.
        self.outside: dict[str, Decimal] = {}
        self._held: dict[str, tuple[Decimal, int]] = {}
        self._before: dict[str, Decimal] = {}
        # When the run first looked, ms: what others did earlier is in what was there before.
        self._begun: dict[str, int] = {}
        self._clients: dict[str, VenueClient] = {}

    def join(self, client: "VenueClient") -> None:
        """A strategy's orders come through here."""
        self._clients[client.line] = client

    def ask(self, intent: Intent) -> None:
        """Something is to be sent."""
        if self.sending:
            self.outbox.append(intent)
            self.asked()

    def cancel_all(self) -> None:
        """Every symbol with an open order is to have none."""
        for symbol in sorted({order.symbol for order in self.open_orders()}):
            self.ask(CancelAll(symbol))

    def block(self, blocked: bool) -> None:
        """From now on no order is sent, and what is open is to be cancelled; or they are again."""
        self.blocked = blocked
        if blocked:
            self.cancel_all()

    def open_orders(self) -> Iterator[OpenOrder]:
        """The run's orders that are open, as far as was reported."""
        for client in self._clients.values():
            yield from client.open_at_venue()

    def incomplete(self) -> set[str]:
        """Symbols with an order that has ended, and whose executions have not all been reported."""
        own = (order for client in self._clients.values() for order in client.orders.values())
        return {self._native(order.instrument) for order in own if order.ended}

    def knows(self, client_id: str) -> bool:
        """Whether an order is one of this run's strategies."""
        return self._order(client_id) is not None

    def is_stray(self, client_id: str) -> bool:
        """Whether an order has the name of this run, which has no record of it."""
        parts = parts_of(client_id)
        return parts is not None and parts[0] == self.session and not self.knows(client_id)

    def own(self, symbol: str) -> Decimal:
        """What the strategies hold of a symbol."""
        index = self.symbols[symbol]
        return sum((client.volume(index) for client in self._clients.values()), Decimal(0))

    def unexplained(self, symbol: str) -> Decimal:
        """How far what the venue says is held differs from what was there before the run, the strategies'
        and what others are known to have traded; 0 before the venue has said."""
        if symbol not in self._held or symbol not in self._before:
            return Decimal(0)
        explained = self._before[symbol] + self.own(symbol) + self.outside.get(symbol, Decimal(0))
        return self._held[symbol][0] - explained

    def take(self, report: Report) -> Iterator[tuple["VenueClient", OrderUpdate]]:
        """Take a report; what it changes of whose orders. One that the instrument's units cannot say is left
        out, and logged."""
        try:
            yield from self._take(report)
        except DataError as error:
            _log.error("%s: a report cannot be taken: %s: %s", self.venue, error, report)

    def _take(self, report: Report) -> Iterator[tuple["VenueClient", OrderUpdate]]:
        match report:
            case Opened(session):
                if not self.session:
                    self.session = session
            case Rules():
                self.rules[report.symbol] = report
            case Ready():
                self.problem = None
            case Lost(reason):
                self.problem = reason
            case OrderState():
                yield from self._state(report)
            case VenueTrade():
                yield from self._trade(report)
            case Refused() | Missing() | NotModified():
                found = self._order(report.client_id)
                if found is not None:
                    client, order = found
                    for update in client.told(order, report):
                        yield client, update
            case Reconciled():
                self._reconcile(report)
            case PositionIs():
                self._hold(report)

    def save(self) -> SavedVenue:
        """What it knows, between two items."""
        return SavedVenue(
            self.session,
            list(self.rules.values()),
            dict(self.reconciled),
            {symbol: sorted(seen) for symbol, seen in self._seen.items()},
            list(self._orphans),
            {symbol: str(volume) for symbol, volume in self.outside.items()},
            {symbol: (str(volume), time) for symbol, (volume, time) in self._held.items()},
            {symbol: str(volume) for symbol, volume in self._before.items()},
            dict(self._begun),
            self.problem,
        )

    def load(self, saved: SavedVenue) -> None:
        """Goes on from `save`, after its clients have."""
        self.session = saved.session
        self.rules = {rules.symbol: rules for rules in saved.rules}
        self.reconciled = dict(saved.reconciled)
        self._seen = {symbol: set(seen) for symbol, seen in saved.seen.items()}
        self._orphans = list(saved.orphans)
        self.outside = {symbol: Decimal(volume) for symbol, volume in saved.outside.items()}
        self._held = {symbol: (Decimal(volume), time) for symbol, (volume, time) in saved.held.items()}
        self._before = {symbol: Decimal(volume) for symbol, volume in saved.before.items()}
        self._begun = dict(saved.begun)
        # Until the session says otherwise, as where the log is applied from its beginning.
        self.problem = saved.problem
        for client in self._clients.values():
            for order in (*client.orders.values(), *client.ended.values()):
                if order.order_id:
                    self._names[order.order_id] = order.client_id

    def _native(self, index: int) -> str:
        return next(symbol for symbol, own in self.symbols.items() if own == index)

    def _order(self, client_id: str) -> "tuple[VenueClient, VenueOrder] | None":
        """An order of the run's, and whose it is."""
        parts = parts_of(client_id)
        if parts is None or parts[0] != self.session or parts[1] not in self._clients:
            return None
        client = self._clients[parts[1]]
        order = client.orders.get(parts[2]) or client.ended.get(parts[2])
        return None if order is None else (client, order)

    def _state(self, report: OrderState) -> "Iterator[tuple[VenueClient, OrderUpdate]]":
        found = self._order(report.client_id)
        if found is None:
            return
        client, order = found
        if report.order_id and not order.order_id:
            order.order_id = report.order_id
            self._names[report.order_id] = order.client_id
        for update in client.state(order, report):
            yield client, update
        orphans = [trade for trade in self._orphans if trade.order_id == order.order_id]
        self._orphans = [trade for trade in self._orphans if trade.order_id != order.order_id]
        for trade in orphans:
            for update in client.trade(order, trade):
                yield client, update

    def _trade(self, report: VenueTrade) -> "Iterator[tuple[VenueClient, OrderUpdate]]":
        seen = self._seen.setdefault(report.symbol, set())
        if report.trade_id in seen or report.trade_id <= self.reconciled.get(report.symbol, -1):
            return
        seen.add(report.trade_id)
        name = report.client_id or self._names.get(report.order_id, "")
        if not name:
            self._orphans.append(report)
            return
        found = self._order(name)
        if found is None:
            self._count_outside(report)
            return
        client, order = found
        for update in client.trade(order, report):
            yield client, update

    def _count_outside(self, trade: VenueTrade) -> None:
        # Without an execution in the week before, those of older ones are told, too.
        if trade.time < self._begun.get(trade.symbol, 0) - _HOUR_MS:
            return
        volume = Decimal(trade.volume) if trade.side == "buy" else -Decimal(trade.volume)
        self.outside[trade.symbol] = self.outside.get(trade.symbol, Decimal(0)) + volume

    def _reconcile(self, report: Reconciled) -> None:
        symbol, last = report.symbol, report.trade_id
        self._begun.setdefault(symbol, report.time)
        known = self.reconciled.get(symbol)
        self.reconciled[symbol] = max(last, -1 if known is None else known)
        self._seen[symbol] = {one for one in self._seen.get(symbol, ()) if one > last}
        waiting = any(order.symbol == symbol and not order.confirmed for order in self.open_orders())
        if waiting:
            # One of these may have been executed before the venue has told its id.
            return
        for trade in [one for one in self._orphans if one.symbol == symbol and one.trade_id <= last]:
            self._orphans.remove(trade)
            self._count_outside(trade)

    def _hold(self, report: PositionIs) -> None:
        symbol = report.symbol
        if symbol not in self.symbols or self._held.get(symbol, (Decimal(0), -1))[1] > report.time:
            return
        self._held[symbol] = Decimal(report.volume), report.time
        # It is of the time of the reconciliation, and an execution since then would count twice.
        waiting = self._seen.get(symbol) or any(trade.symbol == symbol for trade in self._orphans)
        if symbol not in self._before and report.settled and not waiting:
            others = self.own(symbol) + self.outside.get(symbol, Decimal(0))
            self._before[symbol] = Decimal(report.volume) - others


class VenueClient:
    """One strategy's orders and positions at a venue; see ExecutionClient for what its methods mean."""

    def __init__(
        self, strategy: str, account: VenueAccount, books: Books | None, instruments: Instruments, risk: Risk
    ) -> None:
        """strategy: what tells the instance from others."""
        self.line = line_of(strategy)
        self.orders: dict[int, VenueOrder] = {}
        self.ended: dict[int, VenueOrder] = {}
        self.ledger = Ledger(instruments)
        # All that was paid, by asset; those of the quote currency are in the ledger, too.
        self.fees: dict[str, Decimal] = {}
        self._account, self._books, self._instruments, self.risk = account, books, instruments, risk
        account.join(self)

    def place(self, order: Order, checked: CheckedOrder, now: int) -> list[OrderUpdate]:
        """Send an order that has been checked against its instrument."""
        account, one = self._account, self._instruments[checked.instrument]
        try:
            if account.problem is not None:
                raise DataError(f"{one}: {account.problem}")
            limit = None if checked.limit is None else one.price(checked.limit)
            self._check_rules(one, one.volume(checked.lots), limit, checked)
            self.check_risk(checked.instrument, order, checked.lots, checked.limit, now)
        except DataError as error:
            return [OrderUpdate(None, replace(order, status="refused", reason=str(error)))]
        sent = replace(order, status="sent")
        client_id = client_id_of(account.session, self.line, order.id)
        self.orders[order.id] = VenueOrder(checked.instrument, sent, client_id, checked.post_only)
        account.ask(
            Place(
                client_id, one.native_symbol, order.side, _text(order.volume),
                None if order.price is None else _text(order.price), checked.ioc, checked.post_only,
            )
        )  # fmt: skip
        return [OrderUpdate(None, sent)]

    def modify(
        self, requests: Requests, order_id: int, volume: Number | None, price: Number | None, now: int
    ) -> list[OrderUpdate]:
        """See ExecutionClient."""
        own = self.orders.get(order_id)
        if own is None or own.ended:
            return []
        one, row = self._instruments[own.instrument], own.row
        try:
            if self._account.problem is not None:
                raise DataError(f"{one}: {self._account.problem}")
            if row.price is None:
                raise DataError(f"{one}: a market order cannot be modified")
            lots = requests.lots(own.instrument, _text(row.volume) if volume is None else volume)
            limit = requests.ticks(own.instrument, _text(row.price) if price is None else price)
            self._check_rules(one, one.volume(lots), one.price(limit), None)
            left = lots - one.lots(str(row.filled))
            if left > 0:
                self.check_risk(own.instrument, row, left, limit, now)
        except DataError as error:
            return [self._changed(own, replace(row, ts=now, reason=f"not modified: {error}"))]
        self._account.ask(
            Modify(
                own.client_id, one.native_symbol, row.side, _text(one.volume(lots)), _text(one.price(limit))
            )
        )
        return []

    def cancel(self, order_id: int, reason: str | None) -> list[OrderUpdate]:
        """See ExecutionClient."""
        own = self.orders.get(order_id)
        if own is not None and not own.ended:
            own.cancelling, own.why = True, reason
            symbol = self._instruments[own.instrument].native_symbol
            self._account.ask(CancelOrder(own.client_id, symbol))
        return []

    def open_at_venue(self) -> Iterator[OpenOrder]:
        """Its orders that are open, for whoever asks the venue of them."""
        for own in self.orders.values():
            if not own.ended:
                symbol = self._instruments[own.instrument].native_symbol
                confirmed = own.row.status != "sent"
                yield OpenOrder(own.client_id, symbol, own.row.side, confirmed)

    def volume(self, instrument: int) -> Decimal:
        """What it holds of an instrument."""
        return self._instruments[instrument].volume(self.ledger.held(instrument))

    def places(self, instrument: int) -> Iterator[Mapping[str, object]]:
        """See ExecutionClient; a venue does not tell what stands ahead."""
        one = self._instruments[instrument]
        for order_id, own in self.orders.items():
            row = own.row
            if own.instrument == instrument and row.status == "resting" and row.price is not None:
                left = one.lots(str(row.volume - row.filled))
                yield {
                    "id": order_id, "side": row.side, "price": one.ticks(str(row.price)), "left": left,
                    "ahead": None,
                }  # fmt: skip

    def save(self) -> SavedVenueClient:
        """See ExecutionClient."""
        return SavedVenueClient(
            [msgspec.structs.replace(one) for one in self.orders.values()],
            [msgspec.structs.replace(one) for one in self.ended.values()],
            self.ledger.save(),
            {asset: str(amount) for asset, amount in self.fees.items()},
            list(self.risk.sent),
            str(self.risk.worth),
            str(self.risk.peak),
        )

    def load(self, saved: SavedVenueClient, indexes: Sequence[int]) -> None:
        """See ExecutionClient."""
        for orders, kept in ((self.orders, saved.orders), (self.ended, saved.ended)):
            for one in kept:
                orders[one.row.id] = msgspec.structs.replace(one, instrument=indexes[one.instrument])
        self.ledger.load(saved.holdings, indexes)
        self.fees = {asset: Decimal(amount) for asset, amount in saved.fees.items()}
        self.risk.sent = deque(saved.sent)
        self.risk.worth, self.risk.peak = Decimal(saved.worth), Decimal(saved.peak)

    def state(self, own: VenueOrder, report: OrderState) -> Iterator[OrderUpdate]:
        """An order stands so at the venue."""
        if own.row.id in self.ended or own.ended:
            return
        row, one = own.row, self._instruments[own.instrument]
        if report.status != "open":
            own.ended, own.due, own.time = report.status, Decimal(report.filled), report.time
        elif report.time < own.time:
            return
        own.time = max(own.time, report.time)
        new = replace(row, status="resting")
        if Decimal(report.volume) > 0:
            new = replace(new, volume=one.volume(one.lots(report.volume)))
        if row.price is not None and Decimal(report.price) > 0:
            new = replace(new, price=one.price(one.ticks(report.price)))
        if own.ended:
            # What it ends with is said once its executions are there.
            own.row = row
            if new.volume != row.volume or new.price != row.price:
                own.row = replace(row, volume=new.volume, price=new.price)
            yield from self._finish(row, own, report.time * _MILLISECOND)
        elif new != row:
            yield self._changed(own, replace(new, ts=report.time * _MILLISECOND, reason=None))

    def trade(self, own: VenueOrder, report: VenueTrade) -> Iterator[OrderUpdate]:
        """An order was executed."""
        one, row = self._instruments[own.instrument], own.row
        lots, ticks = one.lots(report.volume), one.ticks(report.price)
        paid = _amount(report.fee)
        self.fees[report.fee_asset] = self.fees.get(report.fee_asset, Decimal(0)) + paid
        in_quote = report.fee_asset in ("", quote_of(one))
        fee = int((paid if in_quote else Decimal(0)) * FIXED_POINT)
        time = report.time * _MILLISECOND
        fill = Fill(
            time, row.strategy, row.id, one.venue, one.symbol, row.side, one.volume(lots), one.price(ticks),
            Decimal(fee).scaleb(-8), "maker" if report.maker else "taker",
        )  # fmt: skip
        signed = lots if row.side == "buy" else -lots
        self.ledger.trade(Execution(own.instrument, signed, ticks, fee))
        filled = row.filled + fill.volume
        new = replace(row, ts=time, filled=filled)
        ended = row.id in self.ended
        if not ended:
            new = replace(new, status="resting")
        own.row = new
        # That nothing is left the venue says: its volume may have been changed there.
        if own.ended and not ended and filled >= own.due:
            own.row = self._ended_row(own, time)
            self._end(own)
        yield OrderUpdate(row, own.row, (fill,))

    def told(self, own: VenueOrder, report: Refused | Missing | NotModified) -> Iterator[OrderUpdate]:
        """An order is not there, or stays as it was."""
        row = own.row
        if row.id in self.ended or own.ended:
            return
        time = report.time * _MILLISECOND
        if isinstance(report, NotModified):
            yield self._changed(own, replace(row, ts=time, reason=f"not modified: {report.reason}"))
            return
        if isinstance(report, Refused):
            if row.status != "sent":
                # It has been seen there, whatever the answer to its sending was.
                return
            new = replace(row, ts=time, status="refused", reason=report.reason)
        elif row.status == "sent":
            new = replace(row, ts=time, status="refused", reason="the venue has never accepted it")
        else:
            new = replace(row, ts=time, status="cancelled", reason="the venue has it no more")
        own.row = new
        self._end(own)
        yield OrderUpdate(row, new)

    def _finish(self, before: Order, own: VenueOrder, time: int) -> Iterator[OrderUpdate]:
        """The venue has ended an order."""
        if own.row.filled < own.due:
            if own.row != before:
                yield OrderUpdate(before, own.row)
            return
        own.row = self._ended_row(own, time)
        self._end(own)
        yield OrderUpdate(before, own.row)

    def _ended_row(self, own: VenueOrder, time: int) -> Order:
        row = own.row
        if own.ended == "filled" or row.filled >= row.volume:
            return replace(row, ts=time, status="filled", volume=max(row.volume, row.filled), reason=None)
        if own.ended == "rejected":
            return replace(row, ts=time, status="refused", reason="the venue has rejected it")
        if own.ended == "expired" and own.post_only and not row.filled:
            return replace(row, ts=time, status="refused", reason="post-only: it would have taken")
        reason = own.why if own.cancelling else None
        if own.ended == "cancelled" and not own.cancelling:
            reason = "cancelled at the venue, not by the run"
        return replace(row, ts=time, status="cancelled", reason=reason)

    def _end(self, own: VenueOrder) -> None:
        self.orders.pop(own.row.id, None)
        self.ended[own.row.id] = own
        while len(self.ended) > _ENDED_KEPT:
            del self.ended[next(iter(self.ended))]

    def _changed(self, own: VenueOrder, row: Order) -> OrderUpdate:
        before, own.row = own.row, row
        return OrderUpdate(before, row)

    def check_risk(self, index: int, order: Order, lots: int, limit: int | None, now: int) -> None:
        """Raises DataError with the reason for a refusal by the limits of risk."""
        if self.risk.unlimited:
            return
        one, buys = self._instruments[index], order.side == "buy"
        known = (own.row for own in self.orders.values() if own.instrument == index)
        waiting = sum(
            (row.volume - row.filled for row in known if row.side == order.side and row.id != order.id),
            Decimal(0),
        )
        price = self._touch(index, order.side) if limit is None else limit
        volume = one.volume(lots)
        exposure = Exposure(
            volume if buys else -volume, None if price is None else one.price(price),
            self.volume(index), waiting,
        )  # fmt: skip
        reason = self.risk.refusal(exposure, now)
        if reason is not None:
            raise DataError(f"{one}: {reason}")

    def _touch(self, index: int, side: str) -> int | None:
        if self._books is None:
            return None
        return self._books.best(index)[Side.ASK if side == "buy" else Side.BID]

    def _check_rules(
        self, one: Instrument, volume: Decimal, price: Decimal | None, checked: CheckedOrder | None
    ) -> None:
        """Raises DataError for what the venue would refuse."""
        rules = self._account.rules.get(one.native_symbol)
        if rules is None:
            raise DataError(f"{one}: the venue does not list it")
        if volume % Decimal(rules.lot):
            raise DataError(f"{one}: volume {_text(volume)} is no multiple of the venue's lot {rules.lot}")
        most = rules.most_at_market if price is None and rules.most_at_market else rules.most
        if most and volume > Decimal(most):
            raise DataError(f"{one}: a volume above the venue's {most}")
        if rules.least and volume < Decimal(rules.least):
            raise DataError(f"{one}: a volume below the venue's {rules.least}")
        if price is not None and price % Decimal(rules.tick):
            raise DataError(f"{one}: price {_text(price)} is no multiple of the venue's tick {rules.tick}")
        value_at = price
        if price is None and checked is not None:
            touch = self._touch(checked.instrument, "buy" if checked.side is Side.BID else "sell")
            value_at = None if touch is None else one.price(touch)
        if rules.least_value and value_at is not None and volume * value_at < Decimal(rules.least_value):
            raise DataError(f"{one}: worth less than the venue's least of {rules.least_value}")


def quote_of(one: Instrument) -> str:
    """The currency that an instrument is quoted in, by its name."""
    parts = one.symbol.split("-")
    return parts[1] if len(parts) > 1 else ""


def _amount(text: str) -> Decimal:
    try:
        return Decimal(text or "0")
    except InvalidOperation:
        return Decimal(0)


def _text(value: Decimal) -> str:
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
