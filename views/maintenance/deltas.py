"""What an event changes: deltas of polynomials for one inserted or deleted row, and what the row can reach.

What a changed row can reach are the bindings for which a nested aggregate may have another value. A `Domain`
gives some variables a scalar of the event's parameters; the change reaches only bindings that agree with it.
This is the domain extraction of the DBToaster papers (VLDB Journal 2014, section 5): through equal names, and
through the equalities and lifts beside the changed relation.

Where a changed row is, or was, the extreme are the only bindings whose extreme it can change. A row at value
v is the greatest of a binding where its comparisons admit v and no row beyond v satisfies them. Rows beyond v
are other rows, so that this says the same before the event as after it.

Where the changed relation stands inside a nested aggregate the change has no simpler form, so what it can
reach is evaluated again from maps: before the event with a minus, and after it. A `Piece` is one term of
that, over relations still.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from orderbook.views.calculus import (
    CONDITIONS,
    MINUS_ONE,
    MIRRORED,
    NESTED,
    ONE,
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
    nested_relations,
    product,
    relations,
    scalar_variables,
    spend,
    substitute,
    substitute_factor,
    substitute_scalar,
    variable_set,
)
from orderbook.views.conditions import NULL, choose, is_null, known_not_null, linear_form, not_null
from orderbook.views.m3 import MapDeclaration
from orderbook.views.maintenance.cuts import has_cut
from orderbook.views.maintenance.ends import compared_ends, equal_to
from orderbook.views.maintenance.joined import joined_groups
from orderbook.views.maintenance.neighbours import Beyond, absent, apart, from_order, in_order, next_beyond
from orderbook.views.maintenance.sides import is_sure, lifted_scalar, near_limits, side_limits
from orderbook.views.names import apart_from, used_outside
from orderbook.views.simplify import simplify
from orderbook.views.types import Relation


def parameters(relation: Relation) -> tuple[Var, ...]:
    """The event's parameters: one for each column, marked by `@` so that no other name is equal."""
    return tuple(Var(f"@{c.name}") for c in relation.columns)


def delta(poly: Poly, relation: Relation, insert: bool) -> Poly:
    """The change of `poly` when one row is inserted or deleted; what is nested is taken as it was.

    Leibniz's rule over all occurrences at once: a product of k occurrences has 2^k - 1 changes, and
    a deletion's sign is that of the number of occurrences replaced (Koch 2010, section 4).
    """
    row = parameters(relation)
    terms: list[Term] = []
    for term in poly.terms:
        places = [i for i, f in enumerate(term) if isinstance(f, Rel) and f.name == relation.name]
        spend((1 << len(places)) * len(term))
        for size in range(1, len(places) + 1):
            for chosen in combinations(places, size):
                factors: list[Factor] = [] if insert or size % 2 == 0 else [MINUS_ONE]
                for i, factor in enumerate(term):
                    if i in chosen:
                        assert isinstance(factor, Rel)
                        factors += [Cmp("=", a, p) for a, p in zip(factor.args, row, strict=True)]
                    else:
                        factors.append(factor)
                terms.append(tuple(factors))
    return Poly(tuple(terms))


Domain = Mapping[Var, Scalar]
# More domains than this are replaced by what they have in common.
MOST_DOMAINS = 4
# Those that are apart from each other need not leave each other out.
MOST_APART = 16


def row_domains(term: Term, relation: Relation) -> list[Domain]:
    """The bindings that the changed row itself can make, for every factor that reads it."""
    row = parameters(relation)
    return [
        _closed({a: p for a, p in zip(f.args, row, strict=True) if isinstance(a, Var)}, term, relation)
        for f in term
        if isinstance(f, Rel) and f.name == relation.name
    ]


def nested_domains(term: Term, relation: Relation, outer: frozenset[Var] = frozenset()) -> list[Domain]:
    """The bindings for which a nested polynomial of the term may change: those of any of the domains.

    An empty domain says that any binding may be affected; no domains, that none is.
    """
    beside = frozenset(v for f in term if isinstance(f, Neighbour) for v in bound_by(f))
    outside = (outer | used_outside(term)) - (_aggregates(term) - beside)
    found: list[Domain] = []
    for factor in term:
        if isinstance(factor, NESTED):
            inside = outside.union(factor.values) if isinstance(factor, Neighbour) else outside
            reached = [d for inner in factor.body.terms for d in _reached(inner, relation, inside)]
            if isinstance(factor, Neighbour):
                reached = _beside(factor, reached, outside)
            found += reached
    closed = [_closed(d, term, relation) for d in found]
    return distinct({v: s for v, s in d.items() if v not in beside} for d in closed)


