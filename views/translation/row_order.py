"""The order of rows: the rows that stand before another one, NULL where ORDER BY says.

The first rows of an order follow from it: how often each row stands among them, by counting the rows
before it.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from orderbook.views.calculus import (
    ZERO,
    Apply,
    Cmp,
    Const,
    Exists,
    Extreme,
    Factor,
    Lift,
    Neighbour,
    Poly,
    Rel,
    Scalar,
    Term,
    Val,
    Var,
    bound_by,
    product,
    relations,
    run_along,
    scalar_variables,
    substitute,
    variable_set,
)
from orderbook.views.conditions import (
    FALSE,
    NULL,
    TRUE,
    both,
    choose,
    comparison,
    condition_poly,
    conjuncts,
    is_null,
    linear_form,
    negation,
    not_null,
)
from orderbook.views.intervals import LARGEST_WITH_REST, Types, scalar_type
from orderbook.views.names import apart_from
from orderbook.views.translation.values import Names, Value, binders, keyed, own_variable, renamed
from orderbook.views.types import BIGINT, DOUBLE, INT64_MAX


@dataclass(frozen=True, slots=True)
class Ordered:
    """What rows are ordered by at one place: its value in the rows counted and in the row at hand."""

    one: Value
    other: Value
    descending: bool = False
    nulls_first: bool = False


def in_words(order: Sequence[Ordered], types: Types) -> list[Ordered]:
    """The order with values as keys of a map hold them, so that an index can follow it.

    What is computed is NULL itself where it has no value. An exact value of 128 bits is two: its double, and
    what that leaves of it, which is seldom asked for.
    """
    return [
        replace(item, one=one, other=other)
        for item in order
        for one, other in zip(_words(item.one, types), _words(item.other, types), strict=True)
    ]


def is_wide(value: Value, types: Types) -> bool:
    """Whether a value may need more than 64 bits."""
    return value.type.exact and _largest(value, types) > INT64_MAX


def _largest(value: Value, types: Types) -> int:
    kind = scalar_type(value.scalar, types)
    return max(-kind.low, kind.high)


def _words(value: Value, types: Types) -> Sequence[Value]:
    match value.scalar:
        case Apply("order_word", (Var(), Const(place))):
            # The text says whether there is a first word; the others of NULL are equal.
            return (replace(value, valid=TRUE) if place else value,)
    if not is_wide(value, types):
        return (_nullable(value),)
    rest: Scalar = Apply("rest", (value.scalar,))
    parts = [rest]
    if _largest(value, types) > LARGEST_WITH_REST:
        # The rest is of more than 64 bits, too.
        parts = [Apply(op, (rest, Const(2**11))) for op in ("trunc_div", "mod")]
    double = Value(Apply("double", (value.scalar, Const(0))), DOUBLE, value.valid)
    return _nullable(double), *(Value(choose(value.valid, p, Const(0)), BIGINT, TRUE) for p in parts)


def _nullable(value: Value) -> Value:
    if isinstance(value.scalar, Const) or value.valid in (TRUE, FALSE, not_null(value.scalar)):
        return value
    scalar = choose(value.valid, value.scalar, NULL)
    return Value(scalar, value.type, not_null(scalar))


def before(rows: Poly, order: Sequence[Ordered]) -> Poly:
    """Those of `rows` that stand before the row at hand; rows equal in everything do not."""
    result = ZERO
    for item, equal in _places(rows, order):
        result += equal * _before(item, peers=False)
    return result


def up_to(rows: Poly, order: Sequence[Ordered]) -> Poly:
    """Those of `rows` that stand before the row at hand or are its peers."""
    if not order:
        return rows
    result = ZERO
    for place, (item, equal) in enumerate(_places(rows, order), 1):
        result += equal * _before(item, peers=place == len(order))
    return result


def _places(rows: Poly, order: Sequence[Ordered]) -> list[tuple[Ordered, Poly]]:
    """For each place of the order, those of `rows` that are equal in all places before it."""
    result = []
    names: dict[Var, Scalar] = {}
    for item in order:
        item = Ordered(renamed(item.one, names), item.other, item.descending, item.nulls_first)
        result.append((item, rows))
        same = _shared(rows, item)
        # The one's name stays bound, for what is computed from it.
        own = (Lift(v, product(Val(s))) for v, s in same.items())
        rows = substitute(rows, same) * product(*own) if same else rows * _same(item)
        names |= same
    return result


def _before(item: Ordered, peers: bool) -> Poly:
    """Whether the one stands before the other in this item alone, or is equal where `peers`.

    NULLs stand together at one end; the two cases exclude each other.
    """
    one, other = item.one, item.other
    op = (">" if item.descending else "<") + ("=" if peers else "")
    present = both(both(one.valid, other.valid), comparison(op, one.scalar, other.scalar))
    first, last = (one, other) if item.nulls_first else (other, one)
    absent = both(negation(first.valid), TRUE if peers else last.valid)
    return condition_poly(present) + condition_poly(absent)


def _same(item: Ordered) -> Poly:
    one, other = item.one, item.other
    equal = both(both(one.valid, other.valid), comparison("=", one.scalar, other.scalar))
    return condition_poly(equal) + condition_poly(both(negation(one.valid), negation(other.valid)))


def with_same_columns(rows: Poly, condition: Scalar) -> tuple[Poly, Scalar]:
    """The rows with columns that are equal, or both NULL, under one name; what else the condition asks."""
    left: Scalar = TRUE
    for part in conjuncts(condition):
        columns = _columns_of(rows)
        match _equal_or_null(part):
            case (one, other) if one in columns or other in columns:
                own, same = (one, other) if one in columns else (other, one)
                rows = substitute(rows, {own: same}) * product(Lift(own, product(Val(same))))
            case _:
                left = both(left, part)
    return rows, left


def _equal_or_null(condition: Scalar) -> tuple[Var, Var] | None:
    """The two variables of which a condition says that they are equal or both NULL."""
    match condition:
        case Apply("or", ways):
            for equal, null in (ways, ways[::-1]):
                asked = {*conjuncts(equal)}
                for found in asked:
                    match found:
                        case Apply("=", (Var() as one, Var() as other)) if {*conjuncts(null)} == {
                            is_null(one),
                            is_null(other),
                        } and asked <= {found, not_null(one), not_null(other)}:
                            return one, other
    return None


def _columns_of(rows: Poly) -> set[Var]:
    """The variables that are columns in every term."""
    columns = [{v for f in term if isinstance(f, Rel | Exists) for v in bound_by(f)} for term in rows.terms]
    return set.intersection(*columns) if columns else set()


def _shared(rows: Poly, item: Ordered) -> Mapping[Var, Scalar]:
    """The one's variable as the other's, where it is a column of the rows: so NULL equals NULL."""
    variable = own_variable(item.one, _columns_of(rows))
    other = item.other.scalar
    if variable is None or not isinstance(other, Var) or item.other.valid not in (TRUE, not_null(other)):
        return {}
    return {variable: other}


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
    NULL last; equal rows stand side by side. Columns that are computed of other rows come last.
    """
    # By what is computed of their neighbours, rows are found where they are kept by it.
    computed = _apart(rows, partition)[1]
    by_neighbours = any(isinstance(f, Neighbour) for f in computed) and _reads(order[0][0], computed)
    there, of_others = _apart(rows, [*partition, *(value for value, _, _ in order)])
    if of_others:
        own = {n: v for n, v in columns.items() if not _reads(v, of_others)}
        asked = variable_set(of_others) & binders(there)
        others = {f"{v.name} of others": value for v, value in _columns(names, there).items() if v in asked}
        first, found = first_rows(names, there, own | others, partition, order, limits)
        return first * product(*of_others), {n: found.get(n, v) for n, v in columns.items()}
    lifts: list[Factor] = []
    # The partition is compared by sharing its variables, for its NULLs are together.
    parts = tuple(names.key("part", value, lifts) for value in partition)
    order = _each_place_once(parts, [*order, *((value, False, False) for value in columns.values())])
    identity = names.identity(rows)
    bound = binders(rows) - {
        v for t in rows.terms for f in t if isinstance(f, Lift | Neighbour) for v in bound_by(f)
    }
    of_columns = any(is_wide(v, names.types) and bound.issuperset(_used(v)) for v, _, _ in order)
    told_apart = identity is not None and identity <= {*parts, *(value.scalar for value, _, _ in order)}
    if identity is not None and told_apart and not of_columns and not by_neighbours:
        rows = rows * product(*lifts)
        place = _count_by_place(names, rows, parts, _decisive(identity, parts, order), None, limits)
        return rows * place, dict(columns)
    kept: dict[Value, Value] = {}
    told: dict[Var, Scalar] = dict.fromkeys(parts, TRUE)
    for value in columns.values():
        used = _used(value)
        # Rows with a value that no key holds are told apart by what it is computed of.
        apart = is_wide(value, names.types) and bound.issuperset(used)
        kept[value] = value if apart else keyed(names.key("value", value, lifts), value)
        for variable in used if apart else scalar_variables(kept[value].scalar):
            told.setdefault(variable, TRUE if value.valid == TRUE else not_null(variable))
    words = [(w, descends, first) for v, descends, first in order for w in _words(v, names.types)]
    leading = _text_of(words[0][0]) if words else None
    # An index follows the first place alone.
    beside = told.keys() - {leading}
    order = [
        (w if _text_of(w) in beside else keyed(names.key("value", w, lifts), w), descends, first)
        for w, descends, first in words
    ]
    order += [(Value(v, names.types[v], valid), False, False) for v, valid in told.items()]
    order = _each_place_once(parts, order)
    told |= dict.fromkeys((value.scalar for value, _, _ in order if isinstance(value.scalar, Var)), TRUE)
    rows = rows * product(*lifts)
    count: list[Factor] = []
    copies = names.lift("copies", rows, count)
    # Those of the queries around are the same in all rows.
    here = binders(rows) if rows.terms else told
    distinct = product(Exists(tuple(v for v in told if v in here), rows), *count)
    place = _count_by_place(names, rows, parts, order, copies, limits)
    return distinct * place, {name: kept[value] for name, value in columns.items()}


