"""Reads M3 text back to a program; what is wrong is told with line and column."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from orderbook.core.errors import SqlError
from orderbook.views.calculus import (
    COMPARISONS,
    Apply,
    Cmp,
    Const,
    Exists,
    Extreme,
    Factor,
    Lift,
    MapRef,
    Poly,
    Rel,
    Scalar,
    Term,
    Val,
    Var,
)
from orderbook.views.m3 import (
    INFIX,
    PLAIN,
    Kept,
    MapDeclaration,
    Program,
    Result,
    ResultColumn,
    ResultKey,
    RowPattern,
    Statement,
    Trigger,
)
from orderbook.views.types import DEFAULT_MAX_ROWS, DOUBLE, Column, Kind, Relation, Type, decimal

T = TypeVar("T")
TOKEN = re.compile(
    r"\s+|--[^\n]*|(?P<number>-?(?:inf\b|\d+(?:\.\d+)?(?:e[+-]?\d+)?))|(?P<text>'(?:[^'\ud800-\udfff]|'')*')"
    r"|(?P<name>[A-Za-z_][A-Za-z_0-9]*)|(?P<sign>\^=|:=|\+=|\.\.|<>|<=|>=|[-+*/=<>(){}\[\],;:])"
)
# Bounds of types may be of many digits; Python reads no more than 4,300.
_WHOLE = re.compile(r"-?\d{1,4000}")


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    line: int
    column: int


def parse(text: str, file: str | None = None) -> tuple[Program, "Places"]:
    """The program that `text` describes, and where its maps, triggers, statements, views and reads stand.

    Raises SqlError with the position of what it cannot read.
    """
    parser = _Parser(_tokens(text, file), file)
    return parser.program(), parser.places


class Places:
    """Where the nodes of a parsed program stand in its text."""

    def __init__(self, file: str | None):
        self._file = file
        self._tokens: dict[int, tuple[_Token, object]] = {}

    def put(self, node: T, token: _Token) -> T:
        self._tokens[id(node)] = token, node
        return node

    def error(self, message: str, node: object) -> SqlError:
        """An error at a node."""
        token, _ = self._tokens[id(node)]
        return SqlError(message, token.line, token.column, self._file)


def _tokens(text: str, file: str | None) -> list[_Token]:
    tokens: list[_Token] = []
    at, line, start = 0, 1, 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise SqlError(f"unexpected character {text[at]!r}", line, at - start + 1, file)
        if match.lastgroup:
            tokens.append(_Token(match.lastgroup, match.group(), line, at - start + 1))
        newlines = match.group().count("\n")
        if newlines:
            line, start = line + newlines, at + match.group().rindex("\n") + 1
        at = match.end()
    return [*tokens, _Token("end", "end of text", line, at - start + 1)]


class _Parser:
    def __init__(self, tokens: list[_Token], file: str | None):
        self.tokens, self.file, self.at = tokens, file, 0
        self.places = Places(file)

    def placed(self, parse: Callable[[], T]) -> T:
        """What `parse` reads, with its place noted."""
        start = self.token
        return self.places.put(parse(), start)

    @property
    def token(self) -> _Token:
        return self.tokens[self.at]

    def fail(self, expected: str) -> SqlError:
        return SqlError(
            f"expected {expected}, found {self.token.text}", self.token.line, self.token.column, self.file
        )

    def take(self, text: str) -> bool:
        if self.token.kind != "text" and self.token.text == text:
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.take(text):
            raise self.fail(repr(text))

    def of_kind(self, kind: str) -> str:
        if self.token.kind != kind:
            raise self.fail(f"a {kind}")
        self.at += 1
        return self.tokens[self.at - 1].text

    def name(self) -> str:
        return self.of_kind("name")

    def integer(self) -> int:
        if not _WHOLE.fullmatch(self.token.text):
            raise self.fail("a whole number")
        return int(self.of_kind("number"))

    def listed(self, item: Callable[[], T], close: str) -> list[T]:
        items: list[T] = []
        while not self.take(close):
            if items:
                self.expect(",")
            items.append(item())
        return items

    def program(self) -> Program:
        relations: list[Relation] = []
        maps: list[MapDeclaration] = []
        initial: tuple[Statement, ...] = ()
        triggers: list[Trigger] = []
        results: list[Result] = []
        patterns: list[RowPattern] = []
        while self.token.kind != "end":
            if self.take("STREAM") or self.take("TABLE"):
                relations.append(self.placed(self.relation))
            elif self.take("MAP"):
                maps.append(self.placed(self.map))
            elif self.take("INITIAL"):
                initial = self.statements()
            elif self.take("ON"):
                triggers.append(self.placed(self.trigger))
            elif self.take("VIEW"):
                results.append(self.placed(self.result))
            elif self.take("MATCHES"):
                patterns.append(self.placed(self.pattern))
            else:
                raise self.fail("STREAM, TABLE, MAP, INITIAL, ON or VIEW")
        return Program(
            tuple(relations), tuple(maps), initial, tuple(triggers), tuple(results), tuple(patterns)
        )

    def relation(self) -> Relation:
        static = self.tokens[self.at - 1].text == "TABLE"
        name = self.name()
        self.expect("(")
        columns = self.listed(self.column, ")")
        rows = self.integer() if self.take("MAX") else DEFAULT_MAX_ROWS
        source = self.string() if self.take("SOURCE") else None
        key: list[str] = []
        if self.take("PRIMARY"):
            self.expect("KEY")
            self.expect("(")
            key = self.listed(self.name, ")")
        retain, retain_by = None, None
        if self.take("RETAIN"):
            retain = self.integer()
            self.expect("BY")
            retain_by = self.name()
        self.expect(";")
        return Relation(name, tuple(columns), rows, source, static, tuple(key), retain, retain_by)

    def column(self) -> Column:
        name, kind = self.name(), self.type()
        return Column(name, kind, self.take("NULL"))

    def string(self) -> str:
        return self.of_kind("text")[1:-1].replace("''", "'")

    def type(self) -> Type:
        word = self.name()
        if word not in Kind.__members__ and word not in PLAIN:
            self.at -= 1
            raise self.fail("a type")
        if word == "DOUBLE":
            return DOUBLE
        scale: int | None = None
        if self.take("("):
            scale = self.integer()
            if self.take(","):
                precision, scale = scale, self.integer()
                self.expect(")")
                return decimal(precision, scale)
            self.expect(")")
        if self.take("["):
            low = self.integer()
            self.expect("..")
            high = self.integer()
            self.expect("]")
            return Type(Kind(word), scale or 0, low, high)
        if word not in PLAIN:
            raise self.fail("'('")
        return PLAIN[word]

    def map(self) -> MapDeclaration:
        name = self.name()
        self.expect("[")
        keys = self.listed(lambda: (Var(self.name()), self.type()), "]")
        kind = self.type()
        count = self.name() if self.take("COUNT") else None
        self.expect("=")
        definition = self.poly()
        self.expect(";")
        return MapDeclaration(
            name, tuple(k for k, _ in keys), tuple(t for _, t in keys), kind, definition, count
        )

    def statements(self) -> tuple[Statement, ...]:
        self.expect("{")
        body = []
        while not self.take("}"):
            body.append(self.placed(self.statement))
            self.expect(";")
        return tuple(body)

    def statement(self) -> Statement:
        after = self.take("after")
        target = self.name()
        self.expect("[")
        keys = self.listed(self.scalar, "]")
        op = self.token.text
        if op not in ("+=", ":="):
            raise self.fail("+= or :=")
        self.at += 1
        return Statement(target, tuple(keys), op, self.poly(), after or op == ":=")

    def trigger(self) -> Trigger:
        insert = self.take("+")
        if not insert:
            self.expect("-")
        relation = self.name()
        self.expect("(")
        parameters = self.listed(lambda: Var(self.name()), ")")
        return Trigger(relation, insert, tuple(parameters), self.statements())

    def result(self) -> Result:
        name = self.name()
        self.expect("[")
        keys = self.listed(self.result_key, "]")
        grouped, multiplicity = True, None
        if self.take("GROUPS"):
            multiplicity = self.name()
        elif self.take("ROWS"):
            grouped, multiplicity = False, self.name()
        self.expect("{")
        lets: list[tuple[Var, Poly]] = []
        columns: list[ResultColumn] = []
        while not self.take("}"):
            if self.take("COLUMN"):
                columns.append(self.result_column())
            else:
                variable = Var(self.name())
                self.expect("=")
                lets.append((variable, self.poly()))
            self.expect(";")
        return Result(name, tuple(keys), multiplicity, grouped, tuple(lets), tuple(columns))

    def result_column(self) -> ResultColumn:
        return ResultColumn(self.name(), self.type(), *self.when())

    def when(self) -> tuple[Scalar, Scalar]:
        """`= value`, with the condition under which it is not NULL."""
        self.expect("=")
        return self.scalar(), self.scalar() if self.take("WHEN") else Const(1)

    def pattern(self) -> RowPattern:
        name = self.name()
        self.expect("OF")
        rows = self.result()
        self.expect("{")
        self.expect("PARTITION")
        partition = self.listed(self.integer, ";")
        self.expect("ORDER")
        order = self.listed(lambda: (self.integer(), self.take("DESC")), ";")
        back = self.alone("BACK", self.integer)
        overlapping = self.take("SKIP")
        if overlapping:
            self.expect("NEXT")
            self.expect(";")
        within = self.alone("WITHIN", self.number) if self.token.text == "WITHIN" else None
        self.expect("FIRST")
        first = self.listed(self.integer, ";")
        positions: list[tuple[int, tuple[int, ...]]] = []
        while self.take("POSITION"):
            variable = self.integer()
            self.expect(":")
            positions.append((variable, tuple(self.listed(self.integer, ";"))))
        kept: list[Kept] = []
        while self.take("KEEP"):
            how, of = self.name(), []
            while self.token.kind == "number":
                of.append(self.integer())
            kind = self.type()
            kept.append(Kept(how, tuple(of), *self.when(), kind))
            self.expect(";")
        conditions: list[Scalar] = []
        while self.token.text == "DEFINE":
            conditions.append(self.alone("DEFINE", self.scalar))
        columns: list[ResultColumn] = []
        while self.token.text == "COLUMN":
            columns.append(self.alone("COLUMN", self.result_column))
        self.expect("}")
        return RowPattern(
            name,
            rows,
            tuple(partition),
            tuple(order),
            tuple(variable for variable, _ in positions),
            tuple(first),
            tuple(follow for _, follow in positions),
            tuple(conditions),
            tuple(kept),
            overlapping,
            within,
            back,
            tuple(columns),
        )

    def alone(self, word: str, item: Callable[[], T]) -> T:
        """One item after a word, to the end of the line."""
        self.expect(word)
        found = item()
        self.expect(";")
        return found

    def number(self) -> int | float:
        text = self.of_kind("number")
        return int(text) if _WHOLE.fullmatch(text) else float(text)

    def result_key(self) -> ResultKey:
        variable, kind = Var(self.name()), self.type()
        return ResultKey(variable, self.name(), kind)

    def poly(self) -> Poly:
        terms = [self.term()]
        while self.take("+"):
            terms.append(self.term())
        return Poly(()) if terms == [(Val(Const(0)),)] else Poly(tuple(terms))

    def term(self) -> Term:
        factors = [self.placed(self.factor)]
        while self.take("*"):
            factors.append(self.placed(self.factor))
        return () if factors == [Val(Const(1))] else tuple(factors)

    def factor(self) -> Factor:
        if self.take("{"):
            left = self.scalar()
            op = self.token.text
            if op not in COMPARISONS:
                raise self.fail("a comparison")
            self.at += 1
            right = self.scalar()
            self.expect("}")
            return Cmp(op, left, right)
        if self.take("["):
            scalar = self.scalar()
            self.expect("]")
            return Val(scalar)
        if self.take("("):
            variable = Var(self.name())
            self.expect("^=")
            factor = self.extreme(variable) if self.is_extreme() else Lift(variable, self.poly())
            self.expect(")")
            return factor
        if self.token.kind != "name" or self.token.text in ("null",):
            return Val(self.scalar())
        name = self.name()
        if name == "EXISTS":
            self.expect("[")
            group = self.listed(lambda: Var(self.name()), "]")
            self.expect("(")
            body = self.poly()
            self.expect(")")
            return Exists(tuple(group), body)
        if self.take("["):
            return MapRef(name, tuple(self.listed(self.scalar, "]")))
        if self.take("("):
            return Rel(name, tuple(self.listed(self.scalar, ")")))
        return Val(Var(name))

    def is_extreme(self) -> bool:
        """Whether `MIN[value](` follows, which no map of that name, read at one key, is followed by."""
        texts = [t.text for t in self.tokens[self.at : self.at + 5]]
        return texts[0] in ("MIN", "MAX") and (texts[1], *texts[3:]) == ("[", "]", "(")

    def extreme(self, variable: Var) -> Extreme:
        greatest = self.name() == "MAX"
        self.expect("[")
        value = Var(self.name())
        self.expect("]")
        self.expect("(")
        body = self.poly()
        self.expect(")")
        return Extreme(variable, greatest, value, body)

    def scalar(self) -> Scalar:
        if self.take("("):
            left = self.scalar()
            op = self.token.text
            if op not in INFIX:
                raise self.fail("an operator")
            self.at += 1
            right = self.scalar()
            self.expect(")")
            return Apply(op, (left, right))
        if self.token.kind == "text":
            return Const(self.string())
        if self.token.kind == "number":
            if self.token.text.lstrip("-").isdigit():
                return Const(self.integer())
            return Const(float(self.of_kind("number")))
        name = self.name()
        if name == "null":
            return Const(None)
        if self.take("("):
            return Apply(name, tuple(self.listed(self.scalar, ")")))
        return Var(name)
