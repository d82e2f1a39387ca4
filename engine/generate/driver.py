"""The generated modules that drive a program: the loop over changes, which fires watches, or which records.

What both share comes first. The module that records looks at views as those of watches do (view_diff.py), but
notes every row that became another in a list for each view, with the index of the change, and the loop goes
on.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from orderbook.core.changes import END_OF_EVENT, END_OF_MESSAGE, OR_STOP
from orderbook.engine.generate.expressions import slot
from orderbook.engine.generate.module_text import ModuleText
from orderbook.engine.generate.numbering import NumberedPlan
from orderbook.engine.generate.program import trigger_call, trigger_functions, trigger_name, update_name
from orderbook.engine.generate.state_layout import (
    BATCH,
    CACHE,
    CHECKED_ROWS,
    COUNT,
    DIRTY,
    ERROR,
    FAILED,
    FIRED_WORDS,
    LIST,
    RECORDS,
    row_words,
)
from orderbook.engine.generate.view_diff import ViewDiffText
from orderbook.engine.maps.row_store import AHEAD
from orderbook.engine.plan.steps import UpdatePlan


def driver_module(plan: NumberedPlan, program_module: str, follows: bool = False) -> str:
    """The source of `run`; `program_module` is the name of the program's module.

    follows: whether there are row patterns.

    At the end of each event (or message) that touched a watched view, the loop looks at it, and returns to
    Python where a watch fires, where a change of the clock is to be a tick, and at the end where events were
    refused.
    """
    module = ModuleText(plan)
    failed_function(module)
    w = module.writer
    with module.exported(
        "run(S, start, stop)",
        "Applies changes start..stop; the index after the last, its complement where more is to be done.",
    ):
        w.line(f"store(S, {FIRED_WORDS}, 0)")
        with changes_applied(module, follows):
            ended = f"load(S, {DIRTY}) != 0 and flag & {END_OF_EVENT | END_OF_MESSAGE} != 0"
            fired = f"not failed(S) and look(S, flag & {END_OF_MESSAGE} != 0)"
            with w.block(f"if {ended} and {fired}:"):
                # A row that was looked at may have called a function that raised.
                with w.block("if failed(S):"):
                    w.line(f"return {FAILED}")
                w.line("give_back(rows, i + 1, end)")
                w.line("return ~(i + 1)")
        _end(module)
    return module.text(
        "from orderbook.engine.generate.support import follow, look\n"
        + _ADMISSION
        + trigger_imports(plan, program_module)
    )


_ADMISSION = """\
from orderbook.engine.maps.memory import load_byte, load_short
from orderbook.engine.maps.row_store import admitted, batch_begins, give_back, tells
"""


def _end(module: ModuleText) -> None:
    w = module.writer
    with w.block("if failed(S):"):
        w.line(f"return {FAILED}")
    w.line("return ~stop if tells(rows) else stop")


def trigger_imports(plan: NumberedPlan, program_module: str, more: Sequence[str] = ()) -> str:
    """Imports triggers, and more, of the program's module."""
    names = [*trigger_functions(plan), *more]
    return f"from {program_module} import {', '.join(names)}\n" if names else ""


def failed_function(module: ModuleText) -> None:
    """`failed(S)`, which the driver asks."""
    w = module.writer
    with module.function("failed(S)", "Whether a product or a sum overflowed 128 bits."):
        with w.block(f"if load(S, {ERROR}) != 0:"):
            w.line("return True")
        for held in module.plan.stores:
            if "W" in held.layout:
                with w.block(
                    f"if {held.name}_error(load(S, {slot(module.layout.handles[held.name])})) != 0:"
                ):
                    w.line("return True")
        w.line("return False")


