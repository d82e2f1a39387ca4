"""What keeps compiled methods, and rules of strategies in SQL, from the compiled loop."""

from collections.abc import Sequence

from orderbook.strategies.execution.venue_model import TradingOptions
from orderbook.strategies.order_views import OrderView
from orderbook.strategies.strategy import (
    Strategy,
    StrategyDefinition,
    compiled_methods,
    fills_in_python,
    timers_in_python,
    watches_of,
)
from orderbook.views.calculus import maps_read
from orderbook.views.m3 import Program

KEPT = ("orders", "fills", "positions")


def kept_relations(program: Program, view: str) -> frozenset[str]:
    """Which of the relations that strategies keep can change rows of a view."""
    result = program.result(view)
    read = frozenset({result.multiplicity}).union(*(maps_read(value) for _, value in result.lets))
    kept = (trigger for trigger in program.triggers if trigger.relation in KEPT)
    return frozenset(
        trigger.relation for trigger in kept if any(one.target in read for one in trigger.statements)
    )


def why_in_python(kind: type[Strategy], valued: bool, simulated: bool) -> str | None:
    """What of a class, its limits and its client keeps all its orders from the loop; None: nothing does.

    valued: whether the loop can say what is held is worth, where `max_drawdown` asks for that. simulated:
    whether all its orders go to the simulated exchange.
    """
    told = kind.on_order_update is not Strategy.on_order_update and not issubclass(kind, OrderView)
    if told and "on_order_update" not in compiled_methods(kind):
        return "on_order_update is in Python"
    if told and fills_in_python(kind):
        return "on_fill is in Python, and called in turn with on_order_update"
    if not simulated:
        return "its orders go through a gateway"
    return None if valued else "max_drawdown of [risk] has 128 bits no room for, or inverse contracts"


def loop_notes(
    program: Program,
    strategy: StrategyDefinition,
    others: Sequence[StrategyDefinition],
    trading: TradingOptions,
) -> list[str]:
    """Lines that say whether a strategy runs in the compiled loop, beside others, and why it does not.

    program: has the views that they watch.
    """
    kind = strategy.kind
    why = why_in_python(kind, True, not trading.gateways)
    if why is None and trading.simulation.margin is not None:
        why = "margin of [simulation] is looked at with each message"
    told = [(one, watch) for one in (strategy, *others) for watch in watches_of(one.kind)]
    for one, watch in told if why is None else ():
        read = sorted(kept_relations(program, watch.view))
        if read and not issubclass(one.kind, OrderView):
            why = f"{one.name}.{watch.method} watches {watch.view}, which reads {', '.join(read)}"
    if why is not None:
        return [f"{strategy.name} is called by Python: {why}"]
    own = compiled_methods(kind)
    if not own and not issubclass(kind, OrderView):
        return [
            f"{strategy.name} is called by Python: its methods are not compiled; the compiled loop checks "
            "their conditions and, without a log, sends their orders"
        ]
    found = [f"{strategy.name} runs in the compiled loop; in a run with a log Python sends its orders"]
    watched = () if issubclass(kind, OrderView) else [watch.method for watch in watches_of(kind)]
    trades = () if kind.on_trade is Strategy.on_trade else ("on_trade",)
    fills = ("on_fill",) if fills_in_python(kind) else ()
    in_python = (one for one in watched if one not in own)
    for method in (*in_python, *fills, *timers_in_python(kind), *trades):
        apart = "it is not compiled" if method not in own else "timers are called in order, after trades"
        found.append(f"but {method} is called by Python: {apart}")
    return found
