"""The ring calculus: generalised multiset relations as polynomials (Koch, PODS 2010; DBToaster 2014).

A polynomial is a sum of products of factors. A factor maps bindings of its variables to a
multiplicity: a relation or map counts its rows or holds a value, a comparison is 0 or 1, a value is
itself. A product joins by shared variables, left to right in meaning (a binding made by one factor
is seen by all), and a polynomial is summed over every variable that its context does not name, so
`Sum` needs no node of its own. `Lift` binds a variable to the value of a nested polynomial; `Exists`
is 1 where the nested one is not 0.

All exact values are scaled integers; the scale of a result is known outside the calculus.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Union

COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
NEGATED = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
MIRRORED = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Var:
    """A variable. Parameters of the event at hand have names that start with `@` until printed."""

    name: str


@dataclass(frozen=True, slots=True)
class Const:
    """A constant: `int` (exact, scaled), `float` (a double), `str` (text), or None (NULL as a key)."""

    value: int | float | str | None

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Const) and type(self.value) is type(other.value) and self.value == other.value
        )

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


@dataclass(frozen=True, slots=True)
class Apply:
    """A value function of scalars.

    `+ - * neg` on two exact or two double arguments; `/` on doubles; `double` converts (scaled
    integer, scale), to a unit in the last place; comparisons, `and`, `or`, `not` on 0 and 1; `is_null` tests
    a key for NULL; `if` (condition, then, else) evaluates both branches.
    """

    op: str
    args: tuple["Scalar", ...]


Scalar = Union[Var, Const, Apply]


@dataclass(frozen=True, slots=True)
class Rel:
    """The rows of a stream or table: each argument is bound to, or must equal, a column."""

    name: str
    args: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class MapRef:
    """The entries of a map; an absent entry is 0."""

    name: str
    keys: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Val:
    """The value of a scalar, as a multiplicity."""

    scalar: Scalar


@dataclass(frozen=True, slots=True)
class Cmp:
    """1 where `left op right`, else 0."""

    op: str
    left: Scalar
    right: Scalar


@dataclass(frozen=True, slots=True)
class Lift:
    """Binds `var` to the value of `body`, summed over the variables bound nowhere else.

    A body that is one `Val` binds its scalar as it is, NULL included.
    """

    var: Var
    body: "Poly"


@dataclass(frozen=True, slots=True)
class Exists:
    """Binds `group` to the groups of `body` whose sum is not 0; 1 for each."""

    group: tuple[Var, ...]
    body: "Poly"


Factor = Union[Rel, MapRef, Val, Cmp, Lift, Exists]
Term = tuple[Factor, ...]


@dataclass(frozen=True, slots=True)
class Poly:
    """A sum of products of factors; no terms is 0, an empty term is 1."""

    terms: tuple[Term, ...]

    def __add__(self, other: "Poly") -> "Poly":
        return Poly(self.terms + other.terms)

    def __mul__(self, other: "Poly") -> "Poly":
        return Poly(tuple(a + b for a in self.terms for b in other.terms))


ZERO = Poly(())
ONE = Poly(((),))
MINUS_ONE = Val(Const(-1))


def product(*factors: Factor) -> Poly:
    """The polynomial of one term."""
    return Poly((factors,))


def scalar_variables(scalar: Scalar) -> Iterator[Var]:
    """Every occurrence of a variable, left to right."""
    if isinstance(scalar, Var):
        yield scalar
    elif isinstance(scalar, Apply):
        for argument in scalar.args:
            yield from scalar_variables(argument)


def scalars_of(factor: Factor) -> tuple[Scalar, ...]:
    """The scalars a factor holds itself, nested polynomials left out."""
    match factor:
        case Rel(_, args):
            return args
        case MapRef(_, keys):
            return keys
        case Val(scalar):
            return (scalar,)
        case Cmp(_, left, right):
            return (left, right)
        case Lift(var, _):
            return (var,)
        case Exists(group, _):
            return group
    raise TypeError(factor)


def variables(node: Factor | Term | Poly) -> Iterator[Var]:
    """Every occurrence of a variable in factors, terms and nested polynomials, left to right."""
    if isinstance(node, Poly):
        for term in node.terms:
            yield from variables(term)
    elif isinstance(node, tuple):
        for factor in node:
            yield from variables(factor)
    else:
        for scalar in scalars_of(node):
            yield from scalar_variables(scalar)
        if isinstance(node, Lift | Exists):
            yield from variables(node.body)


def variable_set(node: Factor | Term | Poly) -> frozenset[Var]:
    return frozenset(variables(node))


def bound_by(factor: Factor) -> frozenset[Var]:
    """The variables that evaluating the factor binds."""
    match factor:
        case Rel(_, scalars) | MapRef(_, scalars):
            return frozenset(s for s in scalars if isinstance(s, Var))
        case Lift(var, _):
            return frozenset((var,))
        case Exists(group, _):
            return frozenset(group)
    return frozenset()


def map_scalar(scalar: Scalar, change: Callable[[Scalar], Scalar]) -> Scalar:
    """Rebuilds bottom-up, `change` applied to every node."""
    if isinstance(scalar, Apply):
        scalar = Apply(scalar.op, tuple(map_scalar(a, change) for a in scalar.args))
    return change(scalar)


def substitute_scalar(scalar: Scalar, by: Mapping[Var, Scalar]) -> Scalar:
    return map_scalar(scalar, lambda s: by.get(s, s) if isinstance(s, Var) else s)


def substitute_factor(factor: Factor, by: Mapping[Var, Scalar]) -> Factor:
    """Replaces variables; a replaced variable that the factor binds must become a variable."""

    def change(scalar: Scalar) -> Scalar:
        return substitute_scalar(scalar, by)

    match factor:
        case Rel(name, args):
            return Rel(name, tuple(map(change, args)))
        case MapRef(name, keys):
            return MapRef(name, tuple(map(change, keys)))
        case Val(scalar):
            return Val(change(scalar))
        case Cmp(op, left, right):
            return Cmp(op, change(left), change(right))
        case Lift(var, body):
            return Lift(_variable(change(var)), substitute(body, by))
        case Exists(group, body):
            return Exists(tuple(_variable(change(v)) for v in group), substitute(body, by))
    raise TypeError(factor)


def _variable(scalar: Scalar) -> Var:
    if not isinstance(scalar, Var):
        raise TypeError(f"a binding variable cannot become {scalar}")
    return scalar


def substitute_term(term: Term, by: Mapping[Var, Scalar]) -> Term:
    return tuple(substitute_factor(f, by) for f in term)


def substitute(poly: Poly, by: Mapping[Var, Scalar]) -> Poly:
    return Poly(tuple(substitute_term(t, by) for t in poly.terms))


def relations(node: Factor | Term | Poly) -> frozenset[str]:
    """Names of all relations read, at any depth."""
    if isinstance(node, Poly):
        return frozenset(n for t in node.terms for n in relations(t))
    if isinstance(node, tuple):
        return frozenset(n for f in node for n in relations(f))
    if isinstance(node, Rel):
        return frozenset((node.name,))
    return relations(node.body) if isinstance(node, Lift | Exists) else frozenset()


def nested_relations(node: Term | Poly) -> frozenset[str]:
    """Names of the relations read inside a Lift or Exists."""
    if isinstance(node, Poly):
        return frozenset(n for t in node.terms for n in nested_relations(t))
    return frozenset(n for f in node if isinstance(f, Lift | Exists) for n in relations(f))


def maps_read(node: Factor | Term | Poly) -> frozenset[str]:
    """Names of all maps read, at any depth."""
    if isinstance(node, Poly):
        return frozenset(n for t in node.terms for n in maps_read(t))
    if isinstance(node, tuple):
        return frozenset(n for f in node for n in maps_read(f))
    if isinstance(node, MapRef):
        return frozenset((node.name,))
    return maps_read(node.body) if isinstance(node, Lift | Exists) else frozenset()
