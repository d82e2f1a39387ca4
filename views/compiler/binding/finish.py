"""Applies final clauses to a Select, which becomes a derived table where it already groups or limits."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from .bound import Expression, OrderItem, ScalarSubquery, Select, Source, Top, Window
from .building import FALSE
from .definitions import RowLimit
from .final_clauses import Final, OrderKey
from .outputs import outputs_of, with_hidden
from .walk import has


@dataclass(slots=True)
class Finisher:
    """A Select and the expressions hidden from its outputs; `unique` names a source of the view."""

    select: Select
    hidden: tuple[Expression, ...]
    unique: Callable[[], str]

    def finish(self, final: Final) -> Select:
        """The query with all its final clauses."""
        if final.numbering:
            number = final.numbering
            self._top(number.partition_by, number.order_by, number.limit)
        if final.qualify is not None:
            self._derive()
            self.select = replace(self.select, where=self._value(final.qualify))
        if final.distinct:
            self._distinct()
        if final.distinct_on is not None:
            order = [k for k in final.order if k.slot not in final.distinct_on]
            self._top(final.distinct_on, order, RowLimit(1))
        if final.limit is not None:
            self._limit(final.limit, final.order)
        return self.select

    def _value(self, slot: int | None) -> Expression:
        assert slot is not None
        outputs = self.select.outputs
        return outputs[slot].expression if slot < len(outputs) else self.hidden[slot - len(outputs)]

    def _limit(self, limit: RowLimit, order: Sequence[OrderKey]) -> None:
        if limit.limit == 0:
            if self.select.aggregated or self.select.top:
                self._derive()
            self.select = replace(self.select, where=FALSE)
        elif order or limit.offset:
            self._top((), order, limit)

    def _top(self, partition: Iterable[int], order: Iterable[OrderKey], limit: RowLimit) -> None:
        partition, order = tuple(partition), tuple(order)
        used = [slot for slot in (*partition, *(k.slot for k in order)) if slot is not None]
        outputs = [o.expression for o in self.select.outputs]
        repeated = [self._value(s) for s in used if s < len(outputs)]
        windows = any(has(e, Window) for e in (*outputs, *map(self._value, used)))
        if self._shaped or windows or any(has(e, ScalarSubquery) for e in repeated):
            self._derive()
        top = Top(
            tuple(self._value(s) for s in partition),
            tuple(OrderItem(self._value(k.slot), k.descending, k.nulls_first) for k in order),
            limit.limit,
            limit.offset,
        )
        self.select = replace(self.select, top=top)

    @property
    def _shaped(self) -> bool:
        return self.select.aggregated or self.select.top is not None

    def _distinct(self) -> None:
        if self._shaped or any(has(o.expression, Window, ScalarSubquery) for o in self.select.outputs):
            self._derive()
        groups = tuple(dict.fromkeys(o.expression for o in self.select.outputs))
        self.select, self.hidden = replace(self.select, group_by=groups, aggregated=True), ()

    def _derive(self) -> None:
        """Makes the query a derived table of one that selects its outputs."""
        inner = with_hidden(self.select, self.hidden)
        id, count = self.unique(), len(self.select.outputs)
        columns = outputs_of(id, inner.outputs)
        self.select = Select((Source(id, inner),), None, (), columns[:count], False)
        self.hidden = tuple(o.expression for o in columns[count:])
