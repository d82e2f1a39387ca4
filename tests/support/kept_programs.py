"""Programs of SQL texts, compiled once for all processes of a test run, and kept in the cache as code is."""

import hashlib
import pickle
import sys
from functools import cache
from typing import cast
from unittest.mock import patch

import sqlglot
from paths import PROJECT

from orderbook.core.code_cache import Entry, cache_folder
from orderbook.views.calculus import MOST_STEPS, Budget
from orderbook.views.compilation import compile_views
from orderbook.views.m3 import Program
from orderbook.views.program import CompiledProgram
from orderbook.views.types import Parameter

Parameters = tuple[tuple[str, Parameter], ...]


@cache
def kept_program(
    sql: str, parameters: Parameters = (), materialize: str = "full", steps: int = MOST_STEPS
) -> Program:
    """The program of a text, or of a view that ships, by its name; compiled within so many steps."""
    kept = cache_folder("tests").read(_entry(sql, parameters, materialize, steps))
    if kept is not None:
        return cast("Program", pickle.loads(kept))
    return compiled_whole(sql, parameters, materialize, steps).program


@cache
def compiled_whole(
    sql: str, parameters: Parameters = (), materialize: str = "full", steps: int = MOST_STEPS
) -> CompiledProgram:
    """The same with all that it was made of, compiled once in a process; the program is kept for others."""
    with patch.object(Budget.__init__, "__defaults__", (steps,)):
        compiled = compile_views(sql, dict(parameters), materialize=materialize)
    cache_folder("tests").write(_entry(sql, parameters, materialize, steps), pickle.dumps(compiled.program))
    return compiled


def _entry(*of: object) -> Entry:
    return Entry("program", f"{_compiler()} {of!r}", "pickle")


@cache
def _compiler() -> str:
    """A digest of all that compiles, of the views that ship, and of what M3 programs are made of."""
    digest = hashlib.sha256(f"{sqlglot.__version__} {sys.version}".encode())
    for folder in ("views", "orderbook/core"):
        for file in sorted((PROJECT / folder).rglob("*")):
            if file.suffix in (".py", ".sql"):
                digest.update(file.read_bytes())
    return digest.hexdigest()
