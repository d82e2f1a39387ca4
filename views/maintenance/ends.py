"""Bindings that an equality with the end of an order, its least or greatest value, limits.

A row that comes or goes changes the end of its rows only where it is the end: from its own value to the
next one on the way back, or the other way round. So of what equals the end of some rows, such as the id of
the last trade of a symbol, a row reaches what equals its own value and what equals that next one, which is a
`Beyond` of the row: the same before the event and after it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orderbook.views.calculus import (
    Cmp,
    Const,
    Exists,
    Extreme,
    Factor,
    Lift,
    Neighbour,
    Poly,
    Scalar,
    Term,
    Val,
    Var,
    relations,
    variable_set,
)
from orderbook.views.certain_rows import is_among
from orderbook.views.maintenance.neighbours import next_beyond
from orderbook.views.names import bound_in, used_outside


@dataclass(frozen=True, slots=True)
class ComparedEnd:
    """The end of rows of one relation that a variable from outside has to equal.

    Each `partition` of the rows has an end of its own.
    """

    variable: Var
    end: Extreme
    partition: tuple[Var, ...]

    def reached(self, changed: Mapping[Var, Scalar]) -> list[dict[Var, Scalar]] | None:
        """What the variable equals where the end is another one; None if the row does not say.

        changed: what a changed row gives the variables of the rows.
        """
        own = changed.get(self.end.value)
        if not isinstance(own, Var):
            return None
        back, values = (not self.end.greatest,), (self.end.value,)
        look = Neighbour(Var("found"), (self.end.var,), back, values, values, self.partition, self.end.body)
        beyond = next_beyond(look, changed)
        return None if beyond is None else [{self.variable: own}, {self.variable: beyond[0]}]


def compared_ends(term: Term, relation: str, outside: frozenset[Var]) -> Iterator[ComparedEnd]:
    """The ends that follow a change of the relation, and are all of the term that does.

    What else reads the relation there is certain where the rows have an end.
    """
    for i, factor in enumerate(term):
        end = _end(factor)
        if end is None or relation not in relations(factor) or len(end.body.terms) != 1:
            continue
        held = factor.var if isinstance(factor, Lift) else end.var
        equal = [v for v in equal_to(held, term) if v in outside and v not in bound_in(term)]
        if equal and _is_certain(term, i, end, relation, isinstance(factor, Extreme)):
            around = (used_outside(term, i) | outside) & variable_set(end.body) - {end.value}
            yield ComparedEnd(equal[0], end, tuple(sorted(around, key=lambda v: v.name)))


def _end(factor: Factor) -> Extreme | None:
    match factor:
        case Extreme():
            return factor
        case Lift(_, Poly(((Extreme(var) as end, Val(value)),))) if value == var:
            return end
    return None


def equal_to(variable: Var, term: Term) -> Iterator[Var]:
    """The variables that a term says a variable equals."""
    for factor in term:
        match factor:
            case Cmp("=", Var() as left, Var() as right) if variable in (left, right):
                yield right if left == variable else left


def _is_certain(term: Term, index: int, end: Extreme, relation: str, sure: bool) -> bool:
    """Whether rows of the end make all else that reads the relation certain, and the other way round.

    sure: the end says by itself whether there are rows.
    """
    (rows,) = end.body.terms
    for i, factor in enumerate(term):
        if i == index or relation not in relations(factor):
            continue
        if not isinstance(factor, Lift | Exists) or len(factor.body.terms) != 1:
            return False
        if isinstance(factor, Lift) and not _is_only_counted(factor.var, term):
            return False
        outer = used_outside(term, i)
        (counted,) = factor.body.terms
        if not is_among(counted, rows, variable_set(factor.body) - outer):
            return False
        sure = sure or is_among(rows, counted, variable_set(end.body) - used_outside(term, index))
    return sure


def _is_only_counted(variable: Var, term: Term) -> bool:
    """Whether a term asks of a count only that it is not 0."""
    users = [
        f for f in term if variable in variable_set(f) and not (isinstance(f, Lift) and f.var == variable)
    ]
    return users == [Cmp(">", variable, Const(0))]
