"""What clients of PostgreSQL send as SQL: statements apart, what kind each is, and parameters put into it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from orderbook.core.errors import SqlError
from orderbook.monitor.postgres_wire import BOOL, DATE, FLOAT8, INT4, INT8, NUMERIC, OID, TEXT, TIMESTAMPTZ

_QUERIES = frozenset({"SELECT", "WITH", "VALUES", "TABLE", "FROM", "("})
# The type that a parameter has by the cast behind it.
_CAST_OIDS = {
    "int": INT4, "int4": INT4, "integer": INT4, "int8": INT8, "bigint": INT8, "smallint": INT4, "oid": OID,
    "float8": FLOAT8, "double": FLOAT8, "real": FLOAT8, "numeric": NUMERIC, "decimal": NUMERIC, "bool": BOOL,
    "boolean": BOOL, "date": DATE, "timestamp": TIMESTAMPTZ, "timestamptz": TIMESTAMPTZ, "text": TEXT,
    "varchar": TEXT, "regclass": TEXT,
}  # fmt: skip
MOST_PARAMETERS = 1_000


class _Tokenizer(Postgres.Tokenizer):
    # sqlglot takes what follows these words as one text.
    COMMANDS: ClassVar = set()


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement: its text, its tokens, and its first word in capitals; "" where there is none.

    parameters: for each `$n` its place among the tokens. count: the greatest n.
    """

    sql: str
    tokens: tuple[Token, ...]
    start: int
    count: int

    @property
    def verb(self) -> str:
        """The first word in capitals."""
        return self.tokens[0].text.upper() if self.tokens else ""

    @property
    def is_query(self) -> bool:
        """Whether rows are asked for by a SELECT."""
        return self.verb in _QUERIES

    def words(self) -> list[str]:
        """All tokens as words, in capitals; names in quotes and texts as they are, in their quotes."""
        quotes = {TokenType.IDENTIFIER: '"', TokenType.STRING: "'"}
        return [f"{q}{t.text}{q}" if (q := quotes.get(t.token_type)) else t.text.upper() for t in self.tokens]

    def from_token(self, place: int) -> "Statement":
        """What begins at a token, as a statement of its own."""
        tokens = self.tokens[place:]
        if not tokens:
            return Statement("", (), self.start, 0)
        return Statement(self.sql[tokens[0].start - self.start :], tokens, tokens[0].start, self.count)

    def types(self, given: Sequence[int]) -> list[int]:
        """The type of each parameter: the client's, else that of the cast behind it, else text."""
        found = [given[n] if n < len(given) and given[n] else 0 for n in range(self.count)]
        for place in range(len(self.tokens) - 1):
            number = _number(self.tokens, place)
            if number is None or found[number - 1]:
                continue
            behind = self.tokens[place + 2 : place + 4]
            if len(behind) == 2 and behind[0].token_type is TokenType.DCOLON:
                found[number - 1] = _CAST_OIDS.get(behind[1].text.lower(), 0)
        return [oid or TEXT for oid in found]

    def with_values(self, literals: Sequence[str]) -> str:
        """The SQL with literals in the place of parameters. Raises SqlError where one is missing."""
        if len(literals) < self.count:
            raise SqlError(f"the query has {self.count} parameters, {len(literals)} were given")
        sql, at, parts = self.sql, 0, []
        for place in range(len(self.tokens) - 1):
            if (number := _number(self.tokens, place)) is not None:
                start, end = (
                    self.tokens[place].start - self.start,
                    self.tokens[place + 1].end + 1 - self.start,
                )
                parts += [sql[at:start], literals[number - 1]]
                at = end
        return "".join([*parts, sql[at:]])


def _number(tokens: Sequence[Token], place: int) -> int | None:
    """The number of the parameter that begins at a token."""
    token = tokens[place]
    if token.token_type is not TokenType.PARAMETER or place + 1 >= len(tokens):
        return None
    behind = tokens[place + 1]
    if (
        behind.token_type is not TokenType.NUMBER
        or behind.start != token.end + 1
        or not behind.text.isdecimal()
    ):
        return None
    return int(behind.text)


