"""What was measured of a plan's statements and maps, beside what the plan says of them."""

from collections.abc import Mapping
from typing import Protocol

from orderbook.errors import DataError
from views.compiler.m3_text.m3_print import scalar_text

from .plan.describe import statement_cost
from .plan.map_text import map_text
from .plan.steps import Plan
from .runtime import Runtime
from .view_bytes import shared_by_views


class Measured(Protocol):
    """A runtime that measures."""

    def measures(self) -> list[tuple[int, float]]: ...

    def map_sizes(self) -> dict[str, int]: ...

    def map_bytes(self) -> dict[str, int]: ...


def costs_of(runtime: Runtime, measured: bool, view_bytes: Mapping[str, int]) -> str:
    """`measures_text` of a runtime that measures. Raises DataError for another one."""
    from .numba_runtime import NumbaRuntime

    if not (measured and isinstance(runtime, NumbaRuntime)):
        raise DataError('nothing is measured; start with Engine(program, "numba", measured=True)')
    return measures_text(runtime.plan, runtime, view_bytes)


def view_nanoseconds(plan: Plan, runtime: Measured) -> dict[str, int]:
    """ns that keeping every view's maps took; a map's are shared evenly by the views that need it."""
    spent = dict.fromkeys((m.name for m in plan.program.maps), 0.0)
    statements = [s for trigger in plan.triggers for s in trigger.statements]
    for statement, (_, elapsed) in zip(statements, runtime.measures(), strict=True):
        spent[statement.target] += elapsed
    return shared_by_views(plan.program, {name: round(elapsed) for name, elapsed in spent.items()})


def measures_text(plan: Plan, runtime: Measured, view_bytes: Mapping[str, int]) -> str:
    """Statements with their cost class, how often they ran, and the mean time; maps; bytes of views."""
    measures = iter(runtime.measures())
    lines = ["measured of every statement:", ""]
    for trigger in plan.triggers:
        lines.append(f"  {'insert into' if trigger.insert else 'delete from'} {trigger.relation}")
        for statement in trigger.statements:
            count, elapsed = next(measures)
            cost, mean = str(statement_cost(plan, statement)), elapsed / max(count, 1)
            written = f"{statement.target}[{', '.join(map(scalar_text, statement.keys))}] {statement.op}"
            lines.append(f"    {cost:<9} {count:>12,} x {mean:>10,.0f} ns  {written}")
    lines += ["", "maps:", ""]
    sizes, held = runtime.map_sizes(), runtime.map_bytes()
    lines += [f"  {map_text(plan, name, sizes, held, '')}" for name in held]
    lines += ["", "views:", "", *(f"  {view}: {size:,} bytes" for view, size in view_bytes.items())]
    return "\n".join(lines) + "\n"
