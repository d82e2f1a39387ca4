"""Functions of texts, and what turns other values into texts and back.

`||` and CONCAT take any value as CAST(value AS VARCHAR) shows it. A text that says no value of the type it is
cast to is NULL, in CAST as in TRY_CAST.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from orderbook.views.binding.bound import Expression, Function, Literal
from orderbook.views.binding.scope import Binder, Handler, Scope, arguments, refusal
from orderbook.views.binding.typed_nodes import (
    TypingError,
    adopt,
    arithmetic,
    case,
    coalesce,
    comparison,
    is_null_literal,
    logical,
    negative,
    number,
)
from orderbook.views.scalars import formats
from orderbook.views.scalars.texts import FUNCTIONS, ORDER_WORDS, SPACES
from orderbook.views.types import BOOLEAN, DOUBLE, INT64_MAX, TEXT, Kind, Type

# How long LPAD, RPAD and REPEAT may make a text.
MOST_CHARACTERS = 2**15 - 1
_ALL = number(2**31 - 1)
_SHOWN = {
    "byte_length": "STRLEN",
    "character": "CHR",
    "code_point": "ASCII",
    "has_prefix": "STARTS_WITH",
    "has_suffix": "ENDS_WITH",
    "ilike_text": "ILIKE",
    "like_text": "LIKE",
    "months_later": "INTERVAL of months",
    "part": "[ ]",
    "position": "STRPOS",
    "regexp_replace_all": "REGEXP_REPLACE",
}


def apply(name: str, args: Sequence[Expression]) -> Function:
    """The function of bound arguments; raises TypingError for those that it does not take."""
    own, shown = FUNCTIONS[name], _SHOWN.get(name, name.upper())
    given: list[Expression] = []
    for letter, argument in zip(own.arguments, args, strict=True):
        wanted = Kind.TEXT if letter == "t" else Kind.INTEGER
        (adopted,) = adopt([argument], TEXT if letter == "t" else number(0).type)
        if adopted.type.kind is not wanted:
            raise TypingError(
                f"{shown} of {adopted.type.kind.value} is not supported; it takes {wanted.value} there"
            )
        given.append(adopted)
    kind = {"t": TEXT, "d": DOUBLE}.get(own.result) or Type(Kind.INTEGER, 0, own.low, own.high)
    return Function(name, tuple(given), kind, any(a.nullable for a in given))


def condition(name: str, args: Sequence[Expression]) -> Expression:
    """A function of two texts that is a condition: `has_prefix`, `has_suffix` or `contains`."""
    found = apply("position" if name == "contains" else name, args)
    return comparison(">", found, number(0))


def to_text(value: Expression, day: bool = False) -> Expression:
    """The value as CAST AS VARCHAR shows it; day: of a TIMESTAMP its day alone."""
    kind = value.type
    if kind.kind is Kind.TEXT:
        return value
    if is_null_literal(value):
        return Literal(None, TEXT, nullable=True)
    if kind.kind is Kind.TIMESTAMP:
        shown = Function("text_of_moment", (value,), TEXT, value.nullable)
        return apply("left", [shown, number(10)]) if day else shown
    if kind.exact and kind.numeric:
        return Function("text_of_exact", (value, number(kind.scale)), TEXT, value.nullable)
    name = "text_of_boolean" if kind.kind is Kind.BOOLEAN else "text_of_double"
    return Function(name, (value,), TEXT, value.nullable)


def from_text(value: Expression, kind: Type) -> Expression:
    """What a text says of a type; raises TypingError for types of more than 64 bits."""
    if not kind.exact:
        return Function("double_of_text", (value,), DOUBLE, nullable=True)
    if kind.kind is Kind.BOOLEAN:
        return Function("boolean_of_text", (value,), BOOLEAN, nullable=True)
    if kind.kind is Kind.TIMESTAMP:
        return Function("moment_of_text", (value,), kind, nullable=True)
    if kind.low < -INT64_MAX or kind.high > INT64_MAX:
        raise TypingError(
            "CAST of TEXT to more than 64 bits is not supported; write BIGINT or DECIMAL(18, s)"
        )
    return Function("exact_of_text", (value, number(kind.scale)), kind, nullable=True)


def order_words(value: Expression) -> tuple[Expression, ...]:
    """What a value is ordered by: a TEXT by integers of its bytes, any other value by itself."""
    if value.type.kind is not Kind.TEXT:
        return (value,)
    return tuple(apply("order_word", [value, number(place)]) for place in range(ORDER_WORDS))


def concatenated(values: Sequence[Expression]) -> Expression:
    """The texts of all values in a row, NULL where one is."""
    result, *others = map(to_text, values)
    for other in others:
        result = apply("concat", [result, other])
    return result


def _or_empty(value: Expression) -> Expression:
    """CONCAT passes over NULL."""
    return coalesce([value, Literal("", TEXT)]) if value.nullable else value


def _concat(binder: Binder, node: exp.Concat, scope: Scope) -> Expression:
    if not node.expressions:
        raise binder.text.error("CONCAT takes at least 1 argument", node)
    values = [to_text(binder.value(n, scope)) for n in node.expressions]
    return concatenated([_or_empty(v) for v in values])


def _pipes(binder: Binder, node: exp.DPipe, scope: Scope) -> Expression:
    return concatenated([binder.value(n, scope) for n in node.flatten(unnest=False)])


def _joined(binder: Binder, node: exp.ConcatWs, scope: Scope) -> Expression:
    """CONCAT_WS: a separator stands between values that are not NULL."""
    if len(node.expressions) < 2:
        raise binder.text.error("CONCAT_WS takes at least 2 arguments", node)
    separator, *values = (to_text(binder.value(n, scope)) for n in node.expressions)
    parts = concatenated([_or_empty(concatenated([separator, value])) for value in values])
    return apply("substring", [parts, arithmetic("+", apply("length", [separator]), number(1)), _ALL])


def _trim(binder: Binder, node: exp.Trim, scope: Scope) -> Expression:
    characters = node.args.get("expression")
    given = binder.value(characters, scope) if characters else Literal(SPACES, TEXT)
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or ""), "trim")
    return apply(name, [binder.value(node.this, scope), given])


def _pad(binder: Binder, node: exp.Pad, scope: Scope) -> Expression:
    name = "lpad" if node.args.get("is_left") else "rpad"
    if node.args.get("fill_pattern") is None:
        raise binder.text.error(f"{name.upper()} takes 3 arguments", node)
    text, length, fill = (binder.value(node.args[k], scope) for k in ("this", "expression", "fill_pattern"))
    if not isinstance(fill, Literal) or not fill.value:
        raise refusal(binder, f"{name.upper()} with a filling that is not constant, or empty", "", node)
    return apply(name, [text, _bounded(name, length), fill])


def _repeat(binder: Binder, node: exp.Repeat, scope: Scope) -> Expression:
    text, times = binder.value(node.this, scope), binder.value(node.args["times"], scope)
    return apply("repeat", [text, _bounded("repeat", times)])


def _bounded(name: str, length: Expression) -> Expression:
    if length.type.kind is Kind.INTEGER and length.type.high > MOST_CHARACTERS:
        instead = f"write LEAST(x, {MOST_CHARACTERS})"
        raise TypingError(f"{name.upper()} by more than {MOST_CHARACTERS} is not supported; {instead}")
    return length


def _substring(binder: Binder, node: exp.Substring, scope: Scope) -> Expression:
    start, length = node.args.get("start") or exp.Literal.number(1), node.args.get("length")
    count = binder.value(length, scope) if length else _ALL
    return apply("substring", [binder.value(node.this, scope), binder.value(start, scope), count])


def _of(name: str, *keys: str) -> Handler:
    """The handler of a node that has the arguments under these names."""

    def handler(binder: Binder, node: Any, scope: Scope) -> Expression:
        given = [n for k in keys if (n := node.args.get(k)) is not None]
        arguments(binder, node.sql_name(), node, len(given), len(keys), len(keys))
        others = {k: v for k, v in node.args.items() if v and k not in (*keys, "safe")}
        if others:
            raise refusal(binder, f"this form of {node.sql_name()}", "leave the options out", node)
        return apply(name, [binder.value(n, scope) for n in given])

    return handler


def _initcap(binder: Binder, node: exp.Initcap, scope: Scope) -> Expression:
    return apply("initcap", [binder.value(node.this, scope)])


def _character(binder: Binder, node: exp.Chr, scope: Scope) -> Expression:
    arguments(binder, "chr", node, len(node.expressions), 1, 1)
    return apply("character", [binder.value(node.expressions[0], scope)])


def _of_bits(name: str, sign: str) -> Handler:
    """x & y, x | y, XOR(x, y) of integers of 64 bits."""

    def handler(binder: Binder, node: exp.Binary, scope: Scope) -> Expression:
        given = adopt([binder.value(n, scope) for n in (node.this, node.expression)])
        _check_bits(sign, given)
        found = apply(name, given)
        if min(g.type.low for g in given) < 0:
            return found
        highs = [g.type.high for g in given]
        high = min(highs) if name == "bits_of_both" else 2 ** max(highs).bit_length() - 1
        return replace(found, type=Type(Kind.INTEGER, 0, 0, high))

    return handler


def _check_bits(sign: str, given: Sequence[Expression]) -> None:
    for value in given:
        if value.type.kind is not Kind.INTEGER:
            raise TypingError(f"{sign} of {value.type.kind.value} is not supported; it takes INTEGER")
        if max(-value.type.low, value.type.high) > INT64_MAX:
            raise TypingError(f"{sign} of more than 64 bits is not supported; write CAST(x AS BIGINT)")


def _bit_count(binder: Binder, node: exp.Anonymous, scope: Scope) -> Expression:
    (value,) = _given(binder, node, 1, scope)
    _check_bits(node.name.upper(), [value])
    return apply("bit_count", [value])


def _in_digits(name: str) -> Handler:
    """HEX and BIN: of an integer its 64 bits, without leading zeros, of a TEXT its bytes."""

    def handler(binder: Binder, node: exp.Expr, scope: Scope) -> Expression:
        given = node.expressions if isinstance(node, exp.Anonymous) else [node.this]
        arguments(binder, name, node, len(given), 1, 1)
        value = binder.value(given[0], scope)
        if value.type.kind is Kind.TEXT and name == "hex":
            return apply("hex_of_text", [value])
        _check_bits(name.upper(), [value])
        return apply(f"{'hex' if name == 'hex' else 'binary'}_of_integer", [value])

    return handler


def _common_divisor(binder: Binder, node: exp.Anonymous, scope: Scope) -> Expression:
    given = adopt(_given(binder, node, 2, scope))
    _check_bits(node.name.upper(), given)
    return apply("common_divisor", given)


def _common_multiple(binder: Binder, node: exp.Anonymous, scope: Scope) -> Expression:
    """One of them is divided by what both have; 0 of 0."""
    (again, divisor), (one, other) = (
        [_common_divisor(binder, node, scope) for _ in range(2)],
        adopt(_given(binder, node, 2, scope)),
    )
    product = arithmetic("*", Function("div", (one, divisor), one.type, True), other)
    most = max(-product.type.low, product.type.high)
    size: Expression = Function("abs", (product,), replace(product.type, low=0, high=most), True)
    if not divisor.nullable:
        size = coalesce([size, number(0)])
    return case([(comparison("=", again, number(0)), number(0))], size)


def _same_length(binder: Binder, node: exp.Anonymous, scope: Scope) -> Expression:
    """HAMMING: NULL of texts of two lengths, or of none."""
    lengths = [apply("byte_length", [value]) for value in _given(binder, node, 2, scope)]
    same = [comparison("=", *lengths), comparison(">", lengths[0], number(0))]
    return case([(logical("AND", same), apply("hamming", _given(binder, node, 2, scope)))], None)


def _jaccard(binder: Binder, node: exp.Anonymous, scope: Scope) -> Expression:
    """NULL where a text is empty."""
    lengths = [apply("byte_length", [value]) for value in _given(binder, node, 2, scope)]
    there = logical("AND", [comparison(">", length, number(0)) for length in lengths])
    return case([(there, apply("jaccard", _given(binder, node, 2, scope)))], None)


def _given(binder: Binder, node: exp.Anonymous, count: int, scope: Scope) -> list[Expression]:
    arguments(binder, node.name, node, len(node.expressions), count, count)
    return [binder.value(n, scope) for n in node.expressions]


def _shifted(binder: Binder, node: exp.Binary, scope: Scope) -> Expression:
    """x << n and x >> n: so many bits to the left or right, a constant."""
    left = isinstance(node, exp.BitwiseLeftShift)
    value, places = binder.value(node.this, scope), binder.value(node.expression, scope)
    known = places.value if isinstance(places, Literal) else None
    if type(known) is not int or not 0 <= known < 64:
        raise refusal(binder, "a shift by what is no constant from 0 to 63", "write x * y or x // y", node)
    _check_bits("<<" if left else ">>", [value])
    return arithmetic("*", value, number(2**known)) if left else apply("bits_shifted", [value, places])


def _inverted(binder: Binder, node: exp.BitwiseNot, scope: Scope) -> Expression:
    value = binder.value(node.this, scope)
    _check_bits("~", [value])
    return arithmetic("-", number(-1), value)


_SPLITS = ("string_split", "str_split", "string_to_array", "split")


def _bracket(binder: Binder, node: exp.Bracket, scope: Scope) -> Expression:
    """x[a:b], x[i], and one part of STRING_SPLIT(x, separator)."""
    subject, (place, *others) = node.this, node.expressions
    split = _split(subject)
    if others or (split and isinstance(place, exp.Slice)):
        raise refusal(
            binder, "such a part of a list", "write STRING_SPLIT(x, y)[i], or x[a:b] of a TEXT", node
        )
    if split:
        text, separator = (binder.value(n, scope) for n in split)
        at = binder.value(place, scope)
        again = [binder.value(n, scope) for n in (*split, place, place)]
        count, found = apply("parts", [text, separator]), apply("split_part", [*again[:2], at])
        there = [
            comparison("<=", _distance(again[2]), count),
            comparison("<>", again[3], number(0)),
        ]
        return case([(logical("AND", there), found)], None)
    text = binder.value(subject, scope)
    if text.type.kind is not Kind.TEXT:
        raise refusal(binder, f"[ ] of {text.type.kind.value}", "it takes a part of a TEXT", node)
    if isinstance(place, exp.Slice):
        if place.args.get("step"):
            raise refusal(binder, "a step in [ ]", "leave it out", node)
        first, last = (place.this or exp.Literal.number(1)), place.expression
        end = binder.value(last, scope) if last else _ALL
        return apply("part", [text, binder.value(first, scope), end])
    return apply("part", [text, binder.value(place, scope), binder.value(place, scope)])


def _distance(value: Expression) -> Expression:
    return case([(comparison("<", value, number(0)), negative(value))], value)


def _split(node: exp.Expr) -> list[exp.Expr] | None:
    """The text and the separator of a call that splits one; None for another node."""
    if isinstance(node, exp.Split):
        return [node.this, node.expression]
    named = isinstance(node, exp.Anonymous) and node.name.lower() in _SPLITS and len(node.expressions) == 2
    return list(node.expressions) if named else None


def _format(binder: Binder, node: exp.Format | exp.Anonymous, scope: Scope) -> Expression:
    """FORMAT('{:.2f} {}', x, y) and PRINTF('%d', x): each piece is a text of its own."""
    of_c = isinstance(node, exp.Anonymous)
    given = node.expressions if of_c else [node.this, *node.expressions]
    form, *nodes = given or [None]
    name = "PRINTF" if of_c else "FORMAT"
    if not isinstance(form, exp.Literal) or not form.is_string:
        raise refusal(binder, f"{name} of a format that is not constant", "write it first, as a text", node)
    try:
        pieces = formats.pieces(form.name, of_c)
        found: list[Expression] = []
        for piece in pieces:
            if isinstance(piece, str):
                found.append(Literal(piece, TEXT))
                continue
            place, own = piece
            if place >= len(nodes):
                raise binder.text.error(f"{name} has no value for {own}", form)
            found.append(_piece(binder.value(nodes[place], scope), own))
    except formats.FormatError as error:
        raise binder.text.error(str(error), form) from None
    return concatenated(found) if found else Literal("", TEXT)


def _piece(value: Expression, form: str) -> Expression:
    """A value by the format of it; raises FormatError where it is none of such values."""
    kind = value.type
    example: int | float | str
    if kind.kind is Kind.INTEGER:
        name, example, given = "format_integer", 1, value
    elif kind.numeric:
        name, example, given = "format_double", 1.5, value
    else:
        name, example, given = "format_text", "x", to_text(value)
    plain = form if form.startswith("{") or not form.endswith("i") else form[:-1] + "d"
    getattr(formats, name)(example, plain)
    return Function(name, (given, Literal(plain, TEXT)), TEXT, value.nullable)


HANDLERS: dict[type[exp.Expr], Handler] = {
    exp.Bracket: _bracket,
    exp.BitwiseAnd: _of_bits("bits_of_both", "&"),
    exp.BitwiseOr: _of_bits("bits_of_either", "|"),
    exp.Xor: _of_bits("bits_of_one", "XOR"),
    exp.BitwiseLeftShift: _shifted,
    exp.BitwiseRightShift: _shifted,
    exp.BitwiseNot: _inverted,
    exp.Format: _format,
    exp.Initcap: _initcap,
    exp.Chr: _character,
    exp.Translate: _of("translate", "this", "from_", "to"),
    exp.MD5: _of("md5", "this"),
    exp.SHA: _of("sha1", "this"),
    exp.Hex: _in_digits("hex"),
    exp.Levenshtein: _of("levenshtein", "this", "expression"),
    exp.Upper: _of("upper", "this"),
    exp.Lower: _of("lower", "this"),
    exp.Length: _of("length", "this"),
    exp.Reverse: _of("reverse", "this"),
    exp.Ascii: _of("code_point", "this"),
    exp.Unicode: _of("code_point", "this"),
    exp.Left: _of("left", "this", "expression"),
    exp.Right: _of("right", "this", "expression"),
    exp.Replace: _of("replace", "this", "expression", "replacement"),
    exp.SplitPart: _of("split_part", "this", "delimiter", "part_index"),
    exp.StrPosition: _of("position", "this", "substr"),
    exp.Substring: _substring,
    exp.Trim: _trim,
    exp.Pad: _pad,
    exp.Repeat: _repeat,
    exp.Concat: _concat,
    exp.DPipe: _pipes,
    exp.ConcatWs: _joined,
}


def _call(own: str) -> Handler:
    """The handler of a function that the parser has no node of."""

    def handler(binder: Binder, node: exp.Anonymous, scope: Scope) -> Expression:
        count = len(FUNCTIONS[own].arguments)
        arguments(binder, node.name, node, len(node.expressions), count, count)
        return apply(own, [binder.value(n, scope) for n in node.expressions])

    return handler


NAMED: dict[str, Handler] = {
    "strlen": _call("byte_length"),
    "octet_length": _call("byte_length"),
    "ord": _call("code_point"),
    "sha256": _call("sha256"),
    "editdist3": _call("levenshtein"),
    "damerau_levenshtein": _call("damerau_levenshtein"),
    **dict.fromkeys(("hamming", "mismatches"), _same_length),
    "jaccard": _jaccard,
    "jaro_similarity": _call("jaro"),
    "jaro_winkler_similarity": _call("jaro_winkler"),
    "bit_count": _bit_count,
    "bin": _in_digits("bin"),
    "to_binary": _in_digits("bin"),
    **dict.fromkeys(("gcd", "greatest_common_divisor"), _common_divisor),
    **dict.fromkeys(("lcm", "least_common_multiple"), _common_multiple),
    "printf": _format,
}
