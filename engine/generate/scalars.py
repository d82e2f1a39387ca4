"""Python text of scalars: 64-bit and 128-bit integers, doubles and conditions, by proved intervals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from engine.changes import NULL_CODE
from engine.plan.planner import layout_of
from views.compiler.calculus import NEGATED, Apply, Const, Scalar, Var
from views.compiler.intervals import exact, join, multiply
from views.compiler.types import BOOLEAN, DOUBLE, INT64_MAX, Kind, Type


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
TextConstant = Callable[[str], str]

STATE = "S"
# The zero of each value column.
ZERO = {"i": "0", "w": "wide(0)", "W": "wide(0)", "d": "0.0"}


def scalar_code(scalar: Scalar, names: Names, text_constant: TextConstant) -> Code:
    """The code of a scalar; `text_constant` gives the expression of a text constant's code."""
    match scalar:
        case Var():
            return names[scalar]
        case Const(None):
            return Code(str(NULL_CODE), exact(0, 0))
        case Const(str() as value):
            return Code(text_constant(value), Type(Kind.TEXT, 0, 0, 2**31 - 1))
        case Const(float() as value):
            return Code(repr(value), DOUBLE)
        case Const(int() as value):
            return Code(_integer(value), exact(value, value))
        case Apply(op, args):
            return _apply(op, [scalar_code(a, names, text_constant) for a in args])
    raise TypeError(scalar)


def _integer(value: int) -> str:
    if abs(value) <= INT64_MAX:
        return str(value) if value >= 0 else f"({value})"
    low, high = value & (2**64 - 1), value >> 64
    return f"words_to_wide({low - 2**64 if low >= 2**63 else low}, {high})"


def _apply(op: str, args: Sequence[Code]) -> Code:
    if op in ("+", "-", "*"):
        return arithmetic(op, args[0], args[1])
    if op == "neg":
        kind = args[0].type
        return Code(f"(-{args[0].text})", kind if kind.kind is Kind.DOUBLE else exact(-kind.high, -kind.low))
    if op == "/":
        return Code(f"divide({args[0].text}, {args[1].text})", DOUBLE)
    if op == "double":
        return as_double(args[0], int(args[1].text))
    if op == "floor_divide":
        return _floor_divide(args[0], args[1])
    if op in NEGATED:
        left, right = aligned(args[0], args[1])
        return Code(
            f"({left.text} {'==' if op == '=' else '!=' if op == '<>' else op} {right.text})", BOOLEAN
        )
    if op in ("and", "or"):
        return Code(f"({truth(args[0])} {op} {truth(args[1])})", BOOLEAN)
    if op == "not":
        return Code(f"(not {truth(args[0])})", BOOLEAN)
    if op == "is_null":
        word = args[0].text if args[0].kind != "d" else f"double_bits({STATE}, {args[0].text})"
        return Code(f"({word} == {NULL_CODE})", BOOLEAN)
    if op == "if":
        then, otherwise = aligned(args[1], args[2])
        null = args[2].text == str(NULL_CODE)
        kind = args[1].type if null else join(args[1].type, args[2].type)
        if kind.kind is Kind.BOOLEAN and then.kind != "b":
            kind = exact(0, 1)
        if null and args[1].kind == "d":
            return Code(f"({then.text} if {truth(args[0])} else -0.0)", DOUBLE)
        return Code(f"({then.text} if {truth(args[0])} else {otherwise.text})", kind)
    raise ValueError(f"unknown function {op}")


def _floor_divide(dividend: Code, divisor: Code) -> Code:
    kind = exact(dividend.type.low // divisor.type.low, dividend.type.high // divisor.type.low)
    if dividend.kind != "w":
        return Code(f"({number(dividend).text} // {divisor.text})", kind)
    quotient = f"floor_divide({dividend.text}, {divisor.text})"
    return Code(f"low_word({quotient})" if layout_of(kind) == "i" else quotient, kind)


def truth(code: Code) -> str:
    """The code as a condition."""
    return code.text if code.kind == "b" else f"({code.text} != 0)"


def number(code: Code) -> Code:
    """A condition as 0 or 1; anything else as it is."""
    return Code(f"(1 if {code.text} else 0)", exact(0, 1)) if code.kind == "b" else code


def without_boolean(kind: Type) -> Type:
    """The type of a variable that holds 0 or 1 as a number, as columns and keys do."""
    return exact(0, 1) if kind.kind is Kind.BOOLEAN else kind


def as_wide(code: Code) -> str:
    return code.text if code.kind == "w" else f"wide({number(code).text})"


def as_double(code: Code, scale: int = 0) -> Code:
    """The double of a scaled integer, to a unit in the last place."""
    if code.kind == "d":
        return code
    value = f"wide_to_double({code.text})" if code.kind == "w" else f"float({number(code).text})"
    return Code(f"({value} / {float(10**scale)!r})" if scale else value, DOUBLE)


def aligned(left: Code, right: Code) -> tuple[Code, Code]:
    """Both of one kind, without loss."""
    if left.kind == right.kind:
        return left, right
    if "d" in (left.kind, right.kind):
        return as_double(left), as_double(right)
    if "w" in (left.kind, right.kind):
        return Code(as_wide(left), left.type), Code(as_wide(right), right.type)
    return number(left), number(right)


def arithmetic(op: str, left: Code, right: Code) -> Code:
    """`left op right`, in 64 bits where that is proved to fit, else in 128, checked where need be."""
    left, right = number(left), number(right)
    if "d" in (left.kind, right.kind):
        return Code(f"({as_double(left).text} {op} {as_double(right).text})", DOUBLE)
    a, b = left.type, right.type
    if op == "*":
        kind = multiply(a, b)
        for one, other in ((left, right), (right, left)):
            if one.text == "1":
                return Code(other.text, kind)
            if one.text == "(-1)":
                return Code(f"(-{other.text})", kind)
    elif op == "+":
        kind = exact(a.low + b.low, a.high + b.high)
    else:
        kind = exact(a.low - b.high, a.high - b.low)
    layout = layout_of(kind)
    if layout == "i":
        return Code(f"({left.text} {op} {right.text})", kind)
    if layout == "w":
        if op == "*" and left.kind == right.kind == "i":
            return Code(f"wide_product({left.text}, {right.text})", kind)
        return Code(f"({as_wide(left)} {op} {as_wide(right)})", kind)
    if op == "*":
        return Code(f"checked_multiply({as_wide(left)}, {as_wide(right)}, {STATE})", kind)
    return Code(f"checked_add({as_wide(left)}, {'-' if op == '-' else ''}{as_wide(right)}, {STATE})", kind)


def product(codes: Sequence[Code]) -> Code:
    """The product of codes; 1 when there are none."""
    ordered = sorted(codes, key=lambda c: "-wd".find(c.kind))
    if not ordered:
        return Code("1", exact(1, 1))
    result = number(ordered[0])
    for code in ordered[1:]:
        result = arithmetic("*", result, code)
    return result


def held_as(code: Code, layout: str) -> str:
    """The code as a value of a store's column."""
    if layout == "d":
        return as_double(code).text
    if layout != "i":
        return as_wide(code)
    # The interval of a product may be wider than what the map is proved to hold.
    return f"low_word({code.text})" if code.kind == "w" else number(code).text
