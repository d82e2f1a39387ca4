"""Rows of one relation and how often each stands, as arrays that outlive what they were copied from."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from views.compiler.types import Kind, Relation

from .checkpoint.stored import ArrayRows
from .map_entries import parts_of, recode


@dataclass(frozen=True, slots=True)
class RowCounts:
    """A multiset of rows.

    relation: its index in `program.relations`. rows: int64[n, width], encoded as in a ChangeBatch. counts:
    int64[n]. checked: whether the relation is fed with checked changes only.
    """

    relation: int
    rows: ArrayRows
    counts: ArrayRows
    checked: bool = False

    def parts(
        self, relation: Relation, codes: np.ndarray | None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Rows and counts in parts, TEXT columns recoded (see `recode`)."""
        texts = text_columns(relation)
        for part, counts in zip(parts_of(self.rows), parts_of(self.counts), strict=True):
            rows = part.copy()
            recode(rows, texts, codes)
            yield rows, counts


def text_columns(relation: Relation) -> list[int]:
    """The places of a relation's TEXT columns."""
    return [i for i, column in enumerate(relation.columns) if column.type.kind is Kind.TEXT]
