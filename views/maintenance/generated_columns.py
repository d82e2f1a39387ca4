"""Generated columns: what rows are ordered by in place of a column that may be NULL.

An order by such a column is one by `if(not(is_null(c)), c, k)`, with a value k beyond all of the column's;
where there is none, by `if(is_null(c), 1, 0)` and then by that. While a view is compiled its relations have
these as columns, which are never NULL: so what follows from an order of columns follows from this one, too.
In what is compiled they are computed again from their own column.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from orderbook.views.calculus import (
    NESTED,
    Apply,
    Cmp,
    Const,
    Factor,
    Lift,
    Poly,
    Rel,
    Scalar,
    Term,
    Val,
    Var,
    product,
    scalars_of,
    substitute_scalar,
    variable_set,
    with_body,
    with_scalars,
)
from orderbook.views.intervals import Types, scalar_type
from orderbook.views.names import bound_in
from orderbook.views.types import Column, Relation, Type, unscaled

_NOTHING: frozenset[Var] = frozenset()
# What a generated column is of its own column, which stands here for any.
_OWN = Var("own")


@dataclass(frozen=True, slots=True)
class GeneratedColumns:
    """The generated columns that some polynomials ask for.

    `relations` have them after their own; `places` gives, by relation, the place of the column that each is
    generated from, and its form: the scalar that it is of that.
    """

    relations: Mapping[str, Relation]
    places: Mapping[str, tuple[tuple[int, Scalar], ...]]

    def read(self, poly: Poly, outer: frozenset[Var] = _NOTHING) -> Poly:
        """The polynomial over relations with the columns, where it computes them; `outer` is known around."""
        return Poly(tuple(self._reading(t, outer) for t in poly.terms)) if self.places else poly

    def computed(self, poly: Poly, wanted: frozenset[Var]) -> Poly:
        """The polynomial over relations without the columns; it has to bind what is `wanted`."""
        return self._computed(poly, _NOTHING, wanted) if self.places else poly

    def parameters(self, relation: str) -> dict[Var, Scalar]:
        """What an event's parameters for the columns are, of its parameters for others."""
        columns = self.relations[relation].columns
        places = self.places.get(relation, ())
        own = columns[len(columns) - len(places) :]
        pairs = zip(own, places, strict=True)
        return {Var(f"@{c.name}"): _generated(Var(f"@{columns[p].name}"), form) for c, (p, form) in pairs}

    def _reading(self, term: Term, outer: frozenset[Var]) -> Term:
        around = outer | bound_in(term)
        for place, factor in enumerate(term):
            if isinstance(factor, NESTED):
                term = (*term[:place], with_body(factor, self.read(factor.body, around)), *term[place + 1 :])
        asked = {
            (f.args[p], form)
            for f in term
            if isinstance(f, Rel)
            for p, form in self.places.get(f.name, ())
            if isinstance(f.args[p], Var)
        }
        known: dict[tuple[Scalar, Scalar], Var] = {}
        # What is known from outside says which rows these are.
        for factor in sorted(term, key=lambda f: not isinstance(f, Lift) or f.var not in outer):
            if isinstance(factor, Lift):
                known |= {a: factor.var for s in _scalars(factor) if (a := _asked(s)) in asked - known.keys()}
        read = tuple(self._with_columns(f, known) if isinstance(f, Rel) else f for f in term)
        names = {_generated(*own): known.get(own) or _named(*own) for own in asked}
        lifts = {*known.values()}
        return with_scalars(tuple(f for f in read if not (isinstance(f, Lift) and f.var in lifts)), names)

    def _with_columns(self, rows: Rel, known: Mapping[tuple[Scalar, Scalar], Var]) -> Rel:
        own = [(rows.args[p], form) for p, form in self.places.get(rows.name, ())]
        return Rel(rows.name, (*rows.args, *(known.get(asked) or _named(*asked) for asked in own)))

    def _computed(self, poly: Poly, bound: frozenset[Var], wanted: frozenset[Var]) -> Poly:
        return Poly(tuple(self._computed_term(t, bound, wanted) for t in poly.terms))

    def _computed_term(self, term: Term, bound: frozenset[Var], wanted: frozenset[Var]) -> Term:
        found: list[Factor] = []
        given: dict[Scalar, Scalar] = {}
        for place, factor in enumerate(term):
            beside = term[:place] + term[place + 1 :]
            if isinstance(factor, NESTED):
                around = wanted | variable_set(beside) | variable_set(with_body(factor, Poly(())))
                body = self._computed(factor.body, bound | bound_in(beside), around)
                found.append(with_body(factor, body))
                continue
            places = self.places.get(factor.name, ()) if isinstance(factor, Rel) else ()
            if not places or not isinstance(factor, Rel):
                found.append(factor)
                continue
            own, more = factor.args[: -len(places)], factor.args[-len(places) :]
            found.append(Rel(factor.name, own))
            asked = wanted | bound | variable_set(beside)
            for variable, (p, form) in zip(more, places, strict=True):
                value = _generated(own[p], form)
                if given.get(variable) == value or (isinstance(variable, Var) and variable not in asked):
                    continue
                if isinstance(variable, Var) and variable not in bound and variable not in given:
                    found.append(Lift(variable, product(Val(value))))
                    given[variable] = value
                else:
                    found.append(Cmp("=", variable, value))
        return tuple(found)


