"""Functions of texts, as DuckDB has them: on strings, counted in code points; NULL never reaches them.

A runtime holds a text as its code in the dictionary. What a function says of codes is what it says of their
strings: `of_codes` calls it so, and encodes a text that it gives. The interpreter calls that, and so does
compiled code of arguments whose value it does not hold.

Texts are ordered by their UTF-8 bytes, as DuckDB's binary collation does. Where rows are found by it, so are
integers of eight bytes each, `ORDER_WORDS` of them.
"""

import calendar
import re
import unicodedata
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from hashlib import md5, sha1, sha256
from itertools import takewhile
from math import gcd, isfinite
from operator import and_, or_, xor
from typing import Any, NamedTuple, Protocol

from orderbook.core.errors import DataError
from orderbook.views.scalars import formats, lists, patterns
from orderbook.views.scalars.formats import text_of_exact, text_of_moment
from orderbook.views.types import INT64_MAX, TIMESTAMP

SECOND = 1_000_000_000
_WORD = 2**64 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOMENT = re.compile(
    r"\s*(\d{4})-(\d\d)-(\d\d)"
    r"(?:[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?\s*(Z|[+-]\d\d(?::?\d\d)?)?)?\s*"
)
_DIGITS = "[0-9]+(?:_[0-9]+)*"
_NUMBER = re.compile(rf"\s*[+-]?(?:{_DIGITS}\.?(?:{_DIGITS})?|\.{_DIGITS})(?:[eE][+-]?[0-9]+)?\s*", re.ASCII)
_WHOLE = re.compile(r"\s*[+-]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+)\s*", re.ASCII)
_TRUTH = {"true": 1, "t": 1, "1": 1, "yes": 1, "y": 1, "false": 0, "f": 0, "0": 0, "no": 0, "n": 0}
# Of a number that has more digits before its point no type of 64 bits is.
_MOST_DIGITS = 40
_CONTEXT = Context(prec=400, rounding=ROUND_HALF_UP)


def moment(text: str) -> int | None:
    """The ns since 1970 UTC of a text such as '2024-01-31 12:00:00.5', in UTC without an offset; or None."""
    match = MOMENT.fullmatch(text)
    if not match:
        return None
    *parts, fraction, zone = match.groups()
    year, month, day, hour, minute, second = (int(p or 0) for p in parts)
    try:
        calendar = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
        seconds = (calendar - _EPOCH) // timedelta(seconds=1)
    except ValueError:
        return None
    ns = (seconds - formats.zone_seconds(zone)) * SECOND + fraction_ns(fraction)
    return ns if TIMESTAMP.low <= ns <= TIMESTAMP.high else None


def fraction_ns(digits: str | None) -> int:
    """The ns of the digits after the point of a second."""
    return int((digits or "").ljust(9, "0"))


def upper(text: str) -> str:
    """Each character in upper case where that is one character."""
    return "".join(map(_upper, text)) if not text.isascii() else text.upper()


def _upper(character: str) -> str:
    for found in (character.upper(), character.title()):
        if len(found) == 1:
            return found
    return "\u1e9e" if character == "\u00df" else character


def lower(text: str) -> str:
    """Each character in lower case."""
    return "".join("i" if c == "\u0130" else c.lower() for c in text)


def substring(text: str, start: int, length: int) -> str:
    """`length` characters from place `start` on, which counts from 1, below 0 from the end.

    A length below 0 takes those before that place.
    """
    begin = start - 1 if start >= 0 else len(text) + start
    end = begin + length
    if length < 0:
        begin, end = end, begin
    return text[max(begin, 0) : max(end, 0)]


def left(text: str, count: int) -> str:
    """The first characters; below 0 all but so many of the last."""
    return text[: max(count, 0) if count >= 0 else max(len(text) + count, 0)]


def right(text: str, count: int) -> str:
    """The last characters; below 0 all but so many of the first."""
    return text[max(len(text) - count, 0) :] if count >= 0 else text[-count:]


def _stripped(text: str, characters: str, from_left: bool, from_right: bool) -> str:
    if from_left:
        text = text.lstrip(characters) if characters else text
    return text.rstrip(characters) if from_right and characters else text


def _spaces() -> str:
    return "".join(chr(c) for c in range(0x3001) if unicodedata.category(chr(c)) == "Zs")


