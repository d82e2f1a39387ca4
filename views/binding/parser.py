"""SQL text to syntax trees: sqlglot's grammar, declarations of our own, a position on every node.

The grammar of CREATE STREAM, TABLE, VIEW and STRATEGY is ours, and positions are put on the nodes of any
tree. Names are resolved later by `scope.py`, not by sqlglot's `qualify`, which renames nodes and so loses
their positions, and reports its own errors without any.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NoReturn, TypeVar

from sqlglot import exp, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.parser import Parser
from sqlglot.tokens import Token, TokenType

from orderbook.core.changes import HALF_CHARACTER
from orderbook.core.errors import SqlError
from orderbook.views.binding.nodes import (
    BitAnd,
    BitOr,
    BitXor,
    Composed,
    CreateFunction,
    CreateMacro,
    CreateParameter,
    CreateRelation,
    CreateStrategy,
    CreateView,
    DecayedSum,
    Entropy,
    Ewma,
    Histogram,
    KurtosisPop,
    MacroParameter,
    Mad,
    MatchRecognize,
    QuantileCont,
    QuantileDisc,
)

TYPES = "SMALLINT, INTEGER, BIGINT, DECIMAL(p, s), DOUBLE, BOOLEAN, TEXT, TIMESTAMP"
MATERIALIZE = ("none", "first", "full")
START = "start"
_RELATION_OPTIONS = "SOURCE '...', RETAIN INTERVAL '...' or WITH (max_rows = N)"
_COLUMN_TAKES = "a column takes NOT NULL, PRIMARY KEY and CHECK (...)"
_Parsed = TypeVar("_Parsed")


def _composed(name: str) -> Callable[[list[Any]], exp.Func]:
    return lambda args: Composed(this=name, expressions=args)


def _joined_texts(args: list[Any]) -> exp.Func:
    """LISTAGG(x, separator) and the like; DISTINCT before x has taken both."""
    given, *separator = args or [None]
    if isinstance(given, exp.Distinct) and len(given.expressions) == 2:
        given, separator = exp.Distinct(expressions=given.expressions[:1]), given.expressions[1:]
    return exp.GroupConcat(this=given, separator=separator[0] if separator else None)


def _list(args: list[Any]) -> exp.Func:
    return exp.ArrayAgg(this=args[0] if len(args) == 1 else None)


def _sum_of_doubles(args: list[Any]) -> exp.Func:
    """FSUM(x), the sum of doubles; sums are compensated anyway."""
    return exp.Sum(this=exp.cast(args[0], exp.DType.DOUBLE)) if len(args) == 1 else exp.Sum(this=None)


def _count_if(args: list[Any]) -> exp.Func:
    """COUNT_IF(condition): the sum of 1 where it holds and 0 where it does not, NULL where it never says."""
    condition = args[0] if len(args) == 1 else None
    if condition is None:
        return exp.CountIf(this=condition)
    holds, fails = (
        exp.If(this=condition, true=exp.Literal.number(1)),
        exp.Not(this=exp.Paren(this=condition.copy())),
    )
    return exp.Sum(this=exp.Case(ifs=[holds, exp.If(this=fails, true=exp.Literal.number(0))]))


def _count_distinct(args: list[Any]) -> exp.Func:
    """APPROX_COUNT_DISTINCT(x), which is exact here: the values are kept anyway."""
    return exp.Count(this=exp.Distinct(expressions=args[:1])) if len(args) == 1 else exp.ApproxDistinct()


def _unparsed(name: str) -> Callable[[list[Any]], exp.Func]:
    """A call whose arguments are left as they are written, in their order."""
    return lambda args: exp.Anonymous(this=name, expressions=args)


class PlacedError(ParseError):
    """A parse error that keeps the offset of the token it is about."""

    def __init__(self, description: str, offset: int) -> None:
        super().__init__(description, [{"description": description}])
        self.description, self.offset = description, offset


def start_at(token: Any, node: _Parsed) -> _Parsed:
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
        wanted = re.match(r"Expect(?:ing|ed) (\W|table name|FOR|IN)", message)
        if missing:
            message = f"incomplete {missing[2].upper()}"
        elif wanted:
            message = f"expected {wanted[1]}, not {shown(at.text)!r}"
        elif message.startswith("Invalid expression") or "<" in message:
            message = f"unexpected {shown(at.text)!r}"
        raise PlacedError(f"syntax error: {shown(message, 120)}", at.start)

    def refuse(self, message: str, token: Any = None) -> NoReturn:
        """Raises the message at the token, or at the one that is next."""
        raise PlacedError(message, (token or self._curr).start)

    def marked(self, parse: Callable[[], _Parsed]) -> _Parsed:
        """What `parse` returns, with its start."""
        start = self._curr
        return start_at(start, parse())

    def _parse_create(self) -> Any:
        start = self._prev
        if self._match(TokenType.VIEW):
            return start_at(start, self._parse_create_view())
        if self._match_text_seq("STRATEGY"):
            return start_at(start, self._parse_create_strategy())
        if self._match_text_seq("PARAMETER"):
            return start_at(start, self._parse_create_parameter())
        if self._match_text_seq("MACRO") or self._match_text_seq("FUNCTION"):
            in_python = _is_typed(self._tokens[self._index - 2 :])
            made = self._parse_create_function() if in_python else self._parse_create_macro()
            return start_at(start, made)
        if not self._match_set((TokenType.STREAM, TokenType.TABLE)):
            self.refuse("after CREATE write STREAM, TABLE, VIEW, MACRO, FUNCTION, STRATEGY or PARAMETER")
        return start_at(start, self._parse_create_relation(self._prev.token_type is TokenType.TABLE))

    def _parse_match_recognize(self, table: Any = None) -> Any:
        """MATCH_RECOGNIZE ( … ) after what it reads; None where it does not come next."""
        if table is None or not self._match(TokenType.MATCH_RECOGNIZE):
            return None
        self._match_l_paren()
        clauses: dict[str, Any] = {"partition_by": self._parse_partition_by(), "order": self._parse_order()}
        if self._match_text_seq("MEASURES"):
            clauses["measures"] = self._parse_csv(lambda: self.marked(self._parse_measure))
        clauses["rows"] = self._parse_words("ONE", "ROW", "PER", "MATCH") or self._parse_words(
            "ALL", "ROWS", "PER", "MATCH"
        )
        clauses["after"] = self._parse_skip()
        clauses["pattern"] = self._parse_pattern()
        if self._match_text_seq("WITHIN"):
            clauses["within"] = self.marked(self._parse_length) or self.raise_error(
                "expected a length of time"
            )
        if self._match_text_seq("SUBSET"):
            self.refuse("SUBSET is not supported; give the alternatives a name each", self._prev)
        if self._match_text_seq("DEFINE"):
            clauses["define"] = self._parse_csv(lambda: self.marked(self._parse_defined))
        if not self._curr:
            self.raise_error("expected )")
        if not self._match(TokenType.R_PAREN):
            self.refuse(
                "MATCH_RECOGNIZE has, in this order, PARTITION BY, ORDER BY, MEASURES, ONE ROW PER MATCH, "
                "AFTER MATCH SKIP, PATTERN (...), WITHIN and DEFINE"
            )
        return self.expression(MatchRecognize(this=table, **clauses, alias=self._parse_table_alias()))

    def _parse_words(self, *words: str) -> Any:
        start = self._curr
        return start_at(start, exp.var(" ".join(words))) if self._match_text_seq(*words) else None

    def _parse_measure(self) -> Any:
        if self._curr and self._curr.text.upper() in ("FINAL", "RUNNING"):
            # They are one: a match is shown as of its last row.
            self._advance()
        value = self._parse_disjunction() or self.raise_error("expected a measure")
        if not self._match(TokenType.ALIAS):
            self.raise_error("expected AS and the name of the measure")
        return self.expression(exp.Alias(this=value, alias=self._parse_name("measure")))

    def _parse_skip(self) -> Any:
        start = self._curr
        if not self._match_text_seq("AFTER", "MATCH"):
            return None
        if not self._match_text_seq("SKIP"):
            self.raise_error("expected SKIP PAST LAST ROW or SKIP TO NEXT ROW")
        for words in (("PAST", "LAST", "ROW"), ("TO", "NEXT", "ROW")):
            if self._match_text_seq(*words):
                return start_at(start, exp.var(" ".join(words)))
        return self.refuse(
            "AFTER MATCH SKIP takes PAST LAST ROW and TO NEXT ROW; SKIP TO a variable is not supported", start
        )

    def _parse_pattern(self) -> Any:
        if not self._match_text_seq("PATTERN"):
            self.raise_error("expected PATTERN (...)")
        if not self._match(TokenType.L_PAREN):
            self.raise_error("expected ( after PATTERN")
        first, depth = self._prev, 1
        while self._curr:
            depth += (self._curr.token_type is TokenType.L_PAREN) - (
                self._curr.token_type is TokenType.R_PAREN
            )
            self._advance()
            if depth == 0:
                return start_at(first, exp.var(self.sql[first.end + 1 : self._prev.start]))
        return self.raise_error("expected ) after the pattern")

    def _parse_length(self) -> Any:
        """A constant, or an INTERVAL whose unit is not the clause that comes next."""
        if not self._match(TokenType.INTERVAL):
            return self._parse_unary()
        value = self._parse_primary() or self._parse_placeholder()
        ends = not self._curr or self._curr.text.upper() in ("DEFINE", "SUBSET", ")")
        unit = None if ends else self._parse_var(any_token=True)
        return self.expression(exp.Interval(this=value or self.raise_error("expected a length"), unit=unit))

    def _parse_defined(self) -> Any:
        name = self._parse_name("pattern variable")
        if not self._match(TokenType.ALIAS):
            self.raise_error("expected AS and the condition of the variable's rows")
        condition = self._parse_disjunction() or self.raise_error("expected a condition after AS")
        return self.expression(exp.Alias(this=condition, alias=name))

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

    def _parse_create_strategy(self) -> Any:
        name = self._parse_name("strategy")
        options: list[Any] = []
        if self._match(TokenType.WITH):
            options = self._parse_wrapped_csv(lambda: self.marked(self._parse_rule))
        if not self._match(TokenType.ALIAS):
            self.raise_error("expected AS and a SELECT after the strategy's name")
        query = self._parse_ddl_select() or self.raise_error("expected a SELECT after AS")
        return self.expression(CreateStrategy(this=name, expression=query, options=options))

    def _parse_create_parameter(self) -> Any:
        name = self._parse_name("parameter")
        if not self._match(TokenType.DEFAULT):
            self.raise_error("expected DEFAULT and a value after the parameter's name")
        value = self.marked(self._parse_unary) or self.raise_error("expected a value after DEFAULT")
        check = None
        if self._curr and self._is_check():
            check = self._parse_check().this
        return self.expression(CreateParameter(this=name, expression=value, check=check))

    def _parse_create_macro(self) -> Any:
        name = self._parse_name("macro")
        if not self._curr or self._curr.token_type is not TokenType.L_PAREN:
            self.raise_error("expected ( and the parameters after the macro's name")
        parameters = self._parse_wrapped_csv(lambda: self.marked(self._parse_macro_parameter), optional=False)
        if not self._match(TokenType.ALIAS):
            self.raise_error("expected AS and an expression, or AS TABLE and a SELECT, after the parameters")
        table = bool(self._match(TokenType.TABLE))
        body = self._parse_ddl_select() if table else self._parse_disjunction()
        body = body or self.raise_error("expected what the macro stands for after AS")
        return self.expression(CreateMacro(this=name, expressions=parameters, expression=body, table=table))

    def _parse_create_function(self) -> Any:
        name = self._parse_name("function")
        parameters = self._parse_wrapped_csv(lambda: self.marked(self._parse_typed), optional=False)
        if not self._match_text_seq("RETURNS"):
            self.raise_error("expected RETURNS and a type after the parameters")
        kind = self._parse_type_of("the result")
        if not self._match_text_seq("LANGUAGE"):
            self.raise_error("expected LANGUAGE python after the type")
        if not self._match_text_seq("PYTHON"):
            self.refuse("functions are in LANGUAGE python; what SQL says itself is a macro: AS expression")
        target = self.marked(self._parse_string) if self._match(TokenType.ALIAS) else None
        if target is None:
            self.raise_error("expected AS 'MODULE:FUNCTION'")
        return self.expression(CreateFunction(this=name, expressions=parameters, kind=kind, target=target))

    def _parse_typed(self) -> Any:
        if self._curr and self._curr.token_type is TokenType.R_PAREN:
            return None
        name = self._parse_name("parameter")
        return self.expression(exp.ColumnDef(this=name, kind=self._parse_type_of(f"parameter {name.name}")))

    def _parse_type_of(self, what: str) -> Any:
        kind = self.marked(lambda: self._parse_types(schema=True, allow_identifiers=False))
        return kind or self.refuse(f"{what} needs one of the types {TYPES}")

    def _parse_macro_parameter(self) -> Any:
        if self._curr and self._curr.token_type is TokenType.R_PAREN:
            return None
        name = self._parse_name("parameter")
        given = self._match(TokenType.COLON_EQ) or self._match(TokenType.DEFAULT)
        return self.expression(MacroParameter(this=name, default=self._parse_unary() if given else None))

    def _parse_rule(self) -> Any:
        """An option of a strategy: a name with its value, TRUE where none is given."""
        name = self._parse_name("option")
        value = self.marked(self._parse_unary) if self._match(TokenType.EQ) else exp.Boolean(this=True)
        return exp.EQ(this=name, expression=value or self.raise_error("expected the option's value"))

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


# The parser recurses about twenty frames a parenthesis, every stage a few frames a level of the tree.
MAX_PARENTHESES = 32
MAX_DEPTH = 120
_FIRST = (TokenType.CREATE, TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN, TokenType.PIVOT)
_STATEMENTS = "CREATE STREAM, TABLE, VIEW, MACRO, FUNCTION, STRATEGY or PARAMETER, or SELECT"
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


def _quantile(node: type[exp.Func], args: list[Any]) -> exp.Func:
    """Of (x, fraction), also where DISTINCT before x has taken both."""
    if len(args) == 1 and isinstance(args[0], exp.Distinct) and len(args[0].expressions) == 2:
        x, fraction = args[0].expressions
        args = [exp.Distinct(expressions=[x]), fraction]
    return node.from_arg_list(args)


_COMPOSED = ("PRODUCT", "GEOMEAN", "GEOMETRIC_MEAN", "SEM", "WAVG", "WEIGHTED_AVG")
_AS_WRITTEN = ("DATE_DIFF", "DATEDIFF", "DATE_SUB", "DATESUB", "DATE_ADD")


def order_parts(item: exp.Expr) -> list[exp.Expr]:
    """An item of ORDER BY, of a row value one of each part; NULL within a row is greater than all values."""
    ordered = item if isinstance(item, exp.Ordered) else exp.Ordered(this=item)
    if not isinstance(ordered.this, exp.Tuple):
        return [item]
    descending = bool(ordered.args.get("desc"))
    return [exp.Ordered(this=p, desc=descending, nulls_first=descending) for p in ordered.this.expressions]


class _Parser(DeclarationParser):
    """sqlglot's parser; nodes keep where they start."""

    # x ^ y and x ** y are powers, and bind tighter than products.
    BITWISE: ClassVar = {k: v for k, v in Parser.BITWISE.items() if k is not TokenType.CARET}
    EXPONENT: ClassVar = {TokenType.CARET: exp.Pow, TokenType.DSTAR: exp.Pow}
    RANGE_PARSERS: ClassVar = {
        **Parser.RANGE_PARSERS,
        TokenType.TILDE: lambda self, this: exp.RegexpLike(this=this, expression=self._parse_bitwise()),
    }

    FUNCTIONS: ClassVar = {
        **Parser.FUNCTIONS,
        **{name: _composed(name) for name in _COMPOSED},
        **dict.fromkeys(("LISTAGG", "GROUP_CONCAT"), _joined_texts),
        **dict.fromkeys(("LIST", "ARRAY_AGG"), _list),
        "ENTROPY": Entropy.from_arg_list,
        "HISTOGRAM": Histogram.from_arg_list,
        **{node.sql_name(): node.from_arg_list for node in (BitAnd, BitOr, BitXor)},
        "MAD": Mad.from_arg_list,
        "COUNT_STAR": lambda args: exp.Count(this=exp.Star(), expressions=args),
        **dict.fromkeys(("FSUM", "KAHAN_SUM", "SUMKAHAN"), _sum_of_doubles),
        **dict.fromkeys(("FAVG", "MEAN"), exp.Avg.from_arg_list),
        "SUM_NO_OVERFLOW": exp.Sum.from_arg_list,
        "ARBITRARY": exp.AnyValue.from_arg_list,
        "EVERY": exp.LogicalAnd.from_arg_list,
        "APPROX_QUANTILE": partial(_quantile, QuantileCont),
        "RESERVOIR_QUANTILE": partial(_quantile, exp.Quantile),
        "KURTOSIS_POP": KurtosisPop.from_arg_list,
        **dict.fromkeys(("COUNT_IF", "COUNTIF"), _count_if),
        **dict.fromkeys(("APPROX_COUNT_DISTINCT", "APPROX_DISTINCT"), _count_distinct),
        "IFF": exp.If.from_arg_list,
        **{name: _unparsed(name) for name in _AS_WRITTEN},
        "EWMA": Ewma.from_arg_list,
        "DECAYED_SUM": DecayedSum.from_arg_list,
        "QUANTILE_CONT": partial(_quantile, QuantileCont),
        "QUANTILE_DISC": partial(_quantile, QuantileDisc),
        "QUANTILE": partial(_quantile, exp.Quantile),
    }
    QUERY_MODIFIER_PARSERS: ClassVar = {
        token: partial(_modifier, parse)
        for token, parse in Parser.QUERY_MODIFIER_PARSERS.items()
        if token is not TokenType.MATCH_RECOGNIZE
    }

    def _parse_unary(self) -> Any:
        return self.marked(super()._parse_unary)

    def _parse_order(self, *args: Any, **options: Any) -> Any:
        order = super()._parse_order(*args, **options)
        if isinstance(order, exp.Order):
            order.set("expressions", [part for item in order.expressions for part in order_parts(item)])
        return order

    def _parse_simplified_pivot(self, is_unpivot: bool | None = None) -> Any:
        """PIVOT t ON column IN (...) USING ... as SELECT * FROM t PIVOT (... FOR column IN (...))."""
        if is_unpivot:
            message = "UNPIVOT is not supported; write a UNION ALL of a SELECT for each column"
            self.refuse(message, self._prev)
        start = self._prev
        source = self._parse_table() or self.raise_error("expected what to PIVOT")
        if not self._match(TokenType.ON):
            self.raise_error("expected ON and the columns whose values become columns")
        fields = self._parse_csv(lambda: self.marked(self._parse_pivoted))
        aggregates = self._parse_csv(self._parse_expression) if self._match(TokenType.USING) else []
        group = self._parse_group()
        pivot = exp.Pivot(expressions=aggregates or [exp.Count(this=exp.Star())], fields=fields, group=group)
        source.set("pivots", [start_at(start, pivot)])
        query = exp.Select(expressions=[exp.Star()], from_=exp.From(this=source))
        return start_at(start, self._parse_query_modifiers(query))

    def _parse_pivot_aggregation(self) -> Any:
        """An aggregate, or what is computed of one; FOR behind it is not one of its operators."""
        value = self.marked(self._parse_bitwise) or self.raise_error("expected an aggregate")
        return self._parse_alias(value)

    def _parse_pivoted(self) -> Any:
        """A column with the values of it that become columns."""
        index = self._index
        column = self._parse_column()
        if not self._match(TokenType.IN):
            return column
        self._retreat(index)
        return self._parse_pivot_in()

    def _parse_select(self, *args: Any, **options: Any) -> Any:
        if self._match(TokenType.PIVOT):
            return self._parse_simplified_pivot()
        return self.marked(lambda: super(_Parser, self)._parse_select(*args, **options))

    def _parse_table(self, *args: Any, **options: Any) -> Any:
        table = self.marked(lambda: super(_Parser, self)._parse_table(*args, **options))
        while matches := self.marked(partial(self._parse_match_recognize, table)):
            table = matches
        return table

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
            "**": TokenType.DSTAR,
            "MATCH_RECOGNIZE": TokenType.MATCH_RECOGNIZE,
        }

    Parser = _Parser


