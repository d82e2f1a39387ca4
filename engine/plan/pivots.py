"""Keys that a trigger looks at more than once in a tree: sums on both sides of one, or one it writes too."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from views.compiler.calculus import Apply, Const, Scalar, Var
from views.compiler.types import Kind

from .steps import Plan, RangeSum, StatementPlan, Store, steps_of


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


def shared_pivots(plan: Plan, statements: Sequence[StatementPlan], event: Iterable[Var]) -> frozenset[Pivot]:
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