def _apart(rows: Poly, asked: Sequence[Value]) -> tuple[Poly, Term]:
    """Rows of relations, and what is computed beside each of other rows; `asked` is not."""
    term = rows.terms[0] if len(rows.terms) == 1 else ()
    computed = [f for f in term if isinstance(f, Lift | Neighbour)]
    stays = [f for f in term if not isinstance(f, Lift | Neighbour)]
    if not stays or not all(isinstance(f, Rel | Cmp | Val) for f in stays):
        return rows, ()
    needed = variable_set(tuple(stays)) | {v for value in asked for v in _used(value)}
    while found := [f for f in computed if bound_by(f) & needed]:
        computed = [f for f in computed if f not in found]
        needed |= variable_set(tuple(found))
    if not relations(tuple(computed)):
        return rows, ()
    return Poly((tuple(f for f in term if f not in computed),)), tuple(computed)


def _reads(value: Value, factors: Term) -> bool:
    return not {v for f in factors for v in bound_by(f)}.isdisjoint(_used(value))


def _columns(names: Names, rows: Poly) -> dict[Var, Value]:
    """What rows of relations bind, as values."""
    nullable = {
        argument
        for term in rows.terms
        for factor in term
        if isinstance(factor, Rel)
        for argument, column in zip(factor.args, names.relations[factor.name].columns, strict=True)
        if column.nullable
    }
    return {
        v: Value(v, names.types[v], not_null(v) if v in nullable else TRUE)
        for v in sorted(binders(rows), key=str)
    }


