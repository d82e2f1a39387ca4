"""Options in the text of a source: `PATH?key=value&key=value`."""

from collections.abc import Collection, Sequence

from feeds.object_store import OPTIONS, STORE_OPTIONS
from feeds.places import is_url
from orderbook.configuration_errors import suggestion
from orderbook.errors import SourceError


def split_options(text: str, known: Collection[str]) -> tuple[str, dict[str, str]]:
    """The path, with what a URL says of its store, and the options by key.

    Raises SourceError for a key that is not `known`, a key given twice, and a part that is no key=value.
    """
    path, parts = parted(text)
    options: dict[str, str] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals:
            raise SourceError(f"{text}: the option {part!r} has no value; write {part}=VALUE")
        if key not in known:
            hint = suggestion(key, known) if known else "this source has none"
            raise SourceError(f"{text}: no option is called {key!r}; {hint}")
        if key in options:
            raise SourceError(f"{text}: the option {key!r} is given twice; keep one")
        options[key] = value
    return path, options


def parted(text: str) -> tuple[str, list[str]]:
    """The path, with what a URL says of its store, and the key=value parts of the options behind it."""
    found = OPTIONS.fullmatch(text)
    if found is None:
        return text, []
    parts = found["options"].split("&")
    if not is_url(text):
        return found["path"], parts
    own = [part for part in parts if part.partition("=")[0] in STORE_OPTIONS]
    return joined(found["path"], own), [part for part in parts if part not in own]


def joined(path: str, parts: Sequence[str]) -> str:
    """A path with options behind it, as `parted` takes them apart."""
    if not parts:
        return path
    more = is_url(path) and OPTIONS.fullmatch(path) is not None
    return path + ("&" if more else "?") + "&".join(parts)
