"""How a view of a run is kept, as text."""

from dataclasses import dataclass
from typing import Any, ClassVar

from views.compiler.program import ProgramSource, compile_source

_SHOWN = ("sql", "calculus", "m3", "plan")


@dataclass(frozen=True, slots=True)
class ExplainQuestion:
    """The stages of a view of the program that `source` compiles to."""

    source: ProgramSource
    view: str
    command: ClassVar[str] = "explain"

    def answer(self) -> dict[str, Any]:
        """The texts of the stages and the overview, and a line for each map."""
        # The run, which asks, has no use for these.
        from engine.plan.map_text import map_text
        from engine.plan.planner import plan
        from orderbook.explain import STAGES, overview, part_of

        program = compile_source(self.source)
        part = part_of(program.program, self.view)
        planned = plan(part)
        return {
            **{stage: STAGES[stage](program, self.view) for stage in _SHOWN},
            "overview": overview(program, self.view),
            "maps": [map_text(planned, declaration.name, {}, {}, "about ") for declaration in part.maps],
        }