def _reached(term: Term, relation: Relation, outer: frozenset[Var]) -> list[Domain]:
    """What the changed row says of a nested term's outer variables, for each way that this reads the row."""
    plain = row_domains(term, relation)
    for compared in () if plain else compared_ends(term, relation.name, outer):
        (rows,) = compared.end.body.terms
        changed = [*row_domains(rows, relation), *nested_domains(rows, relation, variable_set(rows))]
        reached = compared.reached(changed[0]) if len(changed) == 1 else None
        if reached is not None:
            return [{**_only(changed[0], outer), **d} for d in reached]
    domains = (*plain, *nested_domains(term, relation, outer))
    return [_only(_closed(d, term, relation), outer) for d in domains]


def _beside(neighbour: Neighbour, changed: list[Domain], outside: frozenset[Var]) -> list[Domain]:
    """The bindings whose neighbour may be another one when rows of `changed` come or go."""
    beyond = _one_beyond(neighbour, changed)
    if beyond is None:
        return [_only(d, outside) for d in changed]
    return [{**_only(changed[0], outside), **_ordered_as(neighbour, beyond)}]


def _one_beyond(neighbour: Neighbour, changed: Sequence[Domain]) -> tuple[Beyond, ...] | None:
    """The row beyond the only changed one; where several change, it need not be the same afterwards."""
    plain = not neighbour.away and not neighbour.apart and _ordered_as(neighbour, neighbour.order)
    return next_beyond(neighbour, changed[0]) if plain and len(distinct(changed)) == 1 else None


def _ordered_as(neighbour: Neighbour, row: Sequence[Scalar]) -> Domain:
    """The row at hand by its place in the order, also what may be NULL."""
    found: dict[Var, Scalar] = {v: s for v, s in zip(neighbour.order, row, strict=True) if isinstance(v, Var)}
    before: tuple[Scalar, Scalar] | None = None
    for scalar, own in zip(neighbour.order, row, strict=True):
        match scalar:
            case Apply("if", (Apply("is_null", (Var(),)), Const(), Const())):
                before = scalar, own
                continue
            case Apply(
                "if",
                (Apply("not", (Apply("is_null", (Var() as column,)),)), Var() as itself, Const() as beyond),
            ) if column == itself:
                match before:
                    case Apply(
                        "if", (Apply("is_null", (other,)), Const() as when_null, Const())
                    ), own_null if other == column:
                        found[column] = from_order(own_null, own, when_null)
                    case _:
                        found[column] = from_order(own, own, beyond)
        before = None
    return found


def _looking_at(neighbour: Neighbour, domain: Domain, relation: Relation) -> Domain:
    """What the neighbour says of the row at hand where the domain says which row the neighbour is."""
    row = tuple(domain.get(v) for v in neighbour.vars)
    if not any(row) or domain.keys() >= _ordered_as(neighbour, neighbour.order).keys():
        return {}
    around = frozenset(v for s in neighbour.partition for v in scalar_variables(s)).union(neighbour.values)
    changed = [
        _only(_closed(d, inner, relation), around)
        for inner in neighbour.body.terms
        for d in row_domains(inner, relation) + nested_domains(inner, relation, around)
    ]
    beyond = _one_beyond(neighbour, changed)
    if beyond is None:
        return {}
    same = _only(changed[0], around.difference(neighbour.values))
    if all(map(_is_way, row, beyond[0].origin)):
        return {**same, **_ordered_as(neighbour, beyond)}
    first = row[0]
    if not isinstance(first, Beyond) or row != first.row or first.greatest != beyond[0].greatest:
        return {}
    return {**same, **_ordered_as(neighbour, first.further)} if first.same_order(beyond[0]) else {}


