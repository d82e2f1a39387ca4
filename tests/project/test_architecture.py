"""docs/architecture.md shows the rooms as the imports are; documents name files that exist.

`python tests/project/test_architecture.py` writes the drawing and the table of rooms anew.
"""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path
from statistics import mean

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "architecture.md"
START, END = "<!-- drawn by tests/project/test_architecture.py -->\n", "<!-- end of the drawing -->\n"
CONTRACTS = {
    contract["id"]: contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
}
# Rooms that are drawn as the rooms within them; `strategies` is then what is in none of them.
DIVIDED = ("engine", "strategies")
PACKAGES = ("orderbook", "views", "engine", "feeds", "strategies")

BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)

Imports = Mapping[str, set[str]]


def module_imports() -> Imports:
    """What each module imports in any way, without what the contract of cycles ignores."""
    graph = grimp.build_graph("orderbook", cache_dir=None)
    for line in CONTRACTS["cycles"].get("ignore_imports", ()):
        importer, _, imported = line.partition(" -> ")
        graph.remove_import(importer=importer, imported=imported)
    return {module: graph.find_modules_directly_imported_by(module) for module in sorted(graph.modules)}


def order(room: str) -> list[str]:
    """The modules and packages of a room, from high to low."""
    layers = CONTRACTS["rooms" if room == "orderbook" else room]["layers"]
    return [name for layer in layers for name in re.split(r"\s*[|:]\s*", layer)]


def rooms() -> list[str]:
    """From high to low."""
    found: list[str] = []
    for room in order("orderbook"):
        if room == "strategies":
            found += ["strategies", "strategies.execution"]
        elif room in DIVIDED:
            found += [f"{room}.{inner}" for inner in order(room)]
        else:
            found.append(room)
    return found


def room_of(module: str, known: set[str]) -> str | None:
    """None for packages that are divided, and for the door `orderbook`, which no room is above."""
    parts = module.split(".")[1:]
    inner = ".".join(parts[:2])
    return inner if inner in known else parts[0] if parts and parts[0] in known else None


def room_imports(modules: Imports) -> Imports:
    """The other rooms that each room imports."""
    known = set(rooms())
    found: dict[str, set[str]] = {room: set() for room in rooms()}
    for module, imported in modules.items():
        own = room_of(module, known)
        for other in {room_of(name, known) for name in imported}:
            if own is not None and other is not None and other != own:
                found[own].add(other)
    return found


def reduced(imports: Imports) -> Imports:
    """Without the imports of rooms that are reached through other rooms, too."""
    below: dict[str, set[str]] = {}
    for room in TopologicalSorter(imports).static_order():
        below[room] = imports[room].union(*(below[other] for other in imports[room]))
    return {room: own - set().union(*(below[other] for other in own)) for room, own in imports.items()}


def purpose(room: str) -> str:
    """The first line of the docstring of a package or module."""
    path = ROOT / "orderbook" / room.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = ast.get_docstring(ast.parse(file.read_text())) or ""
    return text.partition("\n")[0].rstrip(".")


def drawing() -> str:
    """The rooms as a picture, without arrows to what is reached through others, and as a table."""
    imports = room_imports(module_imports())
    lines = ["```mermaid", "flowchart TD"]
    for room, below in reduced(imports).items():
        if below:
            lines.append(f"    {room} --> {' & '.join(sorted(below, key=rooms().index))}")
    lines += ["```", "", "| room | what it is for | imports |", "|---|---|---|"]
    for room, below in imports.items():
        shown = ", ".join(sorted(below, key=rooms().index)) or "nothing"
        lines.append(f"| `{room}` | {purpose(room)} | {shown} |")
    return "\n".join(lines) + "\n"


def test_the_document_shows_the_rooms_as_they_are() -> None:
    shown = DOCUMENT.read_text().partition(START)[2].partition(END)[0]
    assert shown == drawing(), "python tests/project/test_architecture.py writes it anew"


def test_rooms_import_lower_rooms_only() -> None:
    ranks = {room: place for place, room in enumerate(rooms())}
    upward = [
        (a, b) for a, below in room_imports(module_imports()).items() for b in below if ranks[a] > ranks[b]
    ]
    assert upward == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Counting imports within functions, and those for types."""
    TopologicalSorter(module_imports()).prepare()


def test_contracts_of_imports_hold() -> None:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache", "--no-logo"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_kind_of_import_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "house_of_four"
    package.mkdir()
    for name in ("__init__", "top", "lazy", "typed"):
        (package / f"{name}.py").touch()
    (package / "importer.py").write_text(
        "from typing import TYPE_CHECKING\nfrom house_of_four import top\nif TYPE_CHECKING:\n"
        "    from house_of_four import typed\ndef f():\n    from house_of_four import lazy\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    graph = grimp.build_graph("house_of_four", cache_dir=None)
    found = graph.find_modules_directly_imported_by("house_of_four.importer")
    assert found == {f"house_of_four.{name}" for name in ("top", "lazy", "typed")}


def test_modules_are_as_many_and_as_long_as_the_document_says() -> None:
    said = re.search(r"about (\d+) modules of (\d+)\s+lines", DOCUMENT.read_text())
    assert said is not None
    files = [f for p in PACKAGES for f in (ROOT / p).glob("**/*.py") if f.name != "__init__.py"]
    lengths = [len(file.read_text().splitlines()) for file in files]
    assert len(files) == pytest.approx(int(said[1]), rel=0.1)
    assert mean(lengths) == pytest.approx(int(said[2]), rel=0.1)


def named_paths() -> Iterator[tuple[str, Path]]:
    """Place in a document, and a file or folder that stands there in backticks or as the aim of a link."""
    tops = {path.name for path in ROOT.glob("[!.]*/")} - {"out"}
    for document in [*sorted(ROOT.glob("docs/**/*.md")), ROOT / "README.md"]:
        # Without blocks; lines keep their numbers.
        text = BLOCK.sub(lambda block: "\n" * block[0].count("\n"), document.read_text())
        for number, line in enumerate(text.splitlines(), 1):
            place = f"{document.relative_to(ROOT)}:{number}"
            for aim in re.findall(r"\]\(([^)#:]+)[^):]*\)", re.sub(r"`[^`]*`", "", line)):
                yield place, document.parent / aim
            for name in re.findall(r"`([\w./*-]+)(?:::\w+)?`", line):
                if name.endswith(".py") or ("/" in name and name.partition("/")[0] in tops):
                    yield place, ROOT / name


def test_files_that_documents_name_exist() -> None:
    found = [(place, os.path.relpath(path, ROOT)) for place, path in named_paths()]
    assert len(found) > 200
    assert [(place, path) for place, path in found if not any(ROOT.glob(path))] == []


def test_modules_that_documents_name_exist() -> None:
    """`orderbook.room.module`, or a name in it."""
    named = {
        name
        for document in [*ROOT.glob("docs/**/*.md"), ROOT / "README.md"]
        for name in re.findall(r"`(orderbook\.[a-z_]+\.[\w.]+)", document.read_text())
    }
    modules = {*module_imports()}
    missing = [name for name in named if name not in modules and name.rpartition(".")[0] not in modules]
    assert missing == []


if __name__ == "__main__":
    before, _, rest = DOCUMENT.read_text().partition(START)
    DOCUMENT.write_text(before + START + drawing() + END + rest.partition(END)[2])
