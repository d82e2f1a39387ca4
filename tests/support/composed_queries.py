"""Views as quants compose them, over streams as they declare them: bars, windows over windows, as-of joins.

A view is a chain of queries, each over the one before it, as CTEs or views. Columns have kinds, so that only
what both compute exactly is compared or ordered; rows have an order that tells them apart. Where that order
needs what no query names, the key or the number of a row, it stands in a comment, which `for_duckdb` takes
off: `ORDER BY ts /*, id*/`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from fuzz import Change
from oracle import Row, SqlValue
from random_queries_choices import Choices

TIME, EXACT, DOUBLE, ROUNDED, TEXT, BOOLEAN, KEY = (
    "time",
    "exact",
    "double",
    "rounded",
    "text",
    "boolean",
    "key",
)
NUMBERS = (EXACT, DOUBLE)
SECOND = 10**9
START = 1_767_604_800 * SECOND  # 2026-01-05 09:20 UTC, a whole minute
# A sum of 25.25 and 0.1 is rounded; these are not.
_PRICES = (100.0, 100.25, 99.5, 101.0, 100.5, 99.75)
_VALUES: dict[str, Sequence[SqlValue]] = {
    "sym": ("a", "b", "c"),
    "side": ("buy", "sell"),
    "live": (True, False),
    "sz": (1, 2, 5, 3, 0),
}


@dataclass(frozen=True, slots=True)
class Stream:
    """A declared stream: columns with their SQL types and whether they may be NULL."""

    name: str
    columns: dict[str, tuple[str, bool]]
    key: tuple[str, ...]

    @property
    def sql(self) -> str:
        parts = [f"{c} {kind}{'' if null else ' NOT NULL'}" for c, (kind, null) in self.columns.items()]
        if self.key:
            parts.append(f"PRIMARY KEY ({', '.join(self.key)})")
        return f"CREATE STREAM {self.name} ({', '.join(parts)});\n"


@dataclass(frozen=True, slots=True)
class Rows:
    """A query by its name: columns with their kinds, and the order that tells rows apart.

    parts: columns that the order needs before it; tie: what it needs after it, that no query names; ordered:
    whether there is such an order at all.
    """

    name: str
    columns: dict[str, str]
    parts: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    tie: str = ""
    ordered: bool = True

    def of(self, *kinds: str) -> list[str]:
        return [c for c, kind in self.columns.items() if kind in kinds]


_ENDS = {"ARG_MIN": "FIRST({0} ORDER BY ts, {0})", "ARG_MAX": "LAST({0} ORDER BY ts, {0} DESC)"}


def for_duckdb(sql: str) -> str:
    """The text with its comments taken off, and of what is equally late the least."""
    sql = re.sub(r"/\*(.*?)\*/", r"\1", sql)
    return re.sub(r"(ARG_MIN|ARG_MAX)\((\w+), ts\)", _end_of_order, sql)


def _end_of_order(match: re.Match[str]) -> str:
    value = match[2]
    return f"{_ENDS[match[1]].format(value)} FILTER (WHERE {value} IS NOT NULL AND ts IS NOT NULL)"


class Composer:
    """Draws streams and a view over them."""

    def __init__(self, choices: Choices):
        self.choices = choices
        self.streams = [self._stream("t")]
        self.parts: list[tuple[str, str]] = []
        self._columns = 0
        rows = self._source(self.streams[0])
        for _ in range(choices.pick((0, 1, 1, 2, 2, 3))):
            rows = self._step(rows)
        self.query = self._last(rows)
        self.as_views = choices.chance(30)
        self.materialize = choices.pick(("full", "full", "full", "full", "first", "none"))

    @property
    def view(self) -> str:
        """The SELECT of the view, over views of its parts where it has some."""
        named = ", ".join(f"{name} AS ({sql})" for name, sql in self.parts)
        return self.query if self.as_views or not named else f"WITH {named} {self.query}"

    @property
    def sql(self) -> str:
        """Everything that the view needs, then the view `v`."""
        streams = "".join(s.sql for s in self.streams)
        parts = [f"CREATE VIEW {n} AS {sql};\n" for n, sql in self.parts] if self.as_views else []
        return f"{streams}{''.join(parts)}CREATE VIEW v AS {self.view};"

    # Streams

    def _stream(self, name: str) -> Stream:
        pick, chance = self.choices.pick, self.choices.chance
        price = pick(("DOUBLE", "DOUBLE", "DOUBLE", "DECIMAL(12, 2)"))
        columns = {"ts": ("TIMESTAMP", chance(50)), "px": (price, chance(60))}
        if chance(75):
            columns["sym"] = ("TEXT", chance(60))
        if chance(60):
            columns["sz"] = (pick(("DOUBLE", "BIGINT", "INTEGER")), chance(60))
        if chance(35):
            columns["side"] = ("TEXT", chance(60))
        if chance(20):
            columns["live"] = ("BOOLEAN", chance(60))
        key: tuple[str, ...] = ()
        if chance(30):
            columns["id"], key = ("BIGINT", False), ("id",)
            if "sym" in columns and chance(30):
                columns["sym"], key = ("TEXT", False), ("sym", "id")
        return Stream(name, columns, key)

    def _source(self, stream: Stream) -> Rows:
        kinds = {"TIMESTAMP": TIME, "DOUBLE": DOUBLE, "TEXT": TEXT, "BOOLEAN": BOOLEAN}
        columns = {c: kinds.get(kind, EXACT) for c, (kind, _) in stream.columns.items()}
        if not stream.key:
            return Rows(stream.name, columns, (), ("ts",), "number")
        columns["id"] = KEY
        if stream.key == ("id",) and self.choices.chance(50):
            return Rows(stream.name, columns, (), ("ts",), "id")
        return Rows(stream.name, columns, stream.key[:-1], ("ts", "id"))

    # Steps from rows to rows

    def _step(self, rows: Rows) -> Rows:
        forms = [self._filtered, self._computed]
        if rows.ordered:
            forms += [self._windowed, self._windowed, self._windowed, self._numbered]
        if rows.of(TIME) and rows.of(*NUMBERS):
            forms += [self._bars, self._bars]
        if rows.of(TEXT):
            forms += [self._grouped, self._beside_groups]
        if "ts" in rows.columns and rows.order[:1] == ("ts",):
            forms += [self._as_of]
        if len(self.parts) < 3:
            forms += [self._both]
        return self.choices.pick(forms)(rows)

    def _named(
        self,
        rows: Rows,
        outputs: Sequence[tuple[str, str, str]],
        rest: str,
        alias: str = "",
        **changes: Any,
    ) -> Rows:
        """Rows of a query, named; outputs are texts, names and kinds."""
        name = f"q{len(self.parts) + 1}"
        columns = {n: kind for _, n, kind in outputs}
        shown = ", ".join(text if text == n else f"{text} AS {n}" for text, n, _ in outputs)
        # A number is handed on beside the columns, a key is among them.
        hidden = f" /*, {alias}number*/" if changes.get("tie", rows.tie) == "number" else ""
        self.parts.append((name, f"SELECT {shown}{hidden} {rest}"))
        return replace(rows, name=name, columns=columns, **changes)

    def _all(self, rows: Rows, alias: str = "") -> list[tuple[str, str, str]]:
        return [(f"{alias}{c}", c, kind) for c, kind in rows.columns.items()]

    def _filtered(self, rows: Rows) -> Rows:
        return self._named(rows, self._all(rows), f"FROM {rows.name} WHERE {self.condition(rows)}")

    def _computed(self, rows: Rows) -> Rows:
        return self._named(rows, [*self._all(rows), self._value(rows)], f"FROM {rows.name}")

    def _windowed(self, rows: Rows) -> Rows:
        outputs = [self._window(rows) for _ in range(self.choices.pick((1, 1, 1, 2)))]
        return self._named(rows, [*self._all(rows), *outputs], f"FROM {rows.name}")

    def _numbered(self, rows: Rows) -> Rows:
        """The first rows of each partition."""
        most = 1 + self.choices.below(3)
        # What the order leaves equal is taken in the order of the outputs.
        tie = ", ".join(filter(None, (*rows.columns, rows.tie)))
        over = self._over(replace(rows, tie=tie))
        rest = f"FROM {rows.name} QUALIFY ROW_NUMBER() OVER ({over}) <= {most}"
        return self._named(rows, self._all(rows), rest)

    def _bars(self, rows: Rows) -> Rows:
        ts, pick = self.choices.pick(rows.of(TIME)), self.choices.pick
        bucket = pick((f"TIME_BUCKET(INTERVAL '1 minute', {ts})", f"DATE_TRUNC('minute', {ts})"))
        by = self._groups(rows, 2)
        outputs = [(c, c, rows.columns[c]) for c in by] + [(bucket, "m", TIME)]
        outputs += self._aggregates(rows, 1 + self.choices.below(4))
        rest = f"FROM {rows.name} GROUP BY {', '.join([*by, bucket])}"
        return self._named(
            rows, outputs, rest + self._having(rows), parts=by, order=("m",), tie="", ordered=True
        )

    def _grouped(self, rows: Rows) -> Rows:
        by = self._groups(rows, 2) or (rows.of(TEXT)[0],)
        outputs = [(c, c, rows.columns[c]) for c in by]
        outputs += self._aggregates(rows, 1 + self.choices.below(3))
        rest = f"FROM {rows.name} GROUP BY {', '.join(by)}{self._having(rows)}"
        return self._named(rows, outputs, rest, parts=(), order=by, tie="", ordered=True)

    def _beside_groups(self, rows: Rows) -> Rows:
        """Rows joined with an aggregate of themselves."""
        by = self.choices.pick(rows.of(TEXT))
        text, name, kind = self._aggregates(rows, 1)[0]
        join = self.choices.pick(("JOIN", "LEFT JOIN"))
        groups = f"(SELECT {by} AS g, {text} AS {name} FROM {rows.name} GROUP BY {by}) y"
        outputs = [*self._all(rows, "x."), (f"y.{name}", name, kind)]
        return self._named(rows, outputs, f"FROM {rows.name} x {join} {groups} ON x.{by} = y.g", "x.")

    def _as_of(self, rows: Rows) -> Rows:
        if len(self.streams) < 2:
            self.streams.append(self._stream("q"))
        other = self.streams[1]
        both = "sym" in rows.columns and "sym" in other.columns
        on = f"{'x.sym = y.sym AND ' if both else ''}x.ts >= y.ts"
        join = self.choices.pick(("ASOF JOIN", "ASOF LEFT JOIN"))
        kind = DOUBLE if other.columns["px"][0] == "DOUBLE" else EXACT
        outputs = [*self._all(rows, "x."), ("y.px", self._fresh(), kind)]
        if self.choices.chance(40):
            outputs.append(("y.ts", self._fresh(), TIME))
        return self._named(rows, outputs, f"FROM {rows.name} x {join} q y ON {on}", "x.")

    def _both(self, rows: Rows) -> Rows:
        """Rows and, after them, some once more or those of another stream."""
        second = [
            (c if kind == TEXT or self.choices.chance(60) else "NULL") for c, kind in rows.columns.items()
        ]
        name = f"q{len(self.parts) + 1}"
        self.parts.append(
            (
                name,
                f"SELECT {', '.join(rows.columns)} FROM {rows.name} UNION ALL "
                f"SELECT {', '.join(second)} FROM {rows.name} WHERE {self.condition(rows)}",
            )
        )
        return replace(rows, name=name, tie="", ordered=False)

    # The last query

    def _last(self, rows: Rows) -> str:
        forms = [self._shown, self._summed, self._summed_groups, self._distinct]
        if rows.ordered:
            forms += [self._shown_windows, self._shown_windows, self._first]
        if len(rows.of(TEXT)) > 1:
            forms += [self._sets]
        return self.choices.pick(forms)(rows)

    def _shown(self, rows: Rows) -> str:
        where = f" WHERE {self.condition(rows)}" if self.choices.chance(50) else ""
        return f"SELECT {', '.join(rows.columns)} FROM {rows.name}{where}"

    def _summed(self, rows: Rows) -> str:
        return f"SELECT {self._listed(self._aggregates(rows, 3))} FROM {rows.name}"

    def _summed_groups(self, rows: Rows) -> str:
        by = self._groups(rows, 2)
        outputs = [*by, self._listed(self._aggregates(rows, 2))]
        grouped = f" GROUP BY {', '.join(by)}{self._having(rows)}" if by else ""
        return f"SELECT {', '.join(outputs)} FROM {rows.name}{grouped}"

    def _sets(self, rows: Rows) -> str:
        by = ", ".join(rows.of(TEXT)[:2])
        kind = self.choices.pick(("ROLLUP", "CUBE"))
        return (
            f"SELECT {by}, {self._listed(self._aggregates(rows, 2))} FROM {rows.name} GROUP BY {kind} ({by})"
        )

    def _distinct(self, rows: Rows) -> str:
        wanted = [c for c, kind in rows.columns.items() if kind != ROUNDED]
        return f"SELECT DISTINCT {', '.join(wanted[-2:] or ['1 AS one'])} FROM {rows.name}"

    def _shown_windows(self, rows: Rows) -> str:
        outputs = [
            *rows.order,
            self._listed([self._window(rows) for _ in range(self.choices.pick((1, 1, 2)))]),
        ]
        return f"SELECT {', '.join(outputs)} FROM {rows.name}"

    def _first(self, rows: Rows) -> str:
        order = ", ".join(
            f"{c} {self.choices.pick(('', 'DESC '))}NULLS LAST" for c in (*rows.order, *rows.parts)
        )
        return f"SELECT {', '.join(rows.order)} FROM {rows.name} ORDER BY {order} LIMIT 3"

    @staticmethod
    def _listed(outputs: Sequence[tuple[str, str, str]]) -> str:
        return ", ".join(f"{text} AS {name}" for text, name, _ in outputs)

    # Expressions

    def _fresh(self) -> str:
        self._columns += 1
        return f"c{self._columns}"

    def _groups(self, rows: Rows, most: int) -> tuple[str, ...]:
        found = [c for c in rows.of(TEXT, BOOLEAN) if self.choices.chance(60)]
        return tuple(found[:most])

    def _number(self, rows: Rows) -> tuple[str, str]:
        """A column that is a number, or a constant, and its kind."""
        names = rows.of(*NUMBERS, ROUNDED)
        name = self.choices.pick(names) if names else "1"
        return name, rows.columns.get(name, EXACT)

    def _comparable(self, rows: Rows) -> str:
        return self.choices.pick(rows.of(*NUMBERS) or ["1"])

    def _value(self, rows: Rows) -> tuple[str, str, str]:
        (x, kind), y = self._number(rows), self._comparable(rows)
        forms = [
            (f"{x} - {y}", kind),
            (f"{x} * {y}", kind),
            (f"ABS({x})", kind),
            (f"COALESCE({x}, 0)", kind),
            (f"{x} / {y}", ROUNDED),
            (f"{x} / NULLIF({y}, 0) - 1", ROUNDED),
            (f"CASE WHEN {self.condition(rows)} THEN {x} ELSE -({x}) END", kind),
            (f"GREATEST({x}, {y})", kind),
            (f"LN(ABS({x}) + 1)", ROUNDED),
        ]
        text, kind = self.choices.pick(forms)
        return text, self._fresh(), kind

    def condition(self, rows: Rows) -> str:
        """A condition over rows, some of it nested."""
        x, y, pick = self._comparable(rows), self._comparable(rows), self.choices.pick
        forms = [
            f"{x} > {pick((100, 0, 1, 2))}",
            f"{x} <= {y}",
            f"{x} IS NOT NULL",
            f"{x} >= (SELECT MIN({y}) FROM {rows.name})",
        ]
        for text in rows.of(TEXT):
            forms += [
                f"{text} = '{pick(_VALUES.get(text, ('a',)))}'",
                f"{text} IS DISTINCT FROM '{pick(_VALUES.get(text, ('a',)))}'",
                f"{x} > (SELECT AVG(z.{y}) FROM {rows.name} z WHERE z.{text} = {rows.name}.{text})"
                if y != "1"
                else "1 = 1",
                f"EXISTS (SELECT 1 FROM {rows.name} z WHERE z.{text} = {rows.name}.{text} AND "
                + (f"z.{x} < {rows.name}.{x})" if x != "1" else "1 = 1)"),
                f"{text} IN (SELECT z.{text} FROM {rows.name} z WHERE "
                + (f"z.{x} > {pick((100, 0, 2))})" if x != "1" else "1 = 1)"),
            ]
        forms += [pick((b, f"NOT {b}")) for b in rows.of(BOOLEAN)]
        found = pick(forms)
        if self.choices.chance(25):
            return f"({found} {pick(('AND', 'OR'))} {pick(forms)})"
        return found

    def _aggregates(self, rows: Rows, count: int) -> list[tuple[str, str, str]]:
        return [self._aggregate(rows) for _ in range(count)]

    def _aggregate(self, rows: Rows) -> tuple[str, str, str]:
        (x, kind), y, pick = self._number(rows), self._comparable(rows), self.choices.pick
        forms = [
            ("COUNT(*)", EXACT),
            (f"SUM({x})", kind),
            (f"AVG({x})", ROUNDED),
            (f"MIN({x})", kind),
            (f"MAX({x})", kind),
            (f"COUNT({x})", EXACT),
            (f"STDDEV({y})", ROUNDED),
            (f"VAR_POP({y})", ROUNDED),
            (f"MEDIAN({x})", ROUNDED),
            (f"QUANTILE_CONT({x}, 0.25)", ROUNDED),
            (f"COUNT(DISTINCT {y})", EXACT),
            (f"SUM({x} * {y}) / NULLIF(SUM({y}), 0)", ROUNDED),
            (f"COVAR_POP({x}, {y})", ROUNDED),
        ]
        if rows.ordered and not rows.tie:
            order = ", ".join((*rows.order, *rows.parts))
            forms += [(f"FIRST({x} ORDER BY {order})", kind), (f"LAST({x} ORDER BY {order})", kind)]
        if rows.ordered and rows.tie and rows.order == ("ts",) and x != "1":
            forms += [(f"ARG_MIN({x}, ts)", kind), (f"ARG_MAX({x}, ts)", kind)]
        text, kind = pick(forms)
        if "/" not in text and "ARG" not in text and self.choices.chance(20):
            text = f"{text} FILTER (WHERE {self._plain_condition(rows)})"
        return text, self._fresh(), kind

    def _plain_condition(self, rows: Rows) -> str:
        x = self._comparable(rows)
        forms = [f"{x} > 0", f"{x} IS NULL", *(f"{c} <> 'a'" for c in rows.of(TEXT)), *rows.of(BOOLEAN)]
        return self.choices.pick(forms)

    def _having(self, rows: Rows) -> str:
        if not self.choices.chance(20):
            return ""
        x = self._comparable(rows)
        return f" HAVING {self.choices.pick(('COUNT(*) > 1', f'SUM({x}) > 0', f'MAX({x}) > MIN({x})'))}"

    # Windows

    def _over(self, rows: Rows, peers: bool = False, order: str = "") -> str:
        """PARTITION BY and ORDER BY; without what tells equal rows apart where those are peers."""
        by = [c for c in rows.of(TEXT) if self.choices.chance(50)][:1]
        direction = self.choices.pick(("", "", " DESC"))
        needed = [*rows.order, *(p for p in rows.parts if p not in by)]
        ordered = order or ", ".join(f"{c}{direction}" for c in needed)
        tie = f" /*, {rows.tie}*/" if rows.tie and not peers else ""
        return f"{f'PARTITION BY {by[0]} ' if by else ''}ORDER BY {ordered}{tie}"

    def _window(self, rows: Rows) -> tuple[str, str, str]:
        form = self.choices.pick((self._neighbour, self._framed, self._framed, self._ranked))
        text, kind = form(rows)
        return text, self._fresh(), kind

    def _neighbour(self, rows: Rows) -> tuple[str, str]:
        pick, kinds = self.choices.pick, (*NUMBERS, ROUNDED, TEXT, TIME)
        x = pick(rows.of(*kinds))
        kind, over = rows.columns[x], f"OVER ({self._over(rows)})"
        function = pick(("LAG({})", "LAG({})", "LEAD({})", "LAG({}, 2)", "LAG({} IGNORE NULLS)"))
        found = f"{function.format(x)} {over}"
        if kind in (EXACT, DOUBLE, ROUNDED) and self.choices.chance(60):
            return pick(((f"{x} - {found}", kind), (f"{x} / {found} - 1", ROUNDED)))
        if kind == TIME and self.choices.chance(70):
            return f"EPOCH({x}) - EPOCH({found})", DOUBLE
        return found, kind

    def _framed(self, rows: Rows) -> tuple[str, str]:
        pick = self.choices.pick
        (x, kind), y = self._number(rows), self._comparable(rows)
        function, kind = pick(
            (
                (f"SUM({x})", kind),
                (f"AVG({x})", ROUNDED),
                (f"MIN({x})", kind),
                (f"MAX({x})", kind),
                (f"COUNT({x})", EXACT),
                ("COUNT(*)", EXACT),
                (f"STDDEV({y})", ROUNDED),
                (f"FIRST_VALUE({x})", kind),
                (f"SUM({x}) FILTER (WHERE {self._plain_condition(rows)})", kind),
                (f"MEDIAN({x})", ROUNDED),
            )
        )
        frame = pick(
            (
                "ROWS 3 PRECEDING",
                "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW",
                "ROWS UNBOUNDED PRECEDING",
                "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING",
                "ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING",
                "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
            )
        )
        kind_of_frame = pick(("rows", "rows", "running", "range", "whole"))
        if kind_of_frame == "whole":
            by = [c for c in rows.of(TEXT) if self.choices.chance(60)][:1]
            if "FIRST_VALUE" not in function:
                return f"{function} OVER ({f'PARTITION BY {by[0]}' if by else ''})", kind
        if kind_of_frame == "range" and rows.columns.get(rows.order[0]) == TIME and "FIRST" not in function:
            over = self._over(rows, True, rows.order[0])
            return (
                f"{function} OVER ({over} RANGE BETWEEN INTERVAL '40 seconds' PRECEDING AND CURRENT ROW)",
                kind,
            )
        if kind_of_frame == "running" and "FIRST" not in function:
            return f"{function} OVER ({self._over(rows, True)})", kind
        return f"{function} OVER ({self._over(rows)} {frame})", kind

    def _ranked(self, rows: Rows) -> tuple[str, str]:
        pick = self.choices.pick
        if self.choices.chance(50):
            function = pick(("ROW_NUMBER()", "ROW_NUMBER()", "NTILE(3)"))
            return f"{function} OVER ({self._over(rows)})", EXACT
        function, kind = pick(
            (
                ("RANK()", EXACT),
                ("DENSE_RANK()", EXACT),
                ("PERCENT_RANK()", ROUNDED),
                ("CUME_DIST()", ROUNDED),
            )
        )
        return f"{function} OVER ({self._over(rows, True, f'{self._comparable(rows)} DESC')})", kind


def events(streams: Sequence[Stream], choices: Choices, length: int) -> list[list[Change]]:
    """Events of one or two changes; rows of a stream without a key may be equal, and have a number at last.

    Rows come in the order of time, mostly. All are deleted at the end.
    """
    live: dict[str, list[Row]] = {s.name: [] for s in streams}
    numbers = {s.name: 0 for s in streams}
    done: list[list[Change]] = []
    while len(done) < length and choices.chance(97):
        stream = choices.pick(streams)
        rows, event = live[stream.name], list[Change]()
        kind = choices.pick(("insert", "insert", "insert", "insert", "copy", "update", "delete"))
        old = rows[choices.below(len(rows))] if rows and kind != "insert" else None
        if old and kind in ("update", "delete"):
            # Of equal rows the last that came goes first.
            last = old if stream.key else [r for r in rows if r[:-1] == old[:-1]][-1]
            rows.remove(last)
            event.append((stream.name, False, last))
        if kind != "delete" or not event:
            numbers[stream.name] += 1
            row = _row(stream, choices, len(done), rows)
            if kind == "copy" and old and not stream.key and stream.name != "q":
                row = old[:-1]
            if not stream.key:
                row = (*row, numbers[stream.name])
            rows.append(row)
            event.append((stream.name, True, row))
        done.append(event)
    for stream in streams:
        done += [[(stream.name, False, row)] for row in reversed(live[stream.name])]
    return done


def _row(stream: Stream, choices: Choices, place: int, rows: Sequence[Row]) -> Row:
    """A row beside others. Those that an as-of join finds differ in time."""
    row: list[SqlValue] = []
    for column, (name, (kind, null)) in enumerate(stream.columns.items()):
        taken = {r[column] for r in rows}
        value: SqlValue
        if null and choices.chance(15 if name != "ts" else 6):
            value = None
        elif name == "ts":
            at = place * 12 + choices.below(12) if choices.chance(75) else choices.below(240)
            value = START + at * SECOND
            while stream.name == "q" and value in taken:
                value += SECOND
        elif name == "id":
            value = place if choices.chance(80) else choices.below(40)
            while value in taken:
                value = int(value) + 100
        else:
            value = choices.pick(_VALUES.get(name, _PRICES))
            if kind.startswith("DECIMAL"):
                value = Decimal(str(value)).quantize(Decimal("0.01"))
            elif kind == "DOUBLE":
                value = float(value)  # type: ignore[arg-type]
        row.append(value)
    return tuple(row)
