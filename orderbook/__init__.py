"""Orderbook: SQL views over live order books, refreshed at every event, that call trading strategies.

    program = orderbook.compile(sql, params={"k": 0.25})
    engine = orderbook.Engine(program)
    engine.subscribe("sobi", callback, when="pressure > 2.6")
    engine.apply(program.changes(frame))

    orderbook.backtest("flow.parquet", "sobi", "strategies.sobi:Sobi").equity

Names are imported at their first use, so that `import orderbook` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orderbook.clients.client_engine import ClientEngine
    from orderbook.clients.widgets import heat_map as heat_map
    from orderbook.clients.widgets import ladder as ladder
    from orderbook.clients.widgets import live as live
    from orderbook.commands.backtest import backtest_in_python
    from orderbook.core.changes import Dictionary as Dictionary
    from orderbook.core.errors import DataError as DataError
    from orderbook.core.errors import OrderbookError as OrderbookError
    from orderbook.core.errors import SqlError as SqlError
    from orderbook.engine.runtime.live_view import LiveView as LiveView
    from orderbook.engine.runtime.live_view import ViewRow as ViewRow
    from orderbook.engine.runtime.subscriptions import Subscription as Subscription
    from orderbook.engine.runtime.subscriptions import ViewEvent as ViewEvent
    from orderbook.report.backtest_result import BacktestResult as BacktestResult
    from orderbook.strategies.execution.account import Fill as Fill
    from orderbook.strategies.execution.account import Order as Order
    from orderbook.strategies.execution.account import OrderSide as OrderSide
    from orderbook.strategies.strategy import BookStateChange as BookStateChange
    from orderbook.strategies.strategy import Parameter as Parameter
    from orderbook.strategies.strategy import Strategy as Strategy
    from orderbook.strategies.strategy import Trade as Trade
    from orderbook.strategies.strategy import compiled as compiled
    from orderbook.strategies.strategy import on_timer as on_timer
    from orderbook.strategies.strategy import on_view as on_view
    from orderbook.views.compilation import compile_views
    from orderbook.views.program import CompiledProgram as CompiledProgram

    Engine = ClientEngine
    backtest = backtest_in_python
    compile = compile_views

_PLACES = {
    "BacktestResult": ("orderbook.report.backtest_result", "BacktestResult"),
    "BookStateChange": ("orderbook.strategies.strategy", "BookStateChange"),
    "CompiledProgram": ("orderbook.views.program", "CompiledProgram"),
    "DataError": ("orderbook.core.errors", "DataError"),
    "Dictionary": ("orderbook.core.changes", "Dictionary"),
    "Engine": ("orderbook.clients.client_engine", "ClientEngine"),
    "Fill": ("orderbook.strategies.execution.account", "Fill"),
    "LiveView": ("orderbook.engine.runtime.live_view", "LiveView"),
    "Order": ("orderbook.strategies.execution.account", "Order"),
    "OrderSide": ("orderbook.strategies.execution.account", "OrderSide"),
    "OrderbookError": ("orderbook.core.errors", "OrderbookError"),
    "Parameter": ("orderbook.strategies.strategy", "Parameter"),
    "SqlError": ("orderbook.core.errors", "SqlError"),
    "Strategy": ("orderbook.strategies.strategy", "Strategy"),
    "Subscription": ("orderbook.engine.runtime.subscriptions", "Subscription"),
    "Trade": ("orderbook.strategies.strategy", "Trade"),
    "ViewEvent": ("orderbook.engine.runtime.subscriptions", "ViewEvent"),
    "ViewRow": ("orderbook.engine.runtime.live_view", "ViewRow"),
    "backtest": ("orderbook.commands.backtest", "backtest_in_python"),
    "compile": ("orderbook.views.compilation", "compile_views"),
    "compiled": ("orderbook.strategies.strategy", "compiled"),
    "heat_map": ("orderbook.clients.widgets", "heat_map"),
    "ladder": ("orderbook.clients.widgets", "ladder"),
    "live": ("orderbook.clients.widgets", "live"),
    "on_timer": ("orderbook.strategies.strategy", "on_timer"),
    "on_view": ("orderbook.strategies.strategy", "on_view"),
}
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'orderbook' has no attribute {name!r}")
    module, attribute = _PLACES[name]
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
