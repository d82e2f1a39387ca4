"""Recorded frames of exchanges, spoilt ones among them, through a decoder in Python and a compiled one."""

import json
import random
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import msgspec
import numpy as np
from capture_support import binance_recording, coinbase_recording, kraken_recording
from session_support import instrument

from orderbook.feeds.exchanges.exchange import ExchangeOptions, exchange
from orderbook.feeds.live.session import Session
from orderbook.feeds.recording.capture_replay import CaptureSource, book_address
from orderbook.feeds.wire.decoder_state import WORDS
from orderbook.market.events import BookState
from orderbook.market.instruments import Instruments

# Product of an answer ("" for a frame), data, and when it came, ns.
Step = tuple[str, bytes, int]


class InPython(Session):
    """A session whose frames are decoded by the exchange's own decoder alone."""

    compiled = False


@dataclass(frozen=True)
class Script:
    """What came on a connection to an exchange."""

    kind: str
    instruments: Instruments
    steps: Sequence[Step]

    def slim(self) -> "Script":
        """The same with at most 100 elements in any list of a frame."""
        steps = [(p, _slim(data) if len(data) > _FAT else data, time) for p, data, time in self.steps]
        return Script(self.kind, self.instruments, steps)

    def of(self, product: str, most: int) -> "Script":
        """The same with one product alone, and the first of its steps."""
        one = next(i for i in self.instruments if i.native_symbol == product)
        named = product.encode(), product.lower().encode()
        own = [s for s in self.steps if s[0] == product or (not s[0] and any(n in s[1] for n in named))]
        return Script(self.kind, Instruments([one]), own[:most])


_FAT = 20_000


def _slim(data: bytes) -> bytes:
    def cut(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: cut(one) for key, one in value.items()}
        return [cut(one) for one in value[:100]] if isinstance(value, list) else value

    return msgspec.json.encode(cut(msgspec.json.decode(data)))


def script(path: Path, folder: Path, lines: int = 1_000_000) -> Script:
    """Of a recording; what is none yet is made one in the folder."""
    if path.parent.name.startswith("hftbacktest"):
        path = binance_recording(path, folder / f"{path.name}.jsonl", lines)
    elif path.parent.name == "coinbase_l3":
        path = coinbase_recording(path, folder / f"{path.name}.jsonl")
    source = CaptureSource(path)
    found: list[Step] = []
    session = _session(Session, Script(source._head.kind, source.instruments, ()), [0.0])
    asked = {}
    if session.by_request:
        asked = {str(book_address(session.snapshot_url(product))): product for product in session.books}
    for line in source._lines:
        if line.t == "recv":
            found.append(("", line.payload, line.time))
        elif line.t == "http" and (product := asked.get(str(book_address(unquote(line.url))))):
            found.append((product, line.payload, line.time))
    return Script(source._head.kind, source.instruments, found[:lines])


def _session(kind: type[Session], script: Script, now: list[float]) -> Session:
    indexes = range(len(script.instruments))
    options = ExchangeOptions(crossed_limit=0)
    return kind(exchange(script.kind), script.instruments, indexes, options, lambda: now[0], seed=0)


@dataclass
class Outcome:
    """All that a session can be seen to have made of a script."""

    events: np.ndarray
    counts: dict[str, Any]
    books: list[tuple[Any, ...]]
    sent: list[Any]
    # Frames that the exchange's own decoder took.
    left: int

    def same(self, other: "Outcome") -> bool:
        return (
            self.events.tobytes() == other.events.tobytes()
            and self.counts == other.counts
            and self.books == other.books
            and self.sent == other.sent
        )


def played(kind: type[Session], script: Script, together: Iterator[int]) -> Outcome:
    """A script through a session that is given so many frames at once, by turns."""
    now = [script.steps[0][2] / 1e9]
    session = _session(kind, script, now)
    session.connected(script.steps[0][2])
    left, sent = 0, []
    own = session._take

    def counted(data: bytes) -> None:
        nonlocal left
        left += 1
        own(data)

    session._take = counted  # type: ignore[method-assign]

    def turn(time: int) -> None:
        now[0] = max(now[0], time / 1e9)

    frames: list[bytes] = []
    times: list[int] = []
    most = next(together)
    for place, (product, data, time) in enumerate(script.steps):
        if not product:
            frames.append(data)
            times.append(time)
        if frames and (product or len(frames) >= most or place == len(script.steps) - 1):
            session.frames_of(frames, times, turn)
            frames, times, most = [], [], next(together)
        if product:
            turn(time)
            session.answered(product, data, time)
    sent += session.commands()
    return _outcome(session, sent, left)


