"""Changes of relations as a batch for an engine: rows that fit their declaration, with codes for values."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from orderbook.core.changes import END_OF_EVENT, END_OF_MESSAGE, ChangeBatch, Dictionary
from orderbook.core.errors import DataError, Problems, suggestion
from orderbook.feeds.row_batch import Changes, RowBatch
from orderbook.views.encoding.rows import RowEncoder
from orderbook.views.types import Relation

_ENDS = END_OF_EVENT | END_OF_MESSAGE


def encode_changes(
    changes: Changes,
    relations: Sequence[Relation],
    dictionary: Dictionary,
    source: str,
    problems: Problems,
) -> ChangeBatch:
    """Every change as an event of its own; `kinds` index `relations`.

    A row that contradicts its declaration is counted in `problems` with its line of `source`, and left
    out (kind -1), so that the message it may have ended still ends.
    """
    if isinstance(changes, RowBatch):
        return _encode_batch(changes, relations, dictionary, problems)
    index = {relation.name: i for i, relation in enumerate(relations)}
    width = max((len(relation.columns) for relation in relations), default=0)
    kinds = np.full(len(changes), -1, np.int16)
    flags = np.fromiter(
        (_ENDS if change.last else END_OF_EVENT for change in changes), np.uint8, len(changes)
    )
    values = np.zeros((len(changes), width), np.int64)
    encoders = [RowEncoder(relation, dictionary) for relation in relations]
    for i, change in enumerate(changes):
        relation = index.get(change.stream)
        where = f"{source}:{change.line}"
        if relation is None:
            problems.add("unknown stream", where, _unknown(change.stream, index))
            continue
        try:
            codes = encoders[relation].encode(change.row)
        except DataError as error:
            problems.add("row refused", where, str(error))
            continue
        kinds[i] = 2 * relation + (change.op == "-")
        values[i, : len(codes)] = codes
    return ChangeBatch(kinds, flags, values)


def _encode_batch(
    batch: RowBatch, relations: Sequence[Relation], dictionary: Dictionary, problems: Problems
) -> ChangeBatch:
    index = {relation.name: i for i, relation in enumerate(relations)}
    width = max((len(relation.columns) for relation in relations), default=0)
    kinds = np.full(len(batch), -1, np.int16)
    values = np.zeros((len(batch), width), np.int64)
    wrong: list[tuple[int, str, str, str]] = []
    for frame, rows, places in batch.parts():
        relation = index.get(frame.stream)
        if relation is None:
            reasons: Mapping[int, str] = dict.fromkeys(rows.tolist(), _unknown(frame.stream, index))
        else:
            codes, reasons = frame.encoded(relations[relation], dictionary)
            values[places, : codes.shape[1]] = codes.take(rows, 0)
            kinds[places] = 2 * relation
        what = "unknown stream" if relation is None else "row refused"
        for at in np.flatnonzero(np.isin(rows, list(reasons))).tolist() if reasons else ():
            place, where = np.arange(len(batch))[places][at], f"{frame.source}:{frame.lines[rows[at]]}"
            wrong.append((int(place), what, where, reasons[int(rows[at])]))
    for place, *problem in sorted(wrong):
        kinds[place] = -1
        problems.add(*problem)
    return ChangeBatch(kinds, np.full(len(batch), _ENDS, np.uint8), values)


def _unknown(stream: str, known: Collection[str]) -> str:
    return f"{stream!r}; {suggestion(stream, known)}"
