"""Instruments of OKX, from its answers of "Get instruments" (OKX API guide v5)."""

from collections.abc import Sequence
from decimal import Decimal

import msgspec

from orderbook.errors import SourceError
from orderbook.instruments import Instrument
from orderbook.symbols import ContractType

INSTRUMENTS_PATH = "/api/v5/public/instruments"


class _Product(msgspec.Struct, frozen=True):
    name: str = msgspec.field(name="instId")
    tick: str = msgspec.field(name="tickSz")
    lot: str = msgspec.field(name="lotSz")
    kind: str = msgspec.field(name="instType", default="")
    contract: str = msgspec.field(name="ctType", default="")
    contract_value: str = msgspec.field(name="ctVal", default="")
    multiplier: str = msgspec.field(name="ctMult", default="")

    @property
    def contract_type(self) -> ContractType | None:
        """By what is stated of it; of a contract the size is its value times the multiplier."""
        if self.kind == "SPOT" or self.contract == "inverse":
            return "inverse" if self.contract == "inverse" else "linear"
        try:
            size = Decimal(self.contract_value) * Decimal(self.multiplier or 1)
        except ArithmeticError:
            return None
        return "linear" if self.contract == "linear" and size == 1 else "multiplier"


class _Answer(msgspec.Struct, frozen=True):
    code: str
    text: str = msgspec.field(name="msg", default="")
    products: list[_Product] = msgspec.field(name="data", default=[])


def instrument_type(product: str) -> str:
    """SPOT for BTC-USDT, SWAP for BTC-USDT-SWAP, FUTURES for what names a date, as BTC-USD-220527."""
    if product.endswith("-SWAP"):
        return "SWAP"
    return "SPOT" if product.count("-") < 2 else "FUTURES"


def okx_instruments(products: Sequence[str], bodies: Sequence[bytes]) -> list[Instrument]:
    """The instruments of products from answers; a lot of swaps and futures is in contracts.

    Raises SourceError for a product that is in none, DataError for one whose tick is below 10^-8, finer than
    books carry (BABYDOGE-USDT: 10^-12).
    """
    known: dict[str, _Product] = {}
    problem = "no answer"
    for body in bodies:
        try:
            answer = msgspec.json.decode(body, type=_Answer)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            problem = f"not an answer with instruments: {error}"
            continue
        problem = answer.text or "OKX has no such instrument in spot, swaps or futures"
        known |= {one.name: one for one in answer.products}
    return [_instrument(product, known.get(product), problem) for product in products]


def _instrument(product: str, one: _Product | None, problem: str) -> Instrument:
    if one is None:
        raise SourceError(f"okx: {product}: {problem}")
    try:
        tick, lot = Decimal(one.tick), Decimal(one.lot)
    except ArithmeticError:
        raise SourceError(f"okx: {product}: no tick and lot, but {one.tick!r} and {one.lot!r}") from None
    return Instrument.listed("okx", product, tick, lot, contract=one.contract_type)
