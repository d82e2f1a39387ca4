"""Texts that try to become code, to end a line or to steer a terminal, and modules that programs give."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orderbook.engine.generate.driver import Recorded, driver_module, record_module
from orderbook.engine.generate.measured import MeasuredWrites
from orderbook.engine.generate.numbering import Numbering
from orderbook.engine.generate.program import program_module
from orderbook.engine.generate.view_diff import condition_module
from orderbook.engine.plan.planner import plan
from orderbook.views.compilation import bind_condition, compile_views
from orderbook.views.program import CompiledProgram
from orderbook.views.types import Parameter

# A name as modules of programs have it.
PROGRAM = "orderbook_program_0_0"
# The end of a docstring, a statement, and the head of a function.
EXPLOIT = '"""\nopen("x","w")\ndef f(S, row):\n    """'
PIECES = (
    '"""', "'''", '"', "'", "\\", "\\\\", "\n", "\r", "\r\n", "\t", "\0", "\x1b[2J", "\x1b]0;x\x07",
    "\x7f", "\x85", "\u2028", "\u2029", "\u202e", "\u200f", "\ufeff", "#", "# type: ignore", "%",
    "%s", "%(x)s", "{", "}", "{0}", "{x!r}", "$", "$name", "${x}", "`", ";", "--", "/*", "*/",
    "<script>", "]]>", "&amp;", "\N{ROCKET}", "\N{LATIN SMALL LIGATURE FI}", "é", "e\u0301", "Ⅳ",
    "\\N{DASH}", "\\x00", "\\u0000", "\\", " ", "    ", 'open("x","w")',
    "__import__('os').system('touch x')", "import os", "exec('1')", "S", "row", "load(0, 0)",
    "store(0, 0, 0)", "def f(S, row):", "return 0", "pass", "lambda: 0", "@jit()", "1e999", "nan",
    "None", "a", "7", "x" * 300, ")", "(", "]", "[", ",", ":", "=", "]]", "ON + bids",
    "MAP m[] TEXT", "}\nVIEW",
)  # fmt: skip
# Names that generated code, Python or numba know, and names of other shapes that are names all the same.
NAMES = (
    "s", "row", "rows", "cut_1", "cut1", "cut_0_bound", "load", "store", "out", "lambda", "none",
    "self", "print", "numba", "__import__", "__builtins__", "__name__", "__class__", "_", "__",
    "jit", "exported", "hashed", "ordered", "dense", "wide", "clamp", "insert_r0", "m0", "m0_add",
    "x0", "r0", "k0", "row_0", "rows_0", "touch_0", "h_m0_1", "value_1", "sum_1", "size_1", "key",
    "keys", "values", "kinds", "flags", "start", "stop", "run", "look", "failed", "initialise",
    "place", "entry", "new", "old", "last", "count", "min", "max", "abs", "float", "int", "len",
    "range", "true_", "class", "def", "import", "async", "yield", "global", "nonlocal", "del",
    "pass", "raise", "try", "while", "matches", "calendar", "integers", "reals", "precise",
    "orderbook", "engine", "np", "numpy", "c0", "t0", "n0", "v0", "v_count", "v_sum", "bids_count",
    "scratch_1", "dual", "e1", "a" * 10_000,
)  # fmt: skip


def literal(generator: random.Random) -> str:
    """A hostile text."""
    return "".join(generator.choice(PIECES) for _ in range(generator.randrange(1, 6)))


def quoted(text: str) -> str:
    """The text as SQL and M3 write it."""
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class Subject:
    """A program with texts and names to be put in, and a condition of a subscription to its view."""

    sql: str
    when: str = ""
    m3: str = ""

    def compiled(
        self, texts: Sequence[str], names: Sequence[str], parameters: Mapping[str, Parameter] | None = None
    ) -> CompiledProgram:
        own = self.fields(texts, names)
        sources = [self.sql.format_map(own)] + ([self.m3.format_map(own)] if self.m3 else [])
        return compile_views(sources, parameters)

    def condition(self, texts: Sequence[str], names: Sequence[str]) -> str:
        return self.when.format_map(self.fields(texts, names))

    def fields(self, texts: Sequence[str], names: Sequence[str]) -> dict[str, str]:
        own = {f"t{i}": quoted(text) for i, text in enumerate(texts)}
        return own | {f"n{i}": name for i, name in enumerate(names)}


def modules(program: CompiledProgram, condition: str = "") -> list[str]:
    """The source of the modules that are made of a program's plan, and of a condition of its last view."""
    numbering = Numbering({})
    numbered = numbering.plan(plan(program.program))
    found = [
        program_module(numbered),
        program_module(numbered, MeasuredWrites),
        driver_module(numbered, PROGRAM),
    ]
    found.append(
        record_module(numbered, PROGRAM, [Recorded(i, i % 2 == 0) for i in range(len(numbered.results))])
    )
    if condition:
        view = program.program.results[-1]
        bound = bind_condition(program.program, view.name, condition, program.parameters)
        found.append(condition_module(numbered, len(numbered.results) - 1, numbering.condition(view, bound)))
    return found
