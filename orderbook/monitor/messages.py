"""What clients ask, and what goes between the run and the monitor's server, which is a process of its own.

A client's request is one JSON object a message, its types checked as it is read. Between the two processes,
frames of topics and other messages go one way and commands the other, as MessagePack with its length before
it. Both processes and the query worker import this, so it needs nothing but msgspec.
"""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from struct import Struct
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from orderbook.core.errors import DataError

# A version: stamp as text, switch, sequence.
WireVersion = tuple[Annotated[str, Meta(pattern=r"^-?\d{1,19}$")], int, int]
Id = Annotated[int, Meta(ge=0, le=2**53)]
Name = Annotated[str, Meta(min_length=1, max_length=256)]
SqlText = Annotated[str, Meta(min_length=1, max_length=32_768)]
Token = Annotated[str, Meta(max_length=1024)]


class Request(msgspec.Struct, tag_field="op", frozen=True, forbid_unknown_fields=True):
    """Any request; answers carry its `id`, which the client chooses."""

    id: Id


class Subscribe(Request, frozen=True, tag="subscribe"):
    """Frames of a topic until `unsubscribe`, the latest only."""

    topic: Literal["book", "view", "status", "notes", "instruments"]
    venue: Name | None = None
    symbol: Name | None = None
    depth: Annotated[int, Meta(ge=1, le=1000)] = 50
    view: Name | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 200


class Unsubscribe(Request, frozen=True, tag="unsubscribe"):
    """Ends a subscription or a continuous query."""

    subscription: Id


class QuerySql(Request, frozen=True, tag="sql"):
    """Ad-hoc SQL on a consistent snapshot.

    dialect: postgres has that one's catalog, and its arrays. describe: the columns alone, without rows.
    whole: all rows that an answer may have, not the first of them.
    """

    sql: SqlText
    dialect: Literal["duckdb", "postgres"] = "duckdb"
    describe: bool = False
    whole: bool = False


class Cancel(Request, frozen=True, tag="cancel"):
    """Gives up a request that waits for its answer."""

    request: Id


class Explain(Request, frozen=True, tag="explain"):
    """The stages of a view as text."""

    view: Name


class Why(Request, frozen=True, tag="why"):
    """What the event of a version did to a view, and what followed."""

    view: Name
    at: WireVersion


class Costs(Request, frozen=True, tag="costs"):
    """What every view and statement costs an event."""


class AddView(Request, frozen=True, tag="add_view"):
    """Adds the views that `sql` declares."""

    sql: SqlText
    token: Token = ""


class DropView(Request, frozen=True, tag="drop_view"):
    """Takes a view out of the running program."""

    view: Name
    token: Token = ""


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An alert: where `when` comes to hold of a row of a view. `when` None ends the rule of that name."""

    name: Name
    view: Name
    when: SqlText | None = None


class Rules(Request, frozen=True, tag="rules"):
    """The rules there are."""


class SetRule(Request, frozen=True, tag="set_rule"):
    """Adds, replaces or ends a rule."""

    rule: Rule
    token: Token = ""


class ListAlerts(Request, frozen=True, tag="alerts"):
    """The alerts of the configuration that are open or over, silences, and channels."""


class Acknowledge(Request, frozen=True, tag="acknowledge"):
    """Nobody else is told of an alert, by its id, or of all open ones of a rule."""

    alert: Name
    by: Annotated[str, Meta(max_length=256)] = ""
    token: Token = ""


class SilenceAlerts(Request, frozen=True, tag="silence"):
    """Alerts of a rule ("*": all) whose row has these values are told to nobody for so many seconds."""

    alert: Name
    seconds: float
    match: Annotated[dict[Name, Annotated[str, Meta(max_length=256)]], Meta(max_length=16)] = {}
    by: Annotated[str, Meta(max_length=256)] = ""
    token: Token = ""


class EndSilence(Request, frozen=True, tag="end_silence"):
    """A silence ends now."""

    silence: int
    token: Token = ""


class Halt(Request, frozen=True, tag="halt"):
    """The kill switch: cancels every order of the run and lets none be placed, until it is released."""

    halted: bool = True
    reason: Annotated[str, Meta(max_length=256)] = ""
    token: Token = ""


class Follow(Request, frozen=True, tag="follow"):
    """A continuous query: a view, or SQL; `after`: the version from which a client goes on."""

    sql: SqlText | None = None
    view: Name | None = None
    progress: bool = True
    after: WireVersion | None = None
    token: Token = ""


AnyRequest = (
    Subscribe
    | Unsubscribe
    | QuerySql
    | Cancel
    | Explain
    | Why
    | Costs
    | AddView
    | DropView
    | Rules
    | SetRule
    | ListAlerts
    | Acknowledge
    | SilenceAlerts
    | EndSilence
    | Halt
    | Follow
)


class QueryArrow(Request, frozen=True, tag="arrow"):
    """A server's own request: ad-hoc SQL whose whole answer is written to a file that the server has made.

    most: bytes of the answer. describe: the columns alone, without rows. bulk: the view or relation of
    which the SQL asks for all rows; these need no database.
    """

    sql: SqlText
    file: str
    most: int
    describe: bool = False
    bulk: str = ""


class ListTables(Request, frozen=True, tag="tables"):
    """A server's own request: what can be read, with its columns as Arrow has them."""


