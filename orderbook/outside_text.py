"""Text that exchanges, files and clients wrote, as it is shown to a person: on one line, and as it is stored.

Characters that end a line, steer a terminal, reverse the direction of what follows or cannot be seen are
written as escapes, so that nobody reads a line which is none of ours, nor other than what was sent.
"""

from collections.abc import Iterable
from html import escape


def visible(text: str) -> str:
    """The text with everything that Unicode does not count as printable as `\\n`, `\\x1b` or `\\u202e`.

    That are the categories "other" (controls, formats as bidirectional overrides and zero-width characters,
    surrogates, private use) and "separator" but for the space.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def visible_lines(lines: Iterable[str]) -> str:
    """Lines of ours in which there may be text from outside, as one text."""
    return "\n".join(map(visible, lines))


def visible_html(text: str) -> str:
    """The text in an HTML document, also in a quoted attribute."""
    return escape(visible(text), quote=True)
