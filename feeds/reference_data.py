"""Instruments of an exchange's products, as it states them."""

import asyncio
from collections.abc import Sequence

from feeds.exchange import Exchange
from feeds.http_get import http_get
from orderbook.instruments import Instrument


async def exchange_instruments(
    kind: type[Exchange], products: Sequence[str], rest_url: str | None = None
) -> list[Instrument]:
    """The instruments of products, named as the exchange does, in their order.

    Raises SourceError for a product that the exchange does not have, or where it does not answer.
    """
    urls = kind.instrument_urls(products, rest_url or kind.rest_url)
    return kind.instruments(products, await asyncio.gather(*map(http_get, urls)))
