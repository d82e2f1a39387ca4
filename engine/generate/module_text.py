"""The text of a generated module: imports of its stores, cut functions, and functions one by one.

It is made of a numbered plan, which holds no text of a user (numbering.py). Text is indented and has scopes:
an expression computed before in an enclosing block is not computed again. An emitter gives the text of every
step what it needs: words of keys, handles of stores, types of maps.

Pivots are keys that a trigger looks at more than once in a tree: sums on both sides of one, or one it writes
too. They are looked at once for all that is done there.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from orderbook.core.recent import Recent
from orderbook.engine.generate.expressions import STATE, Code, handle_slot, held_as, in_word, scalar_code
from orderbook.engine.generate.numbering import NumberedPlan
from orderbook.engine.generate.plan_reads import PlanReads
from orderbook.engine.generate.state_layout import Layout, layout_for
from orderbook.engine.plan.steps import RangeSum, StatementPlan, Store, steps_of
from orderbook.views.calculus import Apply, Const, Scalar, Var
from orderbook.views.types import Kind, Type


class Writer:
    """Collects the lines of a module's functions."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 0
        # What is known, by scope: the variable, and the store that it says something of.
        self._scopes: list[dict[str, tuple[str, str | None]]] = [{}]
        self._number = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text if text else "")

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """An indented block; what is computed inside is forgotten after it."""
        self.line(head)
        self._depth += 1
        self._scopes.append({})
        mark = len(self.lines)
        yield
        if len(self.lines) == mark:
            self.line("pass")
        self._scopes.pop()
        self._depth -= 1

    def begin(self) -> None:
        """Another function, whose variables are numbered from 1: its text is the same wherever it stands."""
        self._number = 0

    def fresh(self, prefix: str) -> str:
        self._number += 1
        return f"{prefix}_{self._number}"

    def once(self, prefix: str, expression: str, of: str | None = None) -> str:
        """The variable that holds an expression, assigned here unless it is known already; see `remember`."""
        name = self.recall(expression)
        if name is None:
            name = self.fresh(prefix)
            self.line(f"{name} = {expression}")
            self.remember(expression, name, of)
        return name

    def recall(self, what: str) -> str | None:
        """The variable that is known to hold something here."""
        return next((scope[what][0] for scope in reversed(self._scopes) if what in scope), None)

    def remember(self, what: str, name: str, of: str | None = None) -> None:
        """Lets the rest of the block know what a variable holds.

        of: the only store that can change it; "": none can; None: any.
        """
        self._scopes[-1][what] = name, of

    def forget(self, changed: Collection[str] | None = None) -> None:
        """Drops what is known of stores that have changed (None: any), and of no one store."""
        for scope in self._scopes:
            for what, (_, of) in list(scope.items()):
                if of is None or (of and (changed is None or of in changed)):
                    del scope[what]

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


@dataclass(frozen=True, slots=True)
class Pivot:
    """A key of a store's tree: its other keys, and the word of its ordered one."""

    store: str
    prefix: tuple[Scalar, ...]
    key: Scalar


def has_pivots(store: Store) -> bool:
    """Whether a store gives the sums on both sides of a key at once, and none of them is NULL's."""
    tree = store.ordered is not None and store.dense is None
    return tree and not store.nullable and "d" not in store.layout


def pivot_of(store: Store, step: RangeSum) -> tuple[Pivot, str] | None:
    """The key that bounds a range on one side, and the comparison of the range's keys with it."""
    within = step.range
    if within.cuts or len(within.low) + len(within.high) != 1 or not has_pivots(store):
        return None
    (bound,) = within.low or within.high
    strict = Const(1 if within.low else -1)
    op = ">=" if within.low else "<="
    match bound:
        case Apply("+", (inner, constant)) if constant == strict:
            bound, op = inner, op[0]
    return Pivot(store.name, tuple(step.keys[i] for i in store.prefix), bound), op


class Stored(Protocol):
    """What tells where maps are held."""

    def stores_of(self, name: str, /) -> tuple[Store, ...]:
        """The stores that hold a map, hashed ones first."""


def shared_pivots(
    plan: Stored, statements: Sequence[StatementPlan], event: Iterable[Var]
) -> frozenset[Pivot]:
    """The keys that statements look at more than once, `event` being the variables of their trigger."""
    uses: defaultdict[Pivot, set[str]] = defaultdict(set)
    parameters = frozenset(event)
    for statement in statements:
        for step in steps_of(statement.pipelines):
            if isinstance(step, RangeSum):
                for store in plan.stores_of(step.map):
                    if store.ordered == step.range.position and (found := pivot_of(store, step)):
                        uses[found[0]].add(found[1])
        if statement.writes_one(parameters):
            for store in filter(has_pivots, plan.stores_of(statement.target)):
                uses[_written(store, statement)].add("write")
    return frozenset(pivot for pivot, ways in uses.items() if len(ways) > 1)


