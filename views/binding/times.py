"""Functions of time: parts of a timestamp, truncation to calendar units and buckets, NOW()."""

import re
from dataclasses import replace
from decimal import Decimal

from sqlglot import exp

from orderbook.views.binding import functions
from orderbook.views.binding.bound import (
    Aggregate,
    Cast,
    ColumnRef,
    Expression,
    Function,
    Literal,
    Output,
    ScalarSubquery,
    Select,
    Source,
)
from orderbook.views.binding.literals_and_casts import converted, span
from orderbook.views.binding.scope import Binder, Handler, Scope, arguments, refusal
from orderbook.views.binding.text_functions import apply
from orderbook.views.binding.typed_nodes import MONTHS, TypingError, adopt, arithmetic, number
from orderbook.views.scalars import formats, texts
from orderbook.views.scalars.texts import SECOND
from orderbook.views.types import BIGINT, CLOCK, TEXT, TIMESTAMP, Kind, Relation, Type

_DAY = 86_400 * SECOND
# The parts of a timestamp and the range of each, within the years of 64-bit ns.
_PARTS = {
    "year": (1677, 2262),
    "isoyear": (1677, 2262),
    "quarter": (1, 4),
    "month": (1, 12),
    "week": (1, 53),
    "day": (1, 31),
    "doy": (1, 366),
    "dow": (0, 6),
    "isodow": (1, 7),
    "hour": (0, 23),
    "minute": (0, 59),
    "second": (0, 59),
    "millisecond": (0, 59_999),
    "microsecond": (0, 59_999_999),
    "nanosecond": (0, 59_999_999_999),
}
_OTHER_NAMES = {
    "years": "year", "months": "month", "mon": "month", "days": "day", "dayofmonth": "day", "weeks": "week",
    "weekofyear": "week", "quarters": "quarter", "hours": "hour", "minutes": "minute", "min": "minute",
    "seconds": "second", "sec": "second", "milliseconds": "millisecond", "ms": "millisecond",
    "microseconds": "microsecond", "us": "microsecond", "nanoseconds": "nanosecond", "ns": "nanosecond",
    "dayofweek": "dow", "weekday": "dow", "dayofyear": "doy", "dayofweekiso": "isodow",
}  # fmt: skip
# The parts that are functions of their own, of no node in sqlglot.
_NAMED_PARTS = ("weekday", "isoyear", "yearweek", "millisecond", "microsecond", "nanosecond", "epoch")
# The longest that each unit lasts, in ns.
_TRUNCATED = {
    "microsecond": 1_000,
    "millisecond": 1_000_000,
    "second": SECOND,
    "minute": 60 * SECOND,
    "hour": 3_600 * SECOND,
    "day": _DAY,
    "week": 7 * _DAY,
    "month": 31 * _DAY,
    "quarter": 92 * _DAY,
    "year": 366 * _DAY,
}
# 2000-01-03, where buckets begin.
_FIRST_BUCKET = 946_857_600 * SECOND
_MONTH_BUCKETS = {1: "month", 3: "quarter", 12: "year"}
_EPOCHS = {"epoch_ms": Decimal("0.000001"), "epoch_us": Decimal("0.001")}


def _moment(binder: Binder, name: str, node: exp.Expr, scope: Scope) -> Expression:
    (value,) = adopt([binder.value(node, scope)], TIMESTAMP)
    if value.type.kind is not Kind.TIMESTAMP:
        kind = value.type.kind.value
        raise TypingError(f"{name.upper()} of {kind} is not supported; it takes a TIMESTAMP")
    return value


def _part(binder: Binder, name: str, of: exp.Expr, node: exp.Expr, scope: Scope) -> Expression:
    """A part by one of its names; `epoch` is the seconds since 1970, or of a length of time: a DOUBLE."""
    name = name.lower()
    part = _OTHER_NAMES.get(name, name)
    if part == "yearweek":
        year, week = (_part(binder, p, of, node, scope) for p in ("isoyear", "week"))
        return arithmetic("+", arithmetic("*", year, number(100)), week)
    if part != "epoch" and part not in _PARTS:
        instead = f"the parts are {', '.join(_PARTS)} and epoch"
        raise refusal(binder, f"date part {name.upper()}", instead, node)
    if part == "epoch":
        length = binder.value(of, scope)
        ns = length if length.type.kind is Kind.INTEGER else _nanoseconds(_moment(binder, name, of, scope))
        return arithmetic("/", ns, number(SECOND))
    value = _moment(binder, name, of, scope)
    kind = Type(Kind.INTEGER, 0, *_PARTS[part])
    return Function("date_part", (Literal(part, TEXT), value), kind, value.nullable)


