"""The ring calculus: generalised multiset relations as polynomials (Koch, PODS 2010; DBToaster 2014).

A polynomial is a sum of products of factors. A factor maps bindings of its variables to a
multiplicity: a relation or map counts its rows or holds a value, a comparison is 0 or 1, a value is
itself. A product joins by shared variables, left to right in meaning (a binding made by one factor
is seen by all), and a polynomial is summed over every variable that its context does not name, so
`Sum` needs no node of its own. `Lift` binds a variable to the value of a nested polynomial; `Exists`
is 1 where the nested one is not 0; `Extreme` binds the least or greatest value for which it is not.

All exact values are scaled integers; the scale of a result is known outside the calculus.

A `Budget` bounds the work that compiling one view may take, so that every query ends in a program or a
refusal. Work is counted in factors looked at, not in time, so that the same text always ends the same way.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from threading import Lock
from typing import ClassVar, Self, Union, cast
from weakref import WeakValueDictionary

# TPC-H query 21 takes six tenths, and two seconds.
MOST_STEPS = 1_000_000
_UNBOUNDED = 2**62


class TooMuchWorkError(Exception):
    """Compiling the view `view` takes more steps than it has."""

    def __init__(self, view: str):
        super().__init__(f"compiling view {view} takes more than {MOST_STEPS} steps")
        self.view = view


class Budget:
    """The steps that are left for one view."""

    def __init__(self, view: str, steps: int = MOST_STEPS):
        self.view, self.left = view, steps

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Within, `spend` takes from this budget and raises TooMuchWorkError when it is used up."""
        token = _at_hand.set(self)
        try:
            yield
        finally:
            _at_hand.reset(token)


_at_hand: ContextVar[Budget | None] = ContextVar("budget at hand", default=None)


@contextmanager
def counting() -> Iterator[Budget]:
    """Within, `spend` takes from a budget of its own, of as many steps as the one at hand has left."""
    outer = _at_hand.get()
    own = Budget("", _UNBOUNDED) if outer is None else Budget(outer.view, outer.left)
    with own.spending():
        yield own


def spend(steps: int) -> None:
    """Counts steps of work against the budget at hand, if there is one."""
    budget = _at_hand.get()
    if budget is not None:
        budget.left -= steps
        if budget.left < 0:
            raise TooMuchWorkError(budget.view)


COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
NEGATED = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
MIRRORED = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
# Functions whose value is 0 or 1.
CONDITIONS = frozenset((*NEGATED, "and", "or", "not", "is_null", "like", "ilike", "is_finite"))


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Var:
    """A variable. Parameters of the event at hand have names that start with `@` until printed.

    Those of one class and name are one object, so that sets of variables compare no names.
    """

    name: str

    _known: ClassVar[WeakValueDictionary[tuple[type["Var"], str], "Var"]] = WeakValueDictionary()
    _adding: ClassVar[Lock] = Lock()

    def __new__(cls, name: str, *_: object) -> "Self":
        key = (cls, name)
        found = cls._known.get(key)
        if found is None:
            with cls._adding:
                found = cls._known.get(key)
                if found is None:
                    found = cls._known[key] = object.__new__(cls)
        return cast("Self", found)

    def __reduce__(self) -> tuple[type["Var"], tuple[object, ...]]:
        return type(self), tuple(getattr(self, one.name) for one in fields(self))


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


class _Remembering:
    """Nodes that hold much keep what they were once asked for."""

    __slots__ = ("_bound", "_calls", "_hash", "_maps", "_relations", "_shape", "_size", "_variables")

    _bound: "frozenset[Var]"
    _calls: bool
    _hash: int
    _maps: frozenset[str]
    _relations: frozenset[str]
    _shape: "tuple[str, tuple[Var, ...]]"
    _size: int
    _variables: "frozenset[Var]"