def _is_way(scalar: Scalar | None, whole: Scalar) -> bool:
    """Whether a scalar is another one, or what that is of a column that is NULL, or of one that is not.

    A row is read by the latter where what it is read for says which, and of other rows nothing is reached.
    None stands for a constant.
    """
    match whole:
        case Apply("if", (Apply("is_null"), Const(), Const())):
            return scalar is None or scalar == whole
        case Apply("if", (Apply("not", (Apply("is_null"),)), value, Const())):
            return scalar in (value, whole)
    return scalar == whole


def distinct(domains: Iterable[Domain]) -> list[Domain]:
    """Domains none of which lies within another, few of them."""
    kept: list[Domain] = []
    for domain in domains:
        if not any(k.items() <= domain.items() for k in kept):
            kept = [k for k in kept if not domain.items() <= k.items()] + [domain]
    most = MOST_APART if all(apart(a, b) for a, b in combinations(kept, 2)) else MOST_DOMAINS
    return kept if len(kept) <= most else [common(kept)]


def common(domains: Iterable[Domain]) -> Domain:
    """What all domains agree on."""
    first, *rest = domains
    return {v: p for v, p in first.items() if all(d.get(v) == p for d in rest)}


def outside_of(domain: Domain, sure: frozenset[Var]) -> Poly:
    """1 for the bindings that do not agree with the domain; variables of `sure` are never NULL.

    A sum of disjoint terms: the first variable that differs, and equality in those before it. A row beyond
    the event's that is not there agrees with nothing.
    """
    result, before = ZERO, ONE
    differs: Cmp | Val
    equals: Cmp | Val
    found: set[tuple[Beyond, ...]] = set()
    for variable, scalar in sorted(domain.items(), key=lambda item: bool(_rows_named(item[1]))):
        for beyond in _rows_named(scalar):
            if beyond.row not in found:
                result += before * absent(beyond)
                found.add(beyond.row)
            sure |= {*beyond.row}
        if {variable, *scalar_variables(scalar)} <= sure:
            differs, equals = Cmp("<>", variable, scalar), Cmp("=", variable, scalar)
        else:
            differs = Val(_differ(variable, scalar))
            equals = Val(Apply("not", (differs.scalar,)))
        result += before * product(differs)
        before *= product(equals)
    return result


def _rows_named(scalar: Scalar) -> list[Beyond]:
    return [v for v in scalar_variables(scalar) if isinstance(v, Beyond)]


def _differ(left: Scalar, right: Scalar) -> Scalar:
    nulls = (Apply("is_null", (left,)), Apply("is_null", (right,)))
    return Apply("or", (Apply("<>", (left, right)), Apply("<>", nulls)))


def _closed(domain: Domain, term: Term, relation: Relation) -> Domain:
    """The domain with all that follows from it by the equalities, lifts and neighbours of the term."""
    closed = dict(domain)
    growing, never = True, _aggregates(term)
    known = {v for f in term if (v := known_not_null(f)) is not None}
    while growing:
        growing = False
        for variable, scalar in _equalities(term):
            used = set(scalar_variables(scalar))
            if variable not in closed and variable not in never and used <= set(closed):
                value = in_order(substitute_scalar(scalar, closed))
                closed[variable] = _guarded(value, [closed[v] for v in used & known], relation)
                growing = True
        for factor in term:
            if isinstance(factor, Neighbour):
                more = _looking_at(factor, closed, relation)
                growing = growing or not more.keys() <= closed.keys()
                closed = {**more, **closed}
    return closed


def _guarded(value: Scalar, known: Sequence[Scalar], relation: Relation) -> Scalar:
    """What is computed of a column that is known to be there, as it is where that is not known.

    An aggregate that skips rows of NULL computes `s` where groups have `if(not(is_null(c)), s, NULL)`, and
    nobody computes such an `s` of NULL. To reach the group of NULL beside changes nothing of it.
    """
    nullable = {p for p, c in zip(parameters(relation), relation.columns, strict=True) if c.nullable}
    if (
        not isinstance(value, Apply)
        or len(known) != 1
        or known[0] not in nullable
        or not _has_no_choice(value)
    ):
        return value
    return choose(not_null(known[0]), value, NULL)


def _has_no_choice(scalar: Scalar) -> bool:
    """Whether nothing in the scalar is there for what is NULL."""
    if not isinstance(scalar, Apply):
        return True
    return scalar.op != "if" and scalar.op not in CONDITIONS and all(map(_has_no_choice, scalar.args))


