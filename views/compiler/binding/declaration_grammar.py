"""The grammar of CREATE STREAM, CREATE TABLE and CREATE VIEW, and positions on the nodes of any tree."""

import re
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn, TypeVar

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.parser import Parser
from sqlglot.tokens import TokenType

TYPES = "SMALLINT, INTEGER, BIGINT, DECIMAL(p, s), DOUBLE, BOOLEAN, TEXT, TIMESTAMP"
MATERIALIZE = ("none", "first", "full")
START = "start"
_RELATION_OPTIONS = "SOURCE '...', RETAIN INTERVAL '...' or WITH (max_rows = N)"
_COLUMN_TAKES = "a column takes NOT NULL, PRIMARY KEY and CHECK (...)"
_Parsed = TypeVar("_Parsed")


class CreateRelation(exp.Expression):
    """CREATE STREAM or CREATE TABLE: `this` the name, columns, checks and keys, options.

    `expressions` are ColumnDefs, CheckColumnConstraints and PrimaryKeys; `retain` is an Interval,
    `retain_by` the Identifier of the column that RETAIN counts from.
    """

    arg_types: ClassVar = {
        "this": True,
        "expressions": True,
        "static": True,
        "source": False,
        "max_rows": False,
        "retain": False,
        "retain_by": False,
    }


class CreateView(exp.Expression):
    """CREATE VIEW: `this` the name, `expression` the query, `materialize` a word of MATERIALIZE or None."""

    arg_types: ClassVar = {"this": True, "expression": True, "materialize": False}


class PlacedError(ParseError):
    """A parse error that keeps the offset of the token it is about."""

    def __init__(self, description: str, offset: int) -> None:
        super().__init__(description, [{"description": description}])
        self.description, self.offset = description, offset


def start_at(token: Any, node: Any) -> Any:
    """The node, with the offset of the token as its start unless it has one."""
    if isinstance(node, exp.Expr) and token:
        node.meta.setdefault(START, token.start)
    return node