def _written(store: Store, statement: StatementPlan) -> Pivot:
    assert store.ordered is not None
    key = statement.keys[store.ordered]
    if store.key_types[store.ordered].kind is Kind.DOUBLE:
        key = Apply("ordered_word", (key,))
    return Pivot(store.name, tuple(statement.keys[i] for i in store.prefix), key)


Names = dict[Var, Code]
# Up to as many entries a store is emptied one by one.
FEW = 256


@dataclass(slots=True)
class Emitter:
    """Where the text of one function goes.

    `pivots` are the keys of trees that are looked at once for all that is done there, `again` the functions
    of statements that are written once for all triggers, by the statements' identities.
    """

    plan: PlanReads
    writer: Writer
    pivots: frozenset[Pivot] = frozenset()
    again: Mapping[int, str] = field(default_factory=dict)

    def scalar(self, scalar: Scalar, names: Names) -> Code:
        return scalar_code(scalar, names)

    def key(self, scalar: Scalar, kind: Type, names: Names) -> str:
        """A scalar as the word of a key that is read, where the plan has made sure that it fits one."""
        code = self.scalar(scalar, names)
        if kind.kind is Kind.DOUBLE and code.kind == "d":
            return f"double_bits({STATE}, {code.text})"
        return f"key_word({code.text})" if code.kind == "w" else held_as(code, "i")

    def new_key(self, scalar: Scalar, kind: Type, names: Names) -> str:
        """A scalar as the word of a key that is written; one that does not fit is noted in the state."""
        code = self.scalar(scalar, names)
        return f"checked_word({code.text}, {STATE})" if code.kind == "w" else self.key(scalar, kind, names)

    def handle(self, store: Store) -> str:
        return self.writer.once(f"h_{store.name}", f"load({STATE}, {handle_slot(store.name)})", "")

    def call(self, store: Store, function: str, *arguments: str) -> str:
        return f"{store.name}_{function}({', '.join([self.handle(store), *arguments])})"

    def hashed(self, name: str) -> Store | None:
        return next((s for s in self.plan.stores_of(name) if s.ordered is None), None)

    def tree(self, name: str, position: int) -> Store:
        return next(s for s in self.plan.stores_of(name) if s.ordered == position)

    def map_type(self, name: str) -> Type:
        return self.plan.map(name).type


def in_order(words: Sequence[str], store: Store) -> list[str]:
    """The words of a map's keys as its store takes them: a tree's ordered one last, as it keeps it."""
    if store.ordered is None:
        return list(words)
    return [*(words[i] for i in store.prefix), tree_word(words[store.ordered], store)]


def tree_word(word: str, store: Store) -> str:
    """The word of a tree's ordered key from that of the key, or back."""
    assert store.ordered is not None
    return f"ordered_word({word})" if store.key_types[store.ordered].kind is Kind.DOUBLE else word


def key_code(word: str, kind: Type) -> Code:
    """A key from its word."""
    text = f"bits_to_double({STATE}, {word})" if kind.kind is Kind.DOUBLE else word
    return Code(text, in_word(kind))


def empty(emitter: Emitter, store: Store) -> None:
    """Removes every entry: one by one where they are few, since giving memory back takes long."""
    w = emitter.writer
    if store.ordered is not None or not store.key_types:
        w.line(emitter.call(store, "clear"))
        return
    first = emitter.call(store, "first")
    with w.block(f"if {emitter.call(store, 'size')} > {FEW}:"):
        w.line(emitter.call(store, "clear"))
    entry = w.fresh("entry")
    w.line(f"{entry} = {first}")
    with w.block(f"while {entry} != 0:"):
        w.line(emitter.call(store, "remove", entry))
        w.line(f"{entry} = {first}")


def dense_shape(store: Store) -> str:
    """The expression for the module of a dense store."""
    assert store.dense is not None
    cursors = len(store.dense.cursors)
    return f"dense({len(store.prefix)}, {store.layout!r}, {store.dense.domain!r}, {cursors})"


HEAD = '''\
"""Generated from an M3 program: its stores, a function for every trigger, and the rows of its views."""

from orderbook.engine.generate.support import (
    bits_to_double, calendar, checked_finite, checked_word, clamp, double_bits, integers, key_word,
    last_addend, last_at_most, last_below, last_dividend, last_factor, last_key, matches, ordered_word,
    push_key, reals, returned_double, returned_word, same_integer, text_value, user_function,
    wide_null, widened,
)
from orderbook.engine.maps.wide_numbers import (
    checked_add, checked_multiply, checked_subtract, high_word, low_word, sum_doubles, wide, wide_product,
    wide_to_double, words_to_wide,
)
from orderbook.engine.maps.memory import load, load_double, store, store_double
from orderbook.engine.maps.dense import Domain
from orderbook.engine.maps.shapes import dense, hashed, ordered
from orderbook.core.jit import exported, jit, number, slot
'''

