"""The live feed of Coinbase Exchange's `full` channel.

Source: Coinbase Exchange documentation, "WebSocket Overview", "Get single product", "Get product book".
"""

import asyncio
from collections.abc import Sequence
from decimal import Decimal

import msgspec

from feeds.coinbase_full import CoinbaseFullDecoder
from feeds.coinbase_messages import Product
from feeds.http_get import http_get
from feeds.live import LiveFeed
from orderbook.errors import SourceError
from orderbook.instruments import Instrument, Instruments
from orderbook.symbols import normalise_symbol

URL = "wss://ws-feed.exchange.coinbase.com"
REST_URL = "https://api.exchange.coinbase.com"
VENUE = "coinbase"


async def coinbase_instruments(
    products: Sequence[str], rest_url: str = REST_URL, venue: str = VENUE
) -> list[Instrument]:
    """The instruments of products such as "BTC-USD", tick and lot as the exchange states them.

    Raises SourceError for a product that the exchange does not have, or where it does not answer.
    """
    bodies = await asyncio.gather(*(http_get(f"{rest_url}/products/{product}") for product in products))
    return [_instrument(body, venue) for body in bodies]


def _instrument(body: bytes, venue: str) -> Instrument:
    try:
        product = msgspec.json.decode(body, type=Product)
        tick, lot = Decimal(product.quote_increment), Decimal(product.base_increment)
    except (msgspec.DecodeError, UnicodeDecodeError, ArithmeticError) as error:
        raise SourceError(f"{venue}: not a product: {error}: {body[:100]!r}") from None
    return Instrument(venue, normalise_symbol("coinbase", product.id), product.id, tick, lot)


class CoinbaseFullFeed(LiveFeed):
    """Every order of the instruments of `venue`, whose native symbols are the exchange's product ids.

    `silence` seconds without a frame break the connection; the exchange sends a heartbeat for every
    product each second. The feed does not sign its subscription, which Coinbase's own servers now ask
    for: they answer with a refusal (SourceError).
    """

    def __init__(
        self,
        instruments: Instruments,
        url: str = URL,
        rest_url: str = REST_URL,
        *,
        venue: str = VENUE,
        silence: float = 10.0,
    ) -> None:
        products = [one.native_symbol for one in instruments if one.venue == venue]
        super().__init__(url, products, CoinbaseFullDecoder(instruments, venue), silence)
        self._rest_url = rest_url

    def subscription(self) -> Sequence[str]:
        request = {"type": "subscribe", "product_ids": self.products, "channels": ["full", "heartbeat"]}
        return [msgspec.json.encode(request).decode()]

    def snapshot_url(self, product: str) -> str:
        return f"{self._rest_url}/products/{product}/book?level=3"
