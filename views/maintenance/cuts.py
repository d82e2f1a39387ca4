"""Whether a comparison of a term is a cut: a condition on running sums that holds on one end of an order.

Where the sum along an order decides, all that a changed row can reach is found by one descent, however many
rows lie on one side of it. Not where each row is asked for by a value of its own, since rows within the cut
are looked at one by one; and windows, whose sums rise and fall along the order, have none.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from orderbook.views.calculus import (
    MIRRORED,
    Apply,
    Cmp,
    Exists,
    Extreme,
    Lift,
    Rel,
    Scalar,
    Term,
    Var,
    bound_by,
    run_along,
    scalar_variables,
    variable_set,
)
from orderbook.views.conditions import linear_form
from orderbook.views.maintenance.leading_limits import limits_from_above


def has_cut(term: Term, aggregates: frozenset[Var]) -> bool:
    """Whether the term has a cut by its `aggregates` that leaves few of the rows beside a changed one."""
    running = _Running.of(term)
    compared = [f for f in term if isinstance(f, Cmp) and variable_set(f) & aggregates]
    of_each_row = [f for f in compared if running.is_of_each_row(f)]
    cuts = [f for f in compared if f not in of_each_row and running.sums & variable_set(f)]
    cuts = [f for f in cuts if not running.is_from_below(f, variable_set(f) & aggregates)]
    if of_each_row:
        cuts = [f for f in cuts if any(limits_from_above(f))]
    forms = (linear_form(Apply("-", (f.left, f.right))) for f in cuts)
    # That there are rows at all is no cut.
    return any(form is not None and (len(form[0]) > 1 or form[1]) for form in forms)


@dataclass(frozen=True, slots=True)
class _Running:
    """The aggregates of a term that run along an order of its rows, by what they are compared with there.

    `own` are variables of the rows, and of what is aggregated of each row or group at its place; `sums` are
    the running sums that rise or fall along the order, `several` those over more than one of its places.
    """

    along: Mapping[Var, frozenset[Var]]
    own: frozenset[Var]
    sums: frozenset[Var]
    several: frozenset[Var]

    @classmethod
    def of(cls, term: Term) -> "_Running":
        rows = frozenset(v for f in term if isinstance(f, Rel | Exists) for v in bound_by(f))
        aggregated = [f for f in term if isinstance(f, Lift | Extreme)]
        along = {f.var: run_along(f.body, rows) for f in aggregated}
        orders = frozenset[Var]().union(*along.values())
        at_place = {f.var for f in aggregated if not along[f.var] and orders & variable_set(f.body)}
        lifts = [f for f in aggregated if isinstance(f, Lift) and along[f.var]]
        sums = frozenset(f.var for f in lifts if not _is_extreme(f) and not _is_window(f))
        several = frozenset(f.var for f in lifts if len(f.body.terms) > 1)
        return cls(along, rows | at_place, sums, several)

    def is_of_each_row(self, comparison: Cmp) -> bool:
        """Whether a row's or group's own value is compared with aggregates of the rows on one side of it."""
        compared = variable_set(comparison)
        return bool(compared & self.own) and any(self.along.get(v) for v in compared)

    def is_from_below(self, comparison: Cmp, met: frozenset[Var]) -> bool:
        """Whether sums in several places of an order are compared, from which no cut is known upwards."""
        return met <= self.several and met.isdisjoint(v for v, _ in limits_from_above(comparison))


def _is_extreme(lift: Lift) -> bool:
    return any(isinstance(f, Extreme) for t in lift.body.terms for f in t)


def _is_window(lift: Lift) -> bool:
    """Whether all rows of a sum lie on both sides of one value."""
    for term in lift.body.terms:
        rows = frozenset(v for f in term if isinstance(f, Rel | Exists) for v in bound_by(f))
        sides: dict[Scalar, set[str]] = {}
        for factor in (f for f in term if isinstance(f, Cmp)):
            ways = (factor.left, factor.op, factor.right), (factor.right, MIRRORED[factor.op], factor.left)
            for row, op, end in ways:
                if row in rows and not rows.issuperset(scalar_variables(end)):
                    sides.setdefault(row, set()).add(op[0])
        if not any(ops >= {"<", ">"} for ops in sides.values()):
            return False
    return bool(lift.body.terms)
