"""Random queries in the language of views, valid in DuckDB too and of one meaning in both.

Left out is what the two round differently or leave open: decimals of several scales in one column, ties in
LIMIT. Every query is drawn from `Choices`, the first of each list being the simplest.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

from oracle import SqlValue
from random_queries_choices import Choices

STREAMS = """\
CREATE STREAM r (a INTEGER, b INTEGER NOT NULL, n INTEGER NOT NULL CHECK (n >= 0), d DECIMAL(9, 2))
    WITH (max_rows = 1000);
CREATE STREAM s (a INTEGER, b INTEGER NOT NULL, x DOUBLE, y DOUBLE NOT NULL, label TEXT)
    WITH (max_rows = 1000);
CREATE STREAM q (k TEXT NOT NULL, a INTEGER NOT NULL, n INTEGER NOT NULL CHECK (n >= 0),
                 d DECIMAL(9, 2) NOT NULL) WITH (max_rows = 1000);
"""
INTEGER, DECIMAL, DOUBLE, TEXT = "integer", "decimal", "double", "text"
# A sum of products of decimals, with more places than DECIMAL.
PRODUCT = "product"
KINDS = (INTEGER, TEXT, DECIMAL, DOUBLE)
# Columns with their kinds, by relation.
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "r": {"a": INTEGER, "b": INTEGER, "n": INTEGER, "d": DECIMAL},
    "s": {"a": INTEGER, "b": INTEGER, "x": DOUBLE, "y": DOUBLE, "label": TEXT},
    "q": {"k": TEXT, "a": INTEGER, "n": INTEGER, "d": DECIMAL},
}
_PLACES = tuple(map(Decimal, ("0.00", "1.00", "0.25", "-1.50")))
# Doubles are multiples of 1/8, so that their sums are exact.
VALUES: Mapping[str, Mapping[str, Sequence[SqlValue]]] = {
    "r": {"a": (0, 1, 2, 3, None), "b": (0, 1, 2), "n": (0, 1, 2, 5), "d": (*_PLACES, None)},
    "s": {
        "a": (0, 1, 2, 3, None),
        "b": (0, 1, 2),
        "x": (0.0, 0.5, 3.0, -1.25, None),
        "y": (0.0, 2.0, -0.5),
        "label": ("A", "B", "ab", None),
    },
    "q": {"k": ("A", "B", "ab"), "a": (0, 1, 2, 3), "n": (0, 1, 2, 5), "d": _PLACES},
}
COMPARISONS = ("=", "<", ">=", "<>", "<=", ">")


class Column(NamedTuple):
    """A column in scope: how it is written, and its kind."""

    text: str
    kind: str


Scope = Sequence[Column]


class Output(NamedTuple):
    """A query with the kinds of its outputs, which are named c1, c2, …"""

    sql: str
    kinds: tuple[str, ...]


class Grammar:
    """Draws one query; `subqueries` and `relations` are what may still be nested and read."""

    def __init__(self, choices: Choices):
        self.choices = choices
        self.subqueries = 3
        self.relations = 5
        self._aliases = 0

    def query(self) -> str:
        """A query of any form."""
        forms = (
            self._plain,
            self._aggregated,
            self._aggregated,
            self._distinct,
            self._top,
            self._with,
            self._set_operation,
            self._window,
            self._grouping_sets,
            self._row_number,
            self._distinct_on,
            self._having_alone,
            self._asof,
        )
        return self.choices.pick(forms)().sql

    # Forms of queries

    def _plain(self, kinds: Sequence[str] | None = None, distinct: str = "") -> Output:
        text, scope = self._from()
        wanted = kinds or [self.choices.pick(KINDS) for _ in range(1 + self.choices.below(3))]
        outputs = [self.value(kind, scope) for kind in wanted]
        return Output(f"SELECT {distinct}{_named(outputs)} {text}{self._where(scope)}", tuple(wanted))

    def _distinct(self) -> Output:
        return self._plain([self.choices.pick((INTEGER, TEXT, DECIMAL)) for _ in range(2)], "DISTINCT ")

    def _aggregated(self) -> Output:
        text, scope = self._from()
        where = self._where(scope)
        groups = self._groups(scope, self.choices.below(3))
        aggregates = [self.aggregate(scope) for _ in range(1 + self.choices.below(2))]
        outputs = [g.text for g in groups] + [a.text for a in aggregates]
        by = f" GROUP BY {', '.join(g.text for g in groups)}" if groups else ""
        if groups and self.choices.chance(25):
            by += f" HAVING {self._measure(scope)} {self.choices.pick(COMPARISONS)} {self.choices.below(4)}"
        kinds = tuple(c.kind for c in (*groups, *aggregates))
        return Output(f"SELECT {_named(outputs)} {text}{where}{by}", kinds)

    def _top(self) -> Output:
        inner = self._plain([self.choices.pick((INTEGER, DECIMAL)) for _ in range(2)])
        order = ", ".join(f"c{i} {self.choices.pick(('', 'DESC '))}NULLS LAST" for i in (1, 2))
        return Output(f"{inner.sql} ORDER BY {order} LIMIT {1 + self.choices.below(3)}", inner.kinds)

    def _with(self) -> Output:
        inner = self.choices.pick((self._aggregated, self._plain, self._distinct))()
        scope = [Column(f"w.c{i}", kind) for i, kind in enumerate(inner.kinds, 1)]
        outputs = [self.value(c.kind, scope) for c in scope[:2]]
        where = self._where(scope)
        kinds = tuple(c.kind for c in scope[:2])
        if self.choices.chance(50):
            aggregate = self.aggregate(scope)
            outputs, kinds = [aggregate.text], (aggregate.kind,)
        if self.choices.chance(50):
            return Output(f"WITH w AS ({inner.sql}) SELECT {_named(outputs)} FROM w{where}", kinds)
        return Output(f"SELECT {_named(outputs)} FROM ({inner.sql}) w{where}", kinds)

    def _set_operation(self) -> Output:
        kinds = [self.choices.pick((INTEGER, TEXT, DECIMAL)) for _ in range(1 + self.choices.below(2))]
        words = ("UNION ALL", "UNION", "EXCEPT", "INTERSECT", "UNION ALL BY NAME", "UNION BY NAME")
        word = self.choices.pick(words)
        return Output(f"{self._plain(kinds).sql} {word} {self._plain(kinds).sql}", tuple(kinds))

    def _window(self) -> Output:
        text, scope = self._from()
        integers = [c.text for c in scope if c.kind == INTEGER]
        partition = f"PARTITION BY {self.choices.pick(integers)} " if self.choices.chance(60) else ""
        direction = self.choices.pick(("", " DESC"))
        order = f"ORDER BY {self.choices.pick(integers)}{direction} NULLS LAST"
        counted = self.choices.pick(integers)
        function = self.choices.pick(
            (
                *(
                    f"SUM({counted})",
                    "COUNT(*)",
                    "RANK()",
                    "DENSE_RANK()",
                    f"MIN({counted})",
                    f"MAX({counted})",
                ),
                *(f"COUNT(DISTINCT {counted})", f"ARG_MAX({counted}, {counted} % 2 * 10 + {counted})"),
            )
        )
        if "RANK" not in function and self.choices.chance(30):
            order = ""
        kind = INTEGER
        if order and self.choices.chance(20):
            function, kind = self.choices.pick(("PERCENT_RANK()", "CUME_DIST()")), DOUBLE
        outputs = [self.choices.pick(integers), f"{function} OVER ({partition}{order})"]
        return Output(f"SELECT {_named(outputs)} {text}{self._where(scope)}", (INTEGER, kind))

    def _grouping_sets(self) -> Output:
        text, scope = self._from()
        where = self._where(scope)
        one, two = (c.text for c in self._groups(scope, 2))
        sets = self.choices.pick(
            ("ROLLUP ({}, {})", "CUBE ({}, {})", "GROUPING SETS (({0}, {1}), ({1}), ())")
        )
        aggregate = self.aggregate(scope)
        outputs = [one, two, aggregate.text]
        sql = f"SELECT {_named(outputs)} {text}{where} GROUP BY {sets.format(one, two)}"
        return Output(sql, (INTEGER, INTEGER, aggregate.kind))

    def _row_number(self) -> Output:
        """Numbers rows that differ in the columns they are ordered by."""
        inner = self._plain([self.choices.pick((INTEGER, DECIMAL)) for _ in range(2)], "DISTINCT ")
        direction = self.choices.pick(("", " DESC"))
        over = f"OVER (PARTITION BY w.c1 ORDER BY w.c2{direction} NULLS LAST)"
        if self.choices.chance(50):
            over = f"OVER (ORDER BY w.c1 NULLS LAST, w.c2{direction} NULLS LAST)"
        if self.choices.chance(50):
            number = self.choices.pick(("ROW_NUMBER()", "ROW_NUMBER()", "NTILE(2)", "NTILE(3)"))
            sql = f"SELECT w.c1, w.c2, {number} {over} AS c3 FROM ({inner.sql}) w"
            return Output(sql, (*inner.kinds, INTEGER))
        last = 1 + self.choices.below(3)
        sql = f"SELECT w.c1, w.c2 FROM ({inner.sql}) w QUALIFY ROW_NUMBER() {over} <= {last}"
        return Output(sql, inner.kinds)

    def _distinct_on(self) -> Output:
        text, scope = self._from()
        one = self._column(INTEGER, scope)
        two = self.choices.pick([c.text for c in scope if c.kind in (INTEGER, DECIMAL)])
        order = f"{one} NULLS LAST, {two} {self.choices.pick(('', 'DESC '))}NULLS LAST"
        sql = f"SELECT DISTINCT ON ({one}) {_named([one, two])} {text}{self._where(scope)} ORDER BY {order}"
        return Output(sql, (INTEGER, INTEGER))

    def _having_alone(self) -> Output:
        text, scope = self._from()
        where, aggregate = self._where(scope), self.aggregate(scope)
        condition = f"{self._measure(scope)} {self.choices.pick(COMPARISONS)} {self.choices.below(4)}"
        sql = f"SELECT {_named([aggregate.text])} {text}{where} HAVING {condition}"
        return Output(sql, (aggregate.kind,))

    def _asof(self) -> Output:
        """The latest or next of rows that differ in the columns joined by."""
        text, scope = self._relation()
        grouped = ("SELECT b, n AS o FROM r GROUP BY b, n", "SELECT a AS b, n AS o FROM q GROUP BY a, n")
        inner = self.choices.pick(grouped)
        join = self.choices.pick(("ASOF JOIN", "ASOF LEFT JOIN"))
        on = f"{self._column(INTEGER, scope)} {self.choices.pick(('>=', '>', '<=', '<'))} w.o"
        if self.choices.chance(60):
            on = f"{self._column(INTEGER, scope)} = w.b AND {on}"
        else:
            inner = "SELECT n AS o, COUNT(*) AS b FROM r GROUP BY n"
        outputs = [self._column(INTEGER, scope), "w.b", "w.o"]
        if self.choices.chance(40):
            outputs, kinds = ["SUM(w.o)", "COUNT(*)"], (INTEGER, INTEGER)
            return Output(f"SELECT {_named(outputs)} FROM {text} {join} ({inner}) w ON {on}", kinds)
        return Output(f"SELECT {_named(outputs)} FROM {text} {join} ({inner}) w ON {on}", (INTEGER,) * 3)

    # FROM and WHERE

    def _relation(self) -> tuple[str, list[Column]]:
        self.relations -= 1
        self._aliases += 1
        name = self.choices.pick(tuple(COLUMNS))
        alias = f"t{self._aliases}"
        return f"{name} {alias}", [Column(f"{alias}.{c}", kind) for c, kind in COLUMNS[name].items()]

    def _from(self) -> tuple[str, list[Column]]:
        text, scope = self._relation()
        first_joined = False
        while self.relations > 0 and self.choices.chance(30):
            other, columns = self._relation()
            join = self.choices.pick(("JOIN", ",", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
            if join == ",":
                text += f" CROSS JOIN {other}"
            elif len(scope) <= 5 and not first_joined and self.choices.chance(25):
                text += self._by_names(join, other, scope, columns)
            else:
                text += f" {join} {other} ON {self._joins(scope, columns, equal_only=join != 'JOIN')}"
            first_joined = True
            scope = scope + columns
        return f"FROM {text}", scope

    def _by_names(self, join: str, other: str, left: Scope, right: Scope) -> str:
        """A join of two relations by columns of one name."""
        names = [{c.text.partition(".")[2] for c in side} for side in (left, right)]
        if self.choices.chance(30):
            return f" NATURAL {join} {other}"
        return f" {join} {other} USING ({self.choices.pick(sorted(names[0] & names[1]))})"

    def _joins(self, left: Scope, right: Scope, equal_only: bool) -> str:
        """A condition between two lists of columns."""
        kind = self.choices.pick((INTEGER, INTEGER, DECIMAL, TEXT))
        if not any(c.kind == kind for c in left) or not any(c.kind == kind for c in right):
            kind = INTEGER
        operators = ("=", "<>") if kind == TEXT else COMPARISONS
        operator = "=" if equal_only else self.choices.pick(operators)
        return f"{self._column(kind, left)} {operator} {self._column(kind, right)}"

    def _where(self, scope: Scope) -> str:
        return f" WHERE {self.condition(scope, 2)}" if self.choices.chance(60) else ""

    def _groups(self, scope: Scope, count: int) -> list[Column]:
        groups: list[Column] = []
        while len(groups) < count:
            group = self.choices.pick([c for c in scope if c not in groups])
            groups.append(group)
        return groups

    # Conditions

    def condition(self, scope: Scope, depth: int) -> str:
        """A condition over the columns in scope, connectives at most `depth` deep."""
        if depth and self.choices.chance(40):
            word = self.choices.pick(("AND", "OR", "NOT"))
            if word == "NOT":
                return f"NOT ({self.condition(scope, depth - 1)})"
            return f"({self.condition(scope, depth - 1)} {word} {self.condition(scope, depth - 1)})"
        forms: list[Callable[[Scope], str]] = [
            *(self._compared, self._is_null, self._in_list, self._between, self._compared_doubles),
        ]
        if any(c.kind == TEXT for c in scope):
            forms.append(self._like)
        if self._may_nest():
            forms += [self._exists, self._in_query, self._quantified, self._compared_with_aggregate] * 2
        return self.choices.pick(forms)(scope)

    def _compared(self, scope: Scope) -> str:
        kind = self.choices.pick((INTEGER, INTEGER, DECIMAL, TEXT))
        operator = self.choices.pick(COMPARISONS)
        return f"{self.value(kind, scope)} {operator} {self.value(kind, scope)}"

    def _compared_doubles(self, scope: Scope) -> str:
        """A comparison of values that are exact in binary, or of one rounding."""
        one, two = self._column(DOUBLE, scope), self._column(DOUBLE, scope)
        forms = (f"{one} * 2", f"{one} + {two}", f"{one} / {two}", f"FLOOR({one})", f"{one} * {two}")
        return f"{self.choices.pick(forms)} {self.choices.pick(COMPARISONS)} {self._column(DOUBLE, scope)}"

    def _is_null(self, scope: Scope) -> str:
        return f"{self.choices.pick(scope).text} IS {self.choices.pick(('', 'NOT '))}NULL"

    def _in_list(self, scope: Scope) -> str:
        word = self.choices.pick(("IN", "NOT IN"))
        if self.choices.chance(20):
            return f"{self.value(INTEGER, scope)} = ANY ([1, {self.choices.below(4)}])"
        return f"{self.value(INTEGER, scope)} {word} (1, {self.choices.below(4)})"

    def _between(self, scope: Scope) -> str:
        low = self.choices.below(3)
        return f"{self.value(INTEGER, scope)} BETWEEN {low} AND {low + self.choices.below(3)}"

    def _like(self, scope: Scope) -> str:
        text = self.value(TEXT, [c for c in scope if c.kind == TEXT])
        if self.choices.chance(30):
            regular = (
                f"REGEXP_MATCHES({text}, '^A|b$')",
                f"{text} SIMILAR TO '[A-C]+'",
                f"{text} LIKE {text}",
            )
            return self.choices.pick(regular)
        return f"{text} {self.choices.pick(('', 'NOT '))}LIKE '{self.choices.pick(('A%', '%b', '_', '%'))}'"

    def _may_nest(self) -> bool:
        return self.subqueries > 0 and self.relations > 0

    def _correlated(self, scope: Scope) -> tuple[str, list[Column]]:
        """FROM and WHERE of a subquery, correlated or not, and its own columns."""
        self.subqueries -= 1
        text, columns = self._relation()
        conditions = []
        if self.choices.chance(75):
            conditions.append(self._joins(scope, columns, equal_only=False))
        if self.choices.chance(40):
            conditions.append(self.condition([*columns, *scope], 0))
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"FROM {text}{where}", columns

    def _exists(self, scope: Scope) -> str:
        text, _ = self._correlated(scope)
        return f"{self.choices.pick(('', 'NOT '))}EXISTS (SELECT 1 {text})"

    def _in_query(self, scope: Scope) -> str:
        value = self.value(INTEGER, scope)
        text, columns = self._correlated(scope)
        word = self.choices.pick(("IN", "NOT IN"))
        return f"{value} {word} (SELECT {self._column(INTEGER, columns)} {text})"

    def _quantified(self, scope: Scope) -> str:
        value, operator = self.value(INTEGER, scope), self.choices.pick(COMPARISONS)
        text, columns = self._correlated(scope)
        word = self.choices.pick(("ANY", "ALL"))
        return f"{value} {operator} {word} (SELECT {self._column(INTEGER, columns)} {text})"

    def _compared_with_aggregate(self, scope: Scope) -> str:
        value = self.value(INTEGER, scope)
        return f"{value} {self.choices.pick(COMPARISONS)} {self._scalar_subquery(scope)}"

    def _scalar_subquery(self, scope: Scope) -> str:
        text, columns = self._correlated(scope)
        return f"(SELECT {self._measure(columns)} {text})"

    # Values

    def _measure(self, scope: Scope) -> str:
        """An aggregate whose value is an integer."""
        argument = self._column(INTEGER, scope)
        forms = ("COUNT(*)", "SUM({})", "COALESCE(SUM({}), 0)", "MIN({})", "MAX({})", "COUNT(DISTINCT {})")
        if self.choices.chance(10):
            other = self._column(INTEGER, scope)
            first = f"ANY_VALUE({argument} ORDER BY {other} DESC, {argument})"
            return self.choices.pick((f"COUNT(DISTINCT ({argument}, {other}))", first))
        if self.choices.chance(10):
            name = self.choices.pick(("ARG_MAX", "ARG_MIN"))
            return f"{name}({argument}, {argument} % 2 * 10 + {argument})"
        if self.choices.chance(10):
            fraction = self.choices.pick(("0.5", "0.3", "0.9"))
            descending = f"PERCENTILE_DISC({fraction}) WITHIN GROUP (ORDER BY {argument} DESC)"
            mode = f"MODE() WITHIN GROUP (ORDER BY {argument})"
            return self.choices.pick((f"QUANTILE_DISC({argument}, {fraction})", descending, mode))
        return self.choices.pick(forms).format(argument)

    def aggregate(self, scope: Scope) -> Column:
        """An aggregate of any kind."""
        kind = self.choices.pick((INTEGER, DECIMAL, DOUBLE))
        if kind == INTEGER:
            return Column(self._measure(scope), INTEGER)
        argument = self._column(self.choices.pick((kind, INTEGER)), scope)
        if kind == DECIMAL:
            argument = self._column(DECIMAL, scope)
            if self.choices.chance(25):
                return Column(f"SUM({argument} * {self._column(DECIMAL, scope)})", PRODUCT)
            return Column(f"{self.choices.pick(('SUM', 'MIN', 'MAX'))}({argument})", DECIMAL)
        function = self.choices.pick(("AVG", "STDDEV_SAMP", "VAR_POP", "STDDEV_POP", "VAR_SAMP"))
        if self.choices.chance(20):
            return Column(
                self.choices.pick(("MEDIAN({})", "QUANTILE_CONT({}, 0.75)")).format(argument), DOUBLE
            )
        if self.choices.chance(20):
            return Column(f"{self.choices.pick(('MAD', 'ENTROPY', 'SEM', 'PRODUCT'))}({argument})", DOUBLE)
        if self.choices.chance(25):
            pair = self.choices.pick(("COVAR_POP", "COVAR_SAMP", "REGR_SXY", "REGR_AVGX"))
            return Column(f"{pair}({argument}, {self._column(INTEGER, scope)})", DOUBLE)
        return Column(f"{function}({argument})", DOUBLE)

    def _column(self, kind: str, scope: Scope) -> str:
        """A column of the kind, or a constant where there is none."""
        columns = [c.text for c in scope if c.kind == kind]
        return self.choices.pick(columns) if columns else self._constant(kind)

    def _constant(self, kind: str) -> str:
        if kind == TEXT:
            return self.choices.pick(("'A'", "'B'"))
        constants = {INTEGER: ("1", "0", "2"), DECIMAL: ("1.00", "0.25"), DOUBLE: ("CAST(2 AS DOUBLE)",)}
        return self.choices.pick(constants[kind])

    def value(self, kind: str, scope: Scope) -> str:
        """An expression of the kind over the columns in scope."""
        if kind != PRODUCT and self.choices.chance(60):
            return {
                INTEGER: self._integer,
                DECIMAL: self._decimal,
                DOUBLE: self._double,
                TEXT: self._text,
            }[kind](scope)
        return self._column(kind, scope)

    def _integer(self, scope: Scope) -> str:
        one, two = self._column(INTEGER, scope), self._column(INTEGER, scope)
        forms = [
            f"({one} + {two})",
            f"({one} - {two})",
            f"({one} * {self._constant(INTEGER)})",
            f"COALESCE({one}, {two}, 0)",
            f"ABS({one} - {two})",
            f"LEAST({one}, {two})",
            f"GREATEST({one}, {two})",
            f"NULLIF({one}, {two})",
            f"({one} // {two})",
            f"({one} % 2)",
            f"SIGN({one} - {two})",
            f"LENGTH({self._column(TEXT, scope)})",
        ]
        form = self.choices.below(len(forms) + 4)
        if form < len(forms):
            return forms[form]
        if form > len(forms) + 1 and self._may_nest():
            return self._scalar_subquery(scope)
        return f"CASE WHEN {self.condition(scope, 0)} THEN {one} ELSE {two} END"

    def _decimal(self, scope: Scope) -> str:
        one, two = self._column(DECIMAL, scope), self._column(DECIMAL, scope)
        forms = (f"({one} + {two})", f"({one} - {two})", f"COALESCE({one}, {two})", f"ABS({one})", f"-{one}")
        return self.choices.pick(forms)

    def _double(self, scope: Scope) -> str:
        one, two = self._column(DOUBLE, scope), self._column(INTEGER, scope)
        forms = (
            f"({one} * 2)",
            f"({two} / {self._column(INTEGER, scope)})",
            f"SQRT(ABS({one}))",
            f"EXP({two})",
            f"ATAN2({one}, {two})",
            f"TANH({one})",
            f"CAST({two} AS DOUBLE)",
            f"FLOOR({one})",
            f"POWER({one}, 2)",
        )
        return self.choices.pick(forms)

    def _text(self, scope: Scope) -> str:
        one, two = self._column(TEXT, scope), self._column(TEXT, scope)
        forms = (
            f"LOWER({one})",
            f"({one} || {two})",
            f"CONCAT({one}, {self._column(INTEGER, scope)})",
            f"REPLACE({one}, 'A', {two})",
            f"SUBSTRING({one}, 1 + LENGTH({two}))",
            f"CAST({self._column(DECIMAL, scope)} AS VARCHAR)",
            f"REGEXP_REPLACE({one}, '[AB]', '<\\0>', 'g')",
            f"{one}[1:2]",
        )
        form = self.choices.below(2 * len(forms))
        if form < len(forms):
            return forms[form]
        return f"CASE WHEN {self.condition(scope, 0)} THEN {self._column(TEXT, scope)} ELSE 'A' END"


def _named(outputs: Sequence[str]) -> str:
    return ", ".join(f"{output} AS c{i}" for i, output in enumerate(outputs, 1))