@contextmanager
def changes_applied(module: ModuleText, follows: bool) -> Iterator[None]:
    """The loop that calls the trigger of every admitted change i; what is written inside comes after it, and
    after the matches of row patterns, which it `follows` at the end of events."""
    w, plan = module.writer, module.plan
    names = [r.name for r in plan.program.relations]
    w.line(f"batch = S + {8 * BATCH}")
    for number, name in enumerate(("kinds", "kind_stride", "flags", "flag_stride", "values", "stride")):
        w.line(f"{name} = load(batch, {number})")
    w.line("row = values + start * stride")
    w.line(f"rows = load(S, {CHECKED_ROWS})")
    with w.block("if rows != 0:"):
        w.line("batch_begins(rows, batch)")
    w.line("end = start")
    # What a firing leaves of it is uncounted: at most as much as was applied.
    w.line("ahead = 1")
    w.line("refused = False")
    w.line("i = start")
    with w.block("while i < stop:"):
        w.line("flag = load_byte(flags + i * flag_stride)")
        with w.block("if i >= end:"):
            w.line("end = admitted(rows, i, ahead, stop)")
            w.line(f"ahead = min(2 * ahead, {AHEAD})")
            w.line("refused = end < 0")
            with w.block("if refused:"):
                w.line("end = ~end")
            with w.block(f"if end == i or (refused and flag & {OR_STOP} != 0):"):
                w.line(f"return {FAILED} if failed(S) else ~i")
        w.line("kind = -1 if refused else load_short(kinds + i * kind_stride)")
        word = "if"
        for trigger in plan.triggers:
            kind = 2 * names.index(trigger.relation) + (not trigger.insert)
            update = next((u for u in plan.updates if u.relation == trigger.relation), None)
            with w.block(f"{word} kind == {kind}:"):
                if update is None or trigger.insert:
                    w.line(trigger_call(plan, trigger_name(trigger), "row"))
                else:
                    _updated(module, update, kind - 1)
            word = "elif"
        w.line("row += stride")
        if follows:
            with w.block(f"if flag & {END_OF_EVENT | END_OF_MESSAGE} != 0:"):
                w.line("follow(S)")
        yield
        w.line("i += 1")


def _updated(module: ModuleText, update: UpdatePlan, insert: int) -> None:
    """Deletes a row, or, where the same event has one inserted after it, in one with that."""
    w = module.writer
    follows = f"i + 1 < end and flag & {END_OF_EVENT | END_OF_MESSAGE} == 0"
    equal = "".join(f" and load(row, {at}) == load(row + stride, {at})" for at in update.same)
    w.line("updated = False")
    with w.block(f"if {follows}:"):
        w.line(f"updated = load_short(kinds + (i + 1) * kind_stride) == {insert}{equal}")
    with w.block("if updated:"):
        w.line(trigger_call(module.plan, update_name(update), "row", "row + stride"))
        w.line("row += stride")
        w.line("i += 1")
        w.line("flag = load_byte(flags + i * flag_stride)")
    with w.block("else:"):
        w.line(trigger_call(module.plan, f"delete_{update.relation}", "row"))


_IMPORTS = """\
from orderbook.engine.generate.support import follow
from orderbook.engine.maps.memory import call
from orderbook.engine.maps.memory import calloc, memory_move, release
"""
_FIRST_WORDS = 1 << 12


@dataclass(frozen=True, slots=True)
class Recorded:
    """A view, by its number, that is looked at, at the end of messages or of events."""

    view: int
    per_message: bool

    @property
    def tag(self) -> str:
        """What the names of its functions end in."""
        return f"_{self.view}_{int(self.per_message)}"


def record_module(
    plan: NumberedPlan, program_module: str, recorded: Sequence[Recorded], follows: bool = False
) -> str:
    """The source of the driver and looks; see `driver_module`."""
    module = ModuleText(plan)
    _append(module)
    looks = [_look_text(module, one) for one in recorded]
    for one, look in zip(recorded, looks, strict=True):
        _refresh(module, one, look)
        with module.function(f"look{one.tag}(S, index)", "Looks at the rows that were touched."):
            look.look(module.writer)
        _unlook(module, one, look)
    _look(module, recorded)
    failed_function(module)
    _driver(module, follows)
    rows = [f"row_{view}" for view in dict.fromkeys(one.view for one in recorded)]
    caches = "".join(look.cache for look in looks)
    return module.text(_IMPORTS + _ADMISSION + trigger_imports(plan, program_module, rows) + caches)