def generated_columns(polys: Iterable[Poly], relations: Mapping[str, Relation]) -> GeneratedColumns:
    """Those that the polynomials compute of columns of relations."""
    places: dict[str, dict[tuple[int, Scalar], None]] = {}
    for poly in polys:
        _look(poly, relations, places)
    found = {name: tuple(asked) for name, asked in places.items()}
    more = {name: _with_columns(relations[name], asked) for name, asked in found.items()}
    return GeneratedColumns({**relations, **more}, found)


def _look(
    poly: Poly, relations: Mapping[str, Relation], places: dict[str, dict[tuple[int, Scalar], None]]
) -> None:
    for term in poly.terms:
        found = dict.fromkeys(a for f in term for s in _scalars(f) if (a := _asked(s)) is not None)
        ways = Counter(variable for variable, _ in {(v, _says_null(form)) for v, form in found})
        for factor in term:
            if isinstance(factor, NESTED):
                _look(factor.body, relations, places)
            elif isinstance(factor, Rel):
                for variable, form in found:
                    place = factor.args.index(variable) if variable in factor.args else None
                    if place is None:
                        continue
                    kind = relations[factor.name].columns[place].type
                    if ways[variable] > 1 or _is_beyond(form, kind):
                        places.setdefault(factor.name, {})[place, form] = None


def _is_beyond(form: Scalar, kind: Type) -> bool:
    """Whether what stands for NULL is no value of the column."""
    match form:
        case Apply("if", (_, Var(), Const(int() as k))):
            return not kind.low <= k <= kind.high
    return False


def _with_columns(relation: Relation, asked: tuple[tuple[int, Scalar], ...]) -> Relation:
    more = []
    for place, form in asked:
        column = relation.columns[place]
        kind = scalar_type(form, Types({_OWN: unscaled(column.type)}))
        more.append(Column(f"{column.name}~{_label(form)}", kind, nullable=False))
    return replace(relation, columns=(*relation.columns, *more))


def _scalars(factor: Factor) -> tuple[Scalar, ...]:
    """The scalars of a factor; the one that a lift binds."""
    match factor:
        case Lift(_, Poly(((Val(scalar),),))):
            return (scalar,)
    return scalars_of(factor)


def _asked(scalar: Scalar) -> tuple[Var, Scalar] | None:
    """The column that a scalar is in an order, and what it is of that."""
    match scalar:
        case Apply(
            "if", (Apply("not", (Apply("is_null", (Var() as column,)),)), Var() as itself, Const())
        ) if column == itself:
            return column, substitute_scalar(scalar, {column: _OWN})
        case Apply("if", (Apply("is_null", (Var() as column,)), Const(int()), Const(int()))):
            return column, substitute_scalar(scalar, {column: _OWN})
    return None


def _says_null(form: Scalar) -> bool:
    """Whether a form says whether the column is NULL, not what it is else."""
    return isinstance(form, Apply) and isinstance(form.args[1], Const)


def _generated(column: Scalar, form: Scalar) -> Scalar:
    return substitute_scalar(form, {_OWN: column})


def _label(form: Scalar) -> str:
    match form:
        case Apply(_, (_, Const(value), Const())):
            return f"null_{value}"
        case Apply(_, (_, _, Const(value))):
            return str(value)
    raise TypeError(form)


def _named(column: Scalar, form: Scalar) -> Var:
    """A name for the column's values: the same wherever the column is the same."""
    return Var(f"{column.name if isinstance(column, Var) else column}~{_label(form)}")
