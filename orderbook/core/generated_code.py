"""Modules made of generated text: what such a text may be, and where its code is kept.

A module is made of the text that its caller has, never of a file: the folder keeps its bytecode, in entries
that name the hash of the text and are verified (see code_cache.py), and beside them the text itself, for
people. The folder is in `$ORDERBOOK_CACHE` or `~/.cache/orderbook`, one for each state of the map library and
version of numba and Python; an edit of the library can therefore never meet stale machine code.

Generated modules are written of numbers and of parts that stand in our source (engine/generate/numbering.py).
`check_source` is the last thing that stands between a text and its being run: it looks at the syntax tree of
the whole, before it is written to the cache folder. It holds functions over names that it binds itself,
imports from this project alone, and no strings but layouts and docstrings. A program that changes while it
runs has most functions as before: each is parsed, looked at and compiled once (`checked_code`), and only
whether the names of all of them fit together is looked at again.
"""

import ast
import hashlib
import linecache
import marshal
import os
import platform
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from types import CodeType, ModuleType

import llvmlite
import numba

from orderbook.core.code_cache import CacheFolder, Entry, cache_folder
from orderbook.core.step_times import step_times

# The folder of `orderbook`, in a checkout with links to the other packages.
PACKAGE = Path(__file__).parents[1]

_STATEMENTS = (
    ast.Module, ast.FunctionDef, ast.ImportFrom, ast.Import, ast.Assign, ast.AugAssign, ast.Expr, ast.Return,
    ast.If, ast.For, ast.While, ast.Break, ast.Continue, ast.Pass,
)  # fmt: skip
_EXPRESSIONS = (
    ast.Name, ast.Attribute, ast.Constant, ast.Call, ast.keyword, ast.Subscript, ast.Slice, ast.Tuple,
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.arguments, ast.arg, ast.alias,
)  # fmt: skip
# Fields that hold no nodes, or nodes of which all are taken.
_PLAIN = frozenset(
    ("arg", "asname", "attr", "ctx", "id", "kind", "level", "module", "name", "op", "ops", "type_comment")
)


def _children(kind: type[ast.AST]) -> tuple[str, ...]:
    """The fields of a node that hold nodes to be looked at."""
    plain = _PLAIN | {"value"} if kind is ast.Constant else _PLAIN
    return tuple(field for field in kind._fields if field not in plain)


_CHILDREN: dict[type[ast.AST], tuple[str, ...]] = {
    kind: _children(kind) for kind in (*_STATEMENTS, *_EXPRESSIONS)
}
_LOOKED_AT = frozenset(
    (ast.Constant, ast.Call, ast.Attribute, ast.arg, ast.Import, ast.ImportFrom, ast.alias, ast.FunctionDef)
)
_BUILTINS = frozenset(("abs", "bool", "float", "int", "len", "max", "min", "range"))
_DECORATORS = frozenset(("exported", "jit", "primitive"))
_IMPORTED = re.compile(r"orderbook(\.[a-z][a-z0-9_]*)+|orderbook_[a-zA-Z0-9_]+")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}|_[a-z]{0,63}")
_STRING = re.compile(r"[iwWd]*|numpy")
_DOCSTRING = re.compile(r"[ -~\n]*")


def check_source(text: str) -> None:
    """Raises ValueError, which says where, for source that no generator of ours writes."""
    if not text.isascii():
        raise ValueError("generated source has letters that are not ASCII at line 1; it is not run")
    _Checked(ast.parse(text))


@dataclass(frozen=True, slots=True)
class _Function:
    """A function's name, the names that it reads, and those that are its own variables."""

    node: ast.FunctionDef
    used: Mapping[str, ast.Name]
    own: Set[str]


class _Checked:
    """One module's tree; names of the module are not those of a function's variables."""

    def __init__(self, tree: ast.Module) -> None:
        found = _LookedAt(tree)
        module = _BUILTINS | found.bound | {function.node.name for function in found.functions}
        _require(found.used, module)
        for function in found.functions:
            shadowed = function.own & module
            if shadowed:
                raise _error(
                    f"a variable that is called as something of the module, {min(shadowed)},", function.node
                )
            _require(function.used, module | function.own)


