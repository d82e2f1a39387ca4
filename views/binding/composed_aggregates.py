"""Aggregates that are formulas of others, as DuckDB's macros are: PRODUCT, GEOMEAN, SEM, WAVG.

A call becomes the formula before it is bound; FILTER and OVER of the call are those of each aggregate in it.
"""

from collections.abc import Callable, Mapping
from functools import cache

from sqlglot import exp

from orderbook.views.binding.nodes import Composed
from orderbook.views.binding.parser import START, Sql, position
from orderbook.views.binding.scope import Binder, refusal

_SIGN = "(1 - 2 * (SUM(CASE WHEN x < 0 THEN 1 ELSE 0 END) % 2))"
_ZEROS = "SUM(CASE WHEN x = 0 THEN 1 ELSE 0 END)"
_GEOMEAN = f"""CASE WHEN SUM(CASE WHEN x < 0 THEN 1 ELSE 0 END) > 0 THEN NULL
    WHEN {_ZEROS} > 0 THEN 0e0 ELSE EXP(AVG(LN(x))) END"""
_WAVG = "SUM(x * w) / SUM(CASE WHEN x IS NOT NULL THEN w ELSE 0 END)"
# By name: the parameters, and what the call stands for.
_FORMULAS: Mapping[str, tuple[str, str]] = {
    "PRODUCT": (
        "x",
        f"""CASE WHEN COUNT(x) = 0 THEN NULL WHEN {_ZEROS} > 0 THEN 0e0
        ELSE {_SIGN} * EXP(SUM(LN(ABS(x)))) END""",
    ),
    "GEOMEAN": ("x", _GEOMEAN),
    "GEOMETRIC_MEAN": ("x", _GEOMEAN),
    "SEM": ("x", "STDDEV_POP(x) / SQRT(COUNT(x))"),
    "WAVG": ("xw", _WAVG),
    "WEIGHTED_AVG": ("xw", _WAVG),
}


@cache
def _formula(text: str) -> exp.Expr:
    tree = Sql().parse(text)[0]
    assert tree is not None
    return tree


def composed(binder: Binder, call: Composed, wrapped: Callable[[exp.AggFunc], exp.Expr]) -> exp.Expr:
    """What a call stands for; `wrapped` is an aggregate of it with the FILTER or OVER of the call."""
    name, given = call.name.upper(), call.expressions
    parameters, text = _FORMULAS[name]
    if any(isinstance(n, exp.Distinct | exp.Order | exp.Star) for n in given):
        raise refusal(binder, f"DISTINCT or ORDER BY in {name}", "take the rows of a derived table", call)
    if len(given) != len(parameters):
        count = len(parameters)
        raise binder.text.error(f"{name} takes {count} argument{'s' * (count != 1)}", call)
    arguments = dict(zip(parameters, given, strict=True))
    root = exp.Paren(this=_formula(text).copy())
    for node in root.walk():
        node.meta[START] = position(call)
    for aggregate in list(root.find_all(exp.AggFunc)):
        whole = exp.Paren(this=aggregate.copy())
        for column in list(whole.find_all(exp.Column)):
            column.replace(exp.Paren(this=arguments[column.name].copy()))
        aggregate.replace(wrapped(whole.this))
    root.parent = call.parent
    return root