def is_function(name: str) -> bool:
    """Whether calls of a name, in upper case, are parsed as a function's; a macro may not be called so.

    Formulas of aggregates are calls like any other, which a macro of their name comes before.
    """
    return not is_formula(name) and (name in _Parser.FUNCTIONS or name in _Parser.FUNCTION_PARSERS)


def is_formula(name: str) -> bool:
    """Whether a name, in upper case, is that of an aggregate that is a formula of others."""
    return name in _COMPOSED


def parse(file: str | None, sql: str) -> Iterator[Statement]:
    """The statements of one text but its CREATE PARAMETER, MACRO and FUNCTION; raises SqlError at the first
    that is not of our SQL."""
    text, dialect = SqlText(file, sql), Sql()
    chunks = _chunks(_tokens(dialect, text))
    return (_statement(dialect, text, c) for c in chunks if not _creates(c, "PARAMETER", *_MACRO))


def parse_macros(file: str | None, sql: str) -> list[Statement]:
    """The CREATE MACRO of a text, whatever else it says; raises SqlError where one is wrong."""
    if "macro" not in sql.lower() and "function" not in sql.lower():
        return []
    text, dialect = SqlText(file, sql), Sql()
    chunks = _chunks(_tokens(dialect, text))
    return [_statement(dialect, text, c) for c in chunks if _creates(c, *_MACRO) and not _is_typed(c)]


