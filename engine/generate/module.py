"""The text of a generated module: imports of its stores, cut functions, and functions one by one.

It is made of a numbered plan, which holds no text of a user (numbering.py).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from engine.plan.steps import Store

from .cut_text import dense_shape
from .emitter import CutText, Emitter
from .layout import Layout, layout_for
from .numbering import NumberedPlan
from .writer import Writer

HEAD = '''\
"""Generated from an M3 program: its stores, a function for every trigger, and the rows of its views."""

from engine.generate.order import last_at_most, last_below, ordered_word
from engine.generate.primitives import calendar, integers, precise, reals
from engine.generate.support import (
    bits_to_double, checked_finite, checked_word, clamp, double_bits, key_word, matches, push_key,
    same_integer, wide_null, widened,
)
from engine.maps.doubles import sum_doubles
from engine.maps.int128 import (
    checked_add, checked_multiply, checked_subtract, high_word, low_word, wide, wide_product, wide_to_double,
    words_to_wide,
)
from engine.maps.memory import load, load_double, store, store_double
from engine.maps.dense import Domain
from engine.maps.linkage import exported
from engine.maps.shapes import dense, hashed, ordered
from orderbook.jit import jit
'''

HASHED = (
    *("find", "add", "assign", "get", "remove", "clear", "error", "size"),
    *("first", "next_entry", "create", "destroy"),
)
ORDERED = (
    "add",
    "assign",
    "get",
    "clear",
    "error",
    "total",
    "range_sum",
    "range_first",
    "range_next",
    "key_at",
    "lowest",
    "highest",
    "at_or_above",
    "at_or_below",
    "create",
    "destroy",
    "size",
)


DENSE = ("add", "assign", "get", "clear", "error", "total", "create", "destroy", "size")


@dataclass(slots=True)
class ModuleText:
    """Collects the functions of one module. Raises TypeError for a plan that is not numbered."""

    plan: NumberedPlan
    writer: Writer = field(default_factory=Writer)
    layout: Layout = field(init=False)
    _cuts: dict[str, CutText] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.plan, NumberedPlan):
            raise TypeError("code is generated of numbered plans alone")
        self.layout = layout_for(self.plan)

    @contextmanager
    def function(self, head: str, description: str, options: str = "") -> Iterator[Emitter]:
        """One function, `def head:`, whose body is written inside the context."""
        with self._decorated(f"@jit(error_model='numpy'{options})", head, description) as emitter:
            yield emitter

    @contextmanager
    def exported(self, head: str, description: str) -> Iterator[Emitter]:
        """One function of int64 that is compiled apart from those that call it."""
        with self._decorated("@exported", head, description) as emitter:
            yield emitter

    @contextmanager
    def _decorated(self, decorator: str, head: str, description: str) -> Iterator[Emitter]:
        self.writer.line(decorator)
        with self.writer.block(f"def {head}:"):
            self.writer.line(f'"""{description}"""')
            yield Emitter(self.plan, self.writer, self.layout.handles, self._cuts)
        self.writer.line("")
        self.writer.line("")

    def text(self, imports: str = "", stores: Sequence[Store] | None = None) -> str:
        """The module: `imports` come after those that every module has; of the plan's stores unless given."""
        cuts = self._cuts.values()
        lines = dict.fromkeys(line for cut in cuts for line in cut.imports)
        stores = self.plan.stores if stores is None else stores
        parts = [HEAD, imports, store_imports(stores), "\n".join(lines), "\n\n"]
        return "".join(parts) + "\n\n".join(cut.source for cut in cuts) + "\n\n" + self.writer.text()


def store_imports(stores: Sequence[Store]) -> str:
    """Binds the functions of every store's module to names of this one."""
    lines = []
    for s in stores:
        if s.ordered is None:
            lines.append(f"{s.name} = hashed({len(s.key_types)}, {s.layout!r}, {s.slices!r})")
            names = [n for n in HASHED if s.key_types or n not in ("find", "remove")]
            names += [f"value_{i}" for i in range(len(s.layout))] if s.key_types else []
            names += [f"key_{i}" for i in range(len(s.key_types))]
            names += [f"slice_{i}_{w}" for i in range(len(s.slices)) for w in ("first", "next")]
        elif s.dense is not None:
            lines.append(f"{s.name} = {dense_shape(s)}")
            names = list(DENSE)
        else:
            lines.append(f"{s.name} = ordered({len(s.prefix)}, {s.layout!r})")
            names = [*ORDERED, *(f"value_{i}_at" for i in range(len(s.layout)))]
            names += [] if "d" in s.layout else ["around"]
        lines += [f"{s.name}_{n} = {s.name}.{n}" for n in names]
    return "\n".join(lines) + "\n"