def _text_of(value: Value) -> Var | None:
    """The text whose order a value is of."""
    match value.scalar:
        case Apply("order_word", (Var() as text, Const(_))):
            return text
    return None


def _used(value: Value) -> tuple[Var, ...]:
    return (*scalar_variables(value.scalar), *scalar_variables(value.valid))


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


def _count_by_place(
    names: Names,
    rows: Poly,
    parts: Sequence[Var],
    order: Sequence[OrderValue],
    copies: Var | None,
    limits: tuple[int, int],
    sooner: Scalar | None = None,
) -> Poly:
    """How many of the `copies` of a row (one where None) stand at the places that are taken.

    `sooner` rows stand before all of these. Where the first place of the order may be NULL, the rows with
    NULL there are an order of their own, by the places that follow. So what is counted of either is a running
    sum along one order; of columns an index has it where NULL is last.
    """
    indexed = sooner is None and bool(order) and not order[0][2] and _is_column(rows, order[0][0])
    if not order or indexed or order[0][0].valid in (TRUE, FALSE):
        others, renaming = names.copy(rows, frozenset(parts))
        return _taken(names, others, renaming, order, copies, limits, sooner)
    (value, descends, nulls_first), *rest = order
    there, absent = condition_poly(value.valid), condition_poly(negation(value.valid))
    present = [(replace(value, valid=TRUE), descends, nulls_first), *rest]
    halves = [(there, present), (absent, rest)]
    first, last = reversed(halves) if nulls_first else halves
    others, renaming = names.copy(rows * first[0], frozenset(parts))
    lifts: list[Factor] = []
    ahead: Scalar = names.lift("ahead", others, lifts)
    after = ahead if sooner is None else Apply("+", (sooner, ahead))
    result = first[0] * _count_by_place(names, rows * first[0], parts, first[1], copies, limits, sooner)
    behind = _count_by_place(names, rows * last[0], parts, last[1], copies, limits, after)
    # Implied by what follows, but known before any row of these is looked at.
    some = Cmp("<", after, Const(sum(limits)))
    return result + last[0] * product(*lifts, some) * behind


