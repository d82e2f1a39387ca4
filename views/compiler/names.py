"""Variables of a translation: fresh names, their types, and lifts that hold values."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as replaced

from views.compiler.translation.values import Value

from .calculus import (
    Cmp,
    Exists,
    Factor,
    Lift,
    Poly,
    Rel,
    Scalar,
    Val,
    Var,
    bound_by,
    product,
    substitute,
    substitute_scalar,
)
from .conditions import NULL, TRUE, choose, is_condition, not_null
from .intervals import Types, scalar_type, sum_type
from .types import Relation, Type

# The columns in scope: by the identifier of their source, then by name.
Scope = Mapping[str, Mapping[str, Value]]


@dataclass(slots=True)
class Names:
    """Gives out variables.

    `types` collects the type of every variable, `shown` the SQL types, with their scales, of those that
    stand for columns and grouping expressions.
    """

    relations: Mapping[str, Relation]
    types: Types = field(default_factory=Types)
    shown: Types = field(default_factory=Types)
    _count: int = 0
    _copies: dict[tuple[Poly, frozenset[Var]], tuple[Poly, dict[Var, Scalar]]] = field(default_factory=dict)

    def variable(self, name: str, kind: Type) -> Var:
        variable = Var(name)
        self.types[variable] = kind
        return variable

    def column(self, source: str, name: str, kind: Type) -> Var:
        """The variable of a source's column; another view may have a source of that name and other types."""
        variable, number = Var(f"{source}.{name}"), 1
        while self.types.get(variable, kind) != kind:
            number += 1
            variable = Var(f"{source}#{number}.{name}")
        return self.variable(variable.name, kind)

    def fresh(self, name: str, kind: Type) -> Var:
        """A variable with a name of its own that begins with `name`."""
        self._count += 1
        return self.variable(f"{name}_{self._count}", kind)

    def lift(self, name: str, body: Poly, lifts: list[Factor], kind: Type | None = None) -> Var:
        """The variable that holds the value of `body`; equal bodies share one."""
        for factor in lifts:
            if isinstance(factor, Lift) and factor.body == body:
                return factor.var
        variable = self.fresh(name, kind or sum_type(body, self.types, self.relations))
        lifts.append(Lift(variable, body))
        return variable

    def key(self, name: str, value: Value, lifts: list[Factor], taken: Collection[Var] = ()) -> Var:
        """A variable that holds the value, NULL included: its own where it is one, else a lifted one.

        Variables of `taken` are not given again.
        """
        key = value.scalar
        if not isinstance(key, Var) or value.valid not in (TRUE, not_null(key)) or key in taken:
            body = product(Val(choose(value.valid, value.scalar, NULL)))
            key = self.lift(name, body, lifts, scalar_type(value.scalar, self.types))
        self.shown[key] = value.type
        return key

    def copy(self, rows: Poly, keep: frozenset[Var]) -> tuple[Poly, dict[Var, Scalar]]:
        """The rows once more, with new names for the variables they bind but those of `keep`.

        Equal rows get equal names, for a copy stands inside a nested polynomial.
        """
        if (rows, keep) not in self._copies:
            number = len(self._copies) + 2
            names: dict[Var, Scalar] = {}
            for variable in sorted(binders(rows) - keep, key=lambda v: v.name):
                source, dot, column = variable.name.rpartition(".")
                names[variable] = Var(f"{source}~{number}.{column}" if dot else f"{column}~{number}")
            self._copies[rows, keep] = substitute(rows, names), names
        return self._copies[rows, keep]

    def identity(self, rows: Poly) -> frozenset[Var] | None:
        """Variables that tell all rows apart: groups and primary keys; None where rows may repeat."""
        if len(rows.terms) != 1:
            return None
        found: set[Scalar] = set()
        for factor in rows.terms[0]:
            match factor:
                case Exists(group, _):
                    found |= set(group)
                case Rel(name, args) if self.relations[name].primary_key:
                    relation = self.relations[name]
                    columns = zip(args, relation.columns, strict=True)
                    found |= {a for a, c in columns if c.name in relation.primary_key}
                case Val(scalar) if is_condition(scalar):
                    continue
                case Cmp() | Lift():
                    continue
                case _:
                    return None
        return frozenset(v for v in found if isinstance(v, Var))


def binders(rows: Poly) -> frozenset[Var]:
    """The variables that the terms of `rows` bind."""
    return frozenset(v for term in rows.terms for factor in term for v in bound_by(factor))


def own_variable(value: Value, found: Collection[Var]) -> Var | None:
    """The variable of `found` that holds the value, NULL included; None where there is none."""
    variable = value.scalar
    if isinstance(variable, Var) and variable in found and value.valid in (TRUE, not_null(variable)):
        return variable
    return None


def keyed(key: Var, value: Value) -> Value:
    """The value as it is read from the variable that `Names.key` gave."""
    return Value(key, value.type, TRUE if value.valid == TRUE else not_null(key))


def renamed(value: Value, names: Mapping[Var, Scalar]) -> Value:
    """The value with variables replaced."""
    return replaced(
        value,
        scalar=substitute_scalar(value.scalar, names),
        valid=substitute_scalar(value.valid, names),
    )
