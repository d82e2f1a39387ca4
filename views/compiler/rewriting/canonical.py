"""One name for equal map definitions: factors sorted and variables numbered in a canonical order.

Variables get colours that tell where they stand, refined round by round; factors are sorted by what
they look like in those colours. Two definitions that differ only in names and order get one form,
unless the colours leave ties between factors that are not interchangeable (then there are two maps).
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b

from views.compiler.calculus import (
    NESTED,
    Exists,
    Extreme,
    Factor,
    Lift,
    Poly,
    Rel,
    Term,
    Var,
    substitute,
    substitute_factor,
    variable_set,
    variables,
    with_body,
)
from views.compiler.maintenance.budget import spend

# Each round lets a variable's colour see one join further.
ROUNDS = 4
LONGEST = 400

Canonical = tuple[tuple[Var, ...], Poly]
Colours = Mapping[Var, Var]


def canonical(keys: Sequence[Var], body: Poly) -> tuple[Canonical, tuple[int, ...]]:
    """The canonical form of `Sum[keys](body)` and, for each canonical key, its place in `keys`."""
    spend(ROUNDS * body.size)
    ordered = _Texts(_colours(keys, body)).sorted(body)
    names = {v: Var(f"v{i}") for i, v in enumerate(dict.fromkeys([*variables(ordered), *keys]))}
    places = sorted(range(len(keys)), key=lambda i: int(names[keys[i]].name[1:]))
    return (tuple(names[keys[i]] for i in places), substitute(ordered, names)), tuple(places)


def _colours(keys: Sequence[Var], body: Poly) -> Colours:
    colours: Colours = {v: Var("key" if v in keys else "") for v in variables(body)}
    for _ in range(ROUNDS):
        seen: dict[Var, list[str]] = {v: [] for v in colours}
        texts = _Texts(colours)
        for term in body.terms:
            _look(term, texts, seen)
        signatures = {v: _short(f"{colours[v].name} {sorted(places)}") for v, places in seen.items()}
        ranks = {s: Var(str(i)) for i, s in enumerate(sorted(set(signatures.values())))}
        colours = {v: ranks[s] for v, s in signatures.items()}
    return colours


def _look(term: Term, texts: "_Texts", seen: dict[Var, list[str]]) -> None:
    """Notes for every variable the factors it stands in, and at which place."""
    for factor in term:
        text = texts.factor(factor)
        if not isinstance(factor, NESTED):
            for place, variable in enumerate(variables(factor)):
                seen[variable].append(f"{text}@{place}")
            continue
        for variable in variable_set(factor):
            seen[variable].append(text)
        if isinstance(factor, Extreme):
            seen[factor.value].append(f"{text}@value")
        for inner in factor.body.terms:
            _look(inner, texts, seen)


class _Texts:
    """What factors look like in colours, each nested one made once."""

    def __init__(self, colours: Colours):
        self.colours = colours
        self._nested: dict[int, str] = {}

    def factor(self, factor: Factor) -> str:
        """The factor in colours, the same however nested factors are ordered; relations sort first."""
        if not isinstance(factor, NESTED):
            return f"{0 if isinstance(factor, Rel) else 3}{substitute_factor(factor, self.colours)!r}"
        if id(factor) not in self._nested:
            inner = sorted(self.term(t) for t in factor.body.terms)
            self._nested[id(factor)] = _short(f"{self._head(factor)}{inner}")
        return self._nested[id(factor)]

    def _head(self, factor: Lift | Exists | Extreme) -> str:
        match factor:
            case Exists(group, _):
                return f"1{[self.colours[v].name for v in group]}"
            case Lift(var, _):
                return f"2{[self.colours[var].name]}"
            case Extreme(var, greatest, value, _):
                return f"2{[self.colours[var].name, greatest, self.colours[value].name]}"

    def term(self, term: Term) -> str:
        return str(sorted(map(self.factor, term)))

    def sorted(self, poly: Poly) -> Poly:
        """The polynomial with terms and factors in the order of their texts."""
        return Poly(
            tuple(
                tuple(self._inner(f) for f in sorted(t, key=self.factor))
                for t in sorted(poly.terms, key=self.term)
            )
        )

    def _inner(self, factor: Factor) -> Factor:
        return with_body(factor, self.sorted(factor.body)) if isinstance(factor, NESTED) else factor


def _short(text: str) -> str:
    """A text that stands for a long one, which quoting at every level would double."""
    if len(text) <= LONGEST:
        return text
    return text[: LONGEST // 2] + blake2b(text.encode(), digest_size=16).hexdigest()
