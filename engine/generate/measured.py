"""A program's module with a count and a time for every statement, to be read beside its plan.

Statements are not fused, so that each has a time of its own: the sum is a little above what the module
that runs takes. Writes that several statements share are timed by themselves.
"""

import time
from collections.abc import Sequence
from itertools import groupby

from llvmlite import ir
from numba import types

from orderbook.core.jit import jit, primitive
from orderbook.engine.generate.expressions import Code
from orderbook.engine.generate.pipelines import Sum, sums_of
from orderbook.engine.generate.state_layout import MEASURES
from orderbook.engine.generate.writes import Writes
from orderbook.engine.plan.steps import Plan, StatementPlan


def _cycles() -> int:
    return time.perf_counter_ns()


@primitive(_cycles)
def cycles(typing_context):  # type: ignore[no-untyped-def]
    """cycles() -> int64: a counter of the processor that only rises."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        word = ir.IntType(64)
        name = "llvm.readcyclecounter"
        return builder.call(builder.module.declare_intrinsic(name, (), ir.FunctionType(word, [])), [])

    return types.int64(), generate


@jit()
def read_cycles():  # type: ignore[no-untyped-def]
    """The counter, from plain Python."""
    return cycles()


def numbered(plan: Plan) -> dict[int, int]:
    """The number of every statement, by its identity; the words of its measures are twice that."""
    statements = [s for t in plan.triggers for s in t.statements]
    return {id(s): number for number, s in enumerate(statements)}


class MeasuredWrites(Writes):
    """Writes that add to word 2 n (count) and 2 n + 1 (cycles) of the measures of statement n."""

    projects = False
    imports = "from orderbook.engine.generate.measured import cycles\n"

    def statements(self, statements: Sequence[StatementPlan]) -> None:
        """See Writes."""
        for _, level in groupby(statements, key=lambda s: s.level):
            own = list(level)
            single = [s for s in own if s.writes_one(self.names)]
            values = []
            for statement in single:
                started = self._started()
                wanted = Sum(statement.pipelines, self.emitter.map_type(statement.target), statement.types)
                code = sums_of(self.emitter, [wanted], self.names)[0]
                values.append((statement, Code(self.emitter.writer.once("value", code.text), code.type)))
                self._measured(statement, started)
            for statement in own:
                if not statement.writes_one(self.names):
                    started = self._started()
                    self._loop_writes([statement])
                    self._measured(statement, started)
            for _, shared in groupby(values, key=lambda v: self.plan.stores_of(v[0].target)[0].name):
                together = list(shared)
                started = self._started()
                self._write(together)
                self._measured(together[0][0], started, counts=False)
        for view, keys in self.touched:
            self._emit_touch(view, keys)

    def _started(self) -> str:
        name = self.emitter.writer.fresh("started")
        self.emitter.writer.line(f"{name} = cycles()")
        return name

    def _measured(self, statement: StatementPlan, started: str, counts: bool = True) -> None:
        at = 2 * numbered(self.plan.plan)[id(statement)]
        w = self.emitter.writer
        w.line(f"measures = load(S, {MEASURES})")
        w.line(f"store(measures, {at + 1}, load(measures, {at + 1}) + cycles() - {started})")
        if counts:
            w.line(f"store(measures, {at}, load(measures, {at}) + 1)")
