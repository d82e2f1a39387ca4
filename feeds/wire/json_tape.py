"""JSON in bytes, read once: what it holds and where, as a tape of words.

A token is a word: its kind (4 bits), where it begins (28 bits), and 32 bits more: the length of a string or
number, of an object or array the place on the tape behind all that it holds. An object's members are keys and
values by turns. Strings begin and end within their quotes.

What is scanned is a part of JSON that is read everywhere alike: strings are plain ASCII without escapes, and
nothing is nested deeper than 32. `scan` gives 0 for all else, which another decoder takes or refuses. So a
text that has a tape is JSON. Source: RFC 8259.
"""

from orderbook.core.jit import jit
from orderbook.feeds.wire.bytes_memory import Name, byte, is_named, put_word, trailing_zeros, word

OBJECT, ARRAY, STRING, INTEGER, DECIMAL, TRUE, FALSE, NULL = range(1, 9)
# Beyond `LARGEST` bytes of all texts that lie together a token does not reach.
LARGEST = 1 << 28
DEEPEST = 32
# Of two members of an object with one name.
SEVERAL = -1
_START = LARGEST - 1

_QUOTE, _COMMA, _MINUS, _POINT, _ZERO, _NINE, _COLON = (ord(c) for c in '",-.09:')
_BRACKET, _BACKSLASH, _CLOSE, _BRACE, _CLOSE_BRACE = (ord(c) for c in "[\\]{}")
_SPACE, _TAB, _LINE, _RETURN = 32, 9, 10, 13
_E, _CAPITAL_E, _PLUS, _F = (ord(c) for c in "eE+f")
_TRUE, _ALSE, _NULL = (int.from_bytes(text, "little") for text in (b"true", b"alse", b"null"))
_FOUR = (1 << 32) - 1

# Each byte of a word: 1, the highest bit, a quote, a backslash, a blank.
_ONES = 0x0101010101010101
_HIGH = -0x7F7F7F7F7F7F7F80
_QUOTES, _BACKSLASHES, _BLANKS = _ONES * _QUOTE, _ONES * _BACKSLASH, _ONES * _SPACE


@jit()
def kind_of(token: int) -> int:
    """What a token is."""
    return token & 15


@jit()
def start_of(text: int, token: int) -> int:
    """The address where a token begins; text: where all texts do."""
    return text + ((token >> 4) & _START)


@jit()
def length_of(token: int) -> int:
    """The length of a string or number; of others the place behind them."""
    return token >> 32


@jit()
def token_at(tape: int, place: int) -> int:
    """The token at a place."""
    return word(tape + 8 * place)


@jit()
def behind_sign(token: int) -> int:
    """The token of a number without the minus that it begins with."""
    return token + (1 << 4) - (1 << 32)


@jit()
def after(tape: int, place: int) -> int:
    """The place behind a value and all that it holds."""
    token = word(tape + 8 * place)
    return token >> 32 if token & 15 <= ARRAY else place + 1


@jit()
def says(text: int, token: int, name: Name) -> bool:
    """Whether a string is this one, of at most 16 bytes."""
    return token & 15 == STRING and is_named(start_of(text, token), token >> 32, name)


@jit()
def member(text: int, tape: int, place: int, name: Name) -> int:
    """The place of the value of an object's member; 0 where there is none, SEVERAL where there are more."""
    found, at, end = 0, place + 1, word(tape + 8 * place) >> 32
    while at < end:
        if says(text, word(tape + 8 * at), name):
            if found:
                return SEVERAL
            found = at + 1
        at = after(tape, at + 1)
    return found


@jit()
def is_kind(tape: int, place: int, kind: int) -> bool:
    """Whether there is one value, at a place that `member` gave, of this kind."""
    return place > 0 and word(tape + 8 * place) & 15 == kind


@jit()
def member_of(text: int, tape: int, place: int, name: Name, kind: int) -> int:
    """The token of an object's only member of a name, of this kind; 0 where there is no such."""
    found = member(text, tape, place, name)
    return word(tape + 8 * found) if is_kind(tape, found, kind) else 0


@jit()
def _string_end(at: int) -> int:
    """The address of the quote that ends a string; 0 where something unusual comes before it."""
    while True:
        eight = word(at)
        quotes, escapes = eight ^ _QUOTES, eight ^ _BACKSLASHES
        found = ((quotes - _ONES) & ~quotes) | ((escapes - _ONES) & ~escapes)
        found |= ((eight - _BLANKS) & ~eight) | eight
        found &= _HIGH
        if found:
            at += trailing_zeros(found) >> 3
            return at if byte(at) == _QUOTE else 0
        at += 8