def shown(text: str, limit: int = 40) -> str:
    """The text in one line of at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


class DeclarationParser(Parser):
    """sqlglot's parser with CREATE as we declare things, and nothing else of CREATE."""

    def raise_error(self, message: str, token: Any = None) -> NoReturn:
        """Raises sqlglot's message, in our words, at the token or the one that is next."""
        at = token or self._curr or self._prev
        if not token and not self._curr:
            raise PlacedError("syntax error: the statement ends too early", at.end + 1)
        missing = re.match(r"Required keyword: '(\w+)' missing for <class '.*?(\w+)'>", message)
        wanted = re.match(r"Expect(?:ing|ed) (\W|table name)", message)
        if missing:
            message = f"incomplete {missing[2].upper()}"
        elif wanted:
            message = f"expected {wanted[1]}, not {shown(at.text)!r}"
        elif message.startswith("Invalid expression") or "<" in message:
            message = f"unexpected {shown(at.text)!r}"
        raise PlacedError(f"syntax error: {shown(message, 120)}", at.start)

    def refuse(self, message: str) -> NoReturn:
        """Raises the message at the token that is next."""
        raise PlacedError(message, self._curr.start)

    def marked(self, parse: Callable[[], _Parsed]) -> _Parsed:
        """What `parse` returns, with its start."""
        start = self._curr
        return start_at(start, parse())

    def _parse_create(self) -> Any:
        start = self._prev
        if self._match(TokenType.VIEW):
            return start_at(start, self._parse_create_view())
        if not self._match_set((TokenType.STREAM, TokenType.TABLE)):
            self.refuse("after CREATE write STREAM, TABLE or VIEW")
        return start_at(start, self._parse_create_relation(self._prev.token_type is TokenType.TABLE))

    def _parse_match_recognize(self) -> Any:
        if self._curr and self._curr.token_type is TokenType.MATCH_RECOGNIZE:
            self.refuse(
                "MATCH_RECOGNIZE is not supported; compare a row with those before it by LAG, LEAD or a join"
            )
        return None

    def _parse_name(self, what: str) -> Any:
        if not self._curr or self._curr.token_type is TokenType.STRING:
            self.raise_error(f"expected the name of a {what}")
        return self._parse_id_var() or self.raise_error(f"expected the name of a {what}")

    def _parse_create_view(self) -> Any:
        name = self._parse_name("view")
        materialize = None
        if self._match(TokenType.WITH):
            materialize = self._parse_wrapped(self._parse_materialize)
        if not self._match(TokenType.ALIAS):
            self.raise_error("expected AS and a SELECT after the view's name")
        query = self._parse_ddl_select() or self.raise_error("expected a SELECT after AS")
        return self.expression(CreateView(this=name, expression=query, materialize=materialize))

    def _parse_materialize(self) -> str:
        if not self._match_text_seq("MATERIALIZE"):
            self.refuse(f"unknown option {self._curr.text!r} of a view; the only one is materialize")
        if not self._match(TokenType.EQ):
            self.raise_error("expected = and how much to materialize")
        word = self._curr.text.lower() if self._curr else ""
        if word not in MATERIALIZE:
            self.raise_error(f"materialize is one of {', '.join(map(repr, MATERIALIZE))}")
        self._advance()
        return word

    def _parse_create_relation(self, static: bool) -> Any:
        name = self._parse_name("table" if static else "stream")
        if self._curr and self._curr.token_type is TokenType.ALIAS:
            self.refuse("CREATE TABLE AS is not supported; write CREATE VIEW name AS SELECT ...")
        if self._curr and self._curr.token_type is not TokenType.L_PAREN:
            self.raise_error(f"expected ( and columns after the name, not {shown(self._curr.text)!r}")
        items = self._parse_wrapped_csv(self._parse_declared)
        options: dict[str, Any] = {}
        while self._curr:
            if "source" not in options and self._match_text_seq("SOURCE"):
                options["source"] = self._parse_string() or self.raise_error("expected a string after SOURCE")
            elif self._match(TokenType.WITH):
                self._parse_wrapped_csv(lambda: self._parse_option(options))
            elif "retain" not in options and self._match_text_seq("RETAIN"):
                self._parse_retain(options)
            else:
                self.raise_error(f"unexpected {self._curr.text!r}; expected {_RELATION_OPTIONS}")
        return self.expression(CreateRelation(this=name, expressions=items, static=static, **options))

    def _parse_option(self, options: dict[str, Any]) -> None:
        name = self._curr.text.lower() if self._curr else ""
        if name not in ("max_rows", "retain"):
            shown = self._curr.text if self._curr else ""
            self.refuse(f"unknown option {shown!r}; there are max_rows and retain")
        if name in options:
            self.refuse(f"{name} is given twice")
        self._advance()
        if not self._match(TokenType.EQ):
            self.raise_error(f"expected = and the value of {name}")
        if name == "max_rows":
            options[name] = self._parse_max_rows()
        else:
            self._parse_retain(options)

    def _parse_max_rows(self) -> Any:
        number = self._parse_number()
        if number is None or not number.name.isdigit() or not 0 < int(number.name[:20]) < 2**63:
            at = self._prev if number else self._curr
            self.raise_error("max_rows is a whole number above 0 and below 2**63", at)
        return number

    def _parse_retain(self, options: dict[str, Any]) -> None:
        interval = self.marked(self._parse_interval)
        if not isinstance(interval, exp.Interval):
            self.raise_error("expected INTERVAL '...' after RETAIN")
        options["retain"] = interval
        if self._match(TokenType.ON):
            options["retain_by"] = self._parse_name("column")

    def _parse_declared(self) -> Any:
        """One column with its constraints, or a CHECK or PRIMARY KEY of the whole relation."""
        start = self._curr
        if self._is_check():
            return start_at(start, self._parse_check())
        if self._match(TokenType.PRIMARY_KEY):
            columns = self._parse_wrapped_csv(lambda: self._parse_name("column"))
            return start_at(start, self.expression(exp.PrimaryKey(expressions=columns)))
        name = self._parse_name("column")
        kind = self.marked(lambda: self._parse_types(schema=True, allow_identifiers=False))
        if kind is None:
            self.refuse(f"column {name.name} needs one of the types {TYPES}")
        constraints: list[Any] = []
        while self._curr and self._curr.token_type not in (TokenType.COMMA, TokenType.R_PAREN):
            constraints.append(self._parse_constraint())
        return start_at(start, self.expression(exp.ColumnDef(this=name, kind=kind, constraints=constraints)))

    def _parse_constraint(self) -> Any:
        if self._is_check():
            return self.marked(self._parse_check)
        start = self._curr
        if self._match_pair(TokenType.NOT, TokenType.NULL):
            return exp.NotNullColumnConstraint()
        if not self._match(TokenType.PRIMARY_KEY):
            self.refuse(f"{self._curr.text.upper()} is not supported here; {_COLUMN_TAKES}")
        return start_at(start, exp.PrimaryKeyColumnConstraint())

    def _is_check(self) -> bool:
        following = self._next
        return bool(
            self._curr.text.upper() == "CHECK" and following and following.token_type is TokenType.L_PAREN
        )

    def _parse_check(self) -> Any:
        self._advance()
        return self.expression(exp.CheckColumnConstraint(this=self._parse_wrapped(self._parse_disjunction)))
