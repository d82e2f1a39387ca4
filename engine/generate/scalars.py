"""Python text of scalars: 64-bit and 128-bit integers, doubles and conditions, by proved intervals."""

from collections.abc import Sequence

from engine.changes import NULL_CODE
from views.compiler.calculus import MIRRORED, NEGATED, Apply, Const, Scalar, Var
from views.compiler.function_intervals import calendar_interval
from views.compiler.intervals import exact, join
from views.compiler.types import BOOLEAN, DOUBLE, INT128_MAX, Kind, Type
from views.scalars import calendar

from .functions import function_code, in_one_word
from .layout import TEXTS
from .typed_code import (
    STATE,
    Code,
    Names,
    aligned,
    arithmetic,
    as_double,
    double_literal,
    integer,
    negative,
    truth,
)


def scalar_code(scalar: Scalar, names: Names) -> Code:
    """The code of a scalar of a numbered plan. Raises TypeError for one that holds text."""
    match scalar:
        case Var():
            return names[scalar]
        case Const(None):
            return Code(str(NULL_CODE), exact(0, 0))
        case Const(float() as value):
            return Code(double_literal(value), DOUBLE)
        case Const(int() as value):
            return integer(value)
        case Apply("text", (Const(int() as place),)):
            return Code(_text_constant(place), Type(Kind.TEXT, 0, 0, 2**31 - 1))
        case Apply("matches", (Const(int() as place), text)):
            return Code(f"matches({_text_constant(place)}, {scalar_code(text, names).text})", BOOLEAN)
        case Apply("date_part" | "date_trunc" as op, (Const(str() as name), moment)):
            return _calendar(op, name, scalar_code(moment, names))
        case Apply(op, args):
            return _apply(op, [scalar_code(a, names) for a in args])
    raise TypeError(scalar)


def _text_constant(place: int) -> str:
    """The dictionary code of a text constant, or the table of a pattern, which the state holds."""
    return f"load(load({STATE}, {TEXTS}), {place:d})"


def _calendar(op: str, name: str, moment: Code) -> Code:
    argument = in_one_word(moment)
    if name == "epoch":
        return Code(f"calendar.epoch({argument})", DOUBLE)
    function = calendar.UNITS[name] if op == "date_trunc" else calendar.PARTS[name][0]
    interval = calendar_interval(op, name, (moment.type.low, moment.type.high))
    return Code(f"calendar.{function.__name__}({argument})", exact(*interval))


def _apply(op: str, args: Sequence[Code]) -> Code:
    if op in ("+", "-", "*"):
        return arithmetic(op, args[0], args[1])
    if op == "neg":
        return negative(args[0])
    if op in NEGATED:
        return _comparison(op, *args)
    if op in ("and", "or"):
        return Code(f"({truth(args[0])} {op} {truth(args[1])})", BOOLEAN)
    if op == "not":
        return Code(f"(not {truth(args[0])})", BOOLEAN)
    if op == "is_null":
        if args[0].kind == "w":
            return Code(f"({args[0].text} == wide_null())", BOOLEAN)
        word = args[0].text if args[0].kind != "d" else f"double_bits({STATE}, {args[0].text})"
        return Code(f"({word} == {NULL_CODE})", BOOLEAN)
    if op == "if":
        return _choice(*args)
    return function_code(op, args)


def _comparison(op: str, one: Code, other: Code) -> Code:
    beyond = _beyond_all(op, one, other) or _beyond_all(MIRRORED[op], other, one)
    if beyond:
        return beyond
    if op in ("=", "<>") and {one.kind, other.kind} == {"i", "w"}:
        value, word = (one, other) if one.kind == "w" else (other, one)
        same = f"same_integer({value.text}, {word.text})"
        return Code(same if op == "=" else f"(not {same})", BOOLEAN)
    sign = "==" if op == "=" else "!=" if op == "<>" else op
    if op in ("=", "<>") and "d" in (one.kind, other.kind):
        # As words: NULL is -0.0 among doubles, which compares equal to 0.0.
        return Code(f"({_double_word(one)} {sign} {_double_word(other)})", BOOLEAN)
    left, right = aligned(one, other)
    return Code(f"({left.text} {sign} {right.text})", BOOLEAN)


def _beyond_all(op: str, one: Code, other: Code) -> Code | None:
    """The comparison of an integer with a constant that 128 bits do not hold, which decides it."""
    value = other.type
    if "d" in (one.kind, other.kind) or value.low != value.high or abs(value.low) <= INT128_MAX:
        return None
    holds = op in (("<", "<=", "<>") if value.low > 0 else (">", ">=", "<>"))
    return Code(str(holds), BOOLEAN)


def _double_word(code: Code) -> str:
    """The word of a double; NULL, which has no type, is one already."""
    if code.text == str(NULL_CODE):
        return code.text
    return f"double_bits({STATE}, {as_double(code).text})"


def _choice(condition: Code, then: Code, otherwise: Code) -> Code:
    """`then if condition else otherwise`; NULL as the alternative is -0.0 among doubles."""
    null = otherwise.text == str(NULL_CODE)
    if null and then.kind == "d":
        return Code(f"({then.text} if {truth(condition)} else -0.0)", DOUBLE)
    if null and then.kind == "w":
        return Code(f"({then.text} if {truth(condition)} else wide_null())", then.type)
    kind = then.type if null else join(then.type, otherwise.type)
    first, second = aligned(then, otherwise)
    if kind.kind is Kind.BOOLEAN and first.kind != "b":
        kind = exact(0, 1)
    return Code(f"({first.text} if {truth(condition)} else {second.text})", kind)
