"""Regular expressions of texts.

They have the syntax and the meaning of RE2, as in DuckDB: of the matches that begin first the
one that the pattern prefers. They are run as sets of threads (Pike's machine: Cox, "Regular Expression
Matching: the Virtual Machine Approach"), so that a text takes time linear in its length whatever the pattern.
"""

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from orderbook.core.errors import DataError

# How often a piece may be repeated by {n}, and how many instructions a pattern may take, as in RE2.
MOST_REPEATS = 1000
MOST_STEPS = 10_000

Test = Callable[[str], bool]


class PatternError(DataError):
    """A pattern that is not one."""


class _Char(NamedTuple):
    test: Test


class _Split(NamedTuple):
    first: int
    second: int


class _Jump(NamedTuple):
    to: int


class _Save(NamedTuple):
    slot: int


class _At(NamedTuple):
    """A place between characters: ^ $ begin and end of text, l r of a line, b B beside words."""

    what: str


class _Match(NamedTuple):
    pass


_Step = _Char | _Split | _Jump | _Save | _At | _Match
# Pieces of a pattern, from which steps are made.
_Node = Callable[["_Program"], None]


@dataclass(slots=True)
class _Program:
    steps: list[_Step] = field(default_factory=list)

    def add(self, step: _Step) -> int:
        if len(self.steps) >= MOST_STEPS:
            raise PatternError("it is too large")
        self.steps.append(step)
        return len(self.steps) - 1


class Regex(NamedTuple):
    """A compiled regular expression, and how many groups it has."""

    steps: tuple[_Step, ...]
    groups: int


_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_SETS: dict[str, frozenset[str]] = {
    "d": frozenset("0123456789"),
    "w": _WORD,
    "s": frozenset("\t\n\f\r "),
}
_ASCII = [chr(c) for c in range(128)]
_POSIX: dict[str, frozenset[str]] = {
    "alnum": frozenset(c for c in _ASCII if c.isalnum()),
    "alpha": frozenset(c for c in _ASCII if c.isalpha()),
    "ascii": frozenset(_ASCII),
    "blank": frozenset("\t "),
    "cntrl": frozenset(c for c in _ASCII if ord(c) < 32 or ord(c) == 127),
    "digit": _SETS["d"],
    "graph": frozenset(c for c in _ASCII if 33 <= ord(c) <= 126),
    "lower": frozenset(c for c in _ASCII if c.islower()),
    "print": frozenset(c for c in _ASCII if 32 <= ord(c) <= 126),
    "punct": frozenset(c for c in _ASCII if 33 <= ord(c) <= 126 and not c.isalnum()),
    "space": frozenset("\t\n\v\f\r "),
    "upper": frozenset(c for c in _ASCII if c.isupper()),
    "word": _WORD,
    "xdigit": frozenset("0123456789abcdefABCDEF"),
}
_CONTROL = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class _Flags(NamedTuple):
    fold: bool = False
    lines: bool = False
    dot_all: bool = False
    lazy: bool = False


