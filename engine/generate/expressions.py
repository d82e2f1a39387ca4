"""Python text of expressions with their types: 64-bit and 128-bit integers, doubles and conditions.

Scalars are written by proved intervals. Calls of value functions are text, too: which function of
views/scalars serves which kind of argument.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from orderbook.core.changes import NULL_CODE
from orderbook.engine.generate.state_layout import CALLED, CONSTANTS
from orderbook.engine.plan.stores import key_type, layout_of
from orderbook.views.calculus import MIRRORED, NEGATED, Apply, Const, Scalar, Var
from orderbook.views.intervals import (
    calendar_interval,
    exact,
    function_interval,
    join,
    multiply,
    text_function_type,
)
from orderbook.views.scalars import calendar, reals, texts
from orderbook.views.scalars.user_functions import UserFunction, by_number
from orderbook.views.types import BOOLEAN, DOUBLE, INT64_MAX, INT128_MAX, Kind, Type


@dataclass(frozen=True, slots=True)
class Code:
    """An expression: its text, and its type, from which follows how it is held."""

    text: str
    type: Type

    @property
    def kind(self) -> str:
        """`i` int64, `w` Int128, `d` float64, `b` bool."""
        if self.type.kind is Kind.BOOLEAN:
            return "b"
        return layout_of(self.type).lower()


Names = Mapping[Var, Code]

STATE = "S"
# The zero of each value column.
ZERO = {"i": "0", "w": "wide(0)", "W": "wide(0)", "d": "0.0"}


def integer(value: int) -> Code:
    """A constant."""
    if abs(value) <= INT64_MAX:
        return Code(str(value) if value >= 0 else f"({value})", exact(value, value))
    if abs(value) > INT128_MAX:
        # Noted as an overflow where it is computed: no word holds it.
        text = f"checked_multiply(words_to_wide(-1, {INT64_MAX}), wide(2), {STATE})"
        return Code(text, exact(value, value))
    low, high = value & (2**64 - 1), value >> 64
    words = f"words_to_wide({low - 2**64 if low >= 2**63 else low}, {high})"
    return Code(words, exact(value, value))


def double_literal(value: float) -> str:
    """A double as Python reads it, infinity as a literal that is too large. Raises ValueError for NaN."""
    if value != value:
        raise ValueError("NaN is no constant of a plan")
    return repr(float(value) + 0.0).replace("inf", "1e999")


def truth(code: Code) -> str:
    """The code as a condition."""
    return code.text if code.kind == "b" else f"({code.text} != 0)"


def number(code: Code) -> Code:
    """A condition as 0 or 1; anything else as it is."""
    return Code(f"(1 if {code.text} else 0)", exact(0, 1)) if code.kind == "b" else code


def in_word(kind: Type) -> Type:
    """The type of a variable that is held in one word, as columns and keys are; a condition as 0 or 1."""
    if kind.kind is Kind.BOOLEAN:
        return exact(0, 1)
    return key_type(kind)


def as_wide(code: Code) -> str:
    return code.text if code.kind == "w" else f"wide({number(code).text})"


def as_double(code: Code, scale: int = 0) -> Code:
    """The double of a scaled integer, to a unit in the last place; NULL stays NULL, -0.0 among doubles."""
    if code.kind == "d":
        return code
    if code.text == str(NULL_CODE):
        return Code("-0.0", DOUBLE)
    if code.type.low == code.type.high and not scale:
        return Code(double_literal(code.type.low), DOUBLE)
    value = f"wide_to_double({code.text})" if code.kind == "w" else f"float({number(code).text})"
    return Code(f"({value} / {double_literal(10**scale)})" if scale else value, DOUBLE)


def aligned(*codes: Code) -> list[Code]:
    """All of one kind, without loss."""
    kinds = {c.kind for c in codes}
    if len(kinds) == 1:
        return list(codes)
    if "d" in kinds:
        return [as_double(c) for c in codes]
    if "w" in kinds:
        return [Code(as_wide(c), number(c).type) for c in codes]
    return [number(c) for c in codes]


def narrowed(text: str, args: Sequence[Code], kind: Type) -> Code:
    """What integers `args` give, of 128 bits if one of them is: in one word where the interval fits it."""
    if layout_of(kind) == "i" and any(a.kind == "w" for a in args):
        return Code(f"low_word({text})", kind)
    return Code(text, kind)


def arithmetic(op: str, left: Code, right: Code) -> Code:
    """`left op right`, in 64 bits where that is proved to fit, else in 128, checked where need be."""
    left, right = number(left), number(right)
    if op == "*":
        for one, other in ((left, right), (right, left)):
            if one.text == "(-1)":
                return negative(other)
    if "d" in (left.kind, right.kind):
        # A product may be -0.0, which stands for NULL in keys.
        end = " + 0.0)" if op == "*" else ")"
        return Code(f"({as_double(left).text} {op} {as_double(right).text}{end}", DOUBLE)
    a, b = left.type, right.type
    if op == "*":
        kind = multiply(a, b)
        for one, other in ((left, right), (right, left)):
            if one.text == "1":
                return Code(other.text, kind)
    elif op == "+":
        kind = exact(a.low + b.low, a.high + b.high)
    else:
        kind = exact(a.low - b.high, a.high - b.low)
    layout = layout_of(kind)
    if layout == "i":
        return narrowed(f"({left.text} {op} {right.text})", (left, right), kind)
    if layout == "w":
        if op == "*" and left.kind == right.kind == "i":
            return Code(f"wide_product({left.text}, {right.text})", kind)
        return Code(f"({as_wide(left)} {op} {as_wide(right)})", kind)
    function = {"+": "checked_add", "-": "checked_subtract", "*": "checked_multiply"}[op]
    return Code(f"{function}({as_wide(left)}, {as_wide(right)}, {STATE})", kind)


def negative(code: Code) -> Code:
    """The value with the other sign; of a double never -0.0, which stands for NULL in keys."""
    code = number(code)
    if code.kind == "d":
        return Code(f"(0.0 - {code.text})", DOUBLE)
    kind = exact(-code.type.high, -code.type.low)
    if layout_of(kind) == "W":
        return Code(f"checked_subtract(wide(0), {code.text}, {STATE})", kind)
    return Code(f"(-{code.text})", kind)


def product(codes: Sequence[Code]) -> Code:
    """The product of codes; 1 when there are none."""
    ordered = sorted(codes, key=lambda c: "-wd".find(c.kind))
    if not ordered:
        return Code("1", exact(1, 1))
    result = number(ordered[0])
    for code in ordered[1:]:
        result = arithmetic("*", result, code)
    return result


def finite(code: Code) -> Code:
    """The code as a value to be added up: a double that was computed is checked to be finite."""
    if code.kind != "d" or re.fullmatch(r"[\w.]+", code.text):
        return code
    return Code(f"checked_finite({code.text}, {STATE})", DOUBLE)


def held_as(code: Code, layout: str) -> str:
    """The code as a value of a store's column."""
    if layout == "d":
        return as_double(code).text
    if layout != "i":
        return as_wide(code)
    # The interval of a product may be wider than what the map is proved to hold.
    return f"low_word({code.text})" if code.kind == "w" else number(code).text


