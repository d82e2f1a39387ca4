"""View files by name, on a search path and among those that ship; what they declare, read and say.

A file is named by its stem, `touch`, or with the folder that it is in, `market/ofi`. Its first comment
describes it: sentences, then a line that begins `-- Source:`, one that begins `-- Cost:`. A comment after a
CREATE PARAMETER is about that.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from sqlglot import exp

from orderbook.core.errors import SourceError, UserError, suggestion
from orderbook.views.binding.nodes import CreateRelation, CreateStrategy, CreateView
from orderbook.views.binding.parameters import default_parameters
from orderbook.views.binding.parser import parse
from orderbook.views.types import Parameter

# Folders of views that ship, beside those that stand in the folder itself.
FOLDERS = ("market", "surveillance")
NAME = re.compile(r"\w+(/\w+)?")
_SCHEMA = "schema"

Find = Callable[[str], Path | None]


def packaged_views() -> Path:
    """The folder of the views that ship."""
    return Path(str(resources.files("orderbook.views")))


def files_by_name(paths: Sequence[Path]) -> dict[str, Path]:
    """The .sql files of folders, and files, by their names; the first of a name is found, before those that
    ship. Files of a folder in a folder come after all others where they are named without it."""
    found: dict[str, Path] = {}
    nested: dict[str, Path] = {}
    for path in (*paths, packaged_views()):
        for file in sorted(path.glob("*.sql")) if path.is_dir() else [path]:
            found.setdefault(file.stem, file)
        for file in _nested(path):
            found.setdefault(f"{file.parent.name}/{file.stem}", file)
            nested.setdefault(file.stem, file)
    return {**nested, **found}


def _nested(path: Path) -> list[Path]:
    if path == packaged_views():
        return [file for folder in FOLDERS for file in sorted((path / folder).glob("*.sql"))]
    return sorted(path.glob("*/*.sql")) if path.is_dir() else []


def shipped_views() -> dict[str, Path]:
    """The files that ship by their full names, in order: those of folders last."""
    top = [file for file in sorted(packaged_views().glob("*.sql")) if file.stem != _SCHEMA]
    nested = {f"{file.parent.name}/{file.stem}": file for file in _nested(packaged_views())}
    return {**{file.stem: file for file in top}, **nested}


def shipped_file(name: str) -> Path:
    """A file that ships, by either name. Raises UserError, with the nearest name, where there is none."""
    known = files_by_name(())
    if name not in known:
        raise UserError(f"no view is named {name!r}; {suggestion(name, known)}")
    return known[name]


def trees_of(file: Path) -> list[exp.Expr]:
    """The statements of a file. Raises SqlError, SourceError where it cannot be read."""
    return [statement.tree for statement in parse(str(file), text_of(file))]


def text_of(file: Path) -> str:
    """The text of a file. Raises SourceError."""
    try:
        return file.read_text("utf-8")
    except OSError as error:
        raise SourceError(f"{file}: cannot read: {error.strerror}; check the path") from None
    except UnicodeDecodeError:
        raise SourceError(f"{file}: not a text in UTF-8; save it as UTF-8") from None


def declared_views(file: Path) -> tuple[str, ...]:
    """The names of the views that a file declares. Raises as `trees_of`."""
    views = (tree for tree in trees_of(file) if not isinstance(tree, CreateRelation))
    return tuple(tree.this.name.lower() if isinstance(tree, CreateView) else own_view(file) for tree in views)


def declared_strategies(file: Path) -> tuple[str, ...]:
    """The names of the strategies that a file declares. Raises as `trees_of`."""
    return tuple(tree.this.name.lower() for tree in trees_of(file) if isinstance(tree, CreateStrategy))


def own_view(file: Path) -> str:
    """The view that a file is named after, which a SELECT without a name in it is."""
    return re.sub(r"\W", "_", file.stem.lower())


def shown_views(file: Path, declared: Sequence[str]) -> Sequence[str]:
    """The views that a file is there for: the one named as the file, else all it declares."""
    return [own_view(file)] if own_view(file) in declared else declared


def names_read(file: Path) -> list[str]:
    """What the queries of a file read and it does not declare, in the order of the text."""
    trees = trees_of(file)
    own = {tree.this.name.lower() for tree in trees if isinstance(tree, CreateRelation | CreateView)}
    own |= {cte.alias.lower() for tree in trees for cte in tree.find_all(exp.CTE)}
    read = (table.name.lower() for tree in trees for table in tree.find_all(exp.Table))
    return [name for name in dict.fromkeys(read) if name not in own]


def with_read(files: Iterable[Path], find: Find, there: Iterable[str] = ()) -> list[Path]:
    """Files, and those that `find` has for views which they read and which nothing declares yet.

    there: names of views that are declared elsewhere. A name that no file declares is left to the compiler,
    which says where it stands. Raises as `trees_of`.
    """
    found = list(files)
    known = {*there, *(name for file in found for name in declared_views(file))}
    # It grows meanwhile: what is read may read others.
    for file in found:
        for name in names_read(file):
            if name not in known and (other := find(name)) is not None:
                known.update(declared_views(other))
                found.append(other)
    return found


def shipped_that_declares(view: str) -> Path | None:
    """The file that ships in which a view of its name is declared."""
    file = files_by_name(()).get(view)
    return file if file is not None and view in declared_views(file) else None


@dataclass(frozen=True, slots=True)
class ParameterText:
    """A parameter of a file: what it is where nothing is given, and what it is for."""

    name: str
    default: Parameter
    meaning: str


@dataclass(frozen=True, slots=True)
class Description:
    """What a file says of itself; `cost` is empty where it does not say."""

    measures: str
    source: str
    cost: str
    parameters: tuple[ParameterText, ...]


_PARAMETER = re.compile(
    r"^CREATE PARAMETER\s+(\w+)\b[^;\n]*;[ \t]*((?:--[^\n]*\n[ \t]*)*)", re.IGNORECASE | re.MULTILINE
)


def described(file: Path) -> Description:
    """The description of a file. Raises as `trees_of`."""
    sql = text_of(file)
    defaults = default_parameters([(str(file), sql)])
    about = {match[1].lower(): _plain(match[2].splitlines()) for match in _PARAMETER.finditer(sql)}
    parameters = tuple(ParameterText(name, value, about.get(name, "")) for name, value in defaults.items())
    parts: dict[str, list[str]] = {"": []}
    part = parts[""]
    for line in _first_comment(sql):
        label, colon, rest = line.removeprefix("--").strip().partition(":")
        if colon and label in ("Source", "Cost"):
            part, line = parts.setdefault(label, []), rest
        part.append(line)
    measures, source, cost = (_plain(parts.get(name, ())) for name in ("", "Source", "Cost"))
    return Description(measures, source, cost, parameters)


def _first_comment(sql: str) -> Iterator[str]:
    for line in sql.splitlines():
        if not line.startswith("--"):
            return
        yield line


def _plain(lines: Iterable[str]) -> str:
    return " ".join(" ".join(line.strip().removeprefix("--") for line in lines).split()).rstrip(".")
