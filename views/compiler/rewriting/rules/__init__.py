"""The rewrites of `simplify`, by what they look at.

Each rule takes a term and the variables that must stay (keys of the result) and gives the terms that
replace it, or None where it does not apply.
"""

from collections.abc import Callable

from views.compiler.calculus import Term, Var

from .bounds import drop_implied
from .constants import decide_conditions, drop_repeated, fold_constants, split_products
from .nested import certain_extremes, drop_certain_counts, drop_empty, share_extremes, unlift
from .variables import substitute_lifts, unify_equalities

Rule = Callable[[Term, frozenset[Var]], list[Term] | None]

# In the order they are tried.
RULES: tuple[tuple[str, Rule], ...] = (
    ("drop empty groups and extremes", drop_empty),
    ("split products", split_products),
    ("fold constants", fold_constants),
    ("unify equalities", unify_equalities),
    ("substitute lifts", substitute_lifts),
    ("decide conditions", decide_conditions),
    ("unlift", unlift),
    ("share extremes", share_extremes),
    ("certain extremes", certain_extremes),
    ("drop certain counts", drop_certain_counts),
    ("drop repeated conditions", drop_repeated),
    ("drop implied comparisons", drop_implied),
)
