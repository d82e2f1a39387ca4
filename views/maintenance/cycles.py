"""Cycles of joins through the event: which relations of a component are not put into one map.

A line that names an order and a supplier asks whether the order's customer and the supplier are of one
nation. One map that answers this, keyed by order and supplier, has an entry for all pairs of one nation. Such
a component has a cycle through the event: what is left when all relations are taken away that hang on one
other, the event among them (Graham, 1979; Yu and Ozsoyoglu, 1979). These become maps of their own, which the
event follows from key to key, and what hangs on them one map for each branch.
"""

from collections.abc import Mapping, Sequence

from orderbook.views.calculus import (
    NESTED,
    Factor,
    Lift,
    Rel,
    Term,
    Var,
    bound_by,
    relations,
    variable_set,
)

Bound = frozenset[Var]
# What the event knows, among the places of relations.
_EVENT = -1


def without_cycles(component: Term, bound: Bound) -> tuple[Term, ...]:
    """The component in parts that have no cycle through what is known; factors of several parts are left out.

    bound: what is known. A component with groups or nested sums stays as it is.
    """
    if any(isinstance(f, NESTED) and not _is_computed(f) for f in component):
        return (component,)
    rows = [i for i, f in enumerate(component) if isinstance(f, Rel)]
    edges = {i: bound_by(component[i]) for i in rows}
    core, parent = _core(edges, bound)
    known = [edges[i] & bound for i in core]
    if all(a <= b or b <= a for a in known for b in known):
        return (component,)
    taken = set(rows)
    parts = []
    for part in [[i] for i in core] + _hanging(core, parent):
        more = _within(component, part, taken)
        taken |= more
        parts.append(tuple(f for i, f in enumerate(component) if i in more or i in part))
    return tuple(parts)


def _is_computed(factor: Factor) -> bool:
    return isinstance(factor, Lift) and not relations(factor)


def _core(edges: Mapping[int, Bound], bound: Bound) -> tuple[list[int], dict[int, int]]:
    """The relations of a cycle, and for each that hangs on another one or the event, that one."""
    left = {_EVENT: bound, **edges}
    parent: dict[int, int] = {}
    while True:
        found = _ear(left)
        if found is None:
            return [i for i in left if i != _EVENT], parent
        ear, parent[ear] = found
        del left[ear]


def _ear(left: dict[int, Bound]) -> tuple[int, int] | None:
    """A relation whose variables that others have are all of one other, and that other one."""
    for i, own in left.items():
        if i == _EVENT:
            continue
        others = {j: edge for j, edge in left.items() if j != i}
        shared = own & frozenset[Var]().union(*others.values())
        for j, edge in others.items():
            if shared <= edge:
                return i, j
    return None


def _hanging(core: Sequence[int], parent: Mapping[int, int]) -> list[list[int]]:
    """What hangs on the relations of a cycle, or on the event, one list for each branch."""
    found: dict[int, list[int]] = {}
    for i in parent:
        root = i
        while parent[root] not in core and parent[root] != _EVENT:
            root = parent[root]
        found.setdefault(root, []).append(i)
    return list(found.values())


def _within(component: Term, part: Sequence[int], taken: set[int]) -> set[int]:
    """The places of other factors, not taken yet, that use nothing but what the part binds."""
    known = frozenset(v for i in part for v in bound_by(component[i]))
    found: set[int] = set()
    for i, factor in enumerate(component):
        if i not in taken and isinstance(factor, Lift) and variable_set(factor.body) <= known:
            known |= bound_by(factor)
            found.add(i)
    return found | {i for i, f in enumerate(component) if i not in taken and variable_set(f) <= known}
