"""Text of expressions with their types: 64-bit and 128-bit integers, doubles and conditions."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.plan.stores import key_type, layout_of
from views.compiler.calculus import Var
from views.compiler.intervals import exact, multiply
from views.compiler.types import DOUBLE, INT64_MAX, INT128_MAX, Kind, Type


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
    """The double of a scaled integer, to a unit in the last place."""
    if code.kind == "d":
        return code
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
