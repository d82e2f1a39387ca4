"""Names of variables and maps: unique ones, local ones apart, and one name for equal definitions.

`UniqueNames` gives out names that nothing else has: the one wanted, or with a number after it. Local
variables are renamed apart, so that one name means one thing in a whole polynomial.

`canonical` gives equal map definitions one form: factors sorted and variables numbered in a canonical order.
Variables get colours that tell where they stand, refined round by round; factors are sorted by what
they look like in those colours. Two definitions that differ only in names and order get one form,
unless the colours leave ties between factors that are not interchangeable (then there are two maps).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b

from orderbook.views.calculus import (
    NESTED,
    Exists,
    Extreme,
    Factor,
    Lift,
    Neighbour,
    Poly,
    Rel,
    Term,
    Var,
    bound_by,
    scalar_variables,
    scalars_of,
    shape_of,
    spend,
    substitute,
    variable_set,
    variables,
    with_body,
)


@dataclass(slots=True)
class UniqueNames:
    """Gives out names that are not in `taken`, each once: price, price_2, price_3."""

    taken: set[str] = field(default_factory=set)

    def new(self, wanted: str) -> str:
        """The name wanted, or else with the first number that makes it new."""
        name, number = wanted, 1
        while name in self.taken:
            number += 1
            name = f"{wanted}_{number}"
        self.taken.add(name)
        return name


_NO_VARIABLES: frozenset[Var] = frozenset()


def bound_in(term: Term) -> frozenset[Var]:
    """The variables that the factors of a term bind."""
    return _NO_VARIABLES.union(*[bound_by(f) for f in term])


def used_outside(term: Term, index: int = -1) -> frozenset[Var]:
    """The variables that factors other than the one at `index` use, bodies of nested ones left out."""
    return _NO_VARIABLES.union(*[visible(f) for i, f in enumerate(term) if i != index])


def outer_variables(term: Term, index: int, body: Poly) -> list[Var]:
    """The variables of a body that factors other than the one at `index` use, by name."""
    return sorted(variable_set(body) & used_outside(term, index), key=lambda v: v.name)


def rows_form(term: Term, index: int, body: Poly) -> object:
    """What is equal for polynomials of the same rows, whatever their local variables are called."""
    outer = outer_variables(term, index, body)
    form, places = canonical(outer, body)
    return form, tuple(outer[i] for i in places)


def visible(factor: Factor) -> frozenset[Var]:
    """The variables that a factor uses outside of a body of its own."""
    if isinstance(factor, Neighbour):
        around = (v for s in (*factor.order, *factor.partition) for v in scalar_variables(s))
        return bound_by(factor).union(around)
    return bound_by(factor) if isinstance(factor, NESTED) else variable_set(factor)


def rename_apart(poly: Poly, outer: Iterable[Var] = ()) -> Poly:
    """Gives variables that are local to a nested polynomial names used nowhere else."""
    return _Renaming().poly(poly, frozenset(outer))


class _Renaming:
    """The names given so far in one polynomial, and for each the number of its last copy."""

    def __init__(self) -> None:
        self.used: set[Var] = set()
        self.numbers: dict[Var, int] = {}

    def poly(self, poly: Poly, outer: frozenset[Var]) -> Poly:
        terms = []
        for term in poly.terms:
            seen = outer | used_outside(term)
            terms.append(tuple(self.factor(f, seen) for f in term))
        return Poly(tuple(terms))

    def factor(self, factor: Factor, seen: frozenset[Var]) -> Factor:
        if not isinstance(factor, NESTED):
            return factor
        spend(factor.body.size)
        # What is local to factors deeper inside gets its names there.
        local = frozenset[Var]().union(*map(used_outside, factor.body.terms)) - seen
        if isinstance(factor, Extreme):
            local |= {factor.value}
        elif isinstance(factor, Neighbour):
            local |= frozenset(factor.values)
        # Sets of all names are not joined, as a view may have ten thousands.
        taken = (self.used, seen, variable_set(factor.body) - local) if local & self.used else (seen,)
        names = apart_from(local, *taken, numbers=self.numbers)
        self.used |= frozenset(names.values())
        body = self.poly(substitute(factor.body, {v: n for v, n in names.items() if v != n}), seen)
        if isinstance(factor, Extreme):
            return Extreme(factor.var, factor.greatest, names[factor.value], body)
        if isinstance(factor, Neighbour):
            return replace(factor, values=tuple(names[v] for v in factor.values), body=body)
        return with_body(factor, body)


def apart_from(
    variables: Iterable[Var], *used: Collection[Var], numbers: dict[Var, int] | None = None
) -> dict[Var, Var]:
    """New names for variables that stand in one of `used`: `source~2.column`, `name~2`.

    `numbers` remembers those of the last names, so that a search goes on from there.
    """
    given = set[Var]()
    last = {} if numbers is None else numbers
    names: dict[Var, Var] = {}
    for variable in sorted(variables, key=lambda v: v.name):
        source, dot, column = variable.name.rpartition(".")
        name, number = variable, 1
        while name in given or any(name in taken for taken in used):
            number = max(number, last.get(variable, 1)) + 1
            last[variable] = number
            name = Var(f"{source}~{number}.{column}" if dot else f"{column}~{number}")
        given.add(name)
        names[variable] = name
    return names


# Each round lets a variable's colour see one join further.
ROUNDS = 4
LONGEST = 400

Canonical = tuple[tuple[Var, ...], Poly]
Colours = Mapping[Var, Var]


def canonical(keys: Sequence[Var], body: Poly) -> tuple[Canonical, tuple[int, ...]]:
    """The canonical form of `Sum[keys](body)` and, for each canonical key, its place in `keys`."""
    spend(ROUNDS * body.size)
    return _canonical(tuple(keys), body)


# A view asks for the same few dozens a thousand times.
@lru_cache(maxsize=4096)
def _canonical(keys: tuple[Var, ...], body: Poly) -> tuple[Canonical, tuple[int, ...]]:
    ordered = _Texts(_colours(keys, body)).sorted(body)
    names = {v: Var(f"v{i}") for i, v in enumerate(dict.fromkeys([*variables(ordered), *keys]))}
    places = sorted(range(len(keys)), key=lambda i: int(names[keys[i]].name[1:]))
    return (tuple(names[keys[i]] for i in places), substitute(ordered, names)), tuple(places)


def _colours(keys: Sequence[Var], body: Poly) -> Colours:
    colours: Colours = {v: Var("key" if v in keys else "") for v in variables(body)}
    told_apart = 0
    for _ in range(ROUNDS):
        seen: dict[Var, list[str]] = {v: [] for v in colours}
        texts = _Texts(colours)
        for term in body.terms:
            _look(term, texts, seen)
        signatures = {v: _short(f"{colours[v].name} {sorted(places)}") for v, places in seen.items()}
        ranks = {s: Var(str(i)) for i, s in enumerate(sorted(set(signatures.values())))}
        colours = {v: ranks[s] for v, s in signatures.items()}
        if len(ranks) in (told_apart, len(colours)):
            break
        told_apart = len(ranks)
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
        elif isinstance(factor, Neighbour):
            for place, scalar in enumerate(scalars_of(factor)):
                for variable in scalar_variables(scalar):
                    seen[variable].append(f"{text}@{place}")
        for inner in factor.body.terms:
            _look(inner, texts, seen)


class _Texts:
    """What factors look like in colours, each nested one made once."""

    def __init__(self, colours: Colours):
        self.colours = colours
        self._nested: dict[int, str] = {}

    def factor(self, factor: Factor) -> str:
        """The factor in colours, the same however nested factors are ordered; relations sort first."""
        shape, places = shape_of(factor)
        head = f"{_rank(factor)}{shape}{[self.colours[v].name for v in places]}"
        if not isinstance(factor, NESTED):
            return head
        if id(factor) not in self._nested:
            inner = sorted(self.term(t) for t in factor.body.terms)
            self._nested[id(factor)] = _short(f"{head}{inner}")
        return self._nested[id(factor)]

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


def _rank(factor: Factor) -> int:
    match factor:
        case Rel():
            return 0
        case Exists():
            return 1
        case Lift() | Extreme() | Neighbour():
            return 2
    return 3


def _short(text: str) -> str:
    """A text that stands for a long one, which quoting at every level would double."""
    if len(text) <= LONGEST:
        return text
    return text[: LONGEST // 2] + blake2b(text.encode(), digest_size=16).hexdigest()