def _nanoseconds(value: Expression) -> Expression:
    return Cast(value, replace(value.type, kind=Kind.INTEGER), value.nullable)


def _extract(binder: Binder, node: exp.Extract, scope: Scope) -> Expression:
    return _part(binder, node.this.name, node.expression, node, scope)


def _named_part(name: str) -> Handler:
    """The handler of a function that is called as the part it gives."""

    def bind(binder: Binder, node: exp.Func, scope: Scope) -> Expression:
        given = node.expressions if isinstance(node, exp.Anonymous) else [node.this]
        arguments(binder, name, node, len(given), 1, 1)
        return _part(binder, name, given[0], node, scope)

    return bind


def _date_part(binder: Binder, node: exp.Anonymous, scope: Scope) -> Expression:
    name, of = _constant_name(binder, node)
    return _part(binder, name, of, node, scope)


def _constant_name(binder: Binder, node: exp.Anonymous) -> tuple[str, exp.Expr]:
    arguments(binder, node.name, node, len(node.expressions), 2, 2)
    name, of = node.expressions
    if not isinstance(name, exp.Literal) or not name.is_string:
        raise refusal(
            binder, f"{node.name.upper()} of a part that is not constant", "write it as 'day'", node
        )
    return name.name, of


def _truncated(binder: Binder, unit: str, of: exp.Expr, node: exp.Expr, scope: Scope) -> Expression:
    unit = _OTHER_NAMES.get(unit.lower(), unit.lower())
    if unit not in _TRUNCATED:
        raise refusal(binder, f"DATE_TRUNC to {unit.upper()}", f"the units are {', '.join(_TRUNCATED)}", node)
    return _floored(
        "date_trunc", Literal(unit, TEXT), _TRUNCATED[unit], _moment(binder, "DATE_TRUNC", of, scope)
    )


def _floored(name: str, unit: Literal, length: int, value: Expression) -> Expression:
    """A function that goes back less than `length` ns."""
    kind = replace(value.type, low=value.type.low - length + 1)
    return Function(name, (unit, value), kind, value.nullable)


def _date_trunc(binder: Binder, node: exp.DateTrunc | exp.TimestampTrunc, scope: Scope) -> Expression:
    unit = node.args.get("unit")
    if not isinstance(unit, exp.Literal | exp.Var) or node.args.get("zone"):
        raise refusal(binder, "DATE_TRUNC of a unit that is not constant", "write it as 'day'", node)
    return _truncated(binder, unit.name, node.this, node, scope)


def _datetrunc(binder: Binder, node: exp.Anonymous, scope: Scope) -> Expression:
    unit, of = _constant_name(binder, node)
    return _truncated(binder, unit, of, node, scope)


def _time_bucket(binder: Binder, node: exp.Anonymous, scope: Scope) -> Expression:
    """Buckets of a fixed width, counted from 2000-01-03, or from a third argument or so much after; those of
    1, 3 and 12 months are the calendar's."""
    arguments(binder, "time_bucket", node, len(node.expressions), 2, 3)
    width, of, *origin = node.expressions
    if isinstance(width, exp.Interval):
        length, months = span(binder, width, scope)
    else:
        bound = binder.value(width, scope)
        constant = bound.value if isinstance(bound, Literal) else None
        length, months = constant if isinstance(constant, int) else 0, 0
    if months and (length or months not in _MONTH_BUCKETS):
        raise refusal(binder, "TIME_BUCKET of these months", "1, 3 and 12 months are maintained", node)
    value = _moment(binder, "TIME_BUCKET", of, scope)
    if months and origin:
        instead = "leave the offset out, or shift the timestamp before and after"
        raise refusal(binder, "TIME_BUCKET of months with an offset or origin", instead, node)
    if months:
        unit = _MONTH_BUCKETS[months]
        return _floored("date_trunc", Literal(unit, TEXT), _TRUNCATED[unit], value)
    if length <= 0:
        raise binder.text.error("TIME_BUCKET takes a constant INTERVAL above 0", node)
    if not origin:
        return _floored("time_bucket", number(length), length, value)
    given = binder.value(origin[0], scope)
    if not isinstance(given, Literal) or type(given.value) is not int:
        instead = "write a constant INTERVAL, or the TIMESTAMP that a bucket begins at"
        raise refusal(binder, "TIME_BUCKET with such an origin", instead, node)
    since = given.value - _FIRST_BUCKET if given.type.kind is Kind.TIMESTAMP else given.value
    shift = number(since % length)
    return arithmetic(
        "+", _floored("time_bucket", number(length), length, arithmetic("-", value, shift)), shift
    )


