"""Text of the calls of value functions: which function of `views.scalars` serves which kind of argument."""

from collections.abc import Callable, Sequence

from engine.plan.stores import layout_of
from views.compiler.function_intervals import function_interval
from views.compiler.intervals import exact
from views.compiler.types import BOOLEAN, DOUBLE, INT64_MAX, Type

from .typed_code import STATE, Code, aligned, as_double, as_wide, double_literal, narrowed, negative, number

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
    return Code(f"precise.exact({as_double(args[0]).text}, {args[1].text})", _interval(op, args))


def _spread(op: str, args: Sequence[Code]) -> Code:
    count, total, squares = args
    kinds = {a.kind for a in args}
    if "d" in kinds:
        return _of_doubles("spread")(op, args)
    if kinds == {"i"}:
        first = f"wide_product({count.text}, {squares.text})"
        second = f"wide_product({total.text}, {total.text})"
        return Code(f"wide_to_double({first} - {second})", DOUBLE)
    return Code(f"precise.spread({', '.join(as_wide(a) for a in args)})", DOUBLE)


def _order(op: str, args: Sequence[Code]) -> Code:
    """Where a double lies among the words of a tree, or among the scaled integers of a scale."""
    bound = as_double(args[0]).text
    if op == "ordered_word":
        return Code(f"ordered_word(double_bits({STATE}, {bound} + 0.0))", _WORD)
    return Code(f"{op}({bound}, {double_literal(10 ** int(args[1].text))})", _WORD)


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
    "round": _round,
    "is_finite": _is_finite,
    "double": _double,
    "exact": _exact,
    "spread": _spread,
    **dict.fromkeys(("ordered_word", "last_below", "last_at_most"), _order),
}