_WORD = exact(-INT64_MAX, INT64_MAX)


def function_code(op: str, args: Sequence[Code]) -> Code:
    """The call of a function of numbers; raises ValueError for one that is not in the calculus."""
    if op not in FUNCTIONS:
        raise ValueError(f"unknown function {op}")
    return FUNCTIONS[op](op, [number(a) for a in args])


def _interval(op: str, args: Sequence[Code]) -> Type:
    return exact(*function_interval(op, [(a.type.low, a.type.high) for a in args]))


def _absolute(op: str, args: Sequence[Code]) -> Code:
    (value,) = args
    if value.kind == "d":
        return Code(f"abs({value.text})", DOUBLE)
    kind = _interval(op, args)
    if value.kind == "i":
        return Code(f"abs({value.text})", kind)
    return Code(f"integers.greatest({value.text}, {negative(value).text})", kind)


def _sign(op: str, args: Sequence[Code]) -> Code:
    text = f"integers.sign({args[0].text})"
    return Code(text, exact(-1, 1) if args[0].kind == "d" else _interval(op, args))


def _extreme(op: str, args: Sequence[Code]) -> Code:
    same = aligned(*args)
    result = same[0].text
    for other in same[1:]:
        result = f"integers.{op}({result}, {other.text})"
    if same[0].kind == "d":
        return Code(result, DOUBLE)
    return narrowed(result, args, _interval(op, args))