def _epoch_floor(binder: Binder, node: exp.Anonymous, scope: Scope) -> Expression:
    """The whole milliseconds or microseconds since 1970."""
    name = node.name.lower()
    arguments(binder, name, node, len(node.expressions), 1, 1)
    value = _nanoseconds(_moment(binder, name, node.expressions[0], scope))
    return functions.call("floor", [arithmetic("*", value, number(_EPOCHS[name]))])


def _epoch_ns(binder: Binder, node: exp.Anonymous, scope: Scope) -> Expression:
    arguments(binder, "epoch_ns", node, len(node.expressions), 1, 1)
    return _nanoseconds(_moment(binder, "EPOCH_NS", node.expressions[0], scope))


def _from_nanoseconds(binder: Binder, node: exp.Anonymous, scope: Scope) -> Expression:
    arguments(binder, node.name, node, len(node.expressions), 1, 1)
    value = binder.value(node.expressions[0], scope)
    if value.type.kind is not Kind.INTEGER:
        raise refusal(
            binder, f"{node.name.upper()} of {value.type.kind.value}", "it takes an INTEGER of ns", node
        )
    return Cast(value, replace(value.type, kind=Kind.TIMESTAMP), value.nullable)


def _now(binder: Binder, node: exp.Expr, scope: Scope) -> Expression:
    """The last clock tick: the only row of `clock`."""
    relation = binder.lookup(CLOCK, binder.text, node)
    column = relation.column("now") if isinstance(relation, Relation) else None
    if column is None or column.type.kind is not Kind.TIMESTAMP or relation.max_rows != 1:
        raise refusal(
            binder, "NOW() without the predeclared clock", f"name the relation {CLOCK} otherwise", node
        )
    id = binder.unique(CLOCK, node)
    total = Aggregate("sum", ColumnRef(id, "now", column.type, False), TIMESTAMP, False)
    query = Select((Source(id, relation),), None, (), (Output("now", total),), True)
    return ScalarSubquery(query, TIMESTAMP, False)


def moved_by_months(binder: Binder, node: exp.Binary, scope: Scope) -> Expression | None:
    """A moment, an INTERVAL with months more or less; None where it is anything else."""
    if not isinstance(node, exp.Add | exp.Sub):
        return None
    moment, width = node.this, node.expression.unnest()
    if isinstance(node, exp.Add) and isinstance(moment.unnest(), exp.Interval):
        moment, width = node.expression, moment.unnest()
    if not isinstance(width, exp.Interval):
        return None
    unit = width.args.get("unit")
    if isinstance(unit, exp.Var) and unit.name.upper() not in MONTHS:
        return None
    length, months = span(binder, width, scope)
    if not months:
        return None
    start = binder.value(moment, scope)
    known = start.value if isinstance(start, Literal) else 0
    if start.type.kind is not Kind.TIMESTAMP or not isinstance(known, int):
        return None
    sign = -1 if isinstance(node, exp.Sub) else 1
    if not isinstance(start, Literal):
        return arithmetic("+", _later(start, sign * months), number(sign * length))
    found = texts.months_later(int(known), sign * months) + sign * length
    if not TIMESTAMP.low < found < TIMESTAMP.high:
        raise binder.text.error("this time lies beyond the years that a TIMESTAMP holds", node)
    return replace(start, value=found, type=replace(start.type, low=found, high=found))


def in_days(node: exp.Binary, left: Expression, right: Expression) -> Expression | None:
    """The days between what is written as two DATEs, and a DATE so many days on; None for anything else."""
    dates = _is_date(node.this), _is_date(node.expression)
    if isinstance(node, exp.Sub) and all(dates):
        return functions.call("div", [arithmetic("-", left, right), number(_DAY)])
    if dates == (True, False) and isinstance(node, exp.Add | exp.Sub) and _is_count(node.expression):
        return arithmetic("-" if isinstance(node, exp.Sub) else "+", left, _days(right))
    if dates == (False, True) and isinstance(node, exp.Add) and _is_count(node.this):
        return arithmetic("+", _days(left), right)
    return None


