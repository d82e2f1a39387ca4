"""Generated modules, and where their code and the machine code of all functions is kept.

A module is made of the text that its caller has, never of a file: the folder keeps its bytecode, in entries
that name the hash of the text and are verified (see cache_folder.py), and beside them the text itself, for
people. The folder is in `$ORDERBOOK_CACHE` or `~/.cache/orderbook`, one for each state of the map library and
version of numba and Python; an edit of the library can therefore never meet stale machine code.
"""

import hashlib
import linecache
import marshal
import os
import platform
import sys
import threading
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType

import llvmlite
import numba

from .cache_folder import CacheFolder, Entry, cache_folder
from .checked_source import check_source

# What generated code calls: an edit there makes compiled code stale.
SOURCES = (
    "engine/maps/**/*.py",
    "engine/generate/primitives.py",
    "engine/generate/support.py",
    "orderbook/jit.py",
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
    root = Path(__file__).parents[2]
    for path in sorted(p for source in SOURCES for p in root.glob(source)):
        digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
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
    code = _code(folder, full_name, digest, text, path)
    sys.modules[full_name] = module
    try:
        exec(code, vars(module))
    except BaseException:
        del sys.modules[full_name]
        raise
    return module


def _code(folder: CacheFolder, name: str, digest: str, text: str, path: str) -> CodeType:
    """Compiling takes a second for 2 MB of text, reading it 10 ms."""
    entry = Entry(name, f"{digest} {path} {sys.implementation.cache_tag} {sys.flags.optimize}", "code")
    kept = folder.read(entry)
    if kept is not None:
        try:
            code = marshal.loads(kept)
            if isinstance(code, CodeType):
                return code
        except (ValueError, EOFError, TypeError):
            pass
        folder.spoilt(entry.file, "holds no code")
    check_source(text)
    made = compile(text, path, "exec", dont_inherit=True)
    folder.write(entry, marshal.dumps(made))
    return made


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def publish_library(name: str) -> ModuleType:
    """The published copy of `library/<name>.py`."""
    return publish(name, (Path(__file__).parent / "library" / f"{name}.py").read_text())
