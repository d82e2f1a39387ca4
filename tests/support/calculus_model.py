"""Views of the calculus evaluated from rows by definition: no deltas, no maps, no indexes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from orderbook.core.changes import Dictionary, Word
from orderbook.engine.runtime.interpreter import scalar_value
from orderbook.views.calculus import (
    Apply,
    Cmp,
    Exists,
    Extreme,
    Factor,
    Lift,
    Neighbour,
    Poly,
    Rel,
    Scalar,
    Term,
    Val,
    Var,
)
from orderbook.views.program import CalculusView

Number = int | Fraction
Environment = Mapping[Var, Word]
WordRow = tuple[Word, ...]


class Model:
    """Relations as bags of encoded rows, and views over them."""

    def __init__(self, dictionary: Dictionary):
        self._dictionary = dictionary
        self.relations: dict[str, Counter[WordRow]] = {}

    def change(self, relation: str, insert: bool, row: WordRow) -> None:
        rows = self.relations.setdefault(relation, Counter())
        rows[row] += 1 if insert else -1
        if not rows[row]:
            del rows[row]

    def rows(self, view: CalculusView) -> Iterator[tuple[Word, ...]]:
        """The columns of every row of the view; None for NULL."""
        keys = tuple(k.variable for k in view.keys)
        counts: Counter[WordRow] = Counter({(): 1})
        if view.multiplicity is not None:
            counts = self._groups(keys, view.multiplicity, {})
        for key, count in counts.items():
            assert count >= 0, f"{view.name} has {key} {count} times"
            environment = dict(zip(keys, key, strict=True))
            for variable, body in view.lets:
                environment[variable] = self._lifted(body, environment)
            row = tuple(
                self._scalar(c.scalar, environment) if self._scalar(c.valid, environment) else None
                for c in view.columns
            )
            yield from [row] * (1 if view.grouped else int(count))

    def _groups(self, group: tuple[Var, ...], body: Poly, environment: Environment) -> "Counter[WordRow]":
        counts: Counter[WordRow] = Counter()
        for term in body.terms:
            for bound, value in self._term(term, environment):
                counts[tuple(bound[v] for v in group)] += value  # type: ignore[assignment]
        return Counter({key: count for key, count in counts.items() if count})

    def _lifted(self, body: Poly, environment: Environment) -> Word:
        match body.terms:
            case ((Val(scalar),),):
                return self._scalar(scalar, environment)
        total: Number = sum((v for t in body.terms for _, v in self._term(t, environment)), 0)
        return total if isinstance(total, int) else float(total)

    def _term(self, term: Term, environment: Environment) -> Iterator[tuple[Environment, Number]]:
        if not term:
            yield environment, 1
            return
        for bound, value in self._factor(term[0], environment):
            if value:
                for extended, rest in self._term(term[1:], bound):
                    yield extended, value * rest

    def _factor(self, factor: Factor, environment: Environment) -> Iterator[tuple[Environment, Number]]:
        match factor:
            case Val(scalar):
                value = self._scalar(scalar, environment) or 0
                yield environment, value if isinstance(value, int) else Fraction(value)
            case Cmp(op, left, right):
                yield environment, int(self._scalar(Apply(op, (left, right)), environment) or 0)
            case Rel(name, args):
                for row, count in self.relations.get(name, Counter()).items():
                    if (found := _agreeing(args, row)) is not None:
                        yield from self._bound(found, environment, count)
            case Lift(variable, body):
                yield from self._bound({variable: self._lifted(body, environment)}, environment, 1)
            case Exists(group, body):
                for key in self._groups(group, body, environment):
                    if (found := _agreeing(group, key)) is not None:
                        yield from self._bound(found, environment, 1)
            case Extreme(variable, greatest, value, body):
                ends = [key[0] for key in self._groups((value,), body, environment)]
                if ends:
                    end = max(ends) if greatest else min(ends)  # type: ignore[type-var]
                    yield from self._bound({variable: end}, environment, 1)

            case Neighbour():
                yield from self._bound(self._beside(factor, environment), environment, 1)

    def _beside(self, look: Neighbour, environment: Environment) -> dict[Scalar, Word]:
        """The variables of a neighbour; 0 where there is none."""

        def place(row: WordRow) -> list[Word]:
            return [w if last else -w for w, last in zip(row, look.greatest, strict=True)]  # type: ignore[operator]

        own = tuple(self._scalar(s, environment) for s in look.order)
        rows = [r for r in self._groups(look.values, look.body, environment) if place(r) < place(own)]
        if look.away:
            every = sorted(self._groups(look.values, look.body, environment), key=place)
            there = every[max(len(rows) - look.steps, 0)] if every else (0,) * len(own)
            return {look.found: int(len(rows) >= look.steps), **dict(zip(look.vars, there, strict=True))}
        there = max(rows, key=place, default=(0,) * len(own))
        return {look.found: int(bool(rows)), **dict(zip(look.vars, there, strict=True))}

    def _bound(
        self, found: Mapping[Scalar, Word], environment: Environment, count: int
    ) -> Iterator[tuple[Environment, Number]]:
        """The environment with more variables, where they agree with it; NULL agrees with NULL."""
        variables = {v: w for v, w in found.items() if isinstance(v, Var)}
        if all(environment[v] == w for v, w in variables.items() if v in environment):
            yield {**environment, **variables}, count

    def _scalar(self, scalar: Scalar, environment: Environment) -> Word:
        return scalar_value(scalar, environment, self._dictionary)


def _agreeing(names: Sequence[Scalar], words: Sequence[Word]) -> dict[Scalar, Word] | None:
    """What each name stands for; None where one stands twice for different words."""
    found: dict[Scalar, Word] = {}
    for name, word in zip(names, words, strict=True):
        if found.setdefault(name, word) != word:
            return None
    return found
