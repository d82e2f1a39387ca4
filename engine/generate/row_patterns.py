"""The generated module of a row pattern: rows in their order, and the matches among them as they change.

A partition is an array of rows in their order, where a row that comes last costs no search. Each row goes
through the automaton once: a *thread* is a position of the automaton that a row is sought for, with where its
match began and what is kept of its rows. Threads are listed as the standard prefers them, so that the first
that ends says what the match is, as in simulations of regular expressions (Thompson, CACM 1968, and its
extension to submatches by Pike). A match that a thread before it may still replace stays in the list, and is
a match meanwhile, for that is what the rows of now say.

Where a row comes or goes before the last, the rows from the beginning of the oldest thread of that time on go
through the automaton again, until the oldest one begins behind the change, where it did before. `back` of a
row says how far back the oldest thread after it began.

What goes and comes is told at the end of the event, by the triggers of the relation of matches.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from orderbook.core.changes import NULL_CODE
from orderbook.engine.generate.expressions import (
    Code,
    arithmetic,
    as_wide,
    finite,
    held_as,
    in_word,
    number,
    truth,
)
from orderbook.engine.generate.module_text import Emitter, ModuleText, Names, Writer
from orderbook.engine.generate.numbering import NumberedPlan
from orderbook.engine.generate.program import key_names, row_column, trigger_call
from orderbook.engine.generate.row_pattern_text import TEXT
from orderbook.engine.generate.state_layout import COUNT, LIST, RECORDS, ROW, column_words, row_words
from orderbook.engine.generate.view_diff import ViewDiffText
from orderbook.views.calculus import Var, scalar_variables
from orderbook.views.intervals import exact
from orderbook.views.m3 import Kept, RowPattern, kept_there, kept_value, row_there, row_value
from orderbook.views.pattern_automaton import END
from orderbook.views.types import DOUBLE, Kind, Type, unscaled

# Words of a pattern's memory: partitions (the store of their addresses, or the one there is); growing lists
# of address, count and capacity (threads before and after a row, matches that go, and new ones); the row of
# zeros before the first, what a thread on trial keeps, the table of positions; that of threads listed after a
# row (address, how many places it has, a number that its entries have, whether it was made for the row at
# hand); and the list of matches that began at rows which are looked at again.
PARTITIONS = 0
NOW = 1
NEXT = 4
GONE = 7
FRESH = 10
NOTHING = 13
TRIAL = 14
TABLE = 15
SEEN = 16
BEFORE = 20
PATTERN_WORDS = 23

# Of fewer threads one that goes on as another is looked for among all.
_FEW_THREADS = 8
# What goes is compared with what comes while it is as few.
_FEW = 64


def position_table(pattern: RowPattern) -> list[int]:
    """Where the entry of the beginning, and of each position, begins in the words that follow: the variable,
    how many positions follow it, and these."""
    entries = [[-1, len(pattern.first), *pattern.first]]
    for variable, follow in zip(pattern.variable_of, pattern.follow, strict=True):
        entries.append([variable, len(follow), *follow])
    places, at = [], len(entries)
    for entry in entries:
        places.append(at)
        at += len(entry)
    return [*places, *(word for entry in entries for word in entry)]


@dataclass(frozen=True, slots=True)
class KeptWords:
    """Where what is kept of a match lies: whether it is there, then its value; of the first row's whether
    there was one. `conditional` words, which conditions read, come first."""

    places: tuple[int, ...]
    conditional: int
    words: int

    @classmethod
    def of(cls, pattern: RowPattern) -> "KeptWords":
        """Those of a pattern."""
        read = {v for condition in pattern.conditions for v in scalar_variables(condition)}
        numbers = range(len(pattern.kept))
        asked = {n for n in numbers if kept_value(n) in read or kept_there(n) in read}
        places, at, conditional = dict[int, int](), 0, 0
        for place in sorted(numbers, key=lambda n: n not in asked):
            places[place] = at
            at += _kept_words(pattern.kept[place])
            conditional = at if place in asked else conditional
        return cls(tuple(places[n] for n in numbers), conditional, at)


def _kept_words(kept: Kept) -> int:
    return 1 + column_words(kept.type) + (kept.how == "first")


def row_pattern_module(plan: NumberedPlan, program_module: str, pattern: RowPattern, view: int) -> str:
    """The source of `follow(S, at, quiet)`, `fill(S, M, block)` and `finish(S, M, nothing)` of a pattern.

    `follow` looks at the rows that were touched, of the view of that number, whose look lies at `at` in the
    state, and tells what matches go and come; quietly it only notes the rows. pattern: numbered.
    """
    module = ModuleText(plan)
    text = _PatternText(module, pattern, KeptWords.of(pattern), row_words(plan.results[view]))
    text.written()
    keys, words = len(plan.results[view].result.keys), row_words(plan.results[view])
    look = ViewDiffText("", keys, words, 0, "at", "M", f"row_{view}(S, keys, new)")
    apart = _is_apart(plan, view)
    if apart:
        _plain_row(module, view)
        _follow_touched(module, view, keys)
    else:
        _follow_seen(module, look)
    names = [f"row_{view}", f"insert_{pattern.name}", f"delete_{pattern.name}"]
    imports = f"{_IMPORTS}from {program_module} import {', '.join(names)}\n"
    if pattern.partition:
        imports += _partitions(text.partition_words)
    return module.text(imports + ("" if apart else look.cache), stores=())


def _is_apart(plan: NumberedPlan, view: int) -> bool:
    """Whether a row says all of itself in its keys, which are noted one by one as they come and go."""
    result = plan.results[view]
    written = (s for t in plan.triggers for s in t.statements if s.target == result.result.multiplicity)
    return bool(result.result.keys) and not result.lets and all(s.op == "+=" for s in written)


def _plain_row(module: ModuleText, view: int) -> None:
    """`plain_row(S, keys, out)`: a row by its keys, whether it is there or not."""
    result = module.plan.results[view]
    with module.function("plain_row(S, keys, out)", "The row of keys, there or not.") as emitter:
        names = key_names(emitter, result, [f"load(keys, {i})" for i in range(len(result.result.keys))])
        at = 1
        for column in result.result.columns:
            at = row_column(emitter, column, names, at)


def _follow_touched(module: ModuleText, view: int, keys: int) -> None:
    """`follow`, by the keys that were touched alone."""
    w = module.writer
    with module.exported("follow(S, at, quiet)", "Looks at touched rows, and tells of matches."):
        w.line(f"M, row, place = load(S, at + {RECORDS}), load(S, at + {ROW}), load(S, at + {LIST})")
        w.line(f"touched = load(S, at + {COUNT})")
        w.line(f"store(S, at + {COUNT}, 0)")
        with w.block("if quiet != 0:"):
            w.line("return 0")
        with w.block("for _ in range(touched):"):
            w.line(f"count = row_{view}(S, place, row)")
            with w.block("if count == 0:"):
                w.line("plain_row(S, place, row)")
            w.line("follow_row(S, M, row, count)")
            w.line(f"place += {8 * keys}")
        w.line("settle(S, M, 1)")
        w.line("return 0")


def _follow_seen(module: ModuleText, look: ViewDiffText) -> None:
    """`follow`, by rows as they were seen last."""
    w = module.writer

    def noted() -> None:
        with w.block("if M != 0:"):
            with w.block("if load(old, 0) != 0:"):
                w.line("go(S, M, old)")
            with w.block("if load(new, 0) != 0:"):
                w.line("come(S, M, new)")

    look.refresh(w, noted)
    with module.exported("follow(S, at, quiet)", "Looks at touched rows, and tells of matches."):
        w.line(f"M = 0 if quiet != 0 else load(S, at + {RECORDS})")
        look.look(w)
        with w.block("if M != 0:"):
            w.line("settle(S, M, 1)")
        w.line("return 0")


_IMPORTS = """\
from orderbook.engine.generate.support import push_key
from orderbook.engine.maps.memory import call, calloc, memory_move, mix, release
"""


def _partitions(words: int) -> str:
    names = "".join(
        f"partitions_{n} = partitions.{n}\n" for n in ("find", "insert", "remove", "first", "next_entry")
    )
    return f"partitions = hashed({words}, 'i', ())\n{names}"


@dataclass(frozen=True, slots=True)
class _PatternText:
    """Writes the functions of one pattern; `words` are those of a row of its rows."""

    module: ModuleText
    pattern: RowPattern
    kept: KeptWords
    words: int

    @property
    def w(self) -> Writer:
        return self.module.writer

    @property
    def partition_words(self) -> int:
        """Words of the key of a partition."""
        return sum(column_words(self.pattern.rows.columns[place].type) for place in self.pattern.partition)

    def written(self) -> None:
        """All functions but those that look."""
        pattern, kept = self.pattern, self.kept
        self._order()
        self._partition()
        thread, overlapping = 2 + kept.words, pattern.overlapping
        # Matches of several beginnings may go on as one.
        merged = not overlapping and pattern.within is None
        before, _, after = TEXT.format(
            row_bytes=8 * (self.words + 2),
            words=self.words,
            back=self.words,
            match=self.words + 1,
            nothing=NOTHING,
            now=NOW,
            next=NEXT,
            gone=GONE,
            fresh=FRESH,
            trial=TRIAL,
            table=TABLE,
            seen=SEEN,
            before=BEFORE,
            end=END,
            few=_FEW,
            few_threads=_FEW_THREADS,
            columns=len(pattern.columns),
            gone_bytes=8 * (len(pattern.columns) + 1),
            thread=thread,
            thread_bytes=8 * thread,
            kept=kept.words,
            conditional=kept.conditional,
            reach=pattern.back,
            mergeable="True" if merged else "load(entry, 1) == start",
            start_or_nothing="0" if merged else "start",
            is_last=f"load(load(M, {NEXT}) + {8 * thread} * (count - 1), 1) == start"
            if overlapping
            else "True",
            is_out="start == ended" if overlapping else "True",
            or_overlapping=" or True" if overlapping else "",
            in_time="True" if pattern.within is None else "in_time(P, start, i)",
            delete=trigger_call(self.module.plan, f"delete_{pattern.name}", "row"),
            insert=trigger_call(self.module.plan, f"insert_{pattern.name}", "row"),
        ).partition("@jit()\ndef place_of")
        # Rows are read by what conditions are written of, which the rest calls.
        self._lines(before)
        self._within()
        self._attempt()
        self._measured()
        self._lines("@jit()\ndef place_of" + after)
        self._finish()

    def _lines(self, text: str) -> None:
        for line in text.splitlines():
            self.w.line(line)

    def _columns(self, back: int, row: str) -> Names:
        """The columns of a row at an address, so many rows before the one at hand."""
        names: Names = {}
        at = 1
        for place, column in enumerate(self.pattern.rows.columns):
            names[row_there(back, place)] = Code(f"load({row}, {at})", exact(0, 1))
            names[row_value(back, place)] = _held(row, at + 1, column.type)
            at += 1 + column_words(column.type)
        return names

    def _order(self) -> None:
        with self.module.function("comes_before(a, b)", "Whether a row comes before another, NULL last."):
            one, other = self._columns(0, "a"), self._columns(0, "b")
            for place, descending in self.pattern.order:
                there, value = row_there(0, place), row_value(0, place)
                self.w.line(f"if {one[there].text} != {other[there].text}:")
                self.w.line(f"    return {one[there].text} != 0")
                left, right = (other, one) if descending else (one, other)
                with self.w.block(f"if {one[there].text} != 0:"):
                    self.w.line(f"if {left[value].text} < {right[value].text}:")
                    self.w.line("    return True")
                    self.w.line(f"if {right[value].text} < {left[value].text}:")
                    self.w.line("    return False")
            self.w.line("return False")

    def _within(self) -> None:
        limit, (place, descending) = self.pattern.within, self.pattern.order[0]
        if limit is None:
            return
        with self.module.function("in_time(P, start, i)", "Whether a match from one row may have another."):
            self.w.line("first, last = row_at(P, start), row_at(P, i)")
            one, other = self._columns(0, "first"), self._columns(0, "last")
            early, late = (other, one) if descending else (one, other)
            there, value = row_there(0, place), row_value(0, place)
            rises = arithmetic("-", late[value], early[value])
            bound = (
                Code(repr(limit), DOUBLE)
                if isinstance(limit, float)
                else Code(f"{limit}", exact(limit, limit))
            )
            text = (
                f"{as_wide(rises)} < {as_wide(bound)}"
                if rises.kind == "w"
                else f"{rises.text} < {bound.text}"
            )
            self.w.line(
                f"return start == i or ({one[there].text} != 0 and {other[there].text} != 0 and {text})"
            )

    def _partition(self) -> None:
        w, keys = self.w, []
        at, places = 1, []
        for column in self.pattern.rows.columns:
            places.append(at)
            at += 1 + column_words(column.type)
        for place in self.pattern.partition:
            there = f"load(row, {places[place]}) != 0"
            for word in range(column_words(self.pattern.rows.columns[place].type)):
                keys.append(f"(load(row, {places[place] + 1 + word}) if {there} else {NULL_CODE})")
        given = "".join(f", {key}" for key in keys)
        with self.module.function(
            "partition_of(M, row, make)", "The partition of a row; 0 where there is none."
        ):
            if not keys:
                with w.block(f"if load(M, {PARTITIONS}) == 0 and make:"):
                    w.line(f"store(M, {PARTITIONS}, calloc(8, 8))")
                w.line(f"return load(M, {PARTITIONS})")
                forget = f"store(M, {PARTITIONS}, 0)"
            else:
                w.line(f"entry = partitions_find(load(M, {PARTITIONS}){given})")
                with w.block("if entry != 0:"):
                    w.line(f"return load(entry, {len(keys)})")
                with w.block("if not make:"):
                    w.line("return 0")
                w.line(f"entry = partitions_insert(load(M, {PARTITIONS}){given})")
                w.line("P = calloc(8, 8)")
                w.line(f"store(entry, {len(keys)}, P)")
                w.line("return P")
                found = f"partitions_find(load(M, {PARTITIONS}){given})"
                forget = f"partitions_remove(load(M, {PARTITIONS}), {found})"
        with self.module.function("forget_partition(M, row)", "The partition of a row is no more."):
            w.line(forget)

    def _rows(self, emitter: Emitter) -> dict[Var, Code]:
        """Reads addresses of the rows that are read, and names what they and the kept words hold."""
        names = dict(self._columns(0, "row"))
        emitter.writer.line("row = row_at(P, i)")
        for back in range(1, self.pattern.back + 1):
            emitter.writer.line(f"prior_{back} = row_back(M, P, i, {back})")
            names |= self._columns(back, f"prior_{back}")
        for place, (kept, at) in enumerate(zip(self.pattern.kept, self.kept.places, strict=True)):
            names[kept_there(place)] = Code(f"load(kept, {at})", exact(0, 1))
            names[kept_value(place)] = _held("kept", at + 1, kept.type)
        return names

    def _attempt(self) -> None:
        head = "attempt(S, M, P, position, kept, i)"
        with self.module.function(
            head, "Whether row i is one of the position's variable; notes it."
        ) as emitter:
            w, names = emitter.writer, self._rows(emitter)
            w.line(f"table = load(M, {TABLE})")
            w.line("variable = load(table + 8 * load(table, position + 1), 0)")
            for variable, condition in enumerate(self.pattern.conditions):
                with w.block(f"if variable == {variable}:"):
                    for place, (kept, at) in enumerate(zip(self.pattern.kept, self.kept.places, strict=True)):
                        if not kept.variables or variable in kept.variables:
                            self._note(emitter, kept, at, names, names[kept_value(place)], variable)
                    w.forget()
                    w.line(f"return {truth(emitter.scalar(condition, names))}")
            w.line("return False")

    def _note(self, emitter: Emitter, kept: Kept, at: int, names: Names, held: Code, variable: int) -> None:
        """Takes a row into what is kept."""
        w = emitter.writer
        if kept.how == "variable":
            w.line(f"store(kept, {at + 1}, {variable})")
            return
        value, valid = emitter.scalar(kept.value, names), truth(emitter.scalar(kept.valid, names))
        seen = f"load(kept, {at + 1 + column_words(kept.type)})"
        if kept.how in ("first", "last"):
            condition = "True" if kept.how == "last" else f"{seen} == 0"
            with w.block(f"if {condition}:"):
                w.line(f"store(kept, {at}, 1 if {valid} else 0)")
                _store(w, at + 1, value, kept.type)
                if kept.how == "first":
                    w.line(f"store(kept, {at + 1 + column_words(kept.type)}, 1)")
            return
        if kept.how == "count":
            value = arithmetic("+", held, Code("1", exact(1, 1)))
        elif kept.how == "sum":
            value = arithmetic("+", held, value)
        else:
            op = "<" if kept.how == "min" else ">"
            valid = f"{valid} and (load(kept, {at}) == 0 or {number(value).text} {op} {held.text})"
        with w.block(f"if {valid}:"):
            w.line(f"store(kept, {at}, 1)")
            _store(w, at + 1, value, kept.type)

    def _measured(self) -> None:
        with self.module.function(
            "measured(S, M, P, kept, i, out)", "Writes a match whose last row is i."
        ) as emitter:
            w, names = emitter.writer, self._rows(emitter)
            for at, column in enumerate(self.pattern.columns):
                value = number(emitter.scalar(column.scalar, names))
                valid = truth(emitter.scalar(column.valid, names))
                w.line(f"store(out, {at}, {NULL_CODE})")
                with w.block(f"if {valid}:"):
                    if column.type.kind is Kind.DOUBLE:
                        w.line(f"store_double(out, {at}, {held_as(finite(value), 'd')})")
                    elif value.kind == "w":
                        w.line(f"store(out, {at}, checked_word({value.text}, S))")
                    else:
                        w.line(f"store(out, {at}, {value.text})")

    def _finish(self) -> None:
        w, row_bytes = self.w, 8 * (self.words + 2)
        with self.module.exported("finish(S, M, nothing)", "Gives all partitions back."):
            with self._partitions():
                w.line("close_partition(P)")
            w.line("return 0")
        with self.module.exported("held_bytes(S, M, nothing)", "Bytes that rows and threads lie in."):
            w.line("held = 0")
            with self._partitions():
                w.line(f"held += {row_bytes} * load(P, 3) + {8 * (2 + self.kept.words)} * load(P, 6)")
            w.line("return held")

    @contextmanager
    def _partitions(self) -> Iterator[None]:
        """Goes through all partitions P; what is written inside is done with each."""
        w = self.w
        if not self.pattern.partition:
            w.line(f"P = load(M, {PARTITIONS})")
            with w.block("if P != 0:"):
                yield
            return
        w.line(f"entry = partitions_first(load(M, {PARTITIONS}))")
        with w.block("while entry != 0:"):
            w.line(f"P = load(entry, {self.partition_words})")
            yield
            w.line(f"entry = partitions_next_entry(load(M, {PARTITIONS}), entry)")


def _held(row: str, at: int, kind: Type) -> Code:
    """A value of one or two words at an address."""
    if kind.kind is Kind.DOUBLE:
        return Code(f"load_double({row}, {at})", DOUBLE)
    if column_words(kind) == 2:
        return Code(f"words_to_wide(load({row}, {at}), load({row}, {at + 1}))", unscaled(kind))
    return Code(f"load({row}, {at})", in_word(unscaled(kind)))


def _store(w: Writer, at: int, value: Code, kind: Type) -> None:
    """Writes a value of a type to words that are kept."""
    if kind.kind is Kind.DOUBLE:
        w.line(f"store_double(kept, {at}, {held_as(value, 'd')})")
    elif column_words(kind) == 2:
        wide_value = w.once("wide_value", held_as(number(value), "w"))
        w.line(f"store(kept, {at}, low_word({wide_value}))")
        w.line(f"store(kept, {at + 1}, high_word({wide_value}))")
    else:
        w.line(f"store(kept, {at}, {held_as(value, 'i')})")