def _outcome(session: Session, sent: list[Any], left: int) -> Outcome:
    events = session.take()
    statistics = session.statistics
    counts = {
        **{
            name: getattr(statistics, name)
            for name in ("frames", "bytes", "messages", "malformed", "events", "checksums", "gaps", "resyncs")
        },
        "problems": dict(statistics.problems.counts),
        "examples": {kind: str(one) for kind, one in statistics.problems.examples.items()},
    }
    books = []
    for book in session.books.values():
        words = book.memory.words
        books.append((book.product, book.state, *(words[WORDS[name]] for name in _COMPARED)))
    return Outcome(events, counts, books, sent, left)


def generated_kraken(folder: Path) -> Script:
    """A generated market that speaks version 2 of Kraken's protocol, with trades."""
    path = kraken_recording(folder / "kraken.jsonl", "kraken", 10**18, 10_000, 1, messages=600)
    one = script(path, folder)
    steps: list[Step] = []
    for number, step in enumerate(one.steps):
        steps.append(step)
        if number % 5 == 4:
            side, place = ("buy", "sell")[number % 2], number // 5
            trades = ",".join(
                f'{{"symbol":"BTC/USD","side":"{side}","price":1000.{n},"qty":0.5,"trade_id":{2 * place + n},'
                '"timestamp":"2023-09-25T07:49:37.708706Z"}'
                for n in range(2)
            )
            steps.append(("", f'{{"channel":"trade","type":"update","data":[{trades}]}}'.encode(), step[2]))
        if number % 20 == 19:
            steps.append(("", b'{"channel":"heartbeat"}', step[2]))
    return Script(one.kind, one.instruments, steps)


def generated_coinbase_full(folder: Path) -> Script:
    """Generated orders that speak the protocol of Coinbase's `full` channel."""
    chance = random.Random(1)
    one = Instruments([instrument("coinbase", "BTC-USD", "0.01", "0.00000001")])
    resting = [str(UUID(int=chance.getrandbits(128))) for _ in range(40)]
    rows = ",".join(f'["{100 - n}.00","1","{order}"]' for n, order in enumerate(resting))
    body = f'{{"sequence":50,"time":"2026-08-09T21:05:47Z","bids":[{rows}],"asks":[]}}'
    acknowledged = b'{"type":"subscriptions","channels":[{"name":"full","product_ids":["BTC-USD"]}]}'
    steps: list[Step] = [("", acknowledged, 10**18), ("BTC-USD", body.encode(), 10**18)]
    for number in range(51, 600):
        kind = chance.choice(["received", "open", "open", "match", "done", "change"])
        order = str(UUID(int=chance.getrandbits(128)))
        if kind == "open":
            resting.append(order)
        elif kind != "received" and resting and chance.random() < 0.8:
            order = resting.pop(chance.randrange(len(resting))) if kind == "done" else chance.choice(resting)
        price = f'"price":"{chance.randrange(9000, 11000) / 100:.2f}"'
        changed = ""
        if kind == "change":
            changed = f'"new_size":"{chance.choice(["0", "0.25", "0.5", "1", "7.5"])}"'
            both = f'"old_price":"100.00","new_price":"{chance.choice(["100.00", "99.50"])}"'
            changed += chance.choice([f",{price}", f",{price}", f",{both}", both[20:]])
        text = {
            "received": f'"order_id":"{order}","size":"1"',
            "open": f'"order_id":"{order}",{price},"remaining_size":"{chance.randrange(1, 99) / 10}"',
            "match": f'"maker_order_id":"{order}","trade_id":{number},{price},"size":"0.5"',
            "done": f'"order_id":"{order}","reason":"filled"',
            "change": f'"order_id":"{order}",{changed}',
        }[kind]
        side = chance.choice(["buy", "sell"])
        head = f'"type":"{kind}","product_id":"BTC-USD","sequence":{number},"side":"{side}"'
        message = f'{{{head},"time":"2026-08-09T21:05:48.{number:06}Z",{text}}}'
        steps.append(("", message.encode(), 10**18 + number))
        if number % 10 == 0:
            beat = f'{{"type":"heartbeat","product_id":"BTC-USD","sequence":{number},"last_trade_id":1}}'
            steps.append(("", beat.encode(), 10**18 + number))
    return Script("coinbase_full", one, steps)


