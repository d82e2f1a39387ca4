"""Patterns of wildcards: LIKE and ILIKE with an escape, and GLOB."""

from collections.abc import Sequence
from functools import lru_cache

from orderbook.views.scalars.patterns import Test, characters


def _wildcards(text: str, pattern: Sequence[Test | None]) -> bool:
    """Whether the text is as a pattern says, of which None is any run of characters."""
    at = place = 0
    star, again = -1, 0
    while at < len(text):
        if place < len(pattern) and pattern[place] is None:
            star, again, place = place, at, place + 1
        elif place < len(pattern) and (test := pattern[place]) is not None and test(text[at]):
            at, place = at + 1, place + 1
        elif star >= 0:
            again += 1
            at, place = again, star + 1
        else:
            return False
    return all(p is None for p in pattern[place:])


def _any(character: str) -> bool:
    return True


@lru_cache(maxsize=10_000)
def _like_pattern(pattern: str, escape: str) -> tuple[Test | None, ...]:
    parts: list[Test | None] = []
    characters = iter(pattern)
    for character in characters:
        if escape and character == escape:
            parts.append(frozenset(next(characters, escape)).__contains__)
        else:
            parts.append({"%": None, "_": _any}.get(character, frozenset(character).__contains__))
    return tuple(parts)


def like(text: str, pattern: str, escape: str) -> int:
    """LIKE: % is any run of characters, _ any one, and what follows `escape` itself."""
    return int(_wildcards(text, _like_pattern(pattern, escape[:1])))


def ilike(text: str, pattern: str, escape: str) -> int:
    return int(_wildcards(text.lower(), _like_pattern(pattern.lower(), escape[:1].lower())))


@lru_cache(maxsize=1000)
def _glob_pattern(pattern: str) -> tuple[Test | None, ...]:
    parts: list[Test | None] = []
    at = 0
    while at < len(pattern):
        character, at = pattern[at], at + 1
        if character == "*":
            parts.append(None)
        elif character == "?":
            parts.append(_any)
        elif character == "[":
            outside = pattern.startswith("!", at)
            at += outside
            end = pattern.find("]", at + 1)
            if end < 0:
                parts.append(lambda c: False)
                break
            members, at = pattern[at:end], end + 1
            parts.append(_glob_class(members, outside))
        else:
            if character == "\\" and at < len(pattern):
                character, at = pattern[at], at + 1
            parts.append(frozenset(character).__contains__)
    return tuple(parts)


def _glob_class(members: str, outside: bool) -> Test:
    singles, ranges, at = set[str](), list[tuple[str, str]](), 0
    while at < len(members):
        if members[at + 1 : at + 2] == "-" and at + 2 < len(members):
            ranges.append((members[at], members[at + 2]))
            at += 3
        else:
            singles.add(members[at])
            at += 1
    return characters(frozenset(singles), tuple(ranges), (), outside, False)


def glob(text: str, pattern: str) -> int:
    """GLOB: * is any run of characters, ? any one, [a-z] and [!a-z] one of a class."""
    return int(_wildcards(text, _glob_pattern(pattern)))