def _days(count: Expression) -> Expression:
    return arithmetic("*", count, number(_DAY))


def _is_date(node: exp.Expr) -> bool:
    """Whether an expression is written as a DATE, not a TIMESTAMP."""
    inner = node.unnest()
    if isinstance(inner, exp.Cast):
        return bool(inner.to.this is exp.DType.DATE)
    if isinstance(inner, exp.Min | exp.Max):
        return _is_date(inner.this)
    return isinstance(inner, exp.CurrentDate | exp.LastDay | exp.Date)


def _is_count(node: exp.Expr) -> bool:
    inner = node.unnest()
    inner = inner.this if isinstance(inner, exp.Neg) else inner
    return isinstance(inner, exp.Literal) and inner.is_int


def _later(value: Expression, months: int) -> Expression:
    """The same time of a day so many months later, the last of a month that is shorter."""
    moved = apply("months_later", [_nanoseconds(value), number(months)])
    return Cast(moved, TIMESTAMP, moved.nullable)


def _last_day(binder: Binder, node: exp.LastDay, scope: Scope) -> Expression:
    if node.args.get("unit"):
        raise refusal(binder, "LAST_DAY of another unit", "write LAST_DAY(ts)", node)
    first = _truncated(binder, "month", node.this, node, scope)
    return arithmetic("-", _later(first, 1), number(_DAY))


def _strftime(binder: Binder, node: exp.Anonymous, scope: Scope) -> Expression:
    arguments(binder, "strftime", node, len(node.expressions), 2, 2)
    of, form = node.expressions
    if isinstance(of, exp.Literal) and not isinstance(form, exp.Literal):
        of, form = form, of
    if not isinstance(form, exp.Literal) or not form.is_string:
        raise refusal(binder, "STRFTIME by a format that is not constant", "write it as in '%Y-%m-%d'", node)
    return _shown(binder, "STRFTIME", of, form.name, form, scope)


def _strptime(binder: Binder, node: exp.Anonymous, scope: Scope) -> Expression:
    """STRPTIME and TRY_STRPTIME: NULL where a text is not of the format."""
    arguments(binder, node.name, node, len(node.expressions), 2, 2)
    of, form = node.expressions
    if not isinstance(form, exp.Literal) or not form.is_string or not form.name:
        instead = "write it as in '%Y-%m-%d'"
        raise refusal(binder, f"{node.name.upper()} by a format that is no constant text", instead, node)
    try:
        formats.time_pattern(form.name)
    except formats.FormatError as error:
        raise binder.text.error(str(error), form) from None
    (text,) = adopt([binder.value(of, scope)], TEXT)
    if text.type.kind is not Kind.TEXT:
        raise refusal(binder, f"{node.name.upper()} of {text.type.kind.value}", "it takes a TEXT", node)
    return Function("time_of_text", (text, Literal(form.name, TEXT)), TIMESTAMP, nullable=True)


def _shown(binder: Binder, name: str, of: exp.Expr, form: str, node: exp.Expr, scope: Scope) -> Expression:
    value = _moment(binder, name, of, scope)
    try:
        formats.strftime(0, form)
    except formats.FormatError as error:
        raise binder.text.error(str(error), node) from None
    return apply("strftime", [_nanoseconds(value), Literal(form, TEXT)])


# PostgreSQL's parts of a format, longer ones first, and what they are in STRFTIME's.
_TO_CHAR = {
    "YYYY": "%Y", "IYYY": "%G", "HH24": "%H", "HH12": "%I", "Month": "%B", "DDD": "%j", "Mon": "%b",
    "Day": "%A", "YY": "%y", "MM": "%m", "DD": "%d", "HH": "%I", "MI": "%M", "SS": "%S", "MS": "%g",
    "US": "%f", "Dy": "%a", "AM": "%p", "PM": "%p", "IW": "%V", "ID": "%u",
}  # fmt: skip
_TO_CHAR_PART = re.compile(r'"([^"]*)"|(FM)?(' + "|".join(_TO_CHAR) + r")|([A-Za-z]+)|(%)")


