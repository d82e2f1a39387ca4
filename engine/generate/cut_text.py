"""Text of cut searches: the function of each cut, and its use as a bound or as a sum."""

from engine.maps.cuts import cut_imports, cut_source
from engine.maps.dense import dense_cut_imports, dense_cut_source
from engine.plan.steps import Cut, Store
from views.compiler.calculus import NEGATED, Apply, Cmp, scalar_variables
from views.compiler.types import INT64_MAX

from .emitter import CutText, Emitter, Names
from .typed_code import STATE, ZERO, Code, as_wide, number, truth

LOWEST, HIGHEST = f"({-INT64_MAX})", str(INT64_MAX)
# A condition over s0, s1, .., its parameters, and their values.
CutParts = tuple[str, tuple[str, ...], list[str]]


def cut_store(emitter: Emitter, cut: Cut) -> Store:
    return emitter.tree(cut.sums[0][1], cut.position)


def cut_sums(emitter: Emitter, cut: Cut, names: Names) -> str:
    """The variable that holds (found, key, sums) of a cut."""
    store = cut_store(emitter, cut)
    name, prefix, arguments = _parts(emitter, cut, names, store)
    return emitter.writer.once("cut", f"{name}({', '.join([emitter.handle(store), *prefix, *arguments])})")


def cut_bound(emitter: Emitter, cut: Cut, names: Names) -> str:
    """The variable that holds the outermost key within a cut."""
    store = cut_store(emitter, cut)
    name, prefix, arguments = _parts(emitter, cut, names, store)
    call = f"{name}_bound({', '.join([emitter.handle(store), *prefix, *arguments])})"
    return emitter.writer.once("bound", call)


def _parts(emitter: Emitter, cut: Cut, names: Names, store: Store) -> tuple[str, list[str], list[str]]:
    """The name of the cut's function, its prefix and its arguments."""
    condition = cut.condition
    if not cut.leading:
        condition = Cmp(NEGATED[condition.op], condition.left, condition.right)
    limit = _limit(emitter, cut, names, store)
    predicate, arguments, values = limit or _predicate(emitter, condition, cut, names, store)
    key = f"{store.name} {cut.descending} {cut.inclusive} {cut.leading} {predicate} {arguments}"
    if store.dense is not None:
        key = f"{key} {cut.limit}"
    if key not in emitter.cuts:
        name = f"cut{len(emitter.cuts)}"
        emitter.cuts[key] = _function(name, store, cut, predicate, arguments)
    others = [i for i in range(len(store.key_types)) if i != store.ordered]
    prefix = [emitter.key(k, store.key_types[i], names) for k, i in zip(cut.prefix, others, strict=True)]
    return emitter.cuts[key].name, prefix, values


def _function(name: str, store: Store, cut: Cut, predicate: str, arguments: tuple[str, ...]) -> CutText:
    options = (len(store.prefix), store.layout)
    if store.dense is None:
        source = cut_source(name, *options, cut.descending, cut.inclusive, predicate, arguments)
        bound = _bound_source(name, store, cut, predicate, arguments)
        return CutText(name, source + bound, cut_imports(name, *options))
    summed = cut.sums[0][1]
    cursor = next(
        i
        for i, c in enumerate(store.dense.cursors)
        if (c.map, c.inclusive, c.limit) == (summed, cut.inclusive, cut.limit)
    )
    dense = (*options, store.dense.domain, len(store.dense.cursors))
    source = dense_cut_source(name, *dense, cursor, store.maps.index(summed), cut.inclusive)
    return CutText(name, source, dense_cut_imports(name, *dense))


def dense_shape(store: Store) -> str:
    """The expression for the module of a dense store."""
    assert store.dense is not None
    cursors = len(store.dense.cursors)
    return f"dense({len(store.prefix)}, {store.layout!r}, {store.dense.domain!r}, {cursors})"


def _limit(emitter: Emitter, cut: Cut, names: Names, store: Store) -> CutParts | None:
    """A linear condition on one sum as the greatest sum for which it holds, worked out beforehand."""
    if cut.limit is None:
        return None
    column = store.maps.index(cut.sums[0][1])
    limit = number(emitter.scalar(cut.limit, names))
    if store.layout[column] != "i":
        text = as_wide(limit)
    else:
        text = f"clamp({limit.text})" if limit.kind == "w" else limit.text
    return f"s{column} <= limit", ("limit",), [text]


def _predicate(emitter: Emitter, condition: Cmp, cut: Cut, names: Names, store: Store) -> CutParts:
    """Any condition on sums, evaluated at every place that the descent looks at."""
    inner = {v: Code(f"s{store.maps.index(m)}", emitter.map_type(m)) for v, m in cut.sums}
    used = list(dict.fromkeys(v for s in (condition.left, condition.right) for v in scalar_variables(s)))
    parameters = [v for v in used if v not in inner]
    for i, variable in enumerate(parameters):
        inner[variable] = Code(f"q{i}{names[variable].kind}", names[variable].type)
    predicate = truth(emitter.scalar(Apply(condition.op, (condition.left, condition.right)), inner))
    checked = (STATE,) if f", {STATE})" in predicate else ()
    arguments = (*(inner[v].text for v in parameters), *checked)
    return predicate, arguments, [*(names[v].text for v in parameters), *checked]


def _bound_source(name: str, store: Store, cut: Cut, predicate: str, arguments: tuple[str, ...]) -> str:
    """A function that gives the outermost key for which the cut's condition holds, as a bound.

    Between two keys of the tree the running sum does not change, so the bound is right for keys of
    any other map too. The run ends before `found`'s key; beyond the last key all of the tree counts.
    """
    prefix = [f"p{i}" for i in range(len(store.prefix))]
    columns = range(len(store.layout))
    used = [c for c in columns if f"s{c}" in predicate]
    call = f"{name}({', '.join(['O', *prefix, *arguments])})"
    none, everything = (HIGHEST, LOWEST) if cut.descending else (LOWEST, HIGHEST)
    onward, backward, step = ("above", "lowest", "+") if cut.descending else ("below", "highest", "-")
    own = ", ".join(["O", *prefix])
    lines = [
        "@jit()",
        f"def {name}_bound({', '.join(['O', *prefix, *arguments])}):",
        f"    run = {call}",
    ]
    at_zero = [f"    s{c} = {ZERO[store.layout[c]]}" for c in used]
    if cut.inclusive:
        lines += [
            *at_zero,
            f"    if not ({predicate}):",
            f"        bound = {none}",
            "    elif run[0]:",
            f"        bound = run[1] {step} 1",
            "    else:",
            f"        bound = {everything}",
        ]
    else:
        lines += [
            "    if run[0]:",
            f"        near = {store.name}_at_or_{onward}({own}, run[1] {step} 1)",
            f"        bound = near[1] if near[0] else {none}",
            "    else:",
        ]
        lines += [f"        s{c} = run[{2 + c}]" for c in used]
        lines += [
            f"        edge = {store.name}_{backward}({own})",
            f"        bound = {everything} if {predicate} else edge[1] if edge[0] else {none}",
        ]
    if cut.leading:
        lines.append("    return bound")
    else:
        # The condition holds beyond the run of its opposite; what is nothing there is all here.
        back = "-" if cut.descending else "+"
        lines.append(f"    return bound if bound in ({none}, {everything}) else bound {back} 1")
    return "\n\n\n" + "\n".join(lines) + "\n"
