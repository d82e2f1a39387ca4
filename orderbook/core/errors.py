"""What is wrong, and how it is told: errors a user can cause, problems of a source, text from outside.

An error says where it happened. Problems of a source's input are counted by kind, with the first places of
each.

Text that exchanges, files and clients wrote is shown to a person on one line, and as it is stored: characters
that end a line, steer a terminal, reverse the direction of what follows or cannot be seen are written as
escapes, so that nobody reads a line which is none of ours, nor other than what was sent.
"""

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from html import escape


class OrderbookError(Exception):
    """Base of every error that is reported as one line; `exit_status` is the program's."""

    exit_status = 1


class UserError(OrderbookError):
    """Bad SQL, configuration, arguments or files; exit status 2."""

    exit_status = 2


@contextmanager
def extra(name: str, module: str) -> Iterator[None]:
    """Around imports of what an extra of this package installs, of which `module` is one.

    Raises UserError, with the command that installs it, where it is not there.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != module:
            raise
        raise UserError(f"{module} is not installed; run: pip install 'orderbook[{name}]'") from None


class SqlError(UserError):
    """SQL that cannot be parsed, bound or maintained.

    `line` and `column` are 1-based positions in `file` (None for text given in code).
    """

    def __init__(self, message: str, line: int = 0, column: int = 0, file: str | None = None):
        where = f"{file or 'SQL'}:{line}:{column}: " if line else (f"{file}: " if file else "")
        super().__init__(where + message)
        self.message, self.line, self.column, self.file = message, line, column, file


class ConfigurationError(UserError):
    """A configuration file that cannot be read or does not validate."""


class SourceError(UserError):
    """A source (file, capture, feed address) that does not exist or is not of its format."""


class OutputError(OrderbookError):
    """A file that cannot be written, since the disk is full, fails or does not allow it; exit status 1."""


class StoreError(SourceError):
    """A store of files that refuses or cannot be reached; its files may be whole, and read another time."""


class DataError(OrderbookError):
    """A row or event that contradicts its declaration or the state (wrong type, deleted twice)."""


class ExactnessError(OrderbookError):
    """A sum or product that does not fit 128 bits; names the view."""


class CompileError(OrderbookError):
    """The process that compiles a changed program ended without it; the running one goes on."""


KEPT_EXAMPLES = 5
KEPT_TEXT = 120
# How the kinds begin of what was noticed and used as it is: nothing is missing for it.
_USED = ("off the tick", "off the lot", "instrument changed")


class Problems:
    """Problems that did not stop a source.

    `counts` maps a kind ("malformed line") to how often it occurred; `examples` maps it to the
    first few places, as "file:line: detail". Memory is bounded by the number of kinds.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = {}

    def add(self, kind: str, where: str, detail: str) -> None:
        """Count one problem of `kind` at `where` ("file:line")."""
        self.counts[kind] += 1
        kept = self.examples.setdefault(kind, [])
        if len(kept) < KEPT_EXAMPLES:
            kept.append(f"{where}: {detail[:KEPT_TEXT]}")

    def extend(self, other: "Problems") -> None:
        """Count the problems of another, too."""
        self.counts += other.counts
        for kind, examples in other.examples.items():
            kept = self.examples.setdefault(kind, [])
            kept += examples[: KEPT_EXAMPLES - len(kept)]

    @property
    def unusable(self) -> int:
        """How many were of input that was left out, or made a book doubtful."""
        return sum(count for kind, count in self.counts.items() if not kind.startswith(_USED))

    def clear(self) -> None:
        self.counts.clear()
        self.examples.clear()

    def report(self) -> list[str]:
        """One line for each kind: how many, and where the first were."""
        shown = {kind: "; ".join(dict.fromkeys(kept)) for kind, kept in self.examples.items()}
        return [f"{count} x {kind}: {shown[kind]}" for kind, count in self.counts.items()]


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


def first_line_of(error: Exception) -> str:
    """What a library's error says in its first line, without a full stop."""
    return str(error).partition("\n")[0].rstrip(". ")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` most resembles, or None when none comes close."""
    return next(iter(difflib.get_close_matches(name, sorted(known), 1)), None)


def suggestion(name: str, known: Iterable[str]) -> str:
    """What to write instead of `name`: the nearest known name, else all of them."""
    near = nearest(name, known)
    return f"did you mean {near!r}?" if near else f"known are {', '.join(sorted(known)) or 'none'}"