class _LookedAt:
    """All nodes of a tree, looked at: the names that its statements read and bind, and its functions."""

    def __init__(self, tree: ast.Module) -> None:
        self._docstrings = {id(d) for d in _docstrings(tree)}
        # Those that were looked at.
        self._names: set[str] = set()
        functions = [s for s in tree.body if isinstance(s, ast.FunctionDef)]
        statements = [s for s in tree.body if not isinstance(s, ast.FunctionDef)]
        self.used, self.bound = self._nodes(statements)
        self.functions = [self._function(function) for function in functions]

    def _function(self, function: ast.FunctionDef) -> _Function:
        self._name(function.name, function)
        for decorator in function.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if not (isinstance(called, ast.Name) and called.id in _DECORATORS):
                raise _error("a decorator", decorator)
        self._nodes(node for node in ast.iter_child_nodes(function) if not isinstance(node, ast.stmt))
        used, bound = self._nodes(function.body)
        return _Function(function, used, bound | {a.arg for a in function.args.args})

    def _nodes(self, nodes: Iterable[ast.AST]) -> tuple[dict[str, ast.Name], set[str]]:
        """Checks each of the nodes and of those below them; the names there, and those that are bound there.

        Every node of every module passes here, so nothing is looked at twice.
        """
        used: dict[str, ast.Name] = {}
        bound: set[str] = set()
        left = list(nodes)
        while left:
            node = left.pop()
            kind = type(node)
            children = _CHILDREN.get(kind)
            if children is None:
                raise _error("a form that generated code does not have", node)
            if kind is ast.Name:
                name = node.id  # type: ignore[attr-defined]
                if name not in used:
                    self._name(name, node)
                    used[name] = node  # type: ignore[assignment]
                if type(node.ctx) is ast.Store:  # type: ignore[attr-defined]
                    bound.add(name)
                continue
            if kind in _LOOKED_AT:
                self._node(node, bound)
            for field in children:
                child = getattr(node, field)
                if type(child) is list:
                    left += child
                elif child is not None:
                    left.append(child)
        return used, bound

    def _node(self, node: ast.AST, bound: set[str]) -> None:
        match node:
            case ast.Constant(str() as value):
                allowed = _DOCSTRING if id(node) in self._docstrings else _STRING
                if not allowed.fullmatch(value):
                    raise _error("a string", node)
            case ast.Constant(value) if not isinstance(value, int | float):
                raise _error("a constant", node)
            case ast.Call(ast.Name() | ast.Attribute(ast.Name() | ast.Attribute())):
                pass
            case ast.Call():
                raise _error("a call", node)
            case ast.Attribute(_, name) | ast.arg(name):
                self._name(name, node)
            case ast.ImportFrom(str() as module, level=0) if _IMPORTED.fullmatch(module):
                pass
            case ast.Import([ast.alias("numpy", "np")]) | ast.alias("numpy", "np"):
                bound.add("np")
            case ast.alias(name, None):
                self._name(name, node)
                bound.add(name)
            case ast.Import() | ast.ImportFrom() | ast.alias():
                raise _error("an import", node)
            case ast.FunctionDef():
                raise _error("a function inside of something", node)

    def _name(self, name: str, node: ast.AST) -> None:
        if name not in self._names:
            if not _NAME.fullmatch(name):
                raise _error("a name", node)
            self._names.add(name)


def _require(used: Mapping[str, ast.Name], known: Set[str]) -> None:
    for name, node in used.items():
        if name not in known:
            raise _error(f"the unknown name {name}", node)


def _docstrings(tree: ast.Module) -> Iterator[ast.expr]:
    for owner in (tree, *tree.body):
        if isinstance(owner, ast.Module | ast.FunctionDef) and owner.body:
            match owner.body[0]:
                case ast.Expr(ast.Constant(str()) as said):
                    yield said


def _error(what: str, node: ast.AST) -> ValueError:
    return ValueError(f"generated source has {what} at line {getattr(node, 'lineno', 1)}; it is not run")


@dataclass(frozen=True, slots=True)
class _Part:
    """A function of a module with its decorators, or what stands between two, wherever it stands.

    functions: the name of each, the names that it reads, and its own; documented: it begins with a docstring.
    code: as if it were a module.
    """

    functions: tuple[tuple[str, frozenset[str], frozenset[str]], ...]
    used: frozenset[str]
    bound: frozenset[str]
    documented: bool
    code: CodeType


# More than a program of a hundred views has.
_PARTS = 1 << 13


@lru_cache(_PARTS)
def _part(text: str) -> _Part:
    """Raises ValueError as `check_source`, with lines counted from the part's first, and SyntaxError."""
    tree = ast.parse(text)
    found = _LookedAt(tree)
    functions = tuple((f.node.name, frozenset(f.used), frozenset(f.own)) for f in found.functions)
    code = compile(text, "", "exec", dont_inherit=True)
    documented = ast.get_docstring(tree, clean=False) is not None
    return _Part(functions, frozenset(found.used), frozenset(found.bound), documented, code)


def _parts(text: str) -> list[tuple[int, str]]:
    """A text cut before and after each function, and after empty lines elsewhere.

    Of each part the number of lines before it, and its text.
    """
    starts, inside, decorated = [0], False, False
    lines = text.splitlines(keepends=True)
    for number, line in enumerate(lines):
        if line[0] in "@d" and (line[0] == "@" or line.startswith("def ")):
            if not decorated:
                starts.append(number)
            decorated, inside = line[0] == "@", True
        elif inside and not line[0].isspace():
            starts.append(number)
            inside = False
        elif not inside and line == "\n":
            starts.append(number + 1)
    ends = (*starts[1:], len(lines))
    return [(a, "".join(lines[a:b])) for a, b in zip(starts, ends, strict=True) if a < b]


