"""SQL text to syntax trees: sqlglot's grammar, CREATE STREAM of our own, a position on every node.

Names are resolved later by `scope.py`, not by sqlglot's `qualify`, which renames nodes and so loses
their positions, and reports its own errors without any.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from sqlglot import exp, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.parser import Parser
from sqlglot.tokens import Token, TokenType

from orderbook.dictionary import HALF_CHARACTER
from orderbook.errors import SqlError

from .declaration_grammar import START, DeclarationParser, PlacedError, shown, start_at

# The parser recurses about twenty frames a parenthesis, every stage a few frames a level of the tree.
MAX_PARENTHESES = 32
MAX_DEPTH = 120
_STATEMENTS = "CREATE STREAM, CREATE TABLE, CREATE VIEW or SELECT"
_OF_ROWS = ("INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "COPY", "VALUES")


@dataclass(frozen=True, slots=True)
class SqlText:
    """One SQL text and the file it came from (None for text given in code)."""

    file: str | None
    sql: str

    def error(self, message: str, at: "exp.Expr | Token | int") -> SqlError:
        """A SqlError at a node, a token or an offset into the text."""
        offset = at if isinstance(at, int) else at.start if isinstance(at, Token) else position(at)
        before = self.sql[:offset]
        line = before.count("\n") + 1
        return SqlError(message, line, offset - (before.rfind("\n") + 1) + 1, self.file)


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement: its tree, the text it stands in, and its own SQL."""

    tree: exp.Expr
    text: SqlText
    sql: str


def position(node: exp.Expr) -> int:
    """The offset of a node's first character, or of the nearest ancestor's that has one."""
    current: Any = node
    while current is not None:
        if START in current.meta:
            return int(current.meta[START])
        starts = [n.meta[START] for n in current.walk() if START in n.meta]
        if starts:
            return int(min(starts))
        current = current.parent
    return 0


def _modifier(parse: Callable[[Any], tuple[str, Any]], parser: Any) -> tuple[str, Any]:
    """Parses a clause that follows FROM, and marks where its keyword stands."""
    start = parser._curr
    key, node = parse(parser)
    return key, start_at(start, node)


class _Parser(DeclarationParser):
    """sqlglot's parser; nodes keep where they start."""

    QUERY_MODIFIER_PARSERS: ClassVar = {
        token: partial(_modifier, parse) for token, parse in Parser.QUERY_MODIFIER_PARSERS.items()
    }

    def _parse_unary(self) -> Any:
        return self.marked(super()._parse_unary)

    def _parse_select(self, *args: Any, **options: Any) -> Any:
        return self.marked(lambda: super(_Parser, self)._parse_select(*args, **options))

    def _parse_table(self, *args: Any, **options: Any) -> Any:
        return self.marked(lambda: super(_Parser, self)._parse_table(*args, **options))

    def _parse_join(self, *args: Any, **options: Any) -> Any:
        return self.marked(lambda: super(_Parser, self)._parse_join(*args, **options))

    def _parse_with(self, *args: Any, **options: Any) -> Any:
        return self.marked(lambda: super(_Parser, self)._parse_with(*args, **options))

    def _parse_cube_or_rollup(self, *args: Any, **options: Any) -> Any:
        return self.marked(lambda: super(_Parser, self)._parse_cube_or_rollup(*args, **options))

    def _parse_grouping_sets(self, *args: Any, **options: Any) -> Any:
        return self.marked(lambda: super(_Parser, self)._parse_grouping_sets(*args, **options))

    def _parse_table_sample(self, *args: Any, **options: Any) -> Any:
        return self.marked(lambda: super(_Parser, self)._parse_table_sample(*args, **options))

    def parse_set_operation(self, *args: Any, **options: Any) -> Any:
        return self.marked(lambda: super(_Parser, self).parse_set_operation(*args, **options))


class Sql(Dialect):
    """The project's SQL: sqlglot's default dialect with STREAM, and NULL after every value."""

    NULL_ORDERING = "nulls_are_last"

    class Tokenizer(tokens.Tokenizer):
        KEYWORDS: ClassVar = {
            **tokens.Tokenizer.KEYWORDS,
            "STREAM": TokenType.STREAM,
            "//": TokenType.DIV,
            "MATCH_RECOGNIZE": TokenType.MATCH_RECOGNIZE,
        }

    Parser = _Parser


def parse(file: str | None, sql: str) -> Iterator[Statement]:
    """The statements of one text; raises SqlError at the first that is not of our SQL."""
    text = SqlText(file, sql)
    dialect = Sql()
    half = HALF_CHARACTER.search(sql)
    if half:
        raise text.error("this is not text: it holds half of a character", half.start())
    try:
        every = dialect.tokenize(sql)
    except TokenError as error:
        raise _token_error(text, error) from None
    for chunk in _chunks(every):
        yield _statement(dialect, text, chunk)


def _statement(dialect: Dialect, text: SqlText, chunk: list[Token]) -> Statement:
    _check_nesting(text, chunk)
    first = chunk[0]
    if first.token_type not in (TokenType.CREATE, TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN):
        instead = "; rows come from sources, not from SQL" if first.text.upper() in _OF_ROWS else ""
        raise text.error(f"expected {_STATEMENTS}, not {shown(first.text)}{instead}", first)
    parser = dialect.parser(error_level=ErrorLevel.IMMEDIATE)
    try:
        tree = parser.parse(chunk, text.sql)[0]
    except ParseError as error:
        placed = error if isinstance(error, PlacedError) else PlacedError("syntax error", first.start)
        raise text.error(placed.description, placed.offset) from None
    except RecursionError:
        raise text.error("the statement is nested too deeply; split it into views", first) from None
    if tree is None:
        raise text.error(f"expected {_STATEMENTS}", first)
    _check_depth(text, tree)
    return Statement(tree, text, text.sql[first.start : chunk[-1].end + 1])


def _chunks(every: list[Token]) -> Iterator[list[Token]]:
    chunk: list[Token] = []
    for token in every:
        if token.token_type is not TokenType.SEMICOLON:
            chunk.append(token)
        elif chunk:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _check_nesting(text: SqlText, chunk: list[Token]) -> None:
    depth = 0
    for token in chunk:
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth > MAX_PARENTHESES:
            message = f"parentheses are nested more than {MAX_PARENTHESES} deep; split the query into views"
            raise text.error(message, token)


def _check_depth(text: SqlText, tree: exp.Expr) -> None:
    level = [tree]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in _children(node)]
        if not level:
            return
    raise text.error(f"the expression is nested more than {MAX_DEPTH} deep; split it into views", level[0])


def _children(node: exp.Expr) -> list[Any]:
    """Operands of AND and OR chains count as one level however many they are."""
    if isinstance(node, exp.And | exp.Or):
        return list(node.flatten(unnest=False))
    return list(node.iter_expressions())


def _token_error(text: SqlText, error: TokenError) -> SqlError:
    start = error.end or 0
    opened = _unclosed(text.sql)
    if opened is None:
        return text.error("syntax error: unreadable text", min(start, len(text.sql)))
    offset, what = opened
    return text.error(f"syntax error: {what} is not closed", offset)


def _unclosed(sql: str) -> tuple[int, str] | None:
    """The offset of the string, quoted name or comment that never ends."""
    names = {"'": "a string", '"': "a quoted name", "/*": "a comment"}
    pattern = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/|(?P<open>'|"|/\*)""", re.DOTALL)
    for match in pattern.finditer(sql):
        if match["open"]:
            return match.start(), names[match["open"]]
    return None
