"""Imbalance of the touch, and of the flow of orders at it, over views/touch.sql."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import ClassVar

from orderbook import BookStateChange, Parameter, Strategy, ViewEvent, ViewRow, on_view

_SECOND = 10**9


@dataclass(slots=True)
class Flow:
    """What came to and left the touch of one book lately: (time, flow, depth) of each change, and their sums.

    side: what is held for it, 1 long, -1 short, 0 nothing.
    """

    changes: deque[tuple[int, Decimal, Decimal]] = field(default_factory=deque)
    flow: Decimal = Decimal(0)
    depth: Decimal = Decimal(0)
    side: int = 0

    def add(self, time: int, flow: Decimal, depth: Decimal, window: int) -> None:
        """Takes in a change, and leaves out those that are older than the window (ns)."""
        self.changes.append((time, flow, depth))
        self.flow, self.depth = self.flow + flow, self.depth + depth
        while self.changes[0][0] <= time - window:
            _, old_flow, old_depth = self.changes.popleft()
            self.flow, self.depth = self.flow - old_flow, self.depth - old_depth

    @property
    def impact(self) -> Decimal:
        """The move of the mid that the flow explains, in ticks: flow / (2 * mean depth)."""
        return self.flow * len(self.changes) / (2 * self.depth) if self.depth else Decimal(0)


class OrderFlow(Strategy):
    """Holds `volume` of a symbol while what comes to and leaves its touch presses up, and is short of it
    while that presses down: once the flow of the last `window` seconds explains a move of `threshold` ticks.

    Source: R. Cont, A. Kukanov, S. Stoikov, "The price impact of order book events" (Journal of Financial
    Econometrics, 2014): the flow of a change of the touch is what it adds to the bid less what it adds to the
    ask, where a better price adds all its volume and a worse one takes all that stood before (their e_n); the
    mid moves by flow / (2 * depth) ticks. The view has the touch as it is; the flow is a sum over its
    changes, which are kept in memory alone: it begins anew with every start.
    """

    partition_by = "symbol"
    signal = "touch.imbalance"
    defaults: ClassVar[Mapping[str, Parameter]] = {
        "threshold": Decimal(2), "window": Decimal(10), "volume": 1,
    }  # fmt: skip

    def __init__(self) -> None:
        self.flows: dict[str, Flow] = {}

    @on_view("touch", fire="change")
    def touched(self, event: ViewEvent) -> None:
        """Adds the flow of a change, and trades where its side is another."""
        venue, symbol = map(str, event.key)
        if event.old is None or event.new is None:
            # One side was or is empty: nothing is there to compare with.
            self.flows.pop(venue, None)
            return
        flow = self.flows.setdefault(venue, Flow())
        new = event.new
        window = int(self.parameters["window"] * _SECOND)
        flow.add(self.now, flow_of(event.old, new), (new.bid_volume + new.ask_volume) / 2, window)
        side = 0 if abs(flow.impact) < self.parameters["threshold"] else 1 if flow.impact > 0 else -1
        if side and side != flow.side:
            flow.side = side
            self.hold(symbol, side * self.parameters["volume"], venue)

    def on_book_state(self, state: BookStateChange) -> None:
        """Begins anew: what changed meanwhile is not the flow of one moment."""
        self.flows.pop(state.venue, None)


class TouchImbalance(Strategy):
    """Holds `volume` of a symbol while much more is bid than asked at its touch, and is short of it in the
    opposite case: once the imbalance passes `threshold`, of 1 at most.

    Source: M. Gould, J. Bonart, "Queue imbalance as a one-tick-ahead price predictor in a limit order book"
    (Market Microstructure and Liquidity, 2016). It foretells the next tick, which is less than the spread and
    a taker's fee: a signal for quotes more than for this.
    """

    partition_by = "symbol"
    defaults: ClassVar[Mapping[str, Parameter]] = {"threshold": Decimal("0.9"), "volume": 1}

    @on_view("touch", when="imbalance > :threshold")
    def bids_outweigh(self, event: ViewEvent) -> None:
        """Goes long."""
        self.hold(str(event.key[1]), self.parameters["volume"], str(event.key[0]))

    @on_view("touch", when="imbalance < -:threshold")
    def asks_outweigh(self, event: ViewEvent) -> None:
        """Goes short."""
        self.hold(str(event.key[1]), -self.parameters["volume"], str(event.key[0]))


def flow_of(old: ViewRow, new: ViewRow) -> Decimal:
    """The flow of one change of the touch, in the units of volume; above 0 it presses up."""
    flow = Decimal(0)
    if new.bid >= old.bid:
        flow += new.bid_volume
    if new.bid <= old.bid:
        flow -= old.bid_volume
    if new.ask <= old.ask:
        flow -= new.ask_volume
    if new.ask >= old.ask:
        flow += old.ask_volume
    return flow
