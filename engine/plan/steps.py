"""The physical plan of an M3 program: stores, and statements as pipelines of steps."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Union

from views.compiler.calculus import Cmp, Scalar, Var, scalar_variables
from views.compiler.m3 import Program, Result
from views.compiler.types import Type


@dataclass(frozen=True, slots=True)
class Store:
    """One physical structure for one or more maps with the same keys, one value column for each.

    `prefix` and `ordered` are positions among the keys: an ordered store is a tree over the key at
    `ordered` for every prefix; a hashed store (`ordered` is None) has `slices`, the sets of key
    positions by which its entries can be looped over.
    """

    name: str
    maps: tuple[str, ...]
    key_types: tuple[Type, ...]
    layout: str
    prefix: tuple[int, ...] = ()
    ordered: int | None = None
    slices: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Filter:
    """Goes on where the condition is not 0."""

    condition: Scalar


@dataclass(frozen=True, slots=True)
class Lookup:
    """Binds `value` to the entry at `keys`; goes on where it is not 0."""

    value: Var
    map: str
    keys: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Binds `value` to the sum of pipelines."""

    value: Var
    pipelines: tuple["Pipeline", ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """A condition on sums of a tree that holds on one end of its order: found by one descent.

    `sums` are the variables in `condition` that stand for the sum of a map over the keys before the
    entry at hand (and the entry, when `inclusive`), in descending or ascending order of the key at
    `position`; `prefix` are the other keys. It holds on a leading run of the order, or, not `leading`, on
    all but such a run.
    """

    prefix: tuple[Scalar, ...]
    position: int
    sums: tuple[tuple[Var, str], ...]
    condition: Cmp
    descending: bool
    inclusive: bool
    leading: bool


@dataclass(frozen=True, slots=True)
class RangeSum:
    """Binds `value` to the sum of a map over keys from every `low` to every `high`, within every cut."""

    value: Var
    map: str
    keys: tuple[Scalar, ...]
    position: int
    low: tuple[Scalar, ...]
    high: tuple[Scalar, ...]
    cuts: tuple[Cut, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """Goes on for every entry that agrees with the known keys, binding the others and `value`.

    With `position`, the entries of one tree between `low` and `high`; else those of a slice by the
    key positions `known` (none: a scan).
    """

    value: Var
    map: str
    keys: tuple[Scalar, ...]
    known: tuple[int, ...]
    position: int | None = None
    low: tuple[Scalar, ...] = ()
    high: tuple[Scalar, ...] = ()


Step = Union[Filter, Lookup, Aggregate, RangeSum, Loop]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Steps in order; where they all go on, the product of `values` counts."""

    steps: tuple[Step, ...]
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class StatementPlan:
    """`target[keys] op sum of pipelines`.

    `types` has the type of every variable in it. Statements that read the state after are run by
    `level`: each reads only what lower ones wrote. Those that read the state before have level 0.
    """

    target: str
    keys: tuple[Scalar, ...]
    op: str
    pipelines: tuple[Pipeline, ...]
    after: bool
    types: Mapping[Var, Type] = field(compare=False)
    level: int = 0

    def writes_one(self, parameters: Container[Var]) -> bool:
        """Whether the event alone says which entry is written."""
        return all(v in parameters for k in self.keys for v in scalar_variables(k))


@dataclass(frozen=True, slots=True)
class TriggerPlan:
    relation: str
    insert: bool
    parameters: tuple[Var, ...]
    statements: tuple[StatementPlan, ...]


@dataclass(frozen=True, slots=True)
class ResultPlan:
    """How a view's row is computed from its keys: lets in order, each a sum of pipelines."""

    result: Result
    lets: tuple[tuple[Var, tuple[Pipeline, ...]], ...]
    types: Mapping[Var, Type] = field(compare=False)


@dataclass(frozen=True, slots=True)
class Plan:
    """A program's plan; a map is held by every store that lists it."""

    program: Program
    stores: tuple[Store, ...]
    initial: tuple[StatementPlan, ...]
    triggers: tuple[TriggerPlan, ...]
    results: tuple[ResultPlan, ...]

    def stores_of(self, name: str) -> tuple[Store, ...]:
        """The stores that hold a map, hashed ones first."""
        return tuple(s for s in self.stores if name in s.maps)