def _look_text(module: ModuleText, one: Recorded) -> ViewDiffText:
    result, at = module.plan.results[one.view], module.layout.look(one.view, one.per_message)
    row = f"row_{one.view}(S, keys, new)"
    return ViewDiffText(one.tag, len(result.result.keys), row_words(result), 0, str(at), "index", row)


def _append(module: ModuleText) -> None:
    w = module.writer
    with module.function("append(held, words)", "The address for `words` more words of a list, which grows."):
        w.line("used = load(held, 1)")
        with w.block("if used + words > load(held, 2):"):
            w.line(f"capacity = max({_FIRST_WORDS}, 2 * (used + words))")
            w.line("grown = calloc(capacity, 8)")
            w.line("memory_move(grown, load(held, 0), 8 * used)")
            w.line("release(load(held, 0))")
            w.line("store(held, 0, grown)")
            w.line("store(held, 2, capacity)")
        w.line("store(held, 1, used + words)")
        w.line("return load(held, 0) + 8 * used")


def _refresh(module: ModuleText, one: Recorded, look: ViewDiffText) -> None:
    """Looks at one row, and records what it was and is if it has become another; not below index 0."""
    w, keys, words = module.writer, look.keys, look.words
    at = module.layout.look(one.view, one.per_message)

    def recorded() -> None:
        with w.block("if index >= 0:"):
            w.line(f"place = append(load(S, {at + RECORDS}), {1 + keys + 2 * words})")
            w.line("store(place, 0, index)")
            for i in range(keys):
                w.line(f"store(place, {1 + i}, load(keys, {i}))")
            with w.block(f"for word in range({words}):"):
                w.line(f"store(place, {1 + keys} + word, load(old, word))")
                w.line(f"store(place, {1 + keys + words} + word, load(new, word))")

    look.refresh(w, recorded)


def _unlook(module: ModuleText, one: Recorded, look: ViewDiffText) -> None:
    """Makes rows those of the last look, and touches them, so that the next look sees them again."""
    w, count, words = module.writer, look.keys, look.words
    at = module.layout.look(one.view, one.per_message)
    with module.function(
        f"unlook{one.tag}(S, rows, count)", "Takes back the last look at rows: keys, and rows as they were."
    ):
        w.line(f"last = load(S, {at + CACHE})")
        with w.block("for _ in range(count):"):
            w.line("keys = rows")
            look.entry(w, lambda: None)
            with w.block(f"for word in range({words}):"):
                w.line(f"store(old, word, load(rows, {count} + word))")
            look.removal(w, "load(old, 0) == 0")
            w.line(f"store(S, {DIRTY}, 1)")
            with w.block(f"if load(S, {at + COUNT}) >= 0:"):
                w.line(f"place = push_key(S, {at + LIST}, {count})")
                for i in range(count):
                    w.line(f"store(place, {i}, load(rows, {i}))")
            w.line(f"rows += {8 * (count + words)}")


def _look(module: ModuleText, recorded: Sequence[Recorded]) -> None:
    w, layout = module.writer, module.layout
    with module.function("look(S, message_ends, index)", "Looks at the touched rows after change `index`."):
        w.line(f"store(S, {DIRTY}, 0)")
        for one in recorded:
            call = f"look{one.tag}(S, index)"
            if one.per_message:
                with w.block("if message_ends:"):
                    w.line(call)
                with w.block(f"elif load(S, {layout.look(one.view, True) + COUNT}) != 0:"):
                    w.line(f"store(S, {DIRTY}, 1)")
            else:
                w.line(call)


def _driver(module: ModuleText, follows: bool) -> None:
    w = module.writer
    with module.exported("run(S, start, stop)", "Applies changes start..stop; the index after the last."):
        with changes_applied(module, follows):
            ended = f"load(S, {DIRTY}) != 0 and flag & {END_OF_EVENT | END_OF_MESSAGE} != 0"
            with w.block(f"if {ended} and not failed(S):"):
                w.line(f"look(S, flag & {END_OF_MESSAGE} != 0, i)")
        _end(module)