# What TRIM takes away where it is not told.
SPACES = _spaces()


def replaced(text: str, old: str, new: str) -> str:
    """With `new` in every place of `old`, which there is none of where it is empty."""
    return text.replace(old, new) if old else text


def split_part(text: str, separator: str, place: int) -> str:
    """The part at a place that counts from 1, below 0 from the end; '' where there is none."""
    parts = text.split(separator) if separator else list(text)
    at = place - 1 if place > 0 else len(parts) + place
    return parts[at] if place and 0 <= at < len(parts) else ""


def _padding(text: str, length: int, pad: str) -> str:
    missing = max(length - len(text), 0)
    return (pad * (missing // max(len(pad), 1) + 1))[:missing]


def lpad(text: str, length: int, pad: str) -> str:
    """So many characters: cut off at the end, or filled up before the text."""
    return _padding(text, length, pad) + text[: max(length, 0)]


def rpad(text: str, length: int, pad: str) -> str:
    """So many characters: cut off at the end, or filled up behind the text."""
    return text[: max(length, 0)] + _padding(text, length, pad)


def part(text: str, first: int, last: int) -> str:
    """The characters from one place to another, both in it; places count from 1, below 0 from the end."""
    begin, end = (p + len(text) + 1 if p < 0 else p for p in (first, last))
    return text[max(begin, 1) - 1 : max(end, 0)]


def translated(text: str, old: str, new: str) -> str:
    """Each character of `old` as that at its place in `new`, or left out where there is none."""
    places = {c: new[i : i + 1] for i, c in reversed([*enumerate(old)])}
    return "".join(places.get(c, c) for c in text)


def initcap(text: str) -> str:
    """The first letter of each word in upper case, the others in lower case, as in PostgreSQL."""
    parts, inside = [], False
    for character in text:
        parts.append(lower(character) if inside else upper(character))
        inside = character.isalnum()
    return "".join(parts)


def levenshtein(one: str, other: str) -> int:
    """How many bytes of UTF-8 have to be inserted, deleted or replaced to make one text of the other."""
    left, right = (text.encode("utf-8", "surrogatepass") for text in (one, other))
    row = [*range(len(right) + 1)]
    for count, character in enumerate(left, 1):
        before, row[0] = row[0], count
        for place, another in enumerate(right, 1):
            before, row[place] = (
                row[place],
                min(row[place] + 1, row[place - 1] + 1, before + (character != another)),
            )
    return int(row[-1])


def damerau_levenshtein(one: str, other: str) -> int:
    """As `levenshtein`, where two bytes side by side may change places at once."""
    left, right = (text.encode("utf-8", "surrogatepass") for text in (one, other))
    most = len(left) + len(right)
    rows: list[list[int]] = [[most] * (len(right) + 2), [most, *range(len(right) + 1)]]
    last_row: dict[int, int] = {}
    for count, byte in enumerate(left, 1):
        row, last = [most, count], 0
        for place, another in enumerate(right, 1):
            from_row, from_place = last_row.get(another, 0), last
            moved = rows[from_row][from_place] + (count - from_row - 1) + 1 + (place - from_place - 1)
            same = rows[count][place] + (byte != another)
            row.append(min(same, rows[count][place + 1] + 1, row[place] + 1, moved))
            if byte == another:
                last = place
        rows.append(row)
        last_row[byte] = count
    return rows[-1][-1]


def hamming(one: str, other: str) -> int:
    """At how many places the bytes of UTF-8 differ, of texts of one length."""
    pairs = zip(*(text.encode("utf-8", "surrogatepass") for text in (one, other)), strict=False)
    return sum(a != b for a, b in pairs)


def jaccard(one: str, other: str) -> float:
    """How many bytes of UTF-8 stand in both texts, of those that stand in one."""
    left, right = ({*text.encode("utf-8", "surrogatepass")} for text in (one, other))
    return len(left & right) / len(left | right) if left | right else 0.0


def jaro(one: str, other: str) -> float:
    """The similarity of Jaro (1989), of bytes of UTF-8; 0 where a text is empty."""
    left, right = (text.encode("utf-8", "surrogatepass") for text in (one, other))
    if not left or not right:
        return 0.0
    reach = max(max(len(left), len(right)) // 2 - 1, 0)
    free, matched = [True] * len(right), []
    for place, byte in enumerate(left):
        for at in range(max(place - reach, 0), min(place + reach + 1, len(right))):
            if free[at] and right[at] == byte:
                free[at] = False
                matched.append(byte)
                break
    count = len(matched)
    if not count:
        return 0.0
    others = [byte for byte, is_free in zip(right, free, strict=True) if not is_free]
    moved = sum(a != b for a, b in zip(matched, others, strict=True)) // 2
    return (count / len(left) + count / len(right) + (count - moved) / count) / 3.0


def jaro_winkler(one: str, other: str) -> float:
    """As `jaro`, more where both begin alike (Winkler 1990)."""
    similar = jaro(one, other)
    if similar <= 0.7:
        return similar
    pairs = zip(*(text.encode("utf-8", "surrogatepass")[:4] for text in (one, other)), strict=False)
    same = len([*takewhile(lambda pair: pair[0] == pair[1], pairs)])
    return similar + same * 0.1 * (1.0 - similar)


def _digest(function: Callable[..., Any]) -> Callable[[str], str]:
    return lambda text: str(
        function(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()
    )


_DAY = 86_400 * SECOND


def months_later(ns: int, months: int) -> int:
    """The same time of the same day, or of the last that its month has; the nearest that there is."""
    day, time = divmod(ns, _DAY)
    at = date(1970, 1, 1) + timedelta(days=day)
    years, month = divmod(at.month - 1 + months, 12)
    year = at.year + years
    if not 1 <= year <= 9999:
        return TIMESTAMP.low if year < 1 else TIMESTAMP.high
    last = calendar.monthrange(year, month + 1)[1]
    later = date(year, month + 1, min(at.day, last))
    found = (later - date(1970, 1, 1)).days * _DAY + time
    return min(max(found, TIMESTAMP.low), TIMESTAMP.high)


def _exact(text: str, scale: int) -> int | None:
    """The scaled integer of 64 bits nearest to the number that a text says, halves away from zero."""
    if scale == 0 and _WHOLE.fullmatch(text):
        whole = int(text.strip(), 0)
        return whole if abs(whole) <= INT64_MAX else None
    if not _NUMBER.fullmatch(text) or len(text) > 300:
        return None
    number = Decimal(text.strip().replace("_", ""))
    if number.is_zero() or number.adjusted() < -_MOST_DIGITS:
        return 0
    if number.adjusted() > _MOST_DIGITS:
        return None
    scaled = int(number.scaleb(scale, _CONTEXT).to_integral_value(ROUND_HALF_UP))
    return scaled if abs(scaled) <= INT64_MAX else None


def _double(text: str) -> float | None:
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text.replace("_", ""))
    return value + 0.0 if isfinite(value) else None


def _boolean(text: str) -> int | None:
    return _TRUTH.get(text.lower())


def compare_texts(one: str, other: str) -> int:
    """-1, 0 or 1: below, equal or above in the order of UTF-8 bytes, which is that of code points."""
    return (one > other) - (one < other)


# How many words order texts, of how many bytes each.
ORDER_WORDS, WORD_BYTES = 3, 8
# No byte of UTF-8 is above 0xF4; 0 stands for the end of the text.
_BASE = 0xF6


def order_word(text: str, place: int) -> int:
    """Eight bytes of UTF-8 from number `8 * place` on, as an integer in their order."""
    part, word = text.encode("utf-8", "surrogatepass")[WORD_BYTES * place :][:WORD_BYTES], 0
    for byte in part:
        word = word * _BASE + byte + 1
    return int(word * _BASE ** (WORD_BYTES - len(part))) - INT64_MAX


_HIGHEST_WORD = _BASE**WORD_BYTES - 1 - INT64_MAX


def _or_nothing(function: Callable[..., int | float | None]) -> Callable[..., int | float]:
    return lambda *args: function(*args) or 0


def _there(function: Callable[..., int | float | None]) -> Callable[..., int]:
    return lambda *args: int(function(*args) is not None)


class TextFunction(NamedTuple):
    """A function: a letter for each argument and one for the result, and what computes it.

    `t` is a text, `i` an integer of one word, `w` one of two, `d` a double. low, high: of an integer result.
    """

    arguments: str
    result: str
    function: Callable[..., int | float | str]
    low: int = 0
    high: int = 2**31 - 1


FUNCTIONS: dict[str, TextFunction] = {
    "upper": TextFunction("t", "t", upper),
    "lower": TextFunction("t", "t", lower),
    "reverse": TextFunction("t", "t", lambda text: text[::-1]),
    "length": TextFunction("t", "i", len),
    "byte_length": TextFunction("t", "i", lambda text: len(text.encode("utf-8", "surrogatepass"))),
    "code_point": TextFunction("t", "i", lambda text: ord(text[0]) if text else 0, 0, 0x10FFFF),
    "substring": TextFunction("tii", "t", substring),
    "left": TextFunction("ti", "t", left),
    "right": TextFunction("ti", "t", right),
    "trim": TextFunction("tt", "t", lambda text, characters: _stripped(text, characters, True, True)),
    "ltrim": TextFunction("tt", "t", lambda text, characters: _stripped(text, characters, True, False)),
    "rtrim": TextFunction("tt", "t", lambda text, characters: _stripped(text, characters, False, True)),
    "replace": TextFunction("ttt", "t", replaced),
    "split_part": TextFunction("tti", "t", split_part),
    "concat": TextFunction("tt", "t", lambda one, other: one + other),
    "lpad": TextFunction("tit", "t", lpad),
    "rpad": TextFunction("tit", "t", rpad),
    "repeat": TextFunction("ti", "t", lambda text, count: text * max(count, 0)),
    "position": TextFunction("tt", "i", lambda text, part: text.find(part) + 1),
    "has_prefix": TextFunction("tt", "i", lambda text, part: int(text.startswith(part)), 0, 1),
    "has_suffix": TextFunction("tt", "i", lambda text, part: int(text.endswith(part)), 0, 1),
    "compare_texts": TextFunction("tt", "i", compare_texts, -1, 1),
    "order_word": TextFunction("ti", "i", order_word, -INT64_MAX, _HIGHEST_WORD),
    "part": TextFunction("tii", "t", part),
    "translate": TextFunction("ttt", "t", translated),
    "initcap": TextFunction("t", "t", initcap),
    "character": TextFunction("i", "t", lambda code: chr(code) if 0 < code < 0x110000 else ""),
    "md5": TextFunction("t", "t", _digest(md5)),
    "sha256": TextFunction("t", "t", _digest(sha256)),
    "levenshtein": TextFunction("tt", "i", levenshtein),
    "damerau_levenshtein": TextFunction("tt", "i", damerau_levenshtein),
    "hamming": TextFunction("tt", "i", hamming),
    "jaccard": TextFunction("tt", "d", jaccard),
    "jaro": TextFunction("tt", "d", jaro),
    "jaro_winkler": TextFunction("tt", "d", jaro_winkler),
    "sha1": TextFunction("t", "t", _digest(sha1)),
    "hex_of_text": TextFunction("t", "t", lambda text: text.encode("utf-8", "surrogatepass").hex().upper()),
    "hex_of_integer": TextFunction("i", "t", lambda value: f"{value & _WORD:X}"),
    "binary_of_integer": TextFunction("i", "t", lambda value: f"{value & _WORD:b}"),
    "bit_count": TextFunction("i", "i", lambda value: (value & _WORD).bit_count(), 0, 64),
    "common_divisor": TextFunction("ii", "i", gcd, 0, INT64_MAX),
    "parts": TextFunction("tt", "i", lambda text, by: max(len(text.split(by) if by else text), 1)),
    "like_text": TextFunction("ttt", "i", patterns.like, 0, 1),
    "ilike_text": TextFunction("ttt", "i", patterns.ilike, 0, 1),
    "glob": TextFunction("tt", "i", patterns.glob, 0, 1),
    "regexp_matches": TextFunction("tt", "i", patterns.regexp_matches, 0, 1),
    "regexp_full_match": TextFunction("tt", "i", patterns.regexp_full_match, 0, 1),
    "regexp_extract": TextFunction("tti", "t", patterns.regexp_extract),
    "regexp_replace": TextFunction("ttt", "t", patterns.regexp_replace),
    "regexp_replace_all": TextFunction("ttt", "t", patterns.regexp_replace_all),
    "strftime": TextFunction("it", "t", formats.strftime),
    "format_integer": TextFunction("it", "t", formats.format_integer),
    "format_double": TextFunction("dt", "t", formats.format_double),
    "format_text": TextFunction("tt", "t", formats.format_text),
    "months_later": TextFunction("ii", "i", months_later, TIMESTAMP.low, TIMESTAMP.high),
    "bits_of_both": TextFunction("ii", "i", and_, -INT64_MAX, INT64_MAX),
    "bits_of_either": TextFunction("ii", "i", or_, -INT64_MAX, INT64_MAX),
    "bits_of_one": TextFunction("ii", "i", xor, -INT64_MAX, INT64_MAX),
    "bits_shifted": TextFunction("ii", "i", lambda value, by: value >> max(by, 0), -INT64_MAX, INT64_MAX),
    "text_of_exact": TextFunction("wi", "t", text_of_exact),
    "text_of_double": TextFunction("d", "t", repr),
    "text_of_boolean": TextFunction("i", "t", lambda value: "true" if value else "false"),
    "text_of_moment": TextFunction("i", "t", text_of_moment),
    "exact_of_text": TextFunction("ti", "i", _or_nothing(_exact), -INT64_MAX, INT64_MAX),
    "says_exact": TextFunction("ti", "i", _there(_exact), 0, 1),
    "double_of_text": TextFunction("t", "d", lambda text: _double(text) or 0.0),
    "says_double": TextFunction("t", "i", _there(_double), 0, 1),
    "boolean_of_text": TextFunction("t", "i", _or_nothing(_boolean), 0, 1),
    "says_boolean": TextFunction("t", "i", _there(_boolean), 0, 1),
    "moment_of_text": TextFunction("t", "i", _or_nothing(moment), -INT64_MAX, INT64_MAX),
    "says_moment": TextFunction("t", "i", _there(moment), 0, 1),
    "time_of_text": TextFunction("tt", "i", _or_nothing(formats.strptime), -INT64_MAX, INT64_MAX),
    "says_time": TextFunction("tt", "i", _there(formats.strptime), 0, 1),
    **{f"list_value_{letter}": TextFunction(f"{letter}i", "i", lists.list_value) for letter in "itd"},
    "listed": TextFunction("iii", "i", lists.listed, 0, 2**62),
    "list_text": TextFunction("iit", "t", lists.list_text),
}
# Those that note what they are called with: each call is one of its own.
NOTED = frozenset(name for name in FUNCTIONS if name.startswith("list"))
# What compiled code calls them by.
NUMBERS = {name: number for number, name in enumerate(FUNCTIONS, 1)}


FIRST_NOTED = min(NUMBERS[name] for name in NOTED)


class Texts(Protocol):
    """A dictionary of strings and their codes."""

    def __len__(self) -> int: ...

    def encode(self, string: str, /) -> int: ...

    def decode(self, code: int, /) -> str: ...

    def first_with(self, prefix: bytes, string: str, /) -> str: ...


def _check_alone(text: str, texts: Texts) -> None:
    """Raises DataError where another text of the dictionary has the same words."""
    first = text.encode("utf-8", "surrogatepass")[: ORDER_WORDS * WORD_BYTES]
    other = texts.first_with(first, text) if len(first) == ORDER_WORDS * WORD_BYTES else text
    if other != text:
        raise DataError(
            f"{other[:60]!r} and {text[:60]!r} agree in their first {len(first)} bytes, by which texts are "
            "ordered; order by a part that tells them apart, as SUBSTRING(x, 20)"
        )


def of_codes(name: str, args: Sequence[int | float], texts: Texts) -> int | float:
    """The function of words, in which texts are codes; a code of no text is ''."""
    own, size = FUNCTIONS[name], len(texts)
    given = [
        (texts.decode(int(a)) if 0 <= a < size else "") if letter == "t" else a
        for letter, a in zip(own.arguments, args, strict=True)
    ]
    if name == "order_word" and args[1] == ORDER_WORDS - 1:
        _check_alone(str(given[0]), texts)
    value: int | float | str = own.function(*given)
    return texts.encode(value) if isinstance(value, str) else value