def generated_bitstamp_orders(folder: Path) -> Script:
    """Generated orders that speak the protocol of Bitstamp's `live_orders`."""
    chance = random.Random(1)
    one = Instruments([instrument("bitstamp", "btcusd", "0.01", "0.00000001")])
    resting = list(range(1, 41))
    rows = ",".join(f'["{100 - number}.00","1.00000000","{number}"]' for number in resting)
    moment = 1_641_343_699_000_000
    body = f'{{"timestamp":"1","microtimestamp":"{moment}","bids":[{rows}],"asks":[]}}'
    acknowledged = b'{"event":"bts:subscription_succeeded","channel":"live_orders_btcusd","data":{}}'
    start = 10**18
    steps: list[Step] = [("", acknowledged, start), ("btcusd", body.encode(), start + 6 * 10**9)]
    for number in range(50, 700):
        kind = chance.choice(["created", "created", "changed", "changed", "deleted"])
        order = number
        if kind == "created":
            resting.append(order)
        elif chance.random() < 0.85 and resting:
            order = (
                resting.pop(chance.randrange(len(resting))) if kind == "deleted" else chance.choice(resting)
            )
        price, side = chance.choice(["99.50", "100.00", "0.00", "101.25"]), chance.randrange(2)
        amount = chance.choice(["0.00000000", "0.50000000", "0.25000000", "3.00000000"])
        own = moment + 1000 * number - chance.choice([0, 0, 0, 5000])
        text = (
            f'{{"event":"order_{kind}","channel":"live_orders_btcusd","data":{{"id":{order},"id_str":"{order}",'
            f'"order_type":{side},"microtimestamp":"{own}","amount_str":"{amount}","price_str":"{price}"}}}}'
        )
        steps.append(("", text.encode(), start + 6 * 10**9 + number))
        if number % 20 == 0:
            trade = (
                f'{{"event":"trade","channel":"live_trades_btcusd","data":{{"id":{number},"type":{side},'
                f'"microtimestamp":"{own}","amount_str":"0.5","price_str":"100.00"}}}}'
            )
            steps.append(("", trade.encode(), start + 6 * 10**9 + number))
    return Script("bitstamp_l3", one, steps)


def generated_bybit(folder: Path) -> Script:
    """A generated book that speaks Bybit's protocol."""
    chance = random.Random(1)
    one = Instruments([instrument("bybit", "BTCUSDT", "0.01", "0.001")])

    def side(first: int) -> str:
        levels = (
            (first + chance.randrange(50), chance.choice([0, chance.randrange(10**6)])) for _ in range(3)
        )
        return ",".join(f'["{price / 100:.2f}","{size / 1000:.3f}"]' for price, size in levels)

    def frame(kind: str, number: int) -> bytes:
        return (
            f'{{"topic":"orderbook.50.BTCUSDT","type":"{kind}","ts":{1672304484978 + number},"data":'
            f'{{"s":"BTCUSDT","b":[{side(1_649_300)}],"a":[{side(1_649_400)}],"u":{number},"seq":7961638724}},'
            f'"cts":{1672304484976 + number}}}'
        ).encode()

    def trade(number: int) -> str:
        # Ids of both forms; some are told again, and some are of block trades.
        number = chance.choice([number] * 15 + [max(0, number - chance.randrange(5))])
        trade_id = f"{2290000000061666 + number}" if number % 3 else str(UUID(int=number << 64 | 1 << 127))
        block = chance.choice(['"BT":false'] * 9 + ['"BT":true'])
        sequence = f',"seq":{1783284617 + number}' if number % 2 else ""
        return (
            f'{{"T":{1672304486865 + number},"s":"BTCUSDT","S":"{chance.choice(["Buy", "Sell"])}","v":"0.00'
            f'{chance.randrange(1, 10)}","p":"16578.50","i":"{trade_id}",{block}{sequence}}}'
        )

    def trades(number: int) -> bytes:
        listed = ",".join(trade(4 * number + each) for each in range(chance.randrange(1, 4)))
        return (
            f'{{"topic":"publicTrade.BTCUSDT","type":"snapshot","ts":1672304486868,"data":[{listed}]}}'
        ).encode()

    frames = []
    for number in range(10, 400):
        frames.append(frame("delta" if number > 10 else "snapshot", number))
        if number % 4 == 0:
            frames.append(trades(number))
    return Script("bybit", one, [("", data, 10**18 + number) for number, data in enumerate(frames)])


