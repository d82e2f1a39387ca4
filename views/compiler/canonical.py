"""One name for equal map definitions: factors sorted and variables numbered in a canonical order.

Variables get colours that tell where they stand, refined round by round; factors are sorted by what
they look like in those colours. Two definitions that differ only in names and order get one form,
unless the colours leave ties between factors that are not interchangeable (then there are two maps).
"""

from collections.abc import Mapping, Sequence

from .calculus import Exists, Factor, Lift, Poly, Rel, Term, Var, substitute, substitute_factor, variables

# Each round lets a variable's colour see one join further.
ROUNDS = 4

Canonical = tuple[tuple[Var, ...], Poly]
Colours = Mapping[Var, Var]


def canonical(keys: Sequence[Var], body: Poly) -> tuple[Canonical, tuple[int, ...]]:
    """The canonical form of `Sum[keys](body)` and, for each canonical key, its place in `keys`."""
    ordered = _sorted(body, _colours(keys, body))
    names = {v: Var(f"v{i}") for i, v in enumerate(dict.fromkeys([*variables(ordered), *keys]))}
    places = sorted(range(len(keys)), key=lambda i: int(names[keys[i]].name[1:]))
    return (tuple(names[keys[i]] for i in places), substitute(ordered, names)), tuple(places)


def _colours(keys: Sequence[Var], body: Poly) -> Colours:
    colours: Colours = {v: Var("key" if v in keys else "") for v in variables(body)}
    for _ in range(ROUNDS):
        seen: dict[Var, list[str]] = {v: [] for v in colours}
        for term in body.terms:
            _look(term, colours, seen)
        signatures = {v: f"{colours[v].name} {sorted(places)}" for v, places in seen.items()}
        ranks = {s: Var(str(i)) for i, s in enumerate(sorted(set(signatures.values())))}
        colours = {v: ranks[s] for v, s in signatures.items()}
    return colours


def _look(term: Term, colours: Colours, seen: dict[Var, list[str]]) -> None:
    """Notes for every variable the factors it stands in, and at which place."""
    for factor in term:
        text = _text(factor, colours)
        for place, variable in enumerate(variables(factor)):
            seen[variable].append(text if isinstance(factor, Lift | Exists) else f"{text}@{place}")
        if isinstance(factor, Lift | Exists):
            for inner in factor.body.terms:
                _look(inner, colours, seen)


def _text(factor: Factor, colours: Colours) -> str:
    """The factor in colours, the same however nested factors are ordered; relations sort first."""
    if isinstance(factor, Lift | Exists):
        bound = (factor.var,) if isinstance(factor, Lift) else factor.group
        inner = sorted(_term_text(t, colours) for t in factor.body.terms)
        return f"{2 if isinstance(factor, Lift) else 1}{[colours[v].name for v in bound]}{inner}"
    return f"{0 if isinstance(factor, Rel) else 3}{substitute_factor(factor, colours)!r}"


def _term_text(term: Term, colours: Colours) -> str:
    return str(sorted(_text(f, colours) for f in term))


def _sorted(poly: Poly, colours: Colours) -> Poly:
    terms = sorted(poly.terms, key=lambda t: _term_text(t, colours))
    return Poly(
        tuple(tuple(_inner(f, colours) for f in sorted(t, key=lambda f: _text(f, colours))) for t in terms)
    )


def _inner(factor: Factor, colours: Colours) -> Factor:
    if isinstance(factor, Lift):
        return Lift(factor.var, _sorted(factor.body, colours))
    return Exists(factor.group, _sorted(factor.body, colours)) if isinstance(factor, Exists) else factor
