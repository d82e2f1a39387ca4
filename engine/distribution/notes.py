"""What a user should know of a distribution: what is one partition only, and why."""

from collections.abc import Sequence

from .graph import MapGraph
from .placing import Draft, Label, Placing

# Names that one line lists.
_MOST_NAMES = 8


def notes_of(
    graph: MapGraph, drafts: Sequence[Draft], options: Sequence[Label], partitions: int, partial: bool
) -> tuple[str, ...]:
    """Lines about what is in one partition.

    options: the keys that were possible; partial: whether partial sums were.
    """
    whole = [d for d in drafts if not d.axes]
    if not whole:
        return ()
    if partitions == 1:
        return ("one partition only: because no more were asked for",)
    placing = Placing(graph, partial)
    own = {n for d in whole for n in (*d.computed, *d.views)}
    units = [u for u in graph.units if own & {u.name, *u.maps}]
    stuck = [u.name for u in units if not any(placing.fits_alone(u, o) for o in options)]
    dear = [u.name for u in units if u.name not in stuck]
    head = "one partition only" if len(whole) == len(drafts) else "in one partition"
    found = []
    if stuck:
        keys = ", ".join(dict.fromkeys("+".join(k.axis.name for k in o) for o in options))
        among = f" of {keys}" if keys else ", for no column has a value that its rows share"
        found.append(f"{head}: {_listed(stuck)}, because no part of it can be made from one value{among}")
    if dear:
        found.append(f"{head}: {_listed(dear)}, because what would have to travel costs more than is saved")
    return tuple(found)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown} and {len(names) - _MOST_NAMES} more"
