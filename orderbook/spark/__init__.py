"""Programs on Spark, in the user's own session: views, orders and fills as DataFrames, and data sources.

    views = orderbook.spark.views("binance:days/*.gz", "depth")
    views["depth"].join(users, "symbol").show()

    orderbook.spark.register(spark)
    spark.read.format("orderbook").option("view", "sobi").load("lobster:days/*").show()

Names are imported at their first use. Needs the extra `spark`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orderbook.spark.data_source import register as register
    from orderbook.spark.frames import strategies as strategies
    from orderbook.spark.frames import views as views
    from orderbook.spark.market_frames import Market as Market
    from orderbook.spark.table_frames import Rows as Rows

_PLACES = {
    "Market": "orderbook.spark.market_frames",
    "Rows": "orderbook.spark.table_frames",
    "register": "orderbook.spark.data_source",
    "strategies": "orderbook.spark.frames",
    "views": "orderbook.spark.frames",
}
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'orderbook.spark' has no attribute {name!r}")
    value = getattr(import_module(_PLACES[name]), name)
    globals()[name] = value
    return value
