"""The first rows of an order: how often each row stands among them, by counting the rows before it."""

from collections.abc import Mapping, Sequence

from views.compiler.calculus import Apply, Cmp, Const, Exists, Factor, Poly, Scalar, Val, Var, product
from views.compiler.names import Names, keyed, renamed

from .row_order import Ordered, before
from .values import Value

# A value that rows are ordered by, whether it descends, whether NULLs come first.
OrderValue = tuple[Value, bool, bool]


def first_rows(
    names: Names,
    rows: Poly,
    columns: Mapping[str, Value],
    partition: Sequence[Value],
    order: Sequence[OrderValue],
    limits: tuple[int, int],
) -> tuple[Poly, dict[str, Value]]:
    """The rows at places offset to offset + limit of each partition, and the columns in them.

    `limits` are limit and offset. Rows equal in the order are taken by the columns, left to right,
    NULL last; equal rows stand side by side.
    """
    lifts: list[Factor] = []
    # The partition is compared by sharing its variables, for its NULLs are together.
    parts = tuple(names.key("part", value, lifts) for value in partition)
    order = _each_place_once(parts, [*order, *((value, False, False) for value in columns.values())])
    identity = names.identity(rows)
    if identity is not None and identity <= {*parts, *(value.scalar for value, _, _ in order)}:
        rows = rows * product(*lifts)
        place = _places(names, rows, parts, _decisive(identity, parts, order), None, limits)
        return rows * place, dict(columns)
    kept = {v: keyed(names.key("value", v, lifts), v) for v in (*columns.values(), *(o[0] for o in order))}
    rows = rows * product(*lifts)
    variables = (v.scalar for v in kept.values() if isinstance(v.scalar, Var))
    count: list[Factor] = []
    copies = names.lift("copies", rows, count)
    distinct = product(Exists(tuple(dict.fromkeys((*parts, *variables))), rows), *count)
    place = _places(
        names, rows, parts, [(kept[v], descends, first) for v, descends, first in order], copies, limits
    )
    return distinct * place, {name: kept[value] for name, value in columns.items()}


def _each_place_once(parts: Sequence[Var], order: Sequence[OrderValue]) -> list[OrderValue]:
    """The order without what is equal in all rows of a partition or comes again."""
    seen: set[Scalar] = set(parts)
    result = []
    for item in order:
        scalar = item[0].scalar
        if scalar not in seen and not isinstance(scalar, Const):
            result.append(item)
        seen.add(scalar)
    return result


def _decisive(
    identity: frozenset[Var], parts: Sequence[Var], order: Sequence[OrderValue]
) -> Sequence[OrderValue]:
    """The first places of the order that tell all rows of a partition apart."""
    for size in range(1, len(order)):
        if identity <= {*parts, *(value.scalar for value, _, _ in order[:size])}:
            return order[:size]
    return order


def _places(
    names: Names,
    rows: Poly,
    parts: Sequence[Var],
    order: Sequence[OrderValue],
    copies: Var | None,
    limits: tuple[int, int],
) -> Poly:
    """How many of the `copies` of a row (one where None) stand at the places that are taken."""
    limit, offset = limits
    others, renaming = names.copy(rows, frozenset(parts))
    pairs = [Ordered(renamed(v, renaming), v, descends, first) for v, descends, first in order]
    end = Const(limit + offset)
    lifts: list[Factor] = []
    conditions: list[Factor] = []
    if len(pairs) > 1:
        # Implied by the next, but a running sum along one order, which an index can cut.
        ahead = names.lift("ahead", before(others, pairs[:1]), lifts)
        conditions.append(Cmp("<", ahead, end))
    place = names.lift("place", before(others, pairs), lifts)
    conditions.append(Cmp("<", place, end))
    if copies is None:
        skipped = [Cmp(">=", place, Const(offset))] if offset else []
        return product(*lifts, *conditions, *skipped)
    if not offset:
        taken = Apply("least", (copies, Apply("-", (end, place))))
        return product(*lifts, *conditions, Val(taken))
    last = Apply("+", (place, copies))
    taken = Apply("-", (Apply("least", (last, end)), Apply("greatest", (place, Const(offset)))))
    return product(*lifts, *conditions, Cmp(">", last, Const(offset)), Val(taken))