def _is_column(rows: Poly, value: Value) -> bool:
    """Whether a value is a column of the rows."""
    sources = (f for t in rows.terms for f in t if isinstance(f, Rel | Exists))
    return isinstance(value.scalar, Var) and any(value.scalar in bound_by(f) for f in sources)


def _taken(
    names: Names,
    others: Poly,
    renaming: Mapping[Var, Scalar],
    order: Sequence[OrderValue],
    copies: Var | None,
    limits: tuple[int, int],
    sooner: Scalar | None,
) -> Poly:
    """How many stand at the places that are taken, by those of `others` before it and `sooner` more."""
    pairs = [Ordered(renamed(v, renaming), v, descends, first) for v, descends, first in order]
    pairs = in_words(pairs, names.types)
    end = Const(sum(limits))
    lifts: list[Factor] = []
    conditions: list[Factor] = []

    def after_sooner(count: Var) -> Scalar:
        return count if sooner is None else Apply("+", (sooner, count))

    if len(pairs) > 1:
        # Implied by the next, but a running sum along one order, which an index can cut.
        ahead = names.lift("ahead", before(others, pairs[:1]), lifts)
        conditions.append(Cmp("<", after_sooner(ahead), end))
    place: Scalar = Const(0) if sooner is None else sooner
    if pairs:
        place = after_sooner(names.lift("place", before(others, pairs), lifts))
    return product(*lifts, *conditions) * _at_places(place, copies, limits)


def _at_places(place: Scalar, copies: Var | None, limits: tuple[int, int]) -> Poly:
    """How many of the copies of a row stand from the offset on, where `place` is that of the first one."""
    limit, offset = limits
    end = Const(limit + offset)
    within = Cmp("<", place, end)
    if copies is None:
        return product(within, *([Cmp(">=", place, Const(offset))] if offset else []))
    if not offset:
        return product(within, Val(Apply("least", (copies, Apply("-", (end, place))))))
    last = Apply("+", (place, copies))
    taken = Apply("-", (Apply("least", (last, end)), Apply("greatest", (place, Const(offset)))))
    return product(within, Cmp(">", last, Const(offset)), Val(taken))


def supporting(rows: Poly, value: Scalar | None = None) -> Poly:
    """Rows that there are where there are these: those of groups in place of groups that sums run along.

    Groups that are joined to other rows stay, for those of the groups would be paired with them, and so do
    those of which a value is asked that is no key, and those with bounds so many groups away.
    """
    found: list[Term] = []
    for term in rows.terms:
        sources = [i for i, f in enumerate(term) if isinstance(f, Rel | Exists)]
        groups = term[sources[0]] if len(sources) == 1 else None
        keys = frozenset(groups.group) if isinstance(groups, Exists) else frozenset[Var]()
        away = any(isinstance(f, Neighbour) and f.away for f in term)
        if not isinstance(groups, Exists) or value not in {None, *keys} or away or not _run_along(keys, term):
            found.append(term)
            continue
        rest = term[: sources[0]] + term[sources[0] + 1 :]
        local = binders(groups.body) - frozenset(groups.group)
        names = apart_from(local, variable_set(rest) | frozenset(groups.group))
        found += (inner + rest for inner in supporting(substitute(groups.body, names), value).terms)
    return Poly(tuple(found))


def _run_along(keys: frozenset[Var], term: Term) -> bool:
    """Whether aggregates are of the rows on one side of some keys, and not compared with each group's.

    What asks of each group is looked at group by group.
    """
    lifts = [f for f in term if isinstance(f, Lift)]
    running = {f.var: run_along(f.body, keys) for f in lifts}
    along = frozenset[Var]().union(*running.values())
    own = {f.var for f in lifts if not running[f.var] and relations(f.body) and along & variable_set(f.body)}
    sums = {f.var for f in lifts if not any(isinstance(i, Extreme) for t in f.body.terms for i in t)}
    return bool(along) and not any(_asks_of_each(f, own, running, sums) for f in term if isinstance(f, Cmp))


def _asks_of_each(asked: Cmp, own: Set[Var], running: Mapping[Var, frozenset[Var]], sums: Set[Var]) -> bool:
    """Whether an aggregate of a group is compared with one that runs along.

    Not where a sum is taken from that, which leaves the sum of what is before the group.
    """
    compared = variable_set(asked)
    along = [v for v in compared if running.get(v)]
    form = linear_form(Apply("-", (asked.left, asked.right))) or ({}, 0)
    taken = (form[0].get(v, 0) + form[0].get(w, 0) == 0 for v in sums & {*along} for w in compared & own)
    before = form[0] and compared & own <= sums and any(taken)
    return bool(along) and not before and not compared.isdisjoint(own)