def _aggregates(term: Term) -> frozenset[Var]:
    """The variables bound to what is aggregated: they follow a change and cannot limit it."""
    return frozenset(
        v
        for f in term
        if isinstance(f, Extreme | Neighbour) or (isinstance(f, Lift) and relations(f.body))
        for v in bound_by(f)
    )


def _equalities(term: Term) -> Iterator[tuple[Var, Scalar]]:
    for factor in term:
        match factor:
            case Cmp("=", left, right):
                if isinstance(left, Var):
                    yield left, right
                if isinstance(right, Var):
                    yield right, left
                yield from _at_distance(left, right)
            case Lift(var, _) if (computed := lifted_scalar(factor)) is not None:
                yield var, computed


def _at_distance(left: Scalar, right: Scalar) -> Iterator[tuple[Var, Scalar]]:
    """Each of two variables by the other, where they differ by an integer; so they are exact."""
    coefficients, constant = linear_form(Apply("-", (left, right))) or ({}, 0)
    if constant and len(coefficients) == 2 and set(coefficients.values()) == {1, -1}:
        more, less = sorted(coefficients, key=lambda v: -coefficients[v])
        yield more, Apply("-", (less, Const(constant)))
        yield less, Apply("+", (more, Const(constant)))


def _only(domain: Domain, variables: frozenset[Var]) -> Domain:
    return {v: p for v, p in domain.items() if v in variables}


@dataclass(frozen=True, slots=True)
class _Reach:
    """An extreme of a term, its own only term, and the value that a changed row has in it."""

    extreme: Extreme
    inner: Term
    at: Scalar

    @property
    def towards(self) -> str:
        """The comparison that bounds what the extreme may be."""
        return "<" if self.extreme.greatest else ">"

    def bounds(self) -> Term:
        return tuple(f for f in self.inner if _bounds(f, self.extreme.value, self.towards))


def extreme_limits(term: Term, relation: Relation) -> Term:
    """Factors that hold for every binding that a changed row can reach; none where they are not known.

    Known are they where all that reads the relation is one Extreme, and what is read of rows, groups and
    nested polynomials whose value is that extreme.
    """
    reach = _reach(term, relation)
    return _limits(term, reach) if reach else ()


def _reach(term: Term, relation: Relation) -> _Reach | None:
    """The extreme that all bindings a changed row can reach agree with; None where there is none."""
    extremes = [f for f in term if isinstance(f, Extreme) and relation.name in relations(f)]
    for extreme in extremes:
        if len(extreme.body.terms) != 1:
            continue
        (inner,) = extreme.body.terms
        domains = [
            *row_domains(inner, relation),
            *nested_domains(inner, relation, frozenset({extreme.value})),
        ]
        if len(domains) != 1 or extreme.value not in domains[0]:
            continue
        at = domains[0][extreme.value]
        others = [d for f in term if f is not extreme for d in _own_domains(f, term, relation)]
        same = {extreme.var, *equal_to(extreme.var, term)}
        if all(any(d.get(v) == at for v in same) for d in others):
            return _Reach(extreme, inner, at)
    return None


def _own_domains(factor: Factor, term: Term, relation: Relation) -> Iterator[Domain]:
    """What the changed row binds in a factor of the term that reads its relation."""
    if isinstance(factor, Rel):
        yield from row_domains((factor,), relation)
    elif isinstance(factor, NESTED):
        outside = frozenset(factor.group) if isinstance(factor, Exists) else used_outside(term)
        for inner in factor.body.terms:
            for domain in (*row_domains(inner, relation), *nested_domains(inner, relation, outside)):
                yield _only(domain, outside)


def _limits(term: Term, reach: _Reach) -> Term:
    """The row's value is admitted, and as many rows lie within the bounds as lie up to it."""
    extreme, inner, at, towards = reach.extreme, reach.inner, reach.at, reach.towards
    outer = used_outside(term) | frozenset(scalar_variables(at))
    around = [f for f in inner if isinstance(f, Cmp | Val) and variable_set(f) <= outer]
    # What a bound computes of other rows is known where the rows are, not of the row that has changed.
    bounds = tuple(f for f in reach.bounds() if variable_set(f) <= outer | {extreme.value})
    rest = tuple(f for f in inner if f not in around)
    counted, taken = [], variable_set(term) | frozenset(scalar_variables(at))
    up_to_it = Cmp(f"{towards}=", extreme.value, at)
    for rows in (rest, (*(f for f in rest if f not in bounds), up_to_it)):
        local = variable_set(rows) - outer
        names = apart_from((*local, Var("rows")), taken)
        taken |= frozenset(names.values())
        body = substitute(Poly((rows,)), {v: n for v, n in names.items() if v in local})
        counted.append(Lift(names[Var("rows")], body))
    admitted = tuple(substitute_factor(f, {extreme.value: at}) for f in bounds)
    within, up_to = counted
    return (*around, *admitted, *counted, Cmp("<", Apply("-", (within.var, up_to.var)), Const(1)))


