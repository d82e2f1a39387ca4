"""What the text of every step needs: words of keys, handles of stores, types of maps."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.plan.pivots import Pivot
from engine.plan.steps import Store
from views.compiler.calculus import Scalar, Var
from views.compiler.types import Kind, Type

from .numbering import NumberedPlan
from .scalars import scalar_code
from .typed_code import STATE, Code, held_as, in_word
from .writer import Writer

Names = dict[Var, Code]
# Up to as many entries a store is emptied one by one.
FEW = 256


@dataclass(frozen=True, slots=True)
class CutText:
    """The function of a cut search, and what the module must import for it."""

    name: str
    source: str
    imports: tuple[str, ...]


@dataclass(slots=True)
class Emitter:
    """Where the text of one function goes; cut functions it needs are collected in `cuts`.

    `pivots` are the keys of trees that are looked at once for all that is done there.
    """

    plan: NumberedPlan
    writer: Writer
    handles: dict[str, int]
    cuts: dict[str, CutText] = field(default_factory=dict)
    pivots: frozenset[Pivot] = frozenset()

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
        return self.writer.once(f"h_{store.name}", f"load({STATE}, {self.handles[store.name]})")

    def call(self, store: Store, function: str, *arguments: str) -> str:
        return f"{store.name}_{function}({', '.join([self.handle(store), *arguments])})"

    def hashed(self, name: str) -> Store | None:
        return next((s for s in self.plan.stores_of(name) if s.ordered is None), None)

    def tree(self, name: str, position: int) -> Store:
        return next(s for s in self.plan.stores_of(name) if s.ordered == position)

    def map_type(self, name: str) -> Type:
        return self.plan.program.map(name).type


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
