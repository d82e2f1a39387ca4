"""Whether the whole of a program can run in partitions that need nothing of each other, and why it cannot.

That is a distribution of one stage by one column, in which every row goes to one partition and no partial
sums travel: views by symbol, or by venue, of relations that order books feed. Each partition then runs the
program as it is (`orderbook.engine.runtime.partitioned_runtime`).
"""

from collections.abc import Collection, Mapping

from orderbook.core.errors import ConfigurationError
from orderbook.engine.distribution.distribute import Planned, planned
from orderbook.engine.distribution.stages import Phase
from orderbook.engine.runtime.partitioned_runtime import Partitions
from orderbook.views.calculus import relations
from orderbook.views.m3 import Program
from orderbook.views.types import CLOCK

# Columns of books by which a program is cut, the better first.
_COLUMNS = ("symbol", "venue")


def partitions_of(program: Program, count: int, fed: Collection[str]) -> Partitions | str:
    """By which column a program runs in `count` partitions, or why it runs in one.

    fed: the relations that order books feed.
    """
    if program.patterns:
        return "a view reads MATCH_RECOGNIZE, whose matches are sought in one list of rows"
    read = {trigger.relation for trigger in program.triggers} - {CLOCK}
    if others := sorted(read.difference(fed)):
        return f"{_listed(others)} {'is' if len(others) == 1 else 'are'} not fed by order books alone"
    if expiring := sorted(r.name for r in program.relations if r.retain is not None):
        return f"rows of {_listed(expiring)} expire (RETAIN), of which there is one list"
    if not read:
        return "no view reads an order book"
    why = ""
    for column in _COLUMNS:
        try:
            found = planned(program, partitions=count, key=column)
        except ConfigurationError:
            continue
        if (partitions := _of(found, program, count, column)) is not None:
            return partitions
        why = why or _reason(found, column)
    return why or f"no relation has a column {' or '.join(_COLUMNS)}"


def _of(found: Planned, program: Program, count: int, column: str) -> Partitions | None:
    stages = found.distribution.stages
    if len(stages) != 1 or len(stages[0].axes) != 1:
        return None
    places: dict[str, int | None] = {}
    for entry in stages[0].inputs:
        (given,) = entry.route
        place = None if given is None else entry.columns[given]
        if entry.phase is Phase.CHANGES or places.setdefault(entry.source, place) != place:
            return None
    if any((place is None) != (name == CLOCK) for name, place in places.items()):
        return None
    keys = _keys(found, program)
    return None if keys is None else Partitions(count, column, _places(program, places, column), keys)


def _places(program: Program, places: Mapping[str, int | None], column: str) -> list[int | None]:
    """Where each relation has the column; what no view reads goes where its rows name it, too."""
    found = []
    for relation in program.relations:
        names = [one.name for one in relation.columns]
        own = names.index(column) if column in names and relation.name != CLOCK else None
        found.append(places.get(relation.name, own))
    return found


def _keys(found: Planned, program: Program) -> dict[str, int] | None:
    """By which of its keys each map is held; None where a map is held in another way."""
    (draft,) = found.drafts
    keys = {}
    for declaration in program.maps:
        held = draft.computed.get(declaration.name, draft.copied.get(declaration.name))
        if held is None or len(held) != 1 or held[0] == "partial":
            return None
        if isinstance(held[0], int):
            keys[declaration.name] = held[0]
        elif set(relations(declaration.definition)) - {CLOCK}:
            return None
    return keys


def _reason(found: Planned, column: str) -> str:
    """Which views keep a program in one partition."""
    stages = found.distribution.stages
    first = stages[0] if stages[0].axes else None
    together = sorted({view for stage in stages if stage is not first for view in stage.views})
    if not together:
        return f"views need rows of several {column}s at once"
    return (
        f"{_listed(together)} {'needs' if len(together) == 1 else 'need'} rows of several {column}s at once"
    )


def _listed(names: Collection[str]) -> str:
    return ", ".join(names)