def _to_char(binder: Binder, node: exp.ToChar, scope: Scope) -> Expression:
    """PostgreSQL's TO_CHAR(ts, format); FM leaves out zeros and spaces."""
    form = node.args.get("format")
    if not isinstance(form, exp.Literal) or not form.is_string:
        raise refusal(binder, "TO_CHAR by a format that is not constant", "write it as in 'YYYY-MM-DD'", node)

    def part(match: re.Match[str]) -> str:
        quoted, short, name, other, percent = match.groups()
        if other:
            instead = "write STRFTIME(ts, '%Y-%m-%d'), or FORMAT('{:.2f}', x) of a number"
            raise refusal(binder, f"{other[:20]} in a format of TO_CHAR", instead, form)
        if percent or quoted is not None:
            return "%%" if percent else str(quoted).replace("%", "%%")
        found = _TO_CHAR[name]
        padded = name in ("Month", "Day")
        if padded and not short:
            raise refusal(binder, f"{name} filled up with spaces", f"write FM{name}", form)
        return found.replace("%", "%-") if short and not padded else found

    return _shown(binder, "TO_CHAR", node.this, _TO_CHAR_PART.sub(part, form.name), form, scope)


def _name_of(form: str) -> Handler:
    """DAYNAME and MONTHNAME."""
    return lambda binder, node, scope: _shown(binder, node.sql_name(), node.this, form, node, scope)


def _unit(binder: Binder, name: str, node: exp.Expr) -> str:
    """The name of a unit, written as a text or as it is."""
    plain = isinstance(node, exp.Column) and not node.args.get("table")
    if not plain and not (isinstance(node, exp.Literal) and node.is_string):
        raise refusal(binder, f"{name} by a unit that is not constant", "write it as 'minute'", node)
    given = node.name.lower()
    unit = _OTHER_NAMES.get(given, given)
    if unit != "nanosecond" and unit not in _TRUNCATED:
        units = ", ".join(_TRUNCATED)
        raise refusal(binder, f"{name} by {given.upper()}", f"the units are {units} and nanosecond", node)
    return unit


_MONTHS = {"month": 1, "quarter": 3, "year": 12}


