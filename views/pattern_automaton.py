"""The automaton of a PATTERN of MATCH_RECOGNIZE (ISO/IEC 19075-5, row pattern recognition).

Each place of a pattern variable in the pattern is a position (Glushkov); what may follow a position is a list
of positions, the preferred one first, so that quantifiers are greedy, or reluctant, as the standard says. END
among them ends the match there.

    A B+ C    first: A; after A: B; after B: B, C; after C: END
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import permutations

END = -1
# Quantifiers {n, m} repeat what they follow.
MOST_POSITIONS = 200
_MOST_PERMUTED = 5
_TOKEN = re.compile(
    r"\s+|(?P<name>[A-Za-z_]\w*)|(?P<times>\{\s*\d*\s*(?:,\s*\d*\s*)?\})|(?P<sign>\{-|-\}|[()|*+?^$,])"
)


class PatternError(ValueError):
    """What is wrong with a pattern, at an offset into its text."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Automaton:
    """Variables by number, the variable of each position, which begin, and which follow: preferred first."""

    variables: tuple[str, ...]
    variable_of: tuple[int, ...]
    first: tuple[int, ...]
    follow: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class _Node:
    """A part of a pattern: a variable (`name`), a sequence, alternatives, or something repeated."""

    kind: str
    parts: tuple["_Node", ...] = ()
    name: str = ""
    least: int = 1
    most: int | None = 1
    greedy: bool = True


def automaton(text: str) -> Automaton:
    """The automaton of the text between the parentheses of PATTERN; variables in lower case.

    Raises PatternError, also where no row is a match, and where there would be more than MOST_POSITIONS.
    """
    node = _Parser(text).whole()
    built = _Builder()
    first = built.entry(node, (END,))
    if END in first:
        raise PatternError("the pattern matches without any row; let it ask for one, as in A+", 0)
    return Automaton(tuple(built.numbers), tuple(built.variable_of), first, tuple(built.follow))


@dataclass(slots=True)
class _Parser:
    text: str
    tokens: list[tuple[str, str, int]] = field(init=False)
    at: int = 0

    def __post_init__(self) -> None:
        self.tokens, at = [], 0
        while at < len(self.text):
            found = _TOKEN.match(self.text, at)
            if found is None:
                raise PatternError(f"unexpected {self.text[at]!r} in PATTERN", at)
            if found.lastgroup:
                self.tokens.append((found.lastgroup, found.group(), at))
            at = found.end()
        self.tokens.append(("end", ")", len(self.text)))

    def whole(self) -> _Node:
        node = self.alternatives()
        if self.tokens[self.at][0] != "end":
            raise self.fail()
        return node

    def fail(self) -> PatternError:
        kind, text, offset = self.tokens[self.at]
        if text in ("^", "$"):
            return PatternError(
                f"{text} is not supported; give the first or last row a condition of its own", offset
            )
        if text in ("{-", "-}"):
            return PatternError("exclusion {- -} is not supported; name what MEASURES are made of", offset)
        return PatternError(
            "PATTERN ends too early" if kind == "end" else f"unexpected {text!r} in PATTERN", offset
        )

    def take(self, text: str) -> bool:
        if self.tokens[self.at][0] == "sign" and self.tokens[self.at][1] == text:
            self.at += 1
            return True
        return False

    def alternatives(self) -> _Node:
        parts = [self.sequence()]
        while self.take("|"):
            parts.append(self.sequence())
        return parts[0] if len(parts) == 1 else _Node("or", tuple(parts))

    def sequence(self) -> _Node:
        parts = [self.quantified()]
        while self.tokens[self.at][0] == "name" or self.tokens[self.at][1] == "(":
            parts.append(self.quantified())
        return parts[0] if len(parts) == 1 else _Node("then", tuple(parts))

    def quantified(self) -> _Node:
        node = self.primary()
        kind, text, offset = self.tokens[self.at]
        if kind == "times":
            least, most = _times(text, offset)
        elif kind == "sign" and text in "*+?":
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[text]
        else:
            return node
        self.at += 1
        return _Node("times", (node,), least=least, most=most, greedy=not self.take("?"))

    def primary(self) -> _Node:
        kind, text, _ = self.tokens[self.at]
        if kind == "name" and text.upper() == "PERMUTE" and self.tokens[self.at + 1][1] == "(":
            return self.permuted()
        if kind == "name":
            self.at += 1
            return _Node("variable", name=text.lower())
        if not self.take("("):
            raise self.fail()
        node = self.alternatives()
        if not self.take(")"):
            raise self.fail()
        return node

    def permuted(self) -> _Node:
        """PERMUTE(A, B): A B or B A, in the order of the standard's preference."""
        offset, self.at = self.tokens[self.at][2], self.at + 2
        parts = [self.alternatives()]
        while self.take(","):
            parts.append(self.alternatives())
        if not self.take(")"):
            raise self.fail()
        if len(parts) > _MOST_PERMUTED:
            raise PatternError(f"PERMUTE takes up to {_MOST_PERMUTED} patterns", offset)
        return _Node("or", tuple(_Node("then", order) for order in permutations(parts)))


