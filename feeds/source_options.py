"""Options in the text of a source: `PATH?key=value&key=value`."""

import re
from collections.abc import Collection

from orderbook.configuration_errors import suggestion
from orderbook.errors import SourceError

# A question mark is a wildcard too: options are what looks like them, at the end.
_OPTIONS = re.compile(r"(?P<path>.*)\?(?P<options>[a-z_]+=[^?]*)", re.DOTALL)


def split_options(text: str, known: Collection[str]) -> tuple[str, dict[str, str]]:
    """The path, and the options by key.

    Raises SourceError for a key that is not `known`, a key given twice, and a part that is no key=value.
    """
    found = _OPTIONS.fullmatch(text)
    if found is None:
        return text, {}
    options: dict[str, str] = {}
    for part in found["options"].split("&"):
        key, equals, value = part.partition("=")
        if not equals:
            raise SourceError(f"{text}: the option {part!r} has no value; write {part}=VALUE")
        if key not in known:
            hint = suggestion(key, known) if known else "this source has none"
            raise SourceError(f"{text}: no option is called {key!r}; {hint}")
        if key in options:
            raise SourceError(f"{text}: the option {key!r} is given twice; keep one")
        options[key] = value
    return found["path"], options


def path_of(text: str) -> str:
    """The path, whatever the options behind it are."""
    found = _OPTIONS.fullmatch(text)
    return text if found is None else found["path"]
