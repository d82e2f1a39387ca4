"""A state taken out of the parts of an engine, and put into those of another."""

from engine.held_rows import HeldRows
from engine.runtime import Runtime
from orderbook.errors import DataError
from orderbook.problems import Problems
from views.compiler.program import CompiledProgram

from .program_hash import program_hash
from .state import EngineState, codes_of


def saved_state(
    program: CompiledProgram,
    runtime: Runtime,
    rows: HeldRows,
    at: tuple[int, int | None, int],
    problems: Problems,
) -> EngineState:
    """A copy of all that an engine holds between two messages; `at`: its sequence, stamp and switch."""
    sequence, stamp, switch = at
    return EngineState(
        program=program_hash(program),
        sequence=sequence,
        stamp=stamp,
        switch=switch,
        now=rows.clock.now,
        maps=runtime.copied(),
        checked=None if rows.checked is None else rows.checked.copied(),
        kept=None if rows.kept is None else rows.kept.copied(),
        expiring=rows.clock.retention.copied(),
        # After the maps, so that every code in them is among the strings.
        strings=program.dictionary.strings(),
        problems=dict(problems.counts),
        examples={kind: list(found) for kind, found in problems.examples.items()},
    )


def restore_state(
    state: EngineState, program: CompiledProgram, runtime: Runtime, rows: HeldRows, problems: Problems
) -> None:
    """Puts a state into the parts of an engine.

    Raises DataError, and changes nothing, where it does not fit.
    """
    if state.program != program_hash(program):
        raise DataError("the state is of another program; replay the stream from its beginning")
    rows.require(state)
    codes = codes_of(program.dictionary, state.strings)
    runtime.restore(state.maps, codes)
    rows.restore(state, codes)
    problems.clear()
    problems.counts.update(state.problems)
    problems.examples.update({kind: list(found) for kind, found in state.examples.items()})