class _Parser:
    """Of one pattern; every method raises PatternError where it is not one."""

    def __init__(self, text: str, flags: _Flags):
        self._text, self._at, self._flags = text, 0, flags
        self.groups = 0

    def parse(self) -> _Node:
        node = self._alternatives()
        if self._at < len(self._text):
            raise PatternError("a ) closes nothing")
        return node

    def _next(self, text: str) -> bool:
        found = self._text.startswith(text, self._at)
        self._at += len(text) * found
        return found

    def _take(self) -> str:
        if self._at >= len(self._text):
            raise PatternError("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _alternatives(self) -> _Node:
        flags, branches = self._flags, [self._sequence()]
        while self._next("|"):
            branches.append(self._sequence())
        self._flags = flags
        result = branches.pop()
        for branch in reversed(branches):
            result = _either(branch, result)
        return result

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            parts.append(self._repeated())
        return _all(parts)

    def _repeated(self) -> _Node:
        node = self._atom()
        ends = self._repeats()
        if ends is None:
            return node
        lazy = self._next("?") != self._flags.lazy
        if self._repeats() is not None:
            raise PatternError("a repetition is repeated; put it in ( )")
        return _repeat(node, *ends, lazy)

    def _repeats(self) -> tuple[int, int | None] | None:
        for sign, ends in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._next(sign):
                return ends
        if not self._text.startswith("{", self._at):
            return None
        close = self._text.find("}", self._at)
        low, comma, high = self._text[self._at + 1 : max(close, 0)].partition(",")
        if not (low.isascii() and low.isdigit() and (not high or (high.isascii() and high.isdigit()))):
            return None
        self._at = close + 1
        least, most = int(low), int(high) if high else None if comma else int(low)
        if max(least, most or 0) > MOST_REPEATS or (most is not None and most < least):
            raise PatternError(f"{{{low}{comma}{high}}} repeats from n to m times, {MOST_REPEATS} at most")
        return least, most

    def _atom(self) -> _Node:
        character = self._take()
        if character == "(":
            return self._group()
        if character == "[":
            return _one(self._class())
        if character == "\\":
            return self._escape()
        if character in "*+?":
            raise PatternError(f"{character} repeats nothing")
        if character == ".":
            return _one((lambda c: True) if self._flags.dot_all else (lambda c: c != "\n"))
        if character in "^$":
            return _at({"^": "l", "$": "r"}[character] if self._flags.lines else character)
        return _one(self._literal(character))

    def _group(self) -> _Node:
        flags, number = self._flags, 0
        if self._next("?P<") or (self._text.startswith("?<", self._at) and self._next("?<")):
            close = self._text.find(">", self._at)
            name = self._text[self._at : max(close, 0)]
            if not name.isidentifier():
                raise PatternError("(?< begins a name of a group; there is no looking ahead or behind")
            self._at, number = close + 1, self._count()
        elif self._next("?"):
            if not self._switches():
                return _all([])
        else:
            number = self._count()
        node = self._alternatives()
        if not self._next(")"):
            raise PatternError("a ( is not closed")
        self._flags = flags
        return _saved(node, number) if number else node

    def _count(self) -> int:
        self.groups += 1
        return self.groups

    def _switches(self) -> bool:
        """Flags after (?, as in (?i) and (?i:...); whether a group follows."""
        names, on = {"i": "fold", "m": "lines", "s": "dot_all", "U": "lazy"}, True
        while (letter := self._take()) not in ":)":
            if letter == "-" and on:
                on = False
            elif letter in names:
                self._flags = self._flags._replace(**{names[letter]: on})
            else:
                raise PatternError(f"there is no group (?{letter}, such as one that looks ahead or behind")
        return letter == ":"

    def _literal(self, character: str) -> Test:
        if not self._flags.fold:
            return lambda c: c == character
        folded = _cases(character)
        return lambda c: c in folded

    def _escape(self) -> _Node:
        letter = self._take()
        if letter in "AzbB":
            return _at({"A": "^", "z": "$"}.get(letter, letter))
        if letter == "Q":
            end = self._text.find("\\E", self._at)
            quoted = self._text[self._at : end if end >= 0 else len(self._text)]
            self._at += len(quoted) + 2 * (end >= 0)
            return _all([_one(self._literal(c)) for c in quoted])
        if letter == "C":
            raise PatternError("\\C, a byte, is no character")
        test = self._set_of(letter)
        return _one(test or self._literal(self._character(letter)))

    def _set_of(self, letter: str) -> Test | None:
        """What \\d, \\W, \\pL and the like match."""
        if letter.lower() in _SETS and letter.isascii():
            members = _SETS[letter.lower()]
            return (lambda c: c in members) if letter.islower() else (lambda c: c not in members)
        if letter not in "pP":
            return None
        name = self._take()
        if name == "{":
            close = self._text.find("}", self._at)
            name, self._at = self._text[self._at : max(close, self._at)], close + 1
            if close < 0:
                raise PatternError("\\p{ is not closed")
        outside = (letter == "P") != name.startswith("^")
        category = name.removeprefix("^")
        if category not in _CATEGORIES:
            raise PatternError(f"\\p{{{category}}} is no category of Unicode, such as L, Lu, Nd or P")
        return lambda c: unicodedata.category(c).startswith(category) != outside

    def _character(self, letter: str) -> str:
        """The character that an escape stands for."""
        if letter in _CONTROL:
            return _CONTROL[letter]
        if letter == "x":
            digits = self._take()
            if digits == "{":
                close = self._text.find("}", self._at)
                digits, self._at = self._text[self._at : max(close, self._at)], close + 1
            else:
                digits += self._take()
            try:
                return chr(int(digits, 16))
            except (ValueError, OverflowError):
                raise PatternError(f"\\x{digits} is no character") from None
        if letter.isascii() and letter.isalnum():
            raise PatternError(f"\\{letter} means nothing here; there are no references to groups")
        return letter

    def _class(self) -> Test:
        outside, tests, singles = self._next("^"), list[Test](), set[str]()
        ranges: list[tuple[str, str]] = []
        first = True
        while first or not self._next("]"):
            first = False
            if self._next("[:"):
                close = self._text.find(":]", self._at)
                name = self._text[self._at : max(close, self._at)]
                members = _POSIX.get(name.removeprefix("^"))
                if members is None:
                    raise PatternError(f"[:{name}:] is no class of characters")
                self._at = close + 2
                tests.append(_members(members, name.startswith("^")))
                continue
            character = self._take()
            if character == "\\":
                letter = self._take()
                test = self._set_of(letter)
                if test:
                    tests.append(test)
                    continue
                character = self._character(letter)
            if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
                self._at += 1
                last = self._take()
                if last == "\\":
                    last = self._character(self._take())
                if last < character:
                    raise PatternError(f"{character}-{last} ends before it begins")
                ranges.append((character, last))
            else:
                singles.add(character)
        return characters(frozenset(singles), tuple(ranges), tuple(tests), outside, self._flags.fold)


_CATEGORIES = frozenset(
    letter + kind
    for letter, kinds in (
        *(("C", "cfos"), ("L", "lmotu"), ("M", "cen"), ("N", "dlo")),
        *(("P", "cdefios"), ("S", "ckmo"), ("Z", "lps")),
    )
    for kind in ("", *kinds)
)


def _cases(character: str) -> frozenset[str]:
    found = {character, character.lower(), character.upper(), character.upper().lower()}
    return frozenset(c for c in found if len(c) == 1)


def _members(members: frozenset[str], outside: bool) -> Test:
    return lambda c: (c in members) != outside


def characters(
    singles: frozenset[str],
    ranges: tuple[tuple[str, str], ...],
    tests: tuple[Test, ...],
    outside: bool,
    fold: bool,
) -> Test:
    def inside(c: str) -> bool:
        return c in singles or any(a <= c <= z for a, z in ranges) or any(t(c) for t in tests)

    if fold:
        return lambda c: any(map(inside, _cases(c))) != outside
    return lambda c: inside(c) != outside


def _one(test: Test) -> _Node:
    def emit(program: _Program) -> None:
        program.add(_Char(test))

    return emit


def _at(what: str) -> _Node:
    def emit(program: _Program) -> None:
        program.add(_At(what))

    return emit


def _all(parts: Sequence[_Node]) -> _Node:
    def emit(program: _Program) -> None:
        for part in parts:
            part(program)

    return emit


def _saved(node: _Node, group: int) -> _Node:
    def emit(program: _Program) -> None:
        program.add(_Save(2 * group))
        node(program)
        program.add(_Save(2 * group + 1))

    return emit


def _either(left: _Node, right: _Node) -> _Node:
    def emit(program: _Program) -> None:
        split = program.add(_Jump(0))
        left(program)
        jump = program.add(_Jump(0))
        program.steps[split] = _Split(split + 1, jump + 1)
        right(program)
        program.steps[jump] = _Jump(len(program.steps))

    return emit


def _repeat(node: _Node, least: int, most: int | None, lazy: bool) -> _Node:
    def split(program: _Program, at: int, skip: int) -> None:
        program.steps[at] = _Split(skip, at + 1) if lazy else _Split(at + 1, skip)

    def emit(program: _Program) -> None:
        for _ in range(least):
            node(program)
        if most is None:
            start = program.add(_Jump(0))
            node(program)
            program.add(_Jump(start))
            split(program, start, len(program.steps))
            return
        starts = []
        for _ in range(most - least):
            starts.append(program.add(_Jump(0)))
            node(program)
        for start in starts:
            split(program, start, len(program.steps))

    return emit


@lru_cache(maxsize=1000)
def regex(pattern: str) -> Regex:
    """A pattern, compiled. Raises PatternError for what is none."""
    parser = _Parser(pattern, _Flags())
    node = parser.parse()
    program = _Program()
    node(program)
    program.add(_Match())
    return Regex(tuple(program.steps), parser.groups)


def with_options(pattern: str, options: str) -> str:
    """The pattern that has DuckDB's options in it: c and i for case, l for a literal, s so that . is any
    character, and m, n or p so that it is no end of a line."""
    flags = {"i": False, "s": False}
    for letter in options:
        if letter in "ci":
            flags["i"] = letter == "i"
        elif letter == "l":
            pattern = "".join(f"\\x{{{ord(c):x}}}" for c in pattern)
        elif letter in "mnps":
            flags["s"] = letter == "s"
        else:
            raise PatternError(f"there is no option {letter!r}; they are c, i, l, m, n, p and s")
    given = "".join(flag for flag, on in flags.items() if on)
    return f"(?{given}){pattern}" if given else pattern


_Slots = tuple[int, ...]


def _is_at(what: str, text: str, place: int) -> bool:
    if what in "^l":
        return place == 0 or (what == "l" and text[place - 1] == "\n")
    if what in "$r":
        return place == len(text) or (what == "r" and text[place] == "\n")
    beside = (place > 0 and text[place - 1] in _WORD) != (place < len(text) and text[place] in _WORD)
    return beside is (what == "b")


def _follow(
    steps: Sequence[_Step], start: int, slots: _Slots, text: str, place: int, seen: set[int]
) -> Iterator[tuple[int, _Slots]]:
    """The steps that look at a character, or match, from a step on, in the order of preference."""
    waiting = [(start, slots)]
    while waiting:
        at, held = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        match steps[at]:
            case _Jump(to):
                waiting.append((to, held))
            case _Split(first, second):
                waiting += [(second, held), (first, held)]
            case _Save(slot):
                waiting.append((at + 1, (*held[:slot], place, *held[slot + 1 :])))
            case _At(what):
                if _is_at(what, text, place):
                    waiting.append((at + 1, held))
            case _:
                yield at, held


def found(pattern: Regex, text: str, start: int = 0, whole: bool = False) -> _Slots | None:
    """Begin and end of the match and of each group, -1 where one is not in it; None where there is none.

    whole: the match is all of the text.
    """
    steps, best = pattern.steps, None
    none = (-1,) * (2 * pattern.groups + 2)
    threads: list[tuple[int, _Slots]] = []
    for place in range(start, len(text) + 1):
        seen = {at for at, _ in threads}
        if best is None and (place == start or not whole):
            threads += _follow(steps, 0, (place, *none[1:]), text, place, seen)
        if not threads and (whole or best is not None):
            break
        following: list[tuple[int, _Slots]] = []
        reached: set[int] = set()
        for at, slots in threads:
            step = steps[at]
            if isinstance(step, _Match):
                if whole and place < len(text):
                    continue
                best = (slots[0], place, *slots[2:])
                break
            if isinstance(step, _Char) and place < len(text) and step.test(text[place]):
                following += _follow(steps, at + 1, slots, text, place + 1, reached)
        threads = following
    return best


def regexp_matches(text: str, pattern: str) -> int:
    return int(found(regex(pattern), text) is not None)


def regexp_full_match(text: str, pattern: str) -> int:
    return int(found(regex(pattern), text, whole=True) is not None)


def regexp_extract(text: str, pattern: str, group: int) -> str:
    """What the group, or 0 all of the pattern, matches first; '' where nothing does, and of no such group."""
    slots = found(regex(pattern), text)
    if slots is None or not 0 <= 2 * group < len(slots) or slots[2 * group] < 0:
        return ""
    return text[slots[2 * group] : slots[2 * group + 1]]


def check_replacement(replacement: str, groups: int) -> None:
    """Raises PatternError unless each backslash stands before another, or the number of a group."""
    after = iter(replacement)
    for character in after:
        if character == "\\":
            number = next(after, "")
            if number != "\\" and not (number.isascii() and number.isdigit() and int(number) <= groups):
                raise PatternError(f"\\{number} in a replacement is none of its {groups} groups")


def regexp_replace(text: str, pattern: str, replacement: str) -> str:
    """With the first match replaced; \\1 in the replacement is what the first group matches."""
    slots = found(regex(pattern), text)
    return text if slots is None else text[: slots[0]] + _filled(replacement, text, slots) + text[slots[1] :]


def regexp_replace_all(text: str, pattern: str, replacement: str) -> str:
    """With every match replaced."""
    expression, place, last, parts = regex(pattern), 0, -1, list[str]()
    while place <= len(text):
        slots = found(expression, text, place)
        if slots is None:
            break
        begin, end = slots[:2]
        parts.append(text[place:begin])
        if begin == end == last:
            # Nothing is not found once more where a match has ended.
            parts.append(text[begin : begin + 1])
            place = begin + 1
        else:
            parts.append(_filled(replacement, text, slots))
            place = last = end
    return "".join(parts) + text[place:]


def _filled(replacement: str, text: str, slots: _Slots) -> str:
    parts, after = [], iter(replacement)
    for character in after:
        if character == "\\" and (number := next(after, "\\")).isdigit():
            begin, end = (*slots[2 * int(number) :], -1, -1)[:2]
            parts.append(text[max(begin, 0) : max(end, 0)])
        else:
            parts.append(character)
    return "".join(parts)