@jit()
def _blanks_end(at: int) -> int:
    """The address behind blanks."""
    letter = byte(at)
    while letter == _SPACE or letter == _LINE or letter == _RETURN or letter == _TAB:
        at += 1
        letter = byte(at)
    return at


@jit()
def _digits_end(at: int) -> int:
    while _ZERO <= byte(at) <= _NINE:
        at += 1
    return at


@jit()
def _number_end(at: int) -> tuple[int, int]:
    """The address behind a number, 0 where it is none; and its kind."""
    if byte(at) == _MINUS:
        at += 1
    end = _digits_end(at)
    if end == at or (byte(at) == _ZERO and end > at + 1):
        return 0, 0
    kind = INTEGER
    if byte(end) == _POINT:
        kind, at = DECIMAL, end + 1
        end = _digits_end(at)
        if end == at:
            return 0, 0
    if byte(end) == _E or byte(end) == _CAPITAL_E:
        kind, at = DECIMAL, end + 1
        if byte(at) == _PLUS or byte(at) == _MINUS:
            at += 1
        end = _digits_end(at)
        # Larger exponents are numbers for some decoders, and errors for others.
        if end == at or end > at + 2:
            return 0, 0
    return end, kind


@jit()
def _simple(at: int, start: int) -> tuple[int, int]:
    """The address behind a value that holds no others, 0 where there is none; and its token.

    start: of the value, as tokens have it.
    """
    letter = byte(at)
    if letter == _QUOTE:
        end = _string_end(at + 1)
        if end == 0:
            return 0, 0
        return end + 1, STRING | (start + 16) | ((end - at - 1) << 32)
    if letter == _MINUS or _ZERO <= letter <= _NINE:
        end, kind = _number_end(at)
        return end, kind | start | ((end - at) << 32)
    if word(at) & _FOUR == _TRUE:
        return at + 4, TRUE | start
    if word(at) & _FOUR == _NULL:
        return at + 4, NULL | start
    if word(at + 1) & _FOUR == _ALSE and letter == _F:
        return at + 5, FALSE | start
    return 0, 0


@jit()
def scan(text: int, begin: int, end: int, tape: int, room: int, stack: int) -> int:
    """Writes the tape of the JSON in [begin, end); how many tokens it has, 0 where it cannot be scanned.

    text: where all texts begin. room: tokens that the tape can take. stack: of 2 * DEEPEST words.
    """
    place = depth = 0
    within = ARRAY
    at = _blanks_end(begin)
    while True:
        if place + 2 > room:
            return 0
        letter = byte(at)
        start = (at - text) << 4
        opened = letter == _BRACKET or letter == _BRACE
        if opened:
            if depth == DEEPEST:
                return 0
            put_word(stack + 16 * depth, place)
            put_word(stack + 16 * depth + 8, within)
            within = ARRAY if letter == _BRACKET else OBJECT
            put_word(tape + 8 * place, within | start)
            depth += 1
            at = _blanks_end(at + 1)
        else:
            at, token = _simple(at, start)
            if at == 0:
                return 0
            put_word(tape + 8 * place, token)
        place += 1
        # What comes behind a value: the end, another one, or the end of what holds it.
        fresh = opened
        while True:
            if not fresh:
                at = _blanks_end(at)
            if depth == 0:
                return place if at == end else 0
            letter = byte(at)
            if letter == (_CLOSE if within == ARRAY else _CLOSE_BRACE):
                depth -= 1
                opener = word(stack + 16 * depth)
                put_word(tape + 8 * opener, word(tape + 8 * opener) | (place << 32))
                within = word(stack + 16 * depth + 8)
                at += 1
                fresh = False
                continue
            if not fresh:
                if letter != _COMMA:
                    return 0
                at = _blanks_end(at + 1)
            break
        if within == OBJECT:
            if byte(at) != _QUOTE:
                return 0
            close = _string_end(at + 1)
            if close == 0:
                return 0
            put_word(tape + 8 * place, STRING | (((at - text) << 4) + 16) | ((close - at - 1) << 32))
            place += 1
            at = _blanks_end(close + 1)
            if byte(at) != _COLON:
                return 0
            at = _blanks_end(at + 1)
