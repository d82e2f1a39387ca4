"""Patterns of texts: regular expressions, LIKE with an escape, and GLOB.

RE2 matches them, as in DuckDB, in time linear in the text whatever the pattern: of the matches that begin
first the one that the pattern prefers (https://github.com/google/re2/wiki/Syntax).
"""

from functools import lru_cache

import re2

from orderbook.core.errors import DataError

_ANY = r"[\x{0}-\x{10ffff}]"
_NONE = r"[^\x{0}-\x{10ffff}]"
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


class PatternError(DataError):
    """A pattern that is not one."""


@lru_cache(maxsize=10_000)
def regex(pattern: str) -> "re2._Regexp":
    """A pattern in RE2's syntax, compiled; it has `groups`. Raises PatternError for what is none."""
    try:
        return re2.compile(_encoded(pattern), _OPTIONS)
    except re2.error as error:
        raise PatternError(error.args[0].decode("utf-8", "replace")) from None


def with_options(pattern: str, options: str) -> str:
    """The pattern that has DuckDB's options in it: c and i for case, l for a literal, s so that . is any
    character, and m, n or p so that it is no end of a line. Raises PatternError for another option."""
    flags = {"i": False, "s": False}
    for letter in options:
        if letter in "ci":
            flags["i"] = letter == "i"
        elif letter == "l":
            pattern = _literal(pattern)
        elif letter in "mnps":
            flags["s"] = letter == "s"
        else:
            raise PatternError(f"there is no option {letter!r}; they are c, i, l, m, n, p and s")
    given = "".join(flag for flag, on in flags.items() if on)
    return f"(?{given}){pattern}" if given else pattern


def _encoded(text: str) -> str:
    """The text with what UTF-8 cannot hold replaced, each by one character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    return text


def _literal(text: str) -> str:
    return "".join(f"\\x{{{ord(c):x}}}" for c in text)


Span = tuple[int, int]


def spans(pattern: str, text: str, start: int = 0) -> list[Span] | None:
    """Begin and end of the first match from a place on, and of each group, -1 where it is not in the match;
    None where there is no match. Raises PatternError."""
    expression = regex(pattern)
    match = expression.search(_encoded(text), start)
    return None if match is None else [match.span(group) for group in range(expression.groups + 1)]


def regexp_matches(text: str, pattern: str) -> int:
    return int(regex(pattern).search(_encoded(text)) is not None)


def regexp_full_match(text: str, pattern: str) -> int:
    return int(regex(pattern).fullmatch(_encoded(text)) is not None)


def regexp_extract(text: str, pattern: str, group: int) -> str:
    """What the group, or 0 all of the pattern, matches first; '' where nothing does, and of no such group."""
    found = spans(pattern, text)
    if found is None or not 0 <= group < len(found):
        return ""
    return _part(text, found[group])


def _part(text: str, span: Span) -> str:
    begin, end = span
    return text[max(begin, 0) : max(end, 0)]


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
    found = spans(pattern, text)
    if found is None:
        return text
    begin, end = found[0]
    return text[:begin] + _filled(replacement, text, found) + text[end:]


def regexp_replace_all(text: str, pattern: str, replacement: str) -> str:
    """With every match replaced."""
    place, last, parts = 0, -1, list[str]()
    while place <= len(text) and (found := spans(pattern, text, place)) is not None:
        begin, end = found[0]
        parts.append(text[place:begin])
        if begin == end == last:
            # Nothing is not found once more where a match has ended.
            parts.append(text[begin : begin + 1])
            place = begin + 1
        else:
            parts.append(_filled(replacement, text, found))
            place = last = end
    return "".join(parts) + text[place:]


def _filled(replacement: str, text: str, found: list[Span]) -> str:
    parts, after = [], iter(replacement)
    for character in after:
        if character == "\\" and (number := next(after, "\\")).isdigit():
            parts += [_part(text, span) for span in found[int(number) :][:1]]
        else:
            parts.append(character)
    return "".join(parts)


def like(text: str, pattern: str, escape: str) -> int:
    """LIKE: % is any run of characters, _ any one, and what follows `escape` itself."""
    return regexp_full_match(text, _like_pattern(pattern, escape[:1]))


def ilike(text: str, pattern: str, escape: str) -> int:
    return like(text.lower(), pattern.lower(), escape.lower())


def glob(text: str, pattern: str) -> int:
    """GLOB: * is any run of characters, ? any one, [a-z] and [!a-z] one of a class."""
    return regexp_full_match(text, _glob_pattern(pattern))


@lru_cache(maxsize=10_000)
def _like_pattern(pattern: str, escape: str) -> str:
    wildcards = {"%": f"{_ANY}*", "_": _ANY}
    characters, parts = iter(pattern), list[str]()
    for character in characters:
        if escape and character == escape:
            parts.append(_literal(next(characters, escape)))
        else:
            parts.append(wildcards.get(character) or _literal(character))
    return "".join(parts)


@lru_cache(maxsize=10_000)
def _glob_pattern(pattern: str) -> str:
    parts, at = list[str](), 0
    while at < len(pattern):
        character, at = pattern[at], at + 1
        if character in "*?":
            parts.append(_ANY + "*" * (character == "*"))
        elif character == "[":
            outside = pattern.startswith("!", at)
            at += outside
            end = pattern.find("]", at + 1)
            if end < 0:
                return _NONE
            parts.append(_class(pattern[at:end], outside))
            at = end + 1
        else:
            if character == "\\" and at < len(pattern):
                character, at = pattern[at], at + 1
            parts.append(_literal(character))
    return "".join(parts)


def _class(members: str, outside: bool) -> str:
    """A class of characters and ranges of them; a range that ends before it begins has none."""
    parts, at = list[str](), 0
    while at < len(members):
        if members[at + 1 : at + 2] == "-" and at + 2 < len(members):
            if members[at] <= members[at + 2]:
                parts.append(f"{_literal(members[at])}-{_literal(members[at + 2])}")
            at += 3
        else:
            parts.append(_literal(members[at]))
            at += 1
    if not parts:
        return _ANY if outside else _NONE
    return f"[{'^' * outside}{''.join(parts)}]"