@dataclass(frozen=True, slots=True)
class Apply(_Remembering):
    """A value function of scalars.

    `+ - * neg` on two exact or two double arguments; `/` on doubles; `double` converts (scaled
    integer, scale), to a unit in the last place; comparisons, `and`, `or`, `not` on 0 and 1; `is_null` tests
    a key for NULL; `if` (condition, then, else) evaluates both branches.

    `abs`, `sign`, `least`, `greatest` take exact or double arguments alike. On exact ones: `floor_div`,
    `ceil_div`, `trunc_div` and `round_div` (half away from zero) by a second argument, 0 where that is 0;
    `mod` (the sign of the first). On doubles: `sqrt`, `ln`, `log10`, `exp`, `power`, `atan2` (y, x),
    `sin`, `cos`, `tan`, hyperbolic ones, their inverses (`scalars/reals.py`: TRIGONOMETRY), `floor`, `ceil`,
    `trunc`, `round` (x, digits; half away from zero), 0 outside their domain; `is_finite`. `exact` (double,
    scale) is the scaled integer nearest to the value, as DuckDB casts it, 0 where 128 bits do not hold it;
    `rest` of an exact value is what is left of it when its double is taken away.
    `like` and `ilike` (text, constant pattern). On ns since 1970 UTC: `date_part` (constant name, ts) and
    `date_trunc` (constant name, ts) for the units of the calendar. Functions of texts are those of
    `scalars/texts.py`, by their names there. `call` of a constant UserFunction and its arguments is infinite
    where it has no value.

    Of sums of powers, exact ones without rounding before the end: `spread` (n, of a, of b, of a * b)
    is the double n * ab - a * b; `third`, `fourth` are n**3 and n**4 times the mean third and fourth power
    about the mean, of the sums that `scalars/integers.py` names.
    """

    op: str
    args: tuple["Scalar", ...]

    def __hash__(self) -> int:
        return _remembered_hash(self, (self.op, self.args))


Scalar = Union[Var, Const, Apply]


@dataclass(frozen=True, slots=True)
class Rel(_Remembering):
    """The rows of a stream or table: each argument is bound to, or must equal, a column."""

    name: str
    args: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class MapRef(_Remembering):
    """The entries of a map; an absent entry is 0."""

    name: str
    keys: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Val(_Remembering):
    """The value of a scalar, as a multiplicity."""

    scalar: Scalar


@dataclass(frozen=True, slots=True)
class Cmp(_Remembering):
    """1 where `left op right`, else 0."""

    op: str
    left: Scalar
    right: Scalar


@dataclass(frozen=True, slots=True)
class Lift(_Remembering):
    """Binds `var` to the value of `body`, summed over the variables bound nowhere else.

    A body that is one `Val` binds its scalar as it is, NULL included.
    """

    var: Var
    body: "Poly"


@dataclass(frozen=True, slots=True)
class Exists(_Remembering):
    """Binds `group` to the groups of `body` whose sum is not 0; 1 for each."""

    group: tuple[Var, ...]
    body: "Poly"


@dataclass(frozen=True, slots=True)
class Extreme(_Remembering):
    """Binds `var` to the least (or `greatest`) `value` for which `body` is not 0; 0 where there is none.

    `value` is a variable that `body` binds and is local to it; `body` counts rows, so it is never
    negative. The source of MIN, MAX and of the latest row before a moment.
    """

    var: Var
    greatest: bool
    value: Var
    body: "Poly"


@dataclass(frozen=True, slots=True)
class Neighbour(_Remembering):
    """Binds `vars` to the row that stands next to the row at hand in an order, `found` to 1, or 0 for none.

    `body` counts rows, of which the row at hand is one unless an event has just taken it; they share the
    `partition` with it. `values` are what they are ordered by, local to `body`, and `order` the same of the
    row at hand. Of the rows before it the last is taken: at each place, `greatest` says whether less is
    before. The source of LAG and LEAD. What changes in `body` reaches the rows beside it alone, unless the
    row at hand need not be one of them (`apart`): then several may have one neighbour.
    Where `away` is not 0 it is the row so many steps away, or else the last one on the way, perhaps the row
    at hand; `found` is 0 then.
    """

    found: Var
    vars: tuple[Var, ...]
    greatest: tuple[bool, ...]
    values: tuple[Var, ...]
    order: tuple[Scalar, ...]
    partition: tuple[Scalar, ...]
    body: "Poly"
    apart: bool = False
    away: int = 0

    @property
    def steps(self) -> int:
        """How many rows from the row at hand it is."""
        return max(self.away, 1)


def _remembered_hash(node: _Remembering, content: object) -> int:
    try:
        return node._hash
    except AttributeError:
        value = hash(content)
        object.__setattr__(node, "_hash", value)
        return value


Factor = Union[Rel, MapRef, Val, Cmp, Lift, Exists, Extreme, Neighbour]
Term = tuple[Factor, ...]
# The factors that hold a polynomial of their own.
NESTED = Lift | Exists | Extreme | Neighbour


@dataclass(frozen=True, slots=True)
class Poly(_Remembering):
    """A sum of products of factors; no terms is 0, an empty term is 1."""

    terms: tuple[Term, ...]

    def __hash__(self) -> int:
        return _remembered_hash(self, self.terms)

    @property
    def size(self) -> int:
        """How many factors it has, at any depth, and one for each term."""
        try:
            return self._size
        except AttributeError:
            found = sum(map(term_size, self.terms))
            object.__setattr__(self, "_size", found)
            return found

    def __add__(self, other: "Poly") -> "Poly":
        return Poly(self.terms + other.terms)

    def __mul__(self, other: "Poly") -> "Poly":
        spend(len(self.terms) * len(other.terms))
        return Poly(tuple(a + b for a in self.terms for b in other.terms))