def statements(sql: str) -> list[Statement]:
    """The statements of a text that semicolons part. Raises SqlError for text in quotes without an end."""
    try:
        tokens = _Tokenizer(dialect="postgres").tokenize(sql)
    except SqlglotError as error:
        raise SqlError(" ".join(str(error).split())) from None
    found: list[Statement] = []
    begun: list[Token] = []
    for token in [*tokens, None]:
        if token is not None and token.token_type is not TokenType.SEMICOLON:
            begun.append(token)
            continue
        if begun:
            found.append(one_statement(sql, begun))
            begun = []
    return found


def one_statement(sql: str, tokens: list[Token]) -> Statement:
    """The statement of these tokens of a text. Raises SqlError for a parameter out of bounds."""
    numbers = [n for place in range(len(tokens)) if (n := _number(tokens, place)) is not None]
    if any(not 1 <= number <= MOST_PARAMETERS for number in numbers):
        raise SqlError(f"parameters are $1 to ${MOST_PARAMETERS}")
    start, end = tokens[0].start, tokens[-1].end + 1
    return Statement(sql[start:end], tuple(tokens), start, max(numbers, default=0))


@dataclass(frozen=True, slots=True)
class Subscription:
    """SUBSCRIBE: a view or a query whose changes are wanted; snapshot: with the rows that are there first."""

    view: str | None
    sql: str | None
    snapshot: bool = True
    progress: bool = False


def subscription(statement: Statement) -> Subscription:
    """SUBSCRIBE [TO] VIEW or (QUERY) [WITH (SNAPSHOT [= BOOLEAN], PROGRESS)]. Raises SqlError."""
    words, place = statement.words(), 1
    if words[place : place + 1] == ["TO"]:
        place += 1
    if place >= len(words):
        raise SqlError("SUBSCRIBE is followed by a view or by (SELECT …)")
    if words[place] == "(":
        end = closing(words, place)
        inner, view = statement.sql, None
        first, last = statement.tokens[place + 1], statement.tokens[end - 1]
        sql: str | None = inner[first.start - statement.start : last.end + 1 - statement.start]
        place = end + 1
    else:
        names = [statement.tokens[place].text]
        while words[place + 1 : place + 2] == ["."]:
            place += 2
            if place >= len(words):
                raise SqlError("SUBSCRIBE is followed by a view or by (SELECT …)")
            names.append(statement.tokens[place].text)
        if names[:-1] not in ([], ["public"], ["orderbook", "public"]):
            raise SqlError(f"no view is named {'.'.join(names)}")
        view, sql, place = names[-1], None, place + 1
    options = {"SNAPSHOT": True, "PROGRESS": False}
    rest = words[place:]
    if rest:
        if rest[:2] != ["WITH", "("] or rest[-1] != ")":
            raise SqlError("after SUBSCRIBE there may be WITH (SNAPSHOT = false) or WITH (PROGRESS)")
        for option in " ".join(rest[2:-1]).split(","):
            name, _, value = option.replace("=", " ").strip().partition(" ")
            if name not in options or value.strip() not in ("", "TRUE", "FALSE"):
                raise SqlError("options of SUBSCRIBE are SNAPSHOT and PROGRESS, true or false")
            options[name] = value.strip() != "FALSE"
    return Subscription(view, sql, options["SNAPSHOT"], options["PROGRESS"])


def closing(words: Sequence[str], place: int) -> int:
    """The place of the bracket that closes the one at `place`. Raises SqlError."""
    depth = 0
    for at in range(place, len(words)):
        depth += (words[at] == "(") - (words[at] == ")")
        if depth == 0 and at > place + 1:
            return at
    raise SqlError("a bracket is not closed")