class Topic(NamedTuple):
    """What frames are about; equal for all clients that ask for the same."""

    kind: str
    venue: str = ""
    symbol: str = ""
    depth: int = 0
    view: str = ""
    limit: int = 0


def version_of(version: WireVersion) -> tuple[int, int, int]:
    """A version that a client has sent."""
    return int(version[0]), version[1], version[2]


def wire_version(version: tuple[int, int, int]) -> tuple[str, int, int]:
    """A version as messages have it: stamps are more than JavaScript's numbers hold."""
    return str(version[0]), version[1], version[2]


class _Identified(msgspec.Struct, frozen=True):
    id: Id


_request: msgspec.json.Decoder[AnyRequest] = msgspec.json.Decoder(AnyRequest)
_identified = msgspec.json.Decoder(_Identified)


def read_request(text: str | bytes) -> AnyRequest:
    """The request in a message. Raises DataError that says what is wrong with it."""
    try:
        return _request.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"not a request: {error}") from None


def id_of(text: str | bytes) -> int | None:
    """The `id` of a message that is no request, where it has one."""
    try:
        return _identified.decode(text).id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def topic_of(request: Subscribe) -> Topic:
    """What a client subscribes to. Raises DataError where something is missing."""
    match request.topic:
        case "book":
            if request.venue is None or request.symbol is None:
                raise DataError("a book is subscribed by venue and symbol")
            return Topic("book", request.venue, request.symbol, depth=request.depth)
        case "view":
            if request.view is None:
                raise DataError("a view is subscribed by its name, in `view`")
            return Topic("view", view=request.view, limit=request.limit)
    return Topic(request.topic)


# Rows of an answer that are sent, where not the whole is asked for.
SHOWN_ROWS = 1_000
# How names of views begin that were added for a continuous query, and so are nobody's own.
FOLLOWED = "followed_"


def is_followed(view: str) -> bool:
    """Whether a view was added for a continuous query."""
    return view.startswith(FOLLOWED)


# Items of each kind that are kept for clients which have not had them: trades, fills, notes.
KEPT_ITEMS = 500
# Bytes of the length before a message.
LENGTH = 4
# Of a trade: its time in ns, ticks and lots as doubles, and the side of the aggressor.
TRADE_VALUES = 4

_TRADE = Struct("=q2dq")
_SIDES = ("buy", "sell", "")

_encoder = msgspec.json.Encoder(decimal_format="string")
_json = _encoder.encode


def encoded(message: object) -> bytes:
    """JSON text of a message."""
    return _json(message)


def trades_encoded(trades: bytes) -> list[bytes]:
    """JSON text of each trade of `Frame.trades`."""
    items = [
        (str(time), ticks, lots, _SIDES[min(side, 2)]) for time, ticks, lots, side in read_trades(trades)
    ]
    return _encoder.encode_lines(items).split(b"\n")[: len(items)]


