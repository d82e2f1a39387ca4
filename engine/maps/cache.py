"""Generated modules on disk: written once, imported under a name that holds the library's hash.

numba's disk cache is keyed by the file a function is in, so a function made from text needs a file
that stays. The folder is `$ORDERBOOK_CACHE` or `~/.cache/orderbook`, and in it one subfolder for
each state of the map library and version of numba and Python; an edit of the library can therefore
never meet stale machine code.
"""

import hashlib
import importlib.util
import os
import platform
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path
from types import ModuleType

import llvmlite
import numba

from .checked_source import check_source

# What generated code calls: an edit there makes compiled code stale.
SOURCES = (
    "engine/maps/**/*.py",
    "engine/generate/primitives.py",
    "engine/generate/support.py",
    "orderbook/jit.py",
    "views/scalars/*.py",
)


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


def cache_folder() -> Path:
    """The folder of modules generated for this state of the library; created when missing."""
    root = os.environ.get("ORDERBOOK_CACHE") or Path.home() / ".cache" / "orderbook"
    folder = Path(root) / f"maps-{library_hash()}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def publish(name: str, text: str) -> ModuleType:
    """The module of source `text`, from the cache folder; written there first if it is not yet.

    `name` must be unique for the text given the library's hash. Safe with several processes at once, since
    each writes its own temporary file and renames it, and with several threads, which wait for each other.
    """
    with _publishing:
        return _published(name, text)


def publish_text(kind: str, text: str) -> ModuleType:
    """The module of source `text`, named by its kind and its hash; see `publish`."""
    return publish(f"{kind}_{hashlib.sha256(text.encode()).hexdigest()[:16]}", text)


def _published(name: str, text: str) -> ModuleType:
    full_name = f"orderbook_{name}_{library_hash()}"
    if full_name in sys.modules:
        return sys.modules[full_name]
    path = cache_folder() / f"{full_name}.py"
    if not path.exists() or path.read_text() != text:
        check_source(text)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.replace(temporary, path)
    specification = importlib.util.spec_from_file_location(full_name, path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[full_name] = module
    try:
        specification.loader.exec_module(module)
    except BaseException:
        del sys.modules[full_name]
        raise
    return module


def publish_library(name: str) -> ModuleType:
    """The published copy of `library/<name>.py`."""
    return publish(name, (Path(__file__).parent / "library" / f"{name}.py").read_text())
