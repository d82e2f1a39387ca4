"""Maps of a plan as text: their keys, the indexes they are read by, entries and bytes."""

from collections.abc import Mapping

from .steps import Plan
from .stores import layout_of

_WIDTHS = {"i": "64 bits", "w": "128 bits", "W": "128 bits checked", "d": "double"}


def map_text(plan: Plan, name: str, entries: Mapping[str, int], held: Mapping[str, int], about: str) -> str:
    """`m1[a, b] 64 bits, hash, slice by [a]: 3 entries, 264 bytes`; numbers where the mappings have them."""
    keys = [key.name for key in plan.program.map(name).keys]
    column = layout_of(plan.program.map(name).type)
    indexes = [_WIDTHS[column]]
    for store in plan.stores_of(name):
        if store.ordered is None:
            indexes += ["hash", *(f"slice by [{', '.join(keys[i] for i in s)}]" for s in store.slices)]
        else:
            indexes.append(f"{'tree' if store.dense is None else 'array'} by {keys[store.ordered]}")
    numbers = [f"{entries[name]:,} entries"] if name in entries else []
    numbers += [f"{about}{held[name]:,} bytes"] if name in held else []
    return f"{name}[{', '.join(keys)}] {', '.join(indexes)}" + (f": {', '.join(numbers)}" if numbers else "")
