"""Orderbook: SQL views over live order books, refreshed at every event, that call trading strategies.

    program = orderbook.compile(sql, params={"k": 0.25})
    engine = orderbook.Engine(program)
    engine.subscribe("sobi", callback, when="pressure > 2.6")
    engine.apply(program.changes(frame))

Names are imported at their first use, so that `import orderbook` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.engine import Engine as Engine
    from engine.live_view import LiveView as LiveView
    from engine.live_view import ViewRow as ViewRow
    from engine.subscriptions import Subscription as Subscription
    from engine.subscriptions import ViewEvent as ViewEvent
    from orderbook.dictionary import Dictionary as Dictionary
    from orderbook.errors import DataError as DataError
    from orderbook.errors import OrderbookError as OrderbookError
    from orderbook.errors import SqlError as SqlError
    from views.compiler.program import CompiledProgram as CompiledProgram
    from views.compiler.program import compile_views

    compile = compile_views

_PLACES = {
    "CompiledProgram": ("views.compiler.program", "CompiledProgram"),
    "DataError": ("orderbook.errors", "DataError"),
    "Dictionary": ("orderbook.dictionary", "Dictionary"),
    "Engine": ("engine.engine", "Engine"),
    "LiveView": ("engine.live_view", "LiveView"),
    "OrderbookError": ("orderbook.errors", "OrderbookError"),
    "SqlError": ("orderbook.errors", "SqlError"),
    "Subscription": ("engine.subscriptions", "Subscription"),
    "ViewEvent": ("engine.subscriptions", "ViewEvent"),
    "ViewRow": ("engine.live_view", "ViewRow"),
    "compile": ("views.compiler.program", "compile_views"),
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