def _bounds(factor: Factor, value: Var, towards: str) -> bool:
    """Whether a factor sets a bound on the value on the side where the extreme is."""
    match factor:
        case Cmp(op, left, right) if left == value and value not in scalar_variables(right):
            return op.startswith(towards)
        case Cmp(op, left, right) if right == value and value not in scalar_variables(left):
            return MIRRORED[op].startswith(towards)
    return False


# A pseudo-relation that carries a statement's target keys through simplification.
TARGET = "$target"


@dataclass(frozen=True, slots=True)
class Piece:
    """Terms to add to a map's entries, or to assign to them.

    `given` are variables that stand for scalars of the event's parameters.
    """

    keys: tuple[Scalar, ...]
    terms: tuple[Term, ...]
    op: str
    after: bool
    given: Domain


def pieces(
    declaration: MapDeclaration, relation: Relation, insert: bool, known: Mapping[str, Relation]
) -> list[Piece]:
    """What brings a map up to date after one row of `relation` was inserted or deleted."""
    if relation.name in nested_relations(declaration.definition):
        return _reevaluated(declaration, relation, insert, known)
    return _direct(declaration, declaration.definition, relation, insert, [], frozenset())


def whole(declaration: MapDeclaration) -> Piece:
    """The map evaluated again, whatever has changed."""
    return Piece(declaration.keys, declaration.definition.terms, ":=", True, {})


def _reevaluated(
    declaration: MapDeclaration, relation: Relation, insert: bool, known: Mapping[str, Relation]
) -> list[Piece]:
    """Keys that the event binds are assigned; a domain wider than the keys is taken out and put back.

    Where nothing limits the reach the whole map is evaluated again; a term that has no rows of its own
    is one binding, which nothing need limit.
    """
    keys = frozenset(declaration.keys)
    reading = [t for t in declaration.definition.terms if relation.name in relations(t)]
    nested = _in_groups([nested_domains(t, relation, keys) for t in reading])
    every = [d for t, found in zip(reading, nested, strict=True) for d in (*row_domains(t, relation), *found)]
    shared = common(every)
    beyond_keys = all(any(v not in keys for v in d) for d in every)
    sure = {t: _never_null(t, known) | _sure_parameters(relation) for t in reading}
    joined = {t: joined_reach(t, relation, keys) for t in reading}
    aside = {t for t in reading if _limited(t, relation, sure[t]) or _is_of_null_beside(t, reading)}
    limited = all(
        joined[t] or all(found) or not _has_rows(t) or extreme_limits(t, relation) or t in aside
        for t, found in zip(reading, nested, strict=True)
    )
    few = all(_narrow(t, relation) or t in aside for t in reading)
    if not limited or (not beyond_keys and keys <= set(shared) and not few):
        return [_assignment(declaration, relation, shared if keys <= set(shared) else {})]
    result = []
    for term, domains in zip(reading, nested, strict=True):
        if (reach := joined[term]) is not None:
            result += _again(declaration, term, relation, [reach.domain], sure[term], reach.limits)
            continue
        result += _again(declaration, term, relation, domains, sure[term])
        result += _direct(declaration, Poly((term,)), relation, insert, domains, sure[term])
    return result


def _in_groups(nested: list[list[Domain]]) -> list[list[Domain]]:
    """The domains with one value for groups by what may be NULL, whatever stands for NULL in their key.

    To reach the group of NULL beside changes nothing of it.
    """
    by: dict[tuple[Var, Scalar, Scalar], Scalar] = {}
    for variable, scalar in (item for domains in nested for d in domains for item in d.items()):
        match scalar:
            case Apply("if", (condition, value, Const() as empty)) if empty != NULL:
                by[variable, condition, value] = scalar

    def known(variable: Var, scalar: Scalar) -> Scalar:
        match scalar:
            case Apply("if", (condition, value, empty)) if empty == NULL:
                return by.get((variable, condition, value), scalar)
        return scalar

    return [distinct({v: known(v, s) for v, s in d.items()} for d in domains) for domains in nested]