def parse_functions(file: str | None, sql: str) -> list[Statement]:
    """The CREATE FUNCTION of a text that are in Python; raises SqlError where one is wrong."""
    if "function" not in sql.lower():
        return []
    text, dialect = SqlText(file, sql), Sql()
    chunks = _chunks(_tokens(dialect, text))
    return [_statement(dialect, text, c) for c in chunks if _creates(c, *_MACRO) and _is_typed(c)]


def parse_parameters(file: str | None, sql: str) -> Iterator[Statement]:
    """The CREATE PARAMETER of a text, whatever else it says; raises SqlError where one is wrong."""
    if "parameter" not in sql.lower():
        return iter(())
    text, dialect = SqlText(file, sql), Sql()
    return (_statement(dialect, text, c) for c in _chunks(_tokens(dialect, text)) if _creates(c, "PARAMETER"))


_MACRO = ("MACRO", "FUNCTION")


def _creates(chunk: Sequence[Token], *what: str) -> bool:
    first, *words = (token.text.upper() for token in chunk[:2])
    return first == "CREATE" and words[:1] != [] and words[0] in what


def _is_typed(chunk: Sequence[Token]) -> bool:
    """Whether a CREATE FUNCTION says the type of its result, or its language, after its parameters."""
    depth = 0
    for token in chunk[2:]:
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth == 0 and token.token_type in (TokenType.ALIAS, TokenType.SEMICOLON):
            return False
        if depth == 0 and token.text.upper() in ("RETURNS", "LANGUAGE"):
            return True
    return False


def _tokens(dialect: Dialect, text: SqlText) -> list[Token]:
    half = HALF_CHARACTER.search(text.sql)
    if half:
        raise text.error("this is not text: it holds half of a character", half.start())
    try:
        return dialect.tokenize(text.sql)
    except TokenError as error:
        raise _token_error(text, error) from None


def _statement(dialect: Dialect, text: SqlText, chunk: list[Token]) -> Statement:
    _check_nesting(text, chunk)
    first = chunk[0]
    if first.token_type not in _FIRST:
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
