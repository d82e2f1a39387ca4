"""The client of the simulated exchange."""

from feeds.exchanges.coinbase_full import CoinbaseFull
from feeds.simulated_exchange import VENUE


class Simulated(CoinbaseFull):
    """Coinbase's `full` channel, spoken by the simulated exchange."""

    venue = VENUE