def _quotient(op: str, args: Sequence[Code]) -> Code:
    dividend, divisor = aligned(*args)
    text = f"integers.{op}({dividend.text}, {divisor.text})"
    if op == "floor_div" and args[1].kind == "i" and args[1].type.low > 0:
        text = f"({dividend.text} // {args[1].text})"
    kind = _interval(op, args)
    if layout_of(kind) == "W" and args[1].type.low <= -1 <= args[1].type.high:
        # The least integer of 128 bits by -1 is the one quotient that does not fit them.
        text = f"({negative(dividend).text} if {divisor.text} == -1 else {text})"
    return narrowed(text, args, kind)


def _of_doubles(name: str) -> Callable[[str, Sequence[Code]], Code]:
    def call(op: str, args: Sequence[Code]) -> Code:
        return Code(f"reals.{name}({', '.join(as_double(a).text for a in args)})", DOUBLE)

    return call


def _round(op: str, args: Sequence[Code]) -> Code:
    return Code(f"reals.round_to({as_double(args[0]).text}, {in_one_word(args[1])})", DOUBLE)


def _is_finite(op: str, args: Sequence[Code]) -> Code:
    return Code(f"reals.is_finite({as_double(args[0]).text})", BOOLEAN)


def _double(op: str, args: Sequence[Code]) -> Code:
    return as_double(args[0], int(args[1].text))


def _exact(op: str, args: Sequence[Code]) -> Code:
    return Code(f"integers.exact({as_double(args[0]).text}, {args[1].text})", _interval(op, args))


def _rest(op: str, args: Sequence[Code]) -> Code:
    value = as_wide(args[0])
    text = f"integers.rest({value}, wide_to_double({value}))"
    kind = _interval(op, args)
    return Code(f"low_word({text})" if layout_of(kind) == "i" else text, kind)


def _of_sums(op: str, args: Sequence[Code]) -> Code:
    kinds = {a.kind for a in args}
    if "d" in kinds:
        return _of_doubles(op)(op, args)
    if op == "spread" and kinds == {"i"}:
        count, left, right, products = (a.text for a in args)
        difference = f"wide_product({count}, {products}) - wide_product({left}, {right})"
        return Code(f"wide_to_double({difference})", DOUBLE)
    return Code(f"integers.{op}({', '.join(as_wide(a) for a in args)})", DOUBLE)


def _order(op: str, args: Sequence[Code]) -> Code:
    """Where a double lies among the words of a tree, or among the scaled integers of a scale."""
    bound = as_double(args[0]).text
    if op == "ordered_word":
        return Code(f"ordered_word(double_bits({STATE}, {bound} + 0.0))", _WORD)
    return Code(f"{op}({bound}, {double_literal(10 ** int(args[1].text))})", _WORD)


def _inverse(op: str, args: Sequence[Code]) -> Code:
    """An end of what goes into a sum, product or quotient of doubles."""
    bound, operand = (as_double(a).text for a in args[:2])
    return Code(f"{op}({STATE}, {bound}, {operand}, {args[2].text != '0'})", DOUBLE)


def _of_texts(op: str, args: Sequence[Code]) -> Code:
    words: list[str] = []
    for letter, code in zip(texts.FUNCTIONS[op].arguments, args, strict=True):
        if letter == "d":
            words.append(f"double_bits({STATE}, {as_double(code).text})")
        elif letter == "w":
            value = as_wide(code)
            words += [f"low_word({value})", f"high_word({value})"]
        else:
            words.append(in_one_word(code))
    given = ", ".join([*words, "0", "0", "0"][:3])
    text, kind = f"text_value({STATE}, {texts.NUMBERS[op]}, {given})", text_function_type(op)
    return Code(f"bits_to_double({STATE}, {text})" if kind == DOUBLE else text, kind)


def in_one_word(code: Code) -> str:
    """An integer as the nearest one of 64 bits."""
    return f"clamp({code.text})" if code.kind == "w" else code.text