HASHED = (
    *("find", "add", "add_at", "assign", "assign_at", "get", "remove", "clear", "error", "size"),
    *("first", "next_entry", "create", "destroy"),
)
# What a store has only where it has keys.
KEYED = ("find", "add_at", "assign_at", "remove")
ORDERED = (
    "add",
    "assign",
    "get",
    "clear",
    "error",
    "range_first",
    "range_next",
    "range_last",
    "range_previous",
    "key_at",
    "lowest",
    "highest",
    "at_or_above",
    "at_or_below",
    "create",
    "destroy",
    "size",
)
# What an ordered store has only where sums are kept.
SUMMED = ("total", "range_sum")


DENSE = ("add", "assign", "get", "clear", "error", "total", "create", "destroy", "size")


@dataclass(frozen=True, slots=True)
class _Written:
    """Lines, what they were written of, and what was asked of the plan."""

    of: tuple[StatementPlan, ...]
    lines: tuple[str, ...]
    asked: Mapping[tuple[str, str], Any]


# By the identities of statements, which nothing else has while these are held.
_WRITTEN: Recent[tuple[str | int, ...], _Written] = Recent(1 << 12)


@dataclass(slots=True)
class ModuleText:
    """Collects the functions of one module. Raises TypeError for a plan that is not numbered."""

    plan: NumberedPlan
    writer: Writer = field(default_factory=Writer)
    layout: Layout = field(init=False)
    reads: PlanReads = field(init=False)
    # Functions of statements that are written once for all triggers, by the statements' identities.
    again: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.plan, NumberedPlan):
            raise TypeError("code is generated of numbered plans alone")
        self.layout, self.reads = layout_for(self.plan), PlanReads(self.plan)

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
        self.writer.begin()
        with self.writer.block(f"def {head}:"):
            self.writer.line(f'"""{description}"""')
            yield Emitter(self.reads, self.writer)
        self.writer.line("")
        self.writer.line("")

    def remembered(self, said: str, of: Sequence[StatementPlan], write: Callable[[], None]) -> None:
        """Writes what follows from a text, statements, and what is asked of the plan meanwhile.

        Where that was written before, and the plan gives the same answers, it is what it was.
        """
        key: tuple[str | int, ...] = (said, *map(id, of))
        known = _WRITTEN.get(key)
        if known is not None and self.reads.answers(known.asked):
            self.writer.lines += known.lines
            return
        self.reads.asked, start = {}, len(self.writer.lines)
        write()
        lines, asked = tuple(self.writer.lines[start:]), self.reads.asked
        _WRITTEN.put(key, _Written(tuple(of), lines, asked))
        self.reads.asked = {}

    def text(self, imports: str = "", stores: Sequence[Store] | None = None) -> str:
        """The module: `imports` come after those that every module has; of the plan's stores unless given."""
        cuts = self.reads.cuts.values()
        lines = dict.fromkeys(line for cut in cuts for line in cut.imports)
        stores = self.plan.stores if stores is None else stores
        functions = "\n\n".join(cut.source for cut in cuts) + "\n\n" + self.writer.text()
        for name, kind, value in sorted(set(re.findall(r"\b((slot|number)_(m?\d+))\b", functions))):
            lines[f"{name} = {kind}({value.replace('m', '-')})"] = None
        for name, function in sorted(set(re.findall(r"\b(python_(\d+))\b", functions))):
            lines[f"{name} = user_function({function})"] = None
        for name, store in sorted(set(re.findall(r"\b(handle_([md]\d+))\b", functions))):
            lines[f"{name} = slot({self.layout.handles[store]})"] = None
        for name, view, per in sorted(set(re.findall(r"\b(look_(\d+)_([01]))\b", functions))):
            lines[f"{name} = slot({self.layout.look(int(view), per == '1')})"] = None
        return "".join([HEAD, imports, store_imports(stores), "\n".join(lines), "\n\n", functions])


def store_imports(stores: Sequence[Store]) -> str:
    """Binds the functions of every store's module to names of this one."""
    lines = []
    for s in stores:
        if s.ordered is None:
            lines.append(f"{s.name} = hashed({len(s.key_types)}, {s.layout!r}, {s.slices!r})")
            names = [n for n in HASHED if s.key_types or n not in KEYED]
            names += [f"value_{i}" for i in range(len(s.layout))] if s.key_types else []
            names += [f"key_{i}" for i in range(len(s.key_types))]
            names += [f"slice_{i}_{w}" for i in range(len(s.slices)) for w in ("first", "next")]
        elif s.dense is not None:
            lines.append(f"{s.name} = {dense_shape(s)}")
            names = list(DENSE)
        else:
            summed = "" if s.summed else ", summed=False"
            lines.append(f"{s.name} = ordered({len(s.prefix)}, {s.layout!r}{summed})")
            names = [*ORDERED, *(f"value_{i}_at" for i in range(len(s.layout)))]
            names += SUMMED if s.summed else ()
            names += ["around"] if s.summed and "d" not in s.layout else []
        # Each store stands apart, so that its lines are looked at and compiled once (core/generated_code.py).
        lines += [*(f"{s.name}_{n} = {s.name}.{n}" for n in names), ""]
    return "\n".join(lines) + "\n"