def _difference(binder: Binder, node: exp.Anonymous, scope: Scope) -> Expression:
    """DATE_DIFF(unit, from, to): how many units begin after the one and until the other."""
    name, (given, start, end) = _three(binder, node)
    unit = _unit(binder, name, given)
    if unit in _MONTHS:
        parts = ["year"] if unit == "year" else ["year", unit]
        first, *others = (
            arithmetic("-", *(_part(binder, p, of, node, scope) for of in (end, start))) for p in parts
        )
        for other in others:
            first = arithmetic("+", arithmetic("*", first, number(12 // _MONTHS[unit])), other)
        return first
    if unit == "nanosecond":
        return arithmetic("-", *(_moment(binder, name, of, scope) for of in (end, start)))
    # Weeks are seven days, as in DuckDB, wherever they begin.
    begins = "day" if unit == "week" else unit
    begun = arithmetic("-", *(_truncated(binder, begins, of, node, scope) for of in (end, start)))
    return functions.call("div", [begun, number(_TRUNCATED[unit])])


def _elapsed(binder: Binder, node: exp.Anonymous, scope: Scope) -> Expression:
    """DATE_SUB(unit, from, to): how many whole units lie between, or DATE_SUB(ts, INTERVAL)."""
    if len(node.expressions) == 2:
        return _moved(binder, node, scope)
    name, (given, start, end) = _three(binder, node)
    unit = _unit(binder, name, given)
    if unit in _MONTHS:
        instead = f"write DATE_DIFF('{unit}', x, y), which counts those that begin"
        raise refusal(binder, f"{name} by {unit.upper()}", instead, node)
    between = arithmetic("-", *(_moment(binder, name, of, scope) for of in (end, start)))
    return functions.call("div", [between, number(_TRUNCATED.get(unit, 1))])


def _three(binder: Binder, node: exp.Anonymous) -> tuple[str, list[exp.Expr]]:
    arguments(binder, node.name, node, len(node.expressions), 3, 3)
    return node.name.upper(), node.expressions


def _moved(binder: Binder, node: exp.Anonymous, scope: Scope) -> Expression:
    """DATE_ADD(ts, INTERVAL ...) as ts + INTERVAL ..."""
    arguments(binder, node.name, node, len(node.expressions), 2, 2)
    start, width = node.expressions
    kind = exp.Add if node.name.upper() == "DATE_ADD" else exp.Sub
    return binder.value(kind(this=start.copy(), expression=width.copy()), scope)


def _today(binder: Binder, node: exp.Expr, scope: Scope) -> Expression:
    return _floored("date_trunc", Literal("day", TEXT), _DAY, _now(binder, node, scope))


def _of_count(unit: int) -> Handler:
    """TO_TIMESTAMP(seconds) and MAKE_TIMESTAMP(microseconds): so many of `unit` ns since 1970."""

    def handler(binder: Binder, node: exp.Anonymous, scope: Scope) -> Expression:
        name = node.name.upper()
        if len(node.expressions) > 1:
            instead = "write TIMESTAMP '2024-01-31 12:00:00', or CAST(x AS TIMESTAMP) of a TEXT"
            raise refusal(binder, f"{name} of parts", instead, node)
        arguments(binder, name, node, len(node.expressions), 1, 1)
        value = binder.value(node.expressions[0], scope)
        if not value.type.numeric:
            raise TypingError(f"{name} of {value.type.kind.value} is not supported; it takes a number")
        length = functions.call("round", [arithmetic("*", value, number(unit))])
        whole = converted(length, BIGINT)
        assert whole is not None
        return Cast(whole, replace(whole.type, kind=Kind.TIMESTAMP), whole.nullable)

    return handler


def _date(binder: Binder, node: exp.Date, scope: Scope) -> Expression:
    if node.expressions or node.args.get("zone"):
        raise refusal(binder, "DATE of such arguments", "write DATE '2024-01-31', or ts::DATE", node)
    return binder.value(exp.cast(node.this.copy(), exp.DType.DATE), scope)


HANDLERS: dict[type[exp.Expr], Handler] = {
    exp.Extract: _extract,
    exp.DateTrunc: _date_trunc,
    exp.TimestampTrunc: _date_trunc,
    exp.CurrentTimestamp: _now,
    exp.CurrentDate: _today,
    exp.LastDay: _last_day,
    exp.Dayname: _name_of("%A"),
    exp.Monthname: _name_of("%B"),
    exp.Date: _date,
    exp.ToChar: _to_char,
    exp.Year: _named_part("year"),
    exp.Quarter: _named_part("quarter"),
    exp.Month: _named_part("month"),
    exp.Week: _named_part("week"),
    exp.WeekOfYear: _named_part("week"),
    exp.Day: _named_part("day"),
    exp.DayOfMonth: _named_part("day"),
    exp.DayOfWeek: _named_part("dow"),
    exp.DayOfWeekIso: _named_part("isodow"),
    exp.DayOfYear: _named_part("doy"),
    exp.Hour: _named_part("hour"),
    exp.Minute: _named_part("minute"),
    exp.Second: _named_part("second"),
}
_LENGTHS = {
    "nanoseconds": 1,
    "microseconds": 1_000,
    "milliseconds": 10**6,
    "seconds": SECOND,
    "minutes": 60 * SECOND,
    "hours": 3_600 * SECOND,
    "days": _DAY,
    "weeks": 7 * _DAY,
}


def _length(binder: Binder, node: exp.Anonymous, scope: Scope) -> Expression:
    """TO_MINUTES(n) and the like: so many of a unit, in ns."""
    arguments(binder, node.name, node, len(node.expressions), 1, 1)
    unit = _LENGTHS[node.name.lower().removeprefix("to_")]
    return arithmetic("*", binder.value(node.expressions[0], scope), number(unit))


NAMED: dict[str, Handler] = {
    **{f"to_{unit}": _length for unit in _LENGTHS},
    **dict.fromkeys(("strptime", "try_strptime"), _strptime),
    "date_part": _date_part,
    "datepart": _date_part,
    "datetrunc": _datetrunc,
    "date_trunc": _datetrunc,
    "time_bucket": _time_bucket,
    "epoch_ms": _epoch_floor,
    "epoch_us": _epoch_floor,
    "epoch_ns": _epoch_ns,
    "make_timestamp_ns": _from_nanoseconds,
    "make_timestamp": _of_count(1_000),
    "to_timestamp": _of_count(SECOND),
    "now": _now,
    "today": _today,
    "strftime": _strftime,
    **dict.fromkeys(("date_diff", "datediff"), _difference),
    **dict.fromkeys(("date_sub", "datesub"), _elapsed),
    "date_add": _moved,
    **{name: _named_part(name) for name in _NAMED_PARTS},
}