def read_trades(trades: bytes) -> Iterator[tuple[int, int | float, int | float, int]]:
    """Time in ns, ticks, lots and side of each trade of `Frame.trades`."""
    for time, ticks, lots, side in _TRADE.iter_unpack(trades):
        yield time, _whole(ticks), _whole(lots), side


def _whole(number: float) -> int | float:
    return int(number) if number.is_integer() else number


def body_of(message: Mapping[str, object]) -> bytes:
    """JSON text of an object without its braces, to which a client's `id` is added."""
    return _json(message)[1:-1]


def newest_trades(trades: bytes) -> bytes:
    """The end of `Frame.trades` that is kept."""
    return trades[-KEPT_ITEMS * _TRADE.size :]


class TopicFrame(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A topic as it is now: `body` as of `body_of`, and what has happened since the frame before.

    items: encoded. trades: of a book, TRADE_WORDS of 8 bytes each; the server makes text of so many.
    """

    topic: Topic
    body: bytes
    items: Mapping[str, Sequence[bytes]] = msgspec.field(default_factory=dict)
    trades: bytes | None = None

    def after(self, earlier: "TopicFrame") -> "TopicFrame":
        """This frame with what the earlier one, which nobody has taken, had to tell."""
        items = {n: [*earlier.items.get(n, ()), *new][-KEPT_ITEMS:] for n, new in self.items.items()}
        trades = None if self.trades is None else newest_trades((earlier.trades or b"") + self.trades)
        return TopicFrame(self.topic, self.body, items, trades)


class Refused(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A topic that there is not, or not any more."""

    topic: Topic
    error: str


class Answer(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The answer to a client's request."""

    client: int
    id: int
    body: bytes


class FollowSnapshot(msgspec.Struct, frozen=True, tag=True, array_like=True):
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


class HistoryBook(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A book as it is now. number: of the column of 100 ms. bids, asks: DEPTH[n]; steps: units of both."""

    venue: str
    symbol: str
    number: int
    state: str
    bids: bytes
    asks: bytes
    steps: tuple[int, int]


class HistoryTrades(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Trades as `TopicFrame.trades` has them; `traded`: how many of the instrument were told so far."""

    venue: str
    symbol: str
    traded: int
    trades: bytes


class HistoryFills(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Fills of an instrument, each encoded."""

    venue: str
    symbol: str
    fills: Sequence[bytes]


class HistoryLine(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Values of a view, or the profits, at a second since 1970; `line`: JSON of them."""

    name: str
    second: int
    line: bytes


HistoryMessage = HistoryBook | HistoryTrades | HistoryFills | HistoryLine

RunMessage = Refused | Answer | FollowSnapshot | Changes | FollowEnded | Alive | HistoryMessage


class Open(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Somebody asks for a topic."""

    topic: Topic


class Close(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Nobody asks for a topic any more."""

    topic: Topic


class Ask(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A client's request, which the run answers."""

    client: int
    request: AnyRequest | QueryArrow | ListTables


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
_run_message_decoder: msgspec.msgpack.Decoder[TopicFrame | RunMessage] = msgspec.msgpack.Decoder(
    TopicFrame | RunMessage
)
_command_decoder: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)


def packed(message: TopicFrame | RunMessage | Command) -> bytes:
    """A message as it goes to the other process."""
    data = _pack(message)
    return len(data).to_bytes(LENGTH, "big") + data


def read_run_message(data: bytes) -> TopicFrame | RunMessage:
    """What the run has sent, without its length."""
    return _run_message_decoder.decode(data)


def read_command(data: bytes | memoryview) -> Command:
    """What the server has sent, without its length."""
    return _command_decoder.decode(data)


# The largest integer that JavaScript's numbers hold exactly.
_EXACT = 2**53 - 1


def wire_value(value: Any) -> Any:
    """A value as JSON has it: decimals as text, integers that JavaScript would round likewise."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _EXACT:
        return str(value)
    return value
