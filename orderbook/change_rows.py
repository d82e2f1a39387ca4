"""Changes of a change stream as a batch for the engine."""

from collections.abc import Mapping, Sequence

import numpy as np

from engine.changes import END_OF_EVENT, END_OF_MESSAGE, ChangeBatch
from engine.encoding import encode_row
from feeds.change_stream import Change
from feeds.source import ChangeSource, EventSource
from orderbook.configuration_errors import suggestion
from orderbook.dictionary import Dictionary
from orderbook.errors import DataError, SourceError
from orderbook.problems import Problems
from views.compiler.types import Relation

_ENDS = END_OF_EVENT | END_OF_MESSAGE


def check_relations(sources: Sequence[EventSource | ChangeSource], relations: Sequence[Relation]) -> None:
    """Refuse a source that says the columns of its relations where the program declares others.

    Raises SourceError that names what to declare.
    """
    declared = {relation.name: relation for relation in relations}
    for source in sources:
        # Which view events do; a source that is watched has what its own has.
        given: Mapping[str, Sequence[str]] = getattr(source, "relations", {})
        for name, columns in given.items():
            if name not in declared:
                raise SourceError(
                    f"{source.name}: the program declares no stream {name!r}; {suggestion(name, declared)}; "
                    f"write CREATE STREAM {name} ({', '.join(columns)}) and its types, or say relation="
                )
            own = [column.name for column in declared[name].columns]
            wrong = [f"lacks {c!r}" for c in columns if c not in own]
            wrong += [f"has {c!r}, which the file has not" for c in own if c not in columns]
            if wrong:
                raise SourceError(
                    f"{source.name}: the stream {name} {', '.join(wrong)}; correct its declaration"
                )


def encode_changes(
    changes: Sequence[Change],
    relations: Sequence[Relation],
    dictionary: Dictionary,
    source: str,
    problems: Problems,
) -> ChangeBatch:
    """Every change as an event of its own; `kinds` index `relations`.

    A row that contradicts its declaration is counted in `problems` with its line of `source`, and left
    out (kind -1), so that the message it may have ended still ends.
    """
    index = {relation.name: i for i, relation in enumerate(relations)}
    width = max((len(relation.columns) for relation in relations), default=0)
    kinds = np.full(len(changes), -1, np.int16)
    flags = np.fromiter(
        (_ENDS if change.last else END_OF_EVENT for change in changes), np.uint8, len(changes)
    )
    values = np.zeros((len(changes), width), np.int64)
    for i, change in enumerate(changes):
        relation = index.get(change.stream)
        where = f"{source}:{change.line}"
        if relation is None:
            detail = f"{change.stream!r}; {suggestion(change.stream, index)}"
            problems.add("unknown stream", where, detail)
            continue
        try:
            codes = encode_row(relations[relation], change.row, dictionary)
        except DataError as error:
            problems.add("row refused", where, str(error))
            continue
        kinds[i] = 2 * relation + (change.op == "-")
        values[i, : len(codes)] = codes
    return ChangeBatch(kinds, flags, values)