def _times(text: str, offset: int) -> tuple[int, int | None]:
    low, comma, high = (part.strip() for part in text[1:-1].partition(","))
    least = int(low or 0)
    most = (int(high) if high else None) if comma else least
    if not (low or high):
        raise PatternError(f"{text} says no number", offset)
    if most is not None and (most < least or most == 0):
        raise PatternError(f"{text} repeats nothing", offset)
    if max(least, most or 0) > MOST_POSITIONS:
        raise PatternError(f"{text} is more than {MOST_POSITIONS} repetitions", offset)
    return least, most


@dataclass(slots=True)
class _Builder:
    numbers: dict[str, int] = field(default_factory=dict)
    variable_of: list[int] = field(default_factory=list)
    follow: list[tuple[int, ...]] = field(default_factory=list)
    # Loops around the part at hand.
    nested: int = 0

    def entry(self, node: _Node, after: Sequence[int]) -> tuple[int, ...]:
        """The positions that a part begins with, where these come after it; new ones for each call."""
        if node.kind == "variable":
            if len(self.follow) == MOST_POSITIONS:
                raise PatternError(f"the pattern has more than {MOST_POSITIONS} places of variables", 0)
            self.variable_of.append(self.numbers.setdefault(node.name, len(self.numbers)))
            self.follow.append(_distinct(after))
            return (len(self.follow) - 1,)
        if node.kind == "then":
            for part in reversed(node.parts):
                after = self.entry(part, after)
            return _distinct(after)
        if node.kind == "or":
            return _distinct(p for part in node.parts for p in self.entry(part, after))
        return self._repeated(node, tuple(after))

    def _repeated(self, node: _Node, after: tuple[int, ...]) -> tuple[int, ...]:
        (part,) = node.parts
        found, least = after, node.least
        if node.most is None:
            again = self._again(part, after, node.greedy)
            found = again if least else _either(again, after, node.greedy)
            least = max(least - 1, 0)
        else:
            for _ in range(node.most - node.least):
                found = _either(self.entry(part, found), after, node.greedy)
        for _ in range(least):
            found = self.entry(part, found)
        return found

    def _again(self, part: _Node, after: tuple[int, ...], greedy: bool) -> tuple[int, ...]:
        """What a part begins with that may follow itself."""
        mark, itself = len(self.follow), _ITSELF - self.nested
        self.nested += 1
        begins = self.entry(part, (itself,))
        self.nested -= 1
        body = tuple(p for p in begins if p != itself)
        loop = _either(body, after, greedy)
        for place in range(mark, len(self.follow)):
            self.follow[place] = _distinct(
                q for p in self.follow[place] for q in (loop if p == itself else (p,))
            )
        return _distinct((*body, *after)) if itself in begins else body


# Stands, less the loops around it, for the beginning of a part that is repeated, until that is known.
_ITSELF = END - 1


def _either(one: Sequence[int], other: Sequence[int], greedy: bool) -> tuple[int, ...]:
    return _distinct((*one, *other) if greedy else (*other, *one))


def _distinct(positions: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(positions))
