"""What clients may ask: one JSON object a message, its types checked as it is read."""

from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from orderbook.errors import DataError

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
    """Ad-hoc SQL on a consistent snapshot."""

    sql: SqlText


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
    | Follow
)


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


_request = msgspec.json.Decoder(AnyRequest)
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