# What a book's next message is decoded by.
_COMPARED = ("state", "sequence", "latest", "depth", "arrived", "last_trade", "since")
_UNKNOWN = ("null", "true", "1.5", '""', '"x"', "[]", "{}", '[[1], {"a": "b"}]', '"a \\" \\\\"', '"\u00e9"')
_OTHERS = ("null", "true", "0", "-1", "1e20", '""', '"0"', '"-1"', '"1e3"', '"1e-2"', '"NaN"', "[]", '["1"]')
_BYTES = b'0123456789.-eE+"\\[]{},:ntf \x00\xc3ab'


def spoilt(frame: bytes, chance: random.Random) -> bytes:
    """A frame, changed: bytes of it, values of its JSON, or how that is written."""
    harmless = chance.random() < 0.5
    if not harmless and chance.random() < 0.5:
        return _other_bytes(frame, chance)
    try:
        value = json.loads(frame)
    except ValueError:
        return _other_bytes(frame, chance)
    for _ in range(chance.randrange(1, 3)):
        holders = [one for one in _holders(value) if one]
        if not holders:
            break
        holder = chance.choice(holders)
        place = chance.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        if harmless:
            _write_otherwise(holder, chance)
        else:
            _change(holder, place, chance)
    text = json.dumps(value, separators=chance.choice([(",", ":"), (", ", ": "), (" ,\n", "\t:\r")]))
    return text.encode() + chance.choice([b"", b"", b" ", b"\n"])


def _change(holder: Any, place: Any, chance: random.Random) -> None:
    what = chance.randrange(6)
    if what == 0:
        holder[place] = json.loads(chance.choice(_OTHERS))
    elif what == 1 and isinstance(holder[place], str):
        holder[place] = chance.choice(["0", "00", " "]) + holder[place] + chance.choice(["", "0", "e1", "."])
    elif what == 2:
        del holder[place]
    elif isinstance(holder, dict):
        _write_otherwise(holder, chance)
    else:
        new = json.loads(chance.choice(_UNKNOWN))
        holder.insert(place, chance.choice([deepcopy(holder[place]), new]))


def _write_otherwise(holder: Any, chance: random.Random) -> None:
    """What says the same: other members, in another order."""
    if isinstance(holder, dict):
        items = [*holder.items(), (f"new{chance.randrange(9)}", json.loads(chance.choice(_UNKNOWN)))]
        chance.shuffle(items)
        holder.clear()
        holder.update(items)


def _holders(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        yield value
        for one in value.values() if isinstance(value, dict) else value:
            yield from _holders(one)


def _other_bytes(frame: bytes, chance: random.Random) -> bytes:
    data = bytearray(frame)
    for _ in range(chance.randrange(1, 4)):
        place, what = chance.randrange(len(data) + 1), chance.randrange(5)
        if what == 0:
            del data[place : place + chance.randrange(1, 6)]
        elif what == 1:
            data[place:place] = bytes([chance.choice(_BYTES)])
        elif what == 2:
            piece = data[place : place + chance.randrange(1, 20)]
            data[place:place] = piece
        else:
            data[place : place + 1] = bytes([chance.choice(_BYTES)])
    return bytes(data)


def mutant(one: Script, chance: random.Random, mutants: int) -> Script:
    """A script with frames in its last third that are spoilt, missing, repeated or late."""
    steps = list(one.steps[: chance.randrange(len(one.steps) // 2, len(one.steps)) + 1])
    for _ in range(mutants):
        place = chance.randrange(len(steps) * 2 // 3, len(steps) - 1)
        product, data, time = steps[place]
        what = chance.randrange(10)
        if product:
            continue
        if what < 6:
            steps[place] = product, spoilt(data, chance), time
        elif what == 6:
            del steps[place]
        elif what == 7:
            steps.insert(place, steps[place])
        elif what == 8:
            steps[place], steps[place + 1] = steps[place + 1], steps[place]
        else:
            steps[place] = product, data, time - 10**9
    return Script(one.kind, one.instruments, steps)


def batches(chance: random.Random) -> Iterator[int]:
    """How many frames come together."""
    most = chance.choice([1, 3, 20, 200])
    while True:
        yield chance.randrange(1, most + 1)


def decoded(data: bytes) -> Any:
    """As msgspec reads it; an exception where it does not."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return error


def valid(outcome: Outcome) -> int:
    """How many books are valid in the end."""
    return sum(book[1] is BookState.VALID for book in outcome.books)
