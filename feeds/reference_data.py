"""Instruments of an exchange's products, as it states them."""

import asyncio
from collections.abc import Sequence

from feeds.exchange import Exchange
from feeds.http_get import http_get
from orderbook.errors import SourceError
from orderbook.instruments import Instrument
from orderbook.problems import KEPT_TEXT


async def exchange_instruments(
    kind: type[Exchange], products: Sequence[str], rest_url: str | None = None
) -> list[Instrument]:
    """The instruments of products, named as the exchange does, in their order.

    Raises SourceError for a product that the exchange does not have, or where it does not answer.
    """
    urls = kind.instrument_urls(products, rest_url or kind.rest_url)
    return instruments_of(kind, products, await asyncio.gather(*map(http_get, urls)))


def instruments_of(
    kind: type[Exchange], products: Sequence[str], bodies: Sequence[bytes]
) -> list[Instrument]:
    """What the answers of `instrument_urls` say, whatever that is; raises as `exchange_instruments` does."""
    try:
        return kind.instruments(products, bodies)
    except (ValueError, ArithmeticError, RecursionError) as error:
        problem = str(error)[:KEPT_TEXT]
        raise SourceError(f"{kind.venue}: its reference data cannot be used: {problem}") from error
