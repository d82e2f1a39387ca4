"""What is said when a value does not fit: 128 bits, 64 for a key, the range of DOUBLE for others."""

from collections.abc import Callable

from orderbook.errors import DataError, ExactnessError
from views.compiler.calculus import maps_read
from views.compiler.m3 import MapDeclaration, Program

from .plan.planner import layout_of


def overflow_error(program: Program) -> ExactnessError:
    """Names the views whose sums are not proved to fit 128 bits, or all."""
    named = _views(program, lambda m: layout_of(m.type) == "W")
    return ExactnessError(f"a value of {named} does not fit 128 bits; declare narrower columns (CHECK)")


def wide_key_error(program: Program) -> ExactnessError:
    """Names the views with rows told apart by values that are not proved to fit 64 bits, or all."""
    named = _views(program, lambda m: any(k.exact and layout_of(k) != "i" for k in m.key_types))
    return ExactnessError(
        f"a value that {named} groups, joins or orders by does not fit 64 bits; "
        "declare narrower columns (CHECK)"
    )


def infinite_error(program: Program) -> DataError:
    """Names the views that add up doubles."""
    named = _views(program, lambda m: not m.type.exact)
    return DataError(f"a value of {named} is beyond the range of DOUBLE")


def _views(program: Program, concerned: Callable[[MapDeclaration], bool]) -> str:
    """The views that read a map which is concerned, or one made from it; all where none does."""
    maps = {m.name for m in program.maps if concerned(m)}
    statements = [s for t in program.triggers for s in t.statements]
    growing = True
    while growing:
        more = {s.target for s in statements if not maps.isdisjoint(maps_read(s.value))} - maps
        growing = bool(more)
        maps |= more
    read = {r.name: {r.multiplicity, *(n for _, p in r.lets for n in maps_read(p))} for r in program.results}
    return ", ".join(sorted(v for v, names in read.items() if not maps.isdisjoint(names)) or sorted(read))