@dataclass(frozen=True, slots=True)
class JoinedReach:
    """What a row reaches through rows that it joins: what limits it, beside what is known of all of it."""

    domain: Domain
    limits: Term


def joined_reach(term: Term, relation: Relation, outer: frozenset[Var]) -> JoinedReach | None:
    """The reach through rows that the row joins; None where these say no more than the row itself."""
    domain = common(nested_domains(term, relation, outer) or [{}])
    limits = joined_groups(term, relation.name, parameters(relation), frozenset(domain), outer)
    return None if limits is None else JoinedReach(domain, limits)


def _limited(term: Term, relation: Relation, sure: frozenset[Var]) -> bool:
    return _sides(term, relation, sure) is not None or _near(term, relation, sure) is not None


def _is_of_null_beside(term: Term, others: Sequence[Term]) -> bool:
    """Whether a term has the rows of NULL in a column, of which another one has those with a value."""
    columns = {v for f in term if isinstance(f, Val) for v in variable_set(f) if f == Val(is_null(v))}
    return any(Val(not_null(column)) in other for column in columns for other in others)


def _near(term: Term, relation: Relation, sure: frozenset[Var]) -> Poly | None:
    return near_limits(term, relation.name, parameters(relation), sure)


def reaches_near(term: Term, relation: Relation, known: Mapping[str, Relation]) -> bool:
    """Whether a changed row reaches few rows of the term, or groups: those so many places from its own."""
    return _near(term, relation, _never_null(term, known) | _sure_parameters(relation)) is not None


def _sides(term: Term, relation: Relation, sure: frozenset[Var]) -> Poly | None:
    """On which side of the row its reach lies; not where a cut by what is aggregated reaches fewer."""
    if has_cut(term, _aggregates(term)):
        return None
    return side_limits(term, relation.name, parameters(relation), sure)


def _narrow(term: Term, relation: Relation) -> bool:
    """Whether the row reaches few rows of other relations: those that its extreme is bounded by."""
    reach = _reach(term, relation)
    bounding = variable_set(reach.bounds()) if reach else frozenset()
    others = (f for f in term if isinstance(f, Rel | Exists) and relation.name not in relations(f))
    return any(bound_by(f) & bounding for f in others)


def _has_rows(term: Term) -> bool:
    return any(isinstance(f, Rel | Exists) for f in term)


def _assignment(declaration: MapDeclaration, relation: Relation, shared: Domain) -> Piece:
    plain, given = _split(shared, declaration.definition.terms)
    body = substitute(_marked(declaration.definition, declaration.keys), plain)
    keep = frozenset(parameters(relation)) | frozenset(declaration.keys) | frozenset(given)
    keep |= _variables(shared)
    terms = tuple(_unmarked(t)[1] for t in simplify(body, keep).terms)
    keys = tuple(substitute_scalar(k, shared) for k in declaration.keys)
    return Piece(keys, terms, ":=", True, given)


def _again(
    declaration: MapDeclaration,
    term: Term,
    relation: Relation,
    domains: list[Domain],
    sure: frozenset[Var],
    joined: Term = (),
) -> list[Piece]:
    """The term over each domain, those before it left out: as it was taken away, as it is added."""
    pieces = []
    if joined:
        limits = product(*joined)
    else:
        near = _near(term, relation, sure)
        sides = _sides(term, relation, sure) if near is None else near
        limits = product(*extreme_limits(term, relation)) * (ONE if sides is None else sides)
    limits *= product(*_asked_of_all(term, relation))
    for i, domain in enumerate(domains):
        body = _marked(Poly((term,)), declaration.keys) * limits
        for earlier in domains[:i]:
            if not apart(earlier, domain):
                body *= outside_of(earlier, sure)
        plain, given = _split(domain, (term,))
        keep = frozenset(parameters(relation)) | frozenset(given) | _variables(domain)
        for simple in simplify(substitute(body, plain), keep).terms:
            keys, rest = _unmarked(simple)
            pieces.append(Piece(keys, ((MINUS_ONE, *rest),), "+=", False, given))
            pieces.append(Piece(keys, (rest,), "+=", True, given))
    return pieces