FUNCTIONS: dict[str, Callable[[str, Sequence[Code]], Code]] = {
    "abs": _absolute,
    "sign": _sign,
    **dict.fromkeys(("least", "greatest"), _extreme),
    **dict.fromkeys(("floor_div", "ceil_div", "trunc_div", "round_div", "mod"), _quotient),
    "/": _of_doubles("divide"),
    **{name: _of_doubles(name) for name in ("sqrt", "ln", "log10", "exp", "power", "floor", "ceil", "trunc")},
    **{name: _of_doubles(name) for name in ("atan2", *reals.TRIGONOMETRY)},
    "round": _round,
    "is_finite": _is_finite,
    "double": _double,
    "exact": _exact,
    "rest": _rest,
    **dict.fromkeys(("spread", "third", "fourth"), _of_sums),
    **dict.fromkeys(("ordered_word", "last_below", "last_at_most"), _order),
    **dict.fromkeys(("last_addend", "last_factor", "last_dividend"), _inverse),
    **dict.fromkeys(texts.FUNCTIONS, _of_texts),
}


def slot(value: int) -> str:
    """The name of an integer that is put into machine code where it is loaded (core/native_types.py)."""
    return f"slot_{value:d}"


def handle_slot(store: str) -> str:
    """The name of the slot that says where in the state the handle of a store is."""
    return f"handle_{store}"


def look_slot(view: int, per_message: bool) -> str:
    """The name of the slot that says where in the state a look at a view lies."""
    return f"look_{view}_{per_message:d}"


# What takes a number that is put in where it is loaded as fast as one that is compiled in.
_SLOTTED = frozenset(("+", "-", "*", *NEGATED))
_SLOT = 1 << 61


def operand(op: str, scalar: Scalar, names: Names) -> Code:
    """An operand; an integer but 0 and 1 is a slot: programs that differ in these alone share their code."""
    code = scalar_code(scalar, names)
    match scalar:
        case Const(int() as value) if op in _SLOTTED and 1 < abs(value) < _SLOT:
            name = f"number_{value:d}" if value >= 0 else f"number_m{-value:d}"
            return Code(name, code.type)
    return code


def scalar_code(scalar: Scalar, names: Names) -> Code:
    """The code of a scalar of a numbered plan. Raises TypeError for one that holds text."""
    match scalar:
        case Var():
            return names[scalar]
        case Const(None):
            return Code(str(NULL_CODE), exact(0, 0))
        case Apply("real", (Const(int() as place),)):
            return Code(f"load_double(load({STATE}, {CONSTANTS}), {slot(place)})", DOUBLE)
        case Const(int() as value):
            return integer(value)
        case Apply("text", (Const(int() as place),)):
            return Code(_constant(place), Type(Kind.TEXT, 0, 0, 2**31 - 1))
        case Apply("matches", (Const(int() as place), text)):
            return Code(f"matches({scalar_code(text, names).text}, {_constant(place)})", BOOLEAN)
        case Apply("date_part" | "date_trunc" as op, (Const(str() as name), moment)):
            return _calendar(op, name, scalar_code(moment, names))
        case Apply("call", (Const(int() as function), *args)):
            return _called(by_number(function), [number(scalar_code(a, names)) for a in args])
        case Apply(op, args):
            return _apply(op, [operand(op, a, names) for a in args])
    raise TypeError(scalar)


def _called(function: UserFunction, args: Sequence[Code]) -> Code:
    """The call of a user's function, which the module knows by a number."""
    signature = function.signature
    given = [
        as_double(code).text if letter == "d" else in_one_word(code)
        for letter, code in zip(signature.parameters, args, strict=True)
    ]
    call = f"python_{function.number}({', '.join((f'{STATE} + {8 * CALLED}', *given))})"
    if signature.result == "d":
        return Code(f"returned_double({STATE}, {call})", DOUBLE)
    word = f"returned_word({STATE}, {call})"
    return Code(f"({word} != 0)", BOOLEAN) if signature.result == "b" else Code(word, function.result)


def _constant(place: int) -> str:
    """The dictionary code of a text, or the table of a pattern, which the state holds."""
    return f"load(load({STATE}, {CONSTANTS}), {slot(place)})"


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