def _fit(parts: Sequence[_Part]) -> bool:
    """Whether parts that are each as `check_source` wants them are so together."""
    bound = frozenset[str]().union(*(part.bound for part in parts))
    functions = [function for part in parts for function in part.functions]
    module = _BUILTINS | bound | {name for name, *_ in functions}
    return (
        not any(part.documented for part in parts[1:])
        and all(part.used <= module for part in parts)
        and all(not own & module and used - own <= module for _, used, own in functions)
    )


def _placed(code: CodeType, path: str, before: int) -> CodeType:
    """Code of a part that stands in a file, with so many lines before it."""
    constants = tuple(_placed(c, path, before) if isinstance(c, CodeType) else c for c in code.co_consts)
    first = code.co_firstlineno + before
    return code.replace(co_filename=path, co_firstlineno=first, co_consts=constants)


def checked_code(text: str, path: str) -> tuple[CodeType, ...]:
    """The code of a module's parts, to be run one after the other. Raises ValueError as `check_source`."""
    cut = _parts(text) if text.isascii() else []
    try:
        parts = [_part(part) for _, part in cut]
    except (ValueError, SyntaxError):
        parts = []
    if not parts or not _fit(parts):
        # Says what is wrong, and in which line of the whole.
        check_source(text)
        return (compile(text, path, "exec", dont_inherit=True),)
    return tuple(_placed(part.code, path, before) for (before, _), part in zip(cut, parts, strict=True))


# What generated code calls: an edit there makes compiled code stale.
SOURCES = (
    "core/code_cache.py",
    "core/compiled_functions.py",
    "core/generated_code.py",
    "core/jit.py",
    "core/native*.py",
    "engine/generate/support.py",
    "engine/maps/*.py",
    "views/scalars/*.py",
)


# Of the texts of published modules, by path.
_digests: dict[str, str] = {}
# A module is there before it is whole. The modules that it needs are published in the midst of it.
_publishing = threading.RLock()


@cache
def library_hash() -> str:
    """16 hex digits over the source that generated code calls, and the versions that compile it."""
    digest = hashlib.sha256(
        f"{numba.__version__} {llvmlite.__version__} {platform.python_version()}".encode()
    )
    for path in sorted(p for source in SOURCES for p in PACKAGE.glob(source)):
        digest.update(str(path.relative_to(PACKAGE)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def code_folder() -> CacheFolder:
    """The folder of code for this state of the library."""
    return cache_folder(f"maps-{library_hash()}")


def publish(name: str, text: str) -> ModuleType:
    """The module of source `text`, whose code is in the cache from then on.

    `name` must be unique for the text given the library's hash. Safe with several processes at once, since
    each writes its own temporary file and renames it, and with several threads, which wait for each other.
    """
    with _publishing:
        return _published(name, text)


def publish_text(kind: str, text: str) -> ModuleType:
    """The module of source `text`, named by its kind and its hash; see `publish`."""
    return publish(f"{kind}_{hashlib.sha256(text.encode()).hexdigest()[:16]}", text)


def is_published(path: str) -> bool:
    """Whether a path is that of a module made by `publish`."""
    return path in _digests


def source_digest(path: str) -> str | None:
    """64 hex digits over the source of a published module, or of a file as it is now; None: there is none."""
    if path in _digests:
        return _digests[path]
    try:
        status = os.stat(path)
        return _file_digest(path, status.st_mtime_ns, status.st_size)
    except OSError:
        return None


@cache
def _file_digest(path: str, *_: int) -> str:
    return _hash(Path(path).read_bytes())


def _published(name: str, text: str) -> ModuleType:
    full_name = f"orderbook_{name}_{library_hash()}"
    if full_name in sys.modules:
        return sys.modules[full_name]
    digest, folder = _hash(text.encode()), code_folder()
    shown = Entry(full_name, digest, "py").file
    path = str(folder.path / shown)
    folder.keep_text(shown, text)
    # Tracebacks show what runs, whatever the file holds.
    linecache.cache[path] = len(text), None, text.splitlines(keepends=True), path
    _digests[path] = digest
    module = ModuleType(full_name)
    module.__file__ = path
    with step_times.step("functions in Python"):
        code = _code(folder, full_name, digest, text, path)
    sys.modules[full_name] = module
    try:
        with step_times.step("functions in Python"):
            for part in code:
                exec(part, vars(module))
    except BaseException:
        del sys.modules[full_name]
        raise
    return module


def _code(folder: CacheFolder, name: str, digest: str, text: str, path: str) -> tuple[CodeType, ...]:
    """Compiling takes a second for 2 MB of text, reading it 10 ms."""
    entry = Entry(name, f"{digest} {path} {sys.implementation.cache_tag} {sys.flags.optimize}", "code")
    kept = folder.read(entry)
    if kept is not None:
        try:
            code = marshal.loads(kept)
            if isinstance(code, tuple) and code and all(isinstance(part, CodeType) for part in code):
                return code
        except (ValueError, EOFError, TypeError):
            pass
        folder.spoilt(entry.file, "holds no code")
    made = checked_code(text, path)
    folder.write(entry, marshal.dumps(made))
    return made


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