ZERO = Poly(())
ONE = Poly(((),))
MINUS_ONE = Val(Const(-1))


def term_size(term: Term) -> int:
    """How many factors a term has, at any depth, and one for itself."""
    return 1 + len(term) + sum(f.body.size for f in term if isinstance(f, NESTED))


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
        case Extreme(var, _, value, _):
            return (var, value)
        case Neighbour(found, there, _, values, order, partition, _):
            return (found, *there, *values, *order, *partition)
    raise TypeError(factor)


def with_body(factor: "Lift | Exists | Extreme | Neighbour", body: Poly) -> Factor:
    """The same factor over another polynomial."""
    return factor if body is factor.body else replace(factor, body=body)


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
        if isinstance(node, NESTED):
            yield from variables(node.body)


def variable_set(node: Factor | Term | Poly) -> frozenset[Var]:
    """The variables of factors, terms and nested polynomials."""
    if isinstance(node, tuple):
        return _NO_VARIABLES.union(*[variable_set(f) for f in node])
    try:
        return node._variables
    except AttributeError:
        if isinstance(node, Poly):
            found = _NO_VARIABLES.union(*[variable_set(t) for t in node.terms])
        else:
            found = _NO_VARIABLES.union(*[scalar_variable_set(s) for s in scalars_of(node)])
            if isinstance(node, NESTED):
                found |= variable_set(node.body)
        object.__setattr__(node, "_variables", found)
        return found


def shape_of(factor: Factor) -> tuple[str, tuple[Var, ...]]:
    """A text of a factor without its variables, and these in their places; of nested ones the head alone."""
    try:
        return factor._shape
    except AttributeError:
        head = replace(factor, body=ZERO) if isinstance(factor, NESTED) else factor
        places = tuple(variables(head))
        found = repr(substitute_factor(head, dict.fromkeys(places, Var("")))), places
        object.__setattr__(factor, "_shape", found)
        return found


def calls(node: Factor | Scalar) -> bool:
    """Whether a factor or scalar calls a user's function, which may raise where other conditions fail.

    What is inside of nested polynomials is not looked at.
    """
    if isinstance(node, Var | Const):
        return False
    try:
        return node._calls
    except AttributeError:
        if isinstance(node, Apply):
            found = node.op == "call" or any(map(calls, node.args))
        else:
            found = any(map(calls, scalars_of(node)))
        object.__setattr__(node, "_calls", found)
        return found


_NO_VARIABLES: frozenset[Var] = frozenset()


def scalar_variable_set(scalar: Scalar) -> frozenset[Var]:
    """The variables of a scalar."""
    if isinstance(scalar, Apply):
        try:
            return scalar._variables
        except AttributeError:
            found = _NO_VARIABLES.union(*[scalar_variable_set(a) for a in scalar.args])
            object.__setattr__(scalar, "_variables", found)
            return found
    return frozenset((scalar,)) if isinstance(scalar, Var) else _NO_VARIABLES


def bound_by(factor: Factor) -> frozenset[Var]:
    """The variables that evaluating the factor binds."""
    try:
        return factor._bound
    except AttributeError:
        found = _bound_by(factor)
        object.__setattr__(factor, "_bound", found)
        return found


def _bound_by(factor: Factor) -> frozenset[Var]:
    match factor:
        case Rel(_, scalars) | MapRef(_, scalars):
            return frozenset(s for s in scalars if isinstance(s, Var))
        case Lift(var, _):
            return frozenset((var,))
        case Exists(group, _):
            return frozenset(group)
        case Extreme(var, _, _, _):
            return frozenset((var,))
        case Neighbour(found, there):
            return frozenset((found, *there))
    return _NO_VARIABLES


def map_scalar(scalar: Scalar, change: Callable[[Scalar], Scalar]) -> Scalar:
    """Rebuilds bottom-up, `change` applied to every node."""
    if isinstance(scalar, Apply):
        scalar = Apply(scalar.op, tuple([map_scalar(a, change) for a in scalar.args]))
    return change(scalar)


def substitute_scalar(scalar: Scalar, by: Mapping[Var, Scalar]) -> Scalar:
    if isinstance(scalar, Var):
        return by.get(scalar, scalar)
    if isinstance(scalar, Const) or by.keys().isdisjoint(scalar_variable_set(scalar)):
        return scalar
    return Apply(scalar.op, tuple([substitute_scalar(a, by) for a in scalar.args]))


