"""Text of pipelines: look-ups, range sums, cuts and loops over the stores that a plan chose."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from engine.maps.cuts import cut_imports, cut_source
from engine.plan.planner import layout_of
from engine.plan.ranges import solve
from engine.plan.steps import Aggregate, Cut, Filter, Lookup, Loop, Pipeline, Plan, RangeSum, Store
from views.compiler.calculus import NEGATED, Apply, Cmp, Scalar, Var, scalar_variables, variable_set
from views.compiler.types import INT64_MAX, Kind, Type

from .layout import TEXTS
from .scalars import STATE, ZERO, Code, as_wide, held_as, number, product, scalar_code, truth
from .writer import Writer

LOWEST, HIGHEST = f"({-INT64_MAX})", str(INT64_MAX)
# A condition over s0, s1, .., its parameters, and their values.
CutParts = tuple[str, tuple[str, ...], list[str]]
Sink = Callable[[Code, dict[Var, Code]], None]


@dataclass(frozen=True, slots=True)
class CutText:
    """The function of a cut search, and what the module must import for it."""

    name: str
    source: str
    imports: tuple[str, ...]


@dataclass(slots=True)
class Emitter:
    """Emits the steps of one function; cut functions it needs are collected in `cuts`."""

    plan: Plan
    writer: Writer
    handles: dict[str, int]
    texts: dict[str, int]
    cuts: dict[str, CutText] = field(default_factory=dict)
    types: Mapping[Var, Type] = field(default_factory=dict)

    def scalar(self, scalar: Scalar, names: dict[Var, Code]) -> Code:
        return scalar_code(scalar, names, self.text_constant)

    def text_constant(self, value: str) -> str:
        """The dictionary code of a text constant, which the state holds."""
        place = self.texts.setdefault(value, len(self.texts))
        return f"load(load({STATE}, {TEXTS}), {place})"

    def key(self, scalar: Scalar, kind: Type, names: dict[Var, Code]) -> str:
        """A scalar as the word of a key."""
        code = self.scalar(scalar, names)
        if kind.kind is Kind.DOUBLE and code.kind == "d":
            return f"double_bits({STATE}, {code.text})"
        return held_as(code, "i")

    def handle(self, store: Store) -> str:
        return self.writer.once(f"h_{store.name}", f"load({STATE}, {self.handles[store.name]})")

    def call(self, store: Store, function: str, *arguments: str) -> str:
        return f"{store.name}_{function}({', '.join([self.handle(store), *arguments])})"

    def hashed(self, name: str) -> Store | None:
        return next((s for s in self.plan.stores_of(name) if s.ordered is None), None)

    def tree(self, name: str, position: int) -> Store:
        return next(s for s in self.plan.stores_of(name) if s.ordered == position)

    def map_type(self, name: str) -> Type:
        return self.plan.program.map(name).type

    def sum(self, pipelines: Iterable[Pipeline], names: dict[Var, Code], kind: Type) -> Code:
        """The sum of pipelines as a variable, or as an expression where it needs no steps."""
        pipelines = tuple(pipelines)
        layout = layout_of(kind)
        if len(pipelines) == 1 and _straight(pipelines[0]):
            result: list[Code] = []
            self.pipeline(pipelines[0], names, lambda value, _: result.append(value))
            return Code(held_as(result[0], layout), kind)
        total = self.writer.fresh("sum")
        zero = ZERO[layout]
        self.writer.line(f"{total} = {zero}")

        def add(value: Code, _: dict[Var, Code]) -> None:
            text = held_as(value, layout)
            if layout == "W":
                self.writer.line(f"{total} = checked_add({total}, {text}, {STATE})")
            else:
                self.writer.line(f"{total} = {total} + {text}")

        for pipeline in pipelines:
            self.pipeline(pipeline, dict(names), add)
        return Code(total, kind)

    def pipeline(self, pipeline: Pipeline, names: dict[Var, Code], sink: Sink) -> None:
        """Emits the steps, nested where they branch or loop, and hands their value to `sink`."""
        self._steps(pipeline, 0, dict(names), sink)

    def _steps(self, pipeline: Pipeline, at: int, names: dict[Var, Code], sink: Sink) -> None:
        while at < len(pipeline.steps):
            step = pipeline.steps[at]
            at += 1
            if isinstance(step, Filter):
                with self.writer.block(f"if {truth(self.scalar(step.condition, names))}:"):
                    self._steps(pipeline, at, names, sink)
                return
            if isinstance(step, Loop):
                self._loop(step, names, partial(self._steps, pipeline, at, sink=sink))
                return
            if isinstance(step, Lookup):
                names[step.value] = self.lookup(step, names)
            elif isinstance(step, Aggregate):
                names[step.value] = self.sum(step.pipelines, names, self._aggregate_type(step, names))
            else:
                names[step.value] = self.range_sum(step, names)
        sink(product([self.scalar(v, names) for v in pipeline.values]), names)

    def _aggregate_type(self, step: Aggregate, names: dict[Var, Code]) -> Type:
        return names[step.value].type if step.value in names else self.types[step.value]

    def lookup(self, step: Lookup, names: dict[Var, Code]) -> Code:
        store = self.hashed(step.map) or self.plan.stores_of(step.map)[0]
        kind = self.map_type(step.map)
        column = store.maps.index(step.map)
        keys = [self.key(k, t, names) for k, t in zip(step.keys, store.key_types, strict=True)]
        if store.ordered is None and keys:
            entry = self.writer.once("entry", self.call(store, "find", *keys))
            zero = ZERO[layout_of(kind)]
            read = f"{store.name}_value_{column}({entry}) if {entry} != 0 else {zero}"
            return Code(self.writer.once("value", read), kind)
        if store.ordered is not None:
            keys = [keys[i] for i in (*store.prefix, store.ordered)]
        values = self.writer.once("values", self.call(store, "get", *keys))
        return Code(f"{values}[{column}]", kind)

    def range_sum(self, step: RangeSum, names: dict[Var, Code]) -> Code:
        store = self.tree(step.map, step.position)
        kind = self.map_type(step.map)
        column = store.maps.index(step.map)
        prefix = [self.key(step.keys[i], store.key_types[i], names) for i in store.prefix]
        if not step.low and not step.high and not step.cuts:
            return Code(f"{self.writer.once('total', self.call(store, 'total', *prefix))}[{column}]", kind)
        if len(step.cuts) == 1 and not step.low and not step.high:
            cut = step.cuts[0]
            if self._cut_store(cut) is store and cut.leading:
                found = self._cut_call(cut, names, store)
                return Code(f"{found}[{2 + column}]", kind)
        lows = [self._bound(s, names) for s in step.low]
        highs = [self._bound(s, names) for s in step.high]
        for cut in step.cuts:
            (lows if cut.descending == cut.leading else highs).append(self._cut_bound(cut, names))
        low, high = _extreme("max", lows, LOWEST), _extreme("min", highs, HIGHEST)
        sums = self.writer.once("sums", self.call(store, "range_sum", *prefix, low, high))
        inside = self._inside(step.low, step.high, names)
        if inside:
            zero = ZERO[layout_of(kind)]
            return Code(f"({sums}[{column}] if {inside} else {zero})", kind)
        return Code(f"{sums}[{column}]", kind)

    def _bound(self, scalar: Scalar, names: dict[Var, Code]) -> str:
        code = number(self.scalar(scalar, names))
        return f"clamp({code.text})" if code.kind == "w" else code.text

    def _inside(self, low: Iterable[Scalar], high: Iterable[Scalar], names: dict[Var, Code]) -> str:
        """The condition under which bounds of 128 bits leave any key of 64; empty where that is sure."""
        ends = [(self.scalar(s, names), f"<= wide({HIGHEST})") for s in low]
        ends += [(self.scalar(s, names), f">= wide({LOWEST})") for s in high]
        return " and ".join(f"{c.text} {test}" for c, test in ends if c.kind == "w")

    def _cut_store(self, cut: Cut) -> Store:
        return self.tree(cut.sums[0][1], cut.position)

    def _cut_parts(self, cut: Cut, names: dict[Var, Code], store: Store) -> tuple[str, list[str], list[str]]:
        """The name of the cut's function, its prefix and its arguments."""
        condition = (
            cut.condition
            if cut.leading
            else Cmp(NEGATED[cut.condition.op], cut.condition.left, cut.condition.right)
        )
        limit = self._cut_limit(condition, cut, names, store)
        predicate, arguments, values = limit or self._cut_predicate(condition, cut, names, store)
        key = f"{store.name} {cut.descending} {cut.inclusive} {predicate} {arguments}"
        if key not in self.cuts:
            name = f"cut_{len(self.cuts)}"
            options = (len(store.prefix), store.layout)
            source = cut_source(name, *options, cut.descending, cut.inclusive, predicate, arguments)
            bound = _bound_source(name, store, cut, predicate, arguments)
            self.cuts[key] = CutText(name, source + bound, cut_imports(name, *options))
        others = [i for i in range(len(store.key_types)) if i != store.ordered]
        prefix = [self.key(k, store.key_types[i], names) for k, i in zip(cut.prefix, others, strict=True)]
        return self.cuts[key].name, prefix, values

    def _cut_limit(self, condition: Cmp, cut: Cut, names: dict[Var, Code], store: Store) -> CutParts | None:
        """A linear condition on one sum as the greatest sum for which it holds, worked out beforehand."""
        (variable, name), *others = cut.sums
        types = {v: names[v].type for v in variable_set(condition) if v != variable and v in names}
        bounds = None if others else solve(condition, variable, {**types, variable: self.map_type(name)})
        if bounds is None or bounds.low or len(bounds.high) != 1:
            return None
        column = store.maps.index(name)
        limit = number(self.scalar(bounds.high[0], names))
        if store.layout[column] != "i":
            text = as_wide(limit)
        else:
            text = f"clamp({limit.text})" if limit.kind == "w" else limit.text
        return f"s{column} <= limit", ("limit",), [text]

    def _cut_predicate(self, condition: Cmp, cut: Cut, names: dict[Var, Code], store: Store) -> CutParts:
        """Any condition on sums, evaluated at every place that the descent looks at."""
        inner = {v: Code(f"s{store.maps.index(m)}", self.map_type(m)) for v, m in cut.sums}
        used = list(dict.fromkeys(v for s in (condition.left, condition.right) for v in scalar_variables(s)))
        parameters = [v for v in used if v not in inner]
        for i, variable in enumerate(parameters):
            inner[variable] = Code(f"q{i}{names[variable].kind}", names[variable].type)
        predicate = truth(self.scalar(Apply(condition.op, (condition.left, condition.right)), inner))
        checked = (STATE,) if f", {STATE})" in predicate else ()
        arguments = (*(inner[v].text for v in parameters), *checked)
        return predicate, arguments, [*(names[v].text for v in parameters), *checked]

    def _cut_call(self, cut: Cut, names: dict[Var, Code], store: Store) -> str:
        name, prefix, arguments = self._cut_parts(cut, names, store)
        return self.writer.once("cut", f"{name}({', '.join([self.handle(store), *prefix, *arguments])})")

    def _cut_bound(self, cut: Cut, names: dict[Var, Code]) -> str:
        store = self._cut_store(cut)
        name, prefix, arguments = self._cut_parts(cut, names, store)
        return self.writer.once(
            "bound", f"{name}_bound({', '.join([self.handle(store), *prefix, *arguments])})"
        )

    def _loop(self, step: Loop, names: dict[Var, Code], body: Callable[[dict[Var, Code]], None]) -> None:
        if step.position is not None:
            self._tree_loop(step, names, body)
            return
        store = self.hashed(step.map)
        assert store is not None
        entry = self.writer.fresh("entry")
        known = tuple(p for p in step.known)
        if known:
            number_of = store.slices.index(known)
            keys = [self.key(step.keys[i], store.key_types[i], names) for i in known]
            self.writer.line(f"{entry} = {self.call(store, f'slice_{number_of}_first', *keys)}")
            following = f"{store.name}_slice_{number_of}_next({entry})"
        else:
            self.writer.line(f"{entry} = {self.call(store, 'first')}")
            following = self.call(store, "next_entry", entry)
        with self.writer.block(f"while {entry} != 0:"):
            words = {i: f"{store.name}_key_{i}({entry})" for i in range(len(step.keys)) if i not in known}
            self._body(
                step, store, f"{store.name}_value_{store.maps.index(step.map)}({entry})", words, names, body
            )
            self.writer.line(f"{entry} = {following}")

    def _tree_loop(self, step: Loop, names: dict[Var, Code], body: Callable[[dict[Var, Code]], None]) -> None:
        assert step.position is not None
        store = self.tree(step.map, step.position)
        prefix = [self.key(step.keys[i], store.key_types[i], names) for i in store.prefix]
        low = _extreme("max", [self._bound(s, names) for s in step.low], LOWEST)
        high = self.writer.once("high", _extreme("min", [self._bound(s, names) for s in step.high], HIGHEST))
        leaf, place = self.writer.fresh("leaf"), self.writer.fresh("place")
        self.writer.line(f"{leaf}, {place} = {self.call(store, 'range_first', *prefix, low)}")
        inside = self._inside(step.low, step.high, names)
        if inside:
            self.writer.line(f"{leaf} = {leaf} if {inside} else 0")
        at = f"({leaf}, {place})"
        with self.writer.block(f"while {leaf} != 0 and {store.name}_key_at{at} <= {high}:"):
            value = f"{store.name}_value_{store.maps.index(step.map)}_at{at}"
            self._body(step, store, value, {step.position: f"{store.name}_key_at{at}"}, names, body)
            self.writer.line(f"{leaf}, {place} = {store.name}_range_next{at}")

    def _body(
        self,
        step: Loop,
        store: Store,
        value: str,
        words: dict[int, str],
        names: dict[Var, Code],
        body: Callable[[dict[Var, Code]], None],
    ) -> None:
        """One entry: binds its keys and value, and goes on where the value is not 0."""
        inner = dict(names)
        conditions = []
        for position, word in words.items():
            key, kind = step.keys[position], store.key_types[position]
            assert isinstance(key, Var)
            text = f"bits_to_double({STATE}, {word})" if kind.kind is Kind.DOUBLE else word
            if key in inner and key not in names:
                conditions.append(f"{inner[key].text} == {text}")
            else:
                inner[key] = Code(self.writer.once("key", text), kind)
        kind = self.map_type(step.map)
        inner[step.value] = Code(self.writer.once("value", value), kind)
        conditions.append(f"{inner[step.value].text} != {'0.0' if layout_of(kind) == 'd' else '0'}")
        with self.writer.block(f"if {' and '.join(conditions)}:"):
            body(inner)


def _straight(pipeline: Pipeline) -> bool:
    return not any(isinstance(s, Filter | Loop) for s in pipeline.steps)


def _extreme(function: str, bounds: Sequence[str], default: str) -> str:
    if not bounds:
        return default
    return bounds[0] if len(bounds) == 1 else f"{function}({', '.join(bounds)})"


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
        "@njit(cache=True)",
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