def _asked_of_all(term: Term, relation: Relation) -> Iterator[Cmp]:
    """What the changed row must be for the term to have any of it: constants that all its rows have."""
    rows = [f.args for f in _rows_of(term, relation.name)]
    for place, parameter in enumerate(parameters(relation)):
        asked = {args[place] for args in rows}
        if len(asked) == 1 and isinstance(constant := asked.pop(), Const):
            yield Cmp("=", parameter, constant)


def _rows_of(term: Term, name: str) -> Iterator[Rel]:
    """The factors that read a relation, at any depth."""
    for factor in term:
        if isinstance(factor, Rel) and factor.name == name:
            yield factor
        elif isinstance(factor, NESTED):
            for inner in factor.body.terms:
                yield from _rows_of(inner, name)


def _direct(
    declaration: MapDeclaration,
    poly: Poly,
    relation: Relation,
    insert: bool,
    domains: list[Domain],
    sure: frozenset[Var],
) -> list[Piece]:
    """The change by the row itself, for bindings that no domain reaches; nested polynomials stay."""
    body = _marked(delta(poly, relation, insert), declaration.keys)
    keep = frozenset(parameters(relation))
    rows = [d for t in poly.terms for d in row_domains(t, relation)]
    for domain in domains:
        if len(rows) != 1 or not apart(domain, rows[0]):
            body *= outside_of(domain, sure)
            keep |= _variables(domain)
    simple = [_unmarked(t) for t in simplify(body, keep).terms]
    return [Piece(keys, (rest,), "+=", False, {}) for keys, rest in simple]


def _variables(domain: Domain) -> frozenset[Var]:
    return frozenset(v for s in domain.values() for v in scalar_variables(s))


def _split(domain: Domain, terms: tuple[Term, ...]) -> tuple[dict[Var, Scalar], Domain]:
    """What may be substituted, and what must stay a variable that is given its value."""
    lifted = {v for t in terms for v in _lifted(t)}
    plain: dict[Var, Scalar] = {v: s for v, s in domain.items() if isinstance(s, Var) and v not in lifted}
    return plain, {v: s for v, s in domain.items() if v not in plain}


def _lifted(term: Term) -> Iterator[Var]:
    """The variables that lifts bind, at any depth."""
    for factor in term:
        if isinstance(factor, Lift):
            yield factor.var
        if isinstance(factor, NESTED):
            for inner in factor.body.terms:
                yield from _lifted(inner)


def _never_null(term: Term, known: Mapping[str, Relation]) -> frozenset[Var]:
    """The variables that a column which cannot be NULL binds."""
    found: frozenset[Var] = frozenset()
    for factor in term:
        if isinstance(factor, Rel):
            columns = zip(factor.args, known[factor.name].columns, strict=True)
            found |= {a for a, c in columns if isinstance(a, Var) and not c.nullable}
        elif isinstance(factor, Exists) and factor.body.terms:
            inner = [_computed_too(t, _never_null(t, known)) for t in factor.body.terms]
            found |= frozenset(factor.group).intersection(*inner)
    return found


def _computed_too(term: Term, sure: frozenset[Var]) -> frozenset[Var]:
    """Variables that are never NULL, with those that are computed of them alone."""
    for factor in term:
        computed = lifted_scalar(factor) if isinstance(factor, Lift) else None
        if computed is not None and is_sure(computed, sure):
            sure |= bound_by(factor)
    return sure


def _sure_parameters(relation: Relation) -> frozenset[Var]:
    columns = zip(parameters(relation), relation.columns, strict=True)
    return frozenset(p for p, c in columns if not c.nullable)


def _marked(poly: Poly, keys: tuple[Scalar, ...]) -> Poly:
    return poly * Poly(((Rel(TARGET, keys),),))


def _unmarked(term: Term) -> tuple[tuple[Scalar, ...], Term]:
    """The target's keys and the rest of a marked term."""
    marker = next(f for f in term if isinstance(f, Rel) and f.name == TARGET)
    return marker.args, tuple(f for f in term if f is not marker)