def substitute_factor(factor: Factor, by: Mapping[Var, Scalar]) -> Factor:
    """Replaces variables; a replaced variable that the factor binds must become a variable."""
    # Factors that stay are the same objects, so that they keep what they were asked for.
    if by.keys().isdisjoint(variable_set(factor)):
        return factor

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
        case Extreme(var, greatest, value, body):
            return Extreme(_variable(change(var)), greatest, _variable(change(value)), substitute(body, by))
        case Neighbour(found, there, greatests, values, order, partition, body, apart, away):
            return Neighbour(
                _variable(change(found)),
                tuple(_variable(change(v)) for v in there),
                greatests,
                tuple(_variable(change(v)) for v in values),
                tuple(map(change, order)),
                tuple(map(change, partition)),
                substitute(body, by),
                apart,
                away,
            )
    raise TypeError(factor)


def with_scalars(term: Term, by: Mapping[Scalar, Scalar]) -> Term:
    """The term with scalars replaced in its values and comparisons, nested ones too."""

    def changed(factor: Factor) -> Factor:
        match factor:
            case Val(scalar):
                return Val(map_scalar(scalar, lambda s: by.get(s, s)))
            case Cmp(op, left, right):
                return Cmp(op, *(map_scalar(s, lambda s: by.get(s, s)) for s in (left, right)))
            case Lift() | Exists() | Extreme() | Neighbour():
                return with_body(factor, Poly(tuple(with_scalars(t, by) for t in factor.body.terms)))
        return factor

    return tuple(map(changed, term))


def _variable(scalar: Scalar) -> Var:
    if not isinstance(scalar, Var):
        raise TypeError(f"a binding variable cannot become {scalar}")
    return scalar


def substitute_term(term: Term, by: Mapping[Var, Scalar]) -> Term:
    return tuple([substitute_factor(f, by) for f in term])


def substitute(poly: Poly, by: Mapping[Var, Scalar]) -> Poly:
    if by.keys().isdisjoint(variable_set(poly)):
        return poly
    return Poly(tuple([substitute_term(t, by) for t in poly.terms]))


def relations(node: Factor | Term | Poly) -> frozenset[str]:
    """Names of all relations read, at any depth."""
    return _names_read(node, Rel, "_relations")


def maps_read(node: Factor | Term | Poly) -> frozenset[str]:
    """Names of all maps read, at any depth."""
    return _names_read(node, MapRef, "_maps")


def _names_read(node: Factor | Term | Poly, kind: type[Rel | MapRef], slot: str) -> frozenset[str]:
    """Names of what is read of a kind; a polynomial keeps them in a slot."""
    if isinstance(node, Poly):
        found: frozenset[str] | None = getattr(node, slot, None)
        if found is None:
            found = _NO_NAMES.union(*[_names_read(t, kind, slot) for t in node.terms])
            object.__setattr__(node, slot, found)
        return found
    if isinstance(node, tuple):
        return _NO_NAMES.union(*[_names_read(f, kind, slot) for f in node])
    if isinstance(node, Rel | MapRef):
        return frozenset((node.name,)) if isinstance(node, kind) else _NO_NAMES
    return _names_read(node.body, kind, slot) if isinstance(node, NESTED) else _NO_NAMES


_NO_NAMES: frozenset[str] = frozenset()


def nested_relations(node: Term | Poly) -> frozenset[str]:
    """Names of the relations read inside nested polynomials."""
    if isinstance(node, Poly):
        return frozenset(n for t in node.terms for n in nested_relations(t))
    return frozenset(n for f in node if isinstance(f, NESTED) for n in relations(f))


def comparisons(node: Poly) -> Iterator[Cmp]:
    """All comparisons, at any depth."""
    for factor in (f for term in node.terms for f in term):
        if isinstance(factor, Cmp):
            yield factor
        elif isinstance(factor, NESTED):
            yield from comparisons(factor.body)


def run_along(body: Poly, keys: frozenset[Var]) -> frozenset[Var]:
    """The variables of `keys` along whose order a body takes rows on one side, at any depth."""
    sides = (f for f in comparisons(body) if f.op not in ("=", "<>"))
    return frozenset(v for f in sides for v in variable_set(f) & keys)


def map_reads(node: Factor | Term | Poly) -> Iterator[MapRef]:
    """All reads of maps, at any depth."""
    if isinstance(node, MapRef):
        yield node
    elif isinstance(node, Poly | tuple):
        for part in node.terms if isinstance(node, Poly) else node:
            yield from map_reads(part)
    elif isinstance(node, NESTED):
        yield from map_reads(node.body)
