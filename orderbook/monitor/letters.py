"""What goes between the run and the monitor's server, which is a process of its own.

Frames and letters go one way and commands the other, as MessagePack with its length before it.
"""

from collections.abc import Mapping, Sequence
from struct import Struct

import msgspec

from orderbook.monitor.requests import AnyRequest, Follow, Topic

# Items of each kind that are kept for clients which have not had them: trades, fills, notes.
KEPT_ITEMS = 500
# Bytes of the length before a letter.
LENGTH = 4
# Of a trade: its time in ns, ticks and lots as doubles, and the side of the aggressor.
TRADE_WORDS = 4

_TRADE = Struct("=q2dq")
_SIDES = ("buy", "sell", "")

_encoder = msgspec.json.Encoder(decimal_format="string")
_json = _encoder.encode


def encoded(message: object) -> bytes:
    """JSON text of a message."""
    return _json(message)


def trades_encoded(trades: bytes) -> list[bytes]:
    """JSON text of each trade of `Frame.trades`."""
    words = _TRADE.iter_unpack(trades)
    items = [
        (str(time), _whole(ticks), _whole(lots), _SIDES[min(side, 2)]) for time, ticks, lots, side in words
    ]
    return _encoder.encode_lines(items).split(b"\n")[: len(items)]


def _whole(number: float) -> int | float:
    return int(number) if number.is_integer() else number


def body_of(message: Mapping[str, object]) -> bytes:
    """JSON text of an object without its braces, to which a client's `id` is added."""
    return _json(message)[1:-1]


def newest_trades(trades: bytes) -> bytes:
    """The end of `Frame.trades` that is kept."""
    return trades[-KEPT_ITEMS * _TRADE.size :]


class Frame(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A topic as it is now: `body` as of `body_of`, and what has happened since the frame before.

    items: encoded. trades: of a book, TRADE_WORDS of 8 bytes each; the server makes text of so many.
    """

    topic: Topic
    body: bytes
    items: Mapping[str, Sequence[bytes]] = msgspec.field(default_factory=dict)
    trades: bytes | None = None

    def after(self, earlier: "Frame") -> "Frame":
        """This frame with what the earlier one, which nobody has taken, had to tell."""
        items = {n: [*earlier.items.get(n, ()), *new][-KEPT_ITEMS:] for n, new in self.items.items()}
        trades = None if self.trades is None else newest_trades((earlier.trades or b"") + self.trades)
        return Frame(self.topic, self.body, items, trades)


class Refused(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A topic that there is not, or not any more."""

    topic: Topic
    error: str


class Answer(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The answer to a client's request."""

    client: int
    id: int
    body: bytes


class Snapshot(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """All rows of a followed view, for one client."""

    follow: str
    client: int
    id: int
    version: tuple[int, int, int]
    body: bytes


class Changes(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """What has changed in a followed view up to a version; `body` empty: nothing."""

    follow: str
    version: tuple[int, int, int]
    body: bytes


class FollowEnded(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A continuous query that there is not, or not any more."""

    follow: str
    error: str


class Alive(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The run goes on, with nothing to tell."""


Letter = Refused | Answer | Snapshot | Changes | FollowEnded | Alive


class Open(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Somebody asks for a topic."""

    topic: Topic


class Close(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Nobody asks for a topic any more."""

    topic: Topic


class Ask(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A client's request, which the run answers."""

    client: int
    request: AnyRequest


class Leave(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A client has gone, and takes no answers."""

    client: int


class OpenFollow(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A client follows a view or SQL, whose name is `follow`; it is to have a snapshot."""

    follow: str
    client: int
    request: Follow


class CloseFollow(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Nobody has followed this for a while."""

    follow: str


class Logged(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """What the server has to say in the run's log, with a level of `logging`."""

    level: int
    text: str


Command = Open | Close | Ask | Leave | OpenFollow | CloseFollow | Logged

_pack = msgspec.msgpack.Encoder().encode
_letter = msgspec.msgpack.Decoder(Frame | Letter)
_command = msgspec.msgpack.Decoder(Command)


def packed(message: Frame | Letter | Command) -> bytes:
    """A message as it goes to the other process."""
    data = _pack(message)
    return len(data).to_bytes(LENGTH, "big") + data


def read_letter(data: bytes) -> Frame | Letter:
    """What the run has sent, without its length."""
    return _letter.decode(data)


def read_command(data: bytes | memoryview) -> Command:
    """What the server has sent, without its length."""
    return _command.decode(data)
