"""What strategies are told in the compiled loop, which becomes rows of `orders`, `fills` and `positions`.

See `execution.relation_rows`. LoopRelations are those of an engine, for all strategies; a LoopAccount is what
one of them needs: its limits, fees, the texts of reasons, its open orders and its rows of `positions`.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import NULL_CODE, ChangeBatch, Dictionary
from orderbook.market.instruments import Instruments
from orderbook.strategies.compiled import CompiledMethods, amount, fixed
from orderbook.strategies.execution import desk
from orderbook.strategies.execution.account import Order, Position
from orderbook.strategies.execution.fees import FeeTables
from orderbook.strategies.execution.order_news import LIQUIDITY, SIDES, STATUSES
from orderbook.strategies.execution.paper_client import PaperClient
from orderbook.strategies.execution.relation_rows import FLAGS, HELD, ORDER_WIDTH, RELATIONS
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.loop_reasons import KEPT


class LoopRelations:
    """Where the loop writes what strategies are told: `taken` are the relations that keep it. `address` is
    that of RELATIONS, 0 where none does."""

    def __init__(self, engine: GatedEngine, instruments: Instruments) -> None:
        self.taken = tuple(name for name in KEPT if engine.takes(name))
        self.dictionary = engine.dictionary
        self._engine = engine
        self._records = np.zeros(1, RELATIONS)
        row = self._records[0]
        names = [relation.name for relation in engine.program.relations]
        for name in KEPT:
            row[name] = 2 * names.index(name) if name in self.taken else -1
        self._kinds, self._flags = np.zeros(2, np.int16), np.array(FLAGS, np.uint8)
        self._values = np.zeros((2, ORDER_WIDTH), np.int64)
        row["kinds"], row["flags"] = self._kinds.ctypes.data, self._flags.ctypes.data
        row["values"], row["width"] = self._values.ctypes.data, ORDER_WIDTH
        texts = (SIDES, STATUSES, LIQUIDITY) if self.taken else ()
        self._codes = [engine.dictionary.encode_all(own) for own in texts]
        for name, codes in zip(("sides", "statuses", "liquidity"), self._codes, strict=False):
            row[name] = codes.ctypes.data
        places = [text for one in instruments for text in (one.venue, one.symbol)] if self.taken else []
        self._places = engine.dictionary.encode_all(places)
        row["places"] = self._places.ctypes.data
        self.address = int(self._records.ctypes.data) if self.taken else 0

    def enter(self, state: int, handlers: int) -> None:
        """The loop is about to run: on a state of the engine's runtime, with HANDLERs at an address."""
        row = self._records[0]
        row["state"], row["progress"], row["handlers"] = state, self._engine.progress, handlers

    def settle(self) -> None:
        """Raises what is wrong with a row that the loop has left to Python."""
        row = self._records[0]
        stop, start = int(row["stop"]), int(row["start"])
        if stop:
            row["stop"] = 0
            self._engine.attend(ChangeBatch(self._kinds, self._flags, self._values), start, stop)


class LoopAccount:
    """What a desk in the loop has of its account, besides what the exchange has."""

    def __init__(
        self, methods: CompiledMethods, client: PaperClient, instruments: Instruments, own: Sequence[int]
    ) -> None:
        """own: the instruments that it trades."""
        self._methods, self._client, self._instruments = methods, client, instruments
        self._worth = client.account_worth(own)
        count = len(instruments)
        self._held, self._reasons = np.zeros(count, HELD), np.zeros(count, np.int64)
        self._texts: dict[int, NDArray[np.int64]] = {}
        self._notionals = client.notionals()
        self._fees: FeeTables | None = None
        self._dictionary: Dictionary | None = None
        # Whether the rows of `positions` are those of the relation.
        self.keeps_positions = False
        row = methods.row
        row["limits"], row["notionals"] = client.limits, self._notionals.ctypes.data
        row["held"] = self._held.ctypes.data
        row["worth"] = 0 if self._worth is None else self._worth.address

    def enter(
        self, relations: LoopRelations, strategy: str, positions: Mapping[tuple[str, str], Position]
    ) -> None:
        """The loop is about to run: what strategies are told goes there, of this one by that name."""
        row, client = self._methods.row, self._client
        self.keeps_positions = "positions" in relations.taken
        self._dictionary = relations.dictionary if relations.taken else None
        row["relations"] = relations.address
        for index, one in enumerate(self._instruments):
            held = positions.get((one.venue, one.symbol))
            if held is not None:
                self.hold(index, held)
        self.note_worth()
        row["fees"] = 0
        if relations.taken:
            row["strategy"] = relations.dictionary.encode(strategy)
        if relations.taken or self._worth is not None:
            fees = client.fee_tables()
            assert fees is not None
            self._fees = fees
            row["fees"], row["fee_count"] = fees.fees.ctypes.data, fees.fees.shape[2]
            row["traded"] = fees.traded.ctypes.data
            row["tiers"] = fees.tiers.ctypes.data if fees.tiers.any() else 0
        if "orders" in relations.taken:
            self._note_texts(relations.dictionary)
        for index, order in client.known():
            self.told(index, order)

    def _note_texts(self, dictionary: Dictionary) -> None:
        """The texts of reasons, by instrument; see `code_of`."""
        exchange, row = self._client.exchange, self._methods.row
        assert exchange is not None
        for index in np.flatnonzero(self._methods.boards).tolist():
            texts = exchange.texts(self._instruments[index])
            row["reason_count"] = len(texts) // 2
            codes = [NULL_CODE if text is None else dictionary.encode(text) for text in texts]
            self._texts[index] = np.array(codes, np.int64)
            self._reasons[index] = self._texts[index].ctypes.data
        row["reasons"] = self._reasons.ctypes.data

    def told(self, index: int, order: Order) -> None:
        """An order to an instrument is as the strategy was told."""
        reason = NULL_CODE
        if order.reason is not None and self._dictionary is not None:
            reason = self._dictionary.encode(order.reason)
        group, reduces = self._client.terms_of(order.id)
        desk.note_told(
            self._methods.address, order.id, order.ts, fixed(order.volume),
            desk.MARKET if order.price is None else fixed(order.price), fixed(order.filled),
            STATUSES.index(order.status), reason, group, reduces,
        )  # fmt: skip

    def hold(self, index: int, position: Position) -> None:
        """The row of `positions` of an instrument."""
        self._held[index] = 1, fixed(position.volume), fixed(position.fees)

    def note_traded(self) -> None:
        """The strategy was told of executions, which count for tiers of fees, and for its worth."""
        if self._fees is not None:
            self._client.note_traded(self._fees)
        self.note_worth()

    def note_worth(self) -> None:
        """The loop goes on from what the account is worth."""
        if self._worth is not None:
            self._client.note_worth(self._worth)

    def learn_worth(self) -> None:
        """The loop has valued the account."""
        if self._worth is not None:
            self._client.learn_worth(self._worth)

    def position(self, strategy: str, index: int) -> Position:
        """What the loop has made of that row."""
        one, (_, volume, fees) = self._instruments[index], self._held[index].tolist()
        return Position(strategy, one.venue, one.symbol, amount(volume), amount(fees))
