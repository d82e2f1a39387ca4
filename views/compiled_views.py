"""The views of a catalog in the calculus, and the program that maintains them.

Views are translated and compiled one after the other, and what a view comes to follows from it and those
before it. A program that begins with the same views as one of those compiled last goes on from there, so that
a view that is added costs what that view costs.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from orderbook.core.step_times import step_times
from orderbook.views.binding.bound import Catalog, View
from orderbook.views.calculus import Budget
from orderbook.views.m3 import Program
from orderbook.views.maintenance.compiler import Compiler, Maintained
from orderbook.views.materialization import Materialization
from orderbook.views.names import UniqueNames
from orderbook.views.program import CalculusView
from orderbook.views.translation.row_patterns import row_pattern, rows_of
from orderbook.views.translation.translate import Translator
from orderbook.views.translation.values import NamesGiven
from orderbook.views.types import Relation


@dataclass(frozen=True, slots=True)
class _Step:
    """A view that comes after others: what it was, and what it came to."""

    view: View
    level: Materialization
    translated: CalculusView
    names: NamesGiven
    maintained: Maintained


# Of programs compiled last: their relations, and their views.
_paths: deque[tuple[tuple[Relation, ...], tuple[_Step, ...]]] = deque(maxlen=8)


def compiled_views(
    catalog: Catalog, levels: Mapping[str, Materialization]
) -> tuple[tuple[CalculusView, ...], Program]:
    """The views in the calculus, and their program. Raises TooMuchWorkError for one that is too large."""
    wanted = [rows_of(pattern) for pattern in catalog.patterns]
    levels = {**levels, **{view.name: Materialization.FULL for view in wanted}}
    wanted += sorted(catalog.views, key=lambda view: -levels[view.name])
    relations = {r.name: r for r in catalog.relations}
    translator, compiler = Translator(relations), Compiler(relations)
    steps = list(_known(catalog.relations, wanted, levels))
    with step_times.step("deltas and maps"):
        for step in steps:
            translator.take(step.names)
            compiler.take(step.maintained, step.names.types)
    for view in wanted[len(steps) :]:
        with Budget(view.name).spending():
            with step_times.step("calculus"):
                before = translator.mark()
                translated = _with_keys_named_apart(translator.view(view))
                names = translator.since(before)
            with step_times.step("deltas and maps"):
                maintained = compiler.view(translated, names.types, levels[view.name])
        steps.append(_Step(view, levels[view.name], translated, names, maintained))
    _paths.append((catalog.relations, tuple(steps)))
    with step_times.step("deltas and maps"):
        program = compiler.program()
    views = {step.view.name: step.translated for step in steps}
    results = tuple(program.result(view.name) for view in catalog.views)
    patterns = tuple(row_pattern(one, program.result(rows_of(one).name)) for one in catalog.patterns)
    return (
        tuple(views[view.name] for view in catalog.views),
        replace(program, results=results, patterns=patterns),
    )


def _known(
    relations: tuple[Relation, ...], wanted: Sequence[View], levels: Mapping[str, Materialization]
) -> Sequence[_Step]:
    """The most steps of a program before that are the first of this one."""
    best: Sequence[_Step] = ()
    for of, steps in list(_paths):
        # Equal views may differ, as 1 and 1.0 do; the binder gives one that stays as the same object.
        same = takewhile(
            lambda pair: pair[0].view is pair[1] and pair[0].level is levels[pair[1].name],
            zip(steps, wanted, strict=False),
        )
        found = [step for step, _ in same]
        if len(found) > len(best) and of == relations:
            best = found
    return best


def _with_keys_named_apart(view: CalculusView) -> CalculusView:
    """The view with different names for its keys, which the compiler may reorder."""
    names = UniqueNames()
    return replace(view, keys=tuple(replace(key, name=names.new(key.name)) for key in view.keys))
