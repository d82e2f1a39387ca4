"""Updates: what a row taken out and one put in change together, where one trigger does both at once.

A level whose volume changes is a row deleted and another inserted, which agree in the columns that tell
entries apart. Of the delta of both (DBToaster, section 3) what does not read the other columns cancels, and
the rest is one addition to each entry: so counts, and all that is there because a group is there, are left
alone. What a statement is to read as it is between both is done as two triggers do it.

That is proved here of statements alone, so it holds of M3 written by hand as well.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import prod

from orderbook.views.calculus import (
    Cmp,
    Const,
    Factor,
    Poly,
    Scalar,
    Term,
    Val,
    Var,
    maps_read,
    scalar_variables,
    substitute,
    substitute_scalar,
    variable_set,
)
from orderbook.views.m3 import Program, Statement, Trigger
from orderbook.views.types import Kind


@dataclass(frozen=True, slots=True)
class Update:
    """What is done for an `old` and a `new` row of a relation, variables by column, that are equal in `same`.

    `parts` are statements of the old row, then of the new one, each a trigger of its own, and last those of
    both. In column i of `same`, positions among the columns, both have one variable.
    """

    relation: str
    old: tuple[Var, ...]
    new: tuple[Var, ...]
    same: tuple[int, ...]
    parts: tuple[tuple[Statement, ...], ...]


# So many statements that are done in turn are not written once more, where they are most of both triggers'.
_IN_TURN = 24


def updates(program: Program, shared: Sequence[Collection[str]] = ()) -> Iterator[Update]:
    """An update for every relation where it does less than the two triggers.

    shared: names of maps that share their entries, which are made what the state says together.
    """
    by_event = {(t.relation, t.insert): t for t in program.triggers}
    for relation in program.relations:
        delete, insert = (by_event.get((relation.name, i)) for i in (False, True))
        found = delete and insert and _update(program, delete, insert, shared)
        if found:
            yield found


def _update(
    program: Program, delete: Trigger, insert: Trigger, shared: Sequence[Collection[str]]
) -> Update | None:
    old = delete.parameters
    insertion = _renamed(insert.statements, dict(zip(insert.parameters, old, strict=True)))
    both = (*delete.statements, *insertion)
    used = frozenset().union(*map(_variables, both))
    telling = frozenset().union(*map(_telling, both))
    names = {v: _new(v, used) for v in old if v in used - telling}
    written = {s.target for s in both}
    changed = _reading(both, {s.target for s in both if not names.keys().isdisjoint(_variables(s))})
    by_target = {
        t: ([s for s in delete.statements if s.target == t], [s for s in insertion if s.target == t])
        for t in written
    }
    apart = {t for t, own in by_target.items() if t not in changed and not _cancel(*own, written, {*old})}
    # What reads a map that is not left as it was sees it change.
    changed = _reading(both, changed | apart)
    said = {s.target for s in both if s.op == ":="}
    changed |= {t for group in shared if not changed.isdisjoint(group) for t in said.intersection(group)}
    apart |= {t for t in changed if not _summed(program, *by_target[t], written, {*names})}
    apart = _closed(program, both, apart, [said.intersection(group) for group in shared])
    in_turn = sum(s.target in apart for s in both)
    if not changed or written <= apart or (in_turn > _IN_TURN and 2 * in_turn > len(both)):
        return None
    new = _renamed(insertion, names)
    whole = changed - apart
    same = tuple(i for i, v in enumerate(old) if v in used & telling)
    parts = (
        tuple(s for s in delete.statements if s.target in apart),
        tuple(s for s in new if s.target in apart),
        tuple(
            _together(
                [s for s in delete.statements if s.target in whole],
                [s for s in new if s.target in whole],
                written,
            )
        ),
    )
    return Update(delete.relation, old, tuple(names.get(v, v) for v in old), same, parts)


def _new(variable: Var, used: frozenset[Var]) -> Var:
    tried = (Var(f"{variable.name}_new{n or ''}") for n in count())
    return next(v for v in tried if v not in used)


def _renamed(statements: Iterable[Statement], by: Mapping[Var, Var]) -> tuple[Statement, ...]:
    return tuple(
        replace(s, keys=tuple(substitute_scalar(k, by) for k in s.keys), value=substitute(s.value, by))
        for s in statements
    )


def _variables(statement: Statement) -> frozenset[Var]:
    return _of_keys(statement.keys) | variable_set(statement.value)


def _of_keys(keys: Iterable[Scalar]) -> frozenset[Var]:
    return frozenset(v for k in keys for v in scalar_variables(k))


def _telling(statement: Statement) -> frozenset[Var]:
    """Variables that say which entries are written and read, or that nested sums read."""
    factors = [f for term in statement.value.terms for f in term if not isinstance(f, Val | Cmp)]
    return _of_keys(statement.keys).union(*map(variable_set, factors))


def _reading(statements: Sequence[Statement], names: set[str]) -> set[str]:
    """The maps of these names, and all that are written of what they hold."""
    found, size = set(names), -1
    while len(found) != size:
        size = len(found)
        found |= {s.target for s in statements if not found.isdisjoint(maps_read(s.value))}
    return found


# A term of what is added: the keys of the entry, and its factors that are not integers, each with how often.
Entry = tuple[tuple[Scalar, ...], frozenset[tuple[Factor, int]]]


def _additions(deleted: Sequence[Statement], inserted: Sequence[Statement]) -> dict[Entry, Counter[int]]:
    """How often each term is added: before a deletion, after it, before and after an insertion (0 … 3)."""
    found: dict[Entry, Counter[int]] = defaultdict(Counter)
    for insert, statements in enumerate((deleted, inserted)):
        for statement in statements:
            for term in statement.value.terms:
                constants, rest = _divided(term)
                entry = statement.keys, frozenset(Counter(rest).items())
                found[entry][2 * insert + statement.after] += prod(constants)
    return found


def _divided(term: Term) -> tuple[list[int], list[Factor]]:
    """The integers that are factors of a term, and its other factors."""
    constants, rest = list[int](), list[Factor]()
    for factor in term:
        match factor:
            case Val(Const(int() as value)):
                constants.append(value)
            case _:
                rest.append(factor)
    return constants, rest


def _reads(entry: Entry, written: set[str]) -> bool:
    return any(not written.isdisjoint(maps_read(factor)) for factor, _ in entry[1])


def _exchanges(times: Counter[int]) -> bool:
    """Whether a term is taken away of the state before, and added of the one after, by both triggers."""
    return -times[0] == times[1] == -times[2] == times[3]


def _cancel(
    deleted: Sequence[Statement], inserted: Sequence[Statement], written: set[str], event: set[Var]
) -> bool:
    """Whether what is done to a map for a row that is deleted and inserted again is seen to be nothing."""
    if _says_the_state(deleted, inserted):
        return event & _variables(inserted[0]) <= _of_keys(inserted[0].keys)
    return all(s.op == "+=" for s in (*deleted, *inserted)) and all(
        _exchanges(times) if _reads(entry, written) else times.total() == 0
        for entry, times in _additions(deleted, inserted).items()
    )


def _summed(
    program: Program,
    deleted: Sequence[Statement],
    inserted: Sequence[Statement],
    written: set[str],
    differ: set[Var],
) -> bool:
    """Whether what both rows do to a map may be done at once, with what `differ`s between them.

    It is added exactly, and reads nothing that the event writes or exchanges that; or it is what the state
    after says.
    """
    if _says_the_state(deleted, inserted):
        return True
    declaration = program.map((*deleted, *inserted)[0].target)
    if declaration.type.kind is Kind.DOUBLE or declaration.count is not None:
        return False
    return all(s.op == "+=" for s in (*deleted, *inserted)) and all(
        not _reads(entry, written)
        or (_exchanges(times) and all(differ.isdisjoint(variable_set(factor)) for factor, _ in entry[1]))
        for entry, times in _additions(deleted, inserted).items()
    )


def _says_the_state(deleted: Sequence[Statement], inserted: Sequence[Statement]) -> bool:
    """Whether both triggers make entries what the state after says, of the same keys and of nothing else."""
    if len(deleted) != 1 or len(inserted) != 1:
        return False
    (one,), (other,) = deleted, inserted
    return one == other and one.op == ":=" and one.after


def _closed(
    program: Program, statements: Sequence[Statement], names: set[str], together: Sequence[set[str]]
) -> set[str]:
    """The maps of these names, with what has to be done in turn where these are.

    That is all that they read of what the event writes, the counts of doubles, what exchanges any of it, and
    what is written `together` with any of it.
    """
    written = {s.target for s in statements}
    found, size = set(names), -1
    while len(found) != size:
        size = len(found)
        reads = {m for s in statements if s.target in found for m in maps_read(s.value)}
        counts = {m.count for m in program.maps if m.name in found and m.count}
        found |= (reads | counts) & written
        found |= {s.target for s in statements if s.op == "+=" and not found.isdisjoint(maps_read(s.value))}
        found.update(*(group for group in together if not found.isdisjoint(group)))
    return found


def _together(
    deleted: Sequence[Statement], inserted: Sequence[Statement], written: set[str]
) -> Iterator[Statement]:
    """One addition to each entry, before which the state is read, and then what reads the state after."""
    sums: dict[tuple[str, tuple[Scalar, ...]], list[Term]] = {}
    for insert, statements in enumerate((deleted, inserted)):
        for s in (s for s in statements if s.op == "+="):
            kept = [t for t in s.value.terms if written.isdisjoint(maps_read(t)) or not (insert or s.after)]
            sums.setdefault((s.target, s.keys), []).extend(kept)
    for (target, keys), terms in sums.items():
        if terms:
            yield Statement(target, keys, "+=", Poly(tuple(terms)))
    for s in inserted:
        late = tuple(t for t in s.value.terms if not written.isdisjoint(maps_read(t)))
        if s.op == ":=":
            yield s
        elif s.after and late:
            yield replace(s, value=Poly(late))
