"""Which trees may be dense stores: few keys, few prefixes, read by whole sums and cuts at a limit only."""

from collections.abc import Iterable, Mapping, Sequence

from engine.maps.dense import Domain
from views.compiler.calculus import Rel, Var
from views.compiler.m3 import MapDeclaration
from views.compiler.types import Relation, Type

from .steps import Cursor, Dense, Extremum, Loop, RangeSum

# Cells of one prefix: a column of 64 bits is 1 MB of them, of which only touched pages are held.
MOST_CELLS = 1 << 17
# Prefixes up to which a dense store is the faster one: cells of more lie too far apart for the caches.
MOST_PREFIXES = 200

Reads = Iterable[RangeSum | Extremum | Loop]


def dense_of(
    relations: Mapping[str, Relation],
    group: Sequence[MapDeclaration],
    position: int,
    layout: str,
    reads: Reads,
    prefixes: int | None,
) -> Dense | None:
    """How the tree over the key at `position` of the maps of a group can be dense; None if it cannot.

    `reads` are all reads of trees in the program; `prefixes` is how many values the other keys have, where it
    was measured.
    """
    if set(layout) - set("iw") or (prefixes is not None and prefixes > MOST_PREFIXES):
        return None
    bounds = [_bounds(relations, d, position) for d in group]
    found = [b for b in bounds if b is not None]
    if len(found) < len(bounds):
        return None
    low, high = min(b[0] for b in found), max(b[1] for b in found)
    cursors = _cursors({d.name for d in group}, len(group[0].keys), position, reads)
    if cursors is None or not 0 < high - low < MOST_CELLS:
        return None
    descending = any(down for _, down in cursors)
    if not all(down == descending for _, down in cursors):
        return None
    return Dense(Domain(low, high - low + 1, descending), tuple(dict.fromkeys(c for c, _ in cursors)))


def _bounds(
    relations: Mapping[str, Relation], declaration: MapDeclaration, position: int
) -> tuple[int, int] | None:
    """The least and greatest value of a key that is a column which is never NULL in every term."""
    found = column_types(relations, declaration, position)
    if not found or not all(kind.exact for kind in found):
        return None
    return min(k.low for k in found), max(k.high for k in found)


def column_types(
    relations: Mapping[str, Relation], declaration: MapDeclaration, position: int
) -> list[Type] | None:
    """For every term the type of a column that is the key and never NULL; None where one has none."""
    key, found = declaration.keys[position], []
    for term in declaration.definition.terms:
        kinds = [
            kind for f in term if isinstance(f, Rel) for kind in _columns_of(relations[f.name], f.args, key)
        ]
        if not kinds:
            return None
        found.append(kinds[0])
    return found or None


def _columns_of(relation: Relation, arguments: Sequence[object], key: Var) -> Iterable[Type]:
    """The types of the columns that bind `key`."""
    for column, argument in zip(relation.columns, arguments, strict=True):
        if argument == key and not column.nullable:
            yield column.type


def _cursors(names: set[str], keys: int, position: int, reads: Reads) -> list[tuple[Cursor, bool]] | None:
    """The cursors that the reads of a tree need, and which way each walks; None for any other read."""
    found = []
    for read in reads:
        within = read.range
        if within is None:
            continue
        cuts = [c for c in within.cuts if c.position == position and c.sums[0][1] in names]
        own = read.map in names and within.position == position
        if not own and not cuts:
            continue
        if not own or not isinstance(read, RangeSum) or within.low or within.high:
            return None
        if within.everything:
            continue
        prefix = tuple(read.keys[i] for i in range(keys) if i != position)
        cut = cuts[0] if cuts else None
        if (
            cut is None
            or len(within.cuts) != 1
            or not cut.leading
            or cut.prefix != prefix
            or cut.limit is None
        ):
            return None
        found.append((Cursor(cut.sums[0][1], cut.inclusive, cut.limit), cut.descending))
    return found
