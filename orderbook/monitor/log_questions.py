"""Questions that the run's log answers: what an event did, and what views cost."""

from dataclasses import dataclass
from typing import Any, ClassVar

from orderbook.configuration.configuration import Configuration
from orderbook.core.errors import DataError, UserError
from orderbook.durability.past_states import LAST, open_past_run
from orderbook.engine.runtime.measures import view_nanoseconds
from orderbook.engine.runtime.numba_runtime import NumbaRuntime
from orderbook.engine.runtime.subscriptions import Version
from orderbook.operations.why import Explanation, why_text

# Costs are measured on at least so much of the log, from the checkpoint before.
_SAMPLE_NANOSECONDS = 30 * 10**9


@dataclass(frozen=True)
class LogQuestion:
    """About the log of a run of this configuration. Raises DataError where it keeps none."""

    configuration: Configuration

    def __post_init__(self) -> None:
        if self.configuration.log.folder is None:
            raise DataError("this run keeps no log, which would answer that; set folder in [log]")


@dataclass(frozen=True)
class EventQuestion(LogQuestion):
    """What the event of a version did to a view."""

    view: str
    version: Version
    command: ClassVar[str] = "why"

    def answer(self) -> dict[str, Any]:
        """`text`. Raises OrderbookError where the log has no such event."""
        past = open_past_run(self.configuration, self.version)
        found = Explanation(past, self.view, self.version).found()
        return {"text": why_text(found, past.engine.program)}


@dataclass(frozen=True)
class CostQuestion(LogQuestion):
    """What every view and statement costs an event, on what came in the last half minute or more.

    stamp: the newest of the run.
    """

    stamp: int = 0
    command: ClassVar[str] = "explain --live"

    def answer(self) -> dict[str, Any]:
        """Events applied, ns for one of them by view, and `Engine.costs` as `text`."""
        if self.configuration.run.backend != "numba":
            raise DataError('statements are measured with backend = "numba" alone')
        sample = (self.stamp - _SAMPLE_NANOSECONDS, LAST, LAST)
        try:
            past = open_past_run(self.configuration, sample, measured=True)
        except UserError:
            # The run is younger than that, or keeps no older checkpoint.
            past = open_past_run(self.configuration, None, measured=True)
        pipeline, runtime = past.pipeline, past.engine.runtime
        assert isinstance(runtime, NumbaRuntime)
        before = pipeline.events + pipeline.changes
        past.go_to((LAST, LAST, LAST))
        events = pipeline.events + pipeline.changes - before
        spent = view_nanoseconds(runtime.plan, runtime)
        views = {view: round(elapsed / max(events, 1), 1) for view, elapsed in spent.items()}
        return {"events": events, "views": views, "text": past.engine.costs()}
