"""The text of an ordered store's module, a B+-tree with partial sums for each prefix, and of cut searches.

A cut search finds how far into an ordered store a condition on running sums holds, in one descent. Sums of
non-negative weights only grow along the entries, so a condition that they falsify is true on a leading run
(Abeysinghe, He, Rompf, SIGMOD 2022, for aggregates that depend on such a cut). A node keeps the running sums
of its places, so the run's end is found by counting the places where the condition holds, without a branch on
the data: first among every `step`th, then among those between. On weights of any sign the search still ends,
within the tree, at some place.
"""

import re
from dataclasses import dataclass
from string import Template

from orderbook.engine.maps.ordered_text import (
    AROUND,
    ASSIGN,
    ASSIGN_BY_ADDS,
    HEAD,
    NO_PREFIX,
    PREFIX,
    STORE,
    SUMS,
    VALUE,
    WORD,
)
from orderbook.engine.maps.store_layout import (
    COLUMN_KINDS,
    DOUBLE,
    GAP_ROOM,
    INTEGER,
    KEYS,
    PLAIN,
    WIDE,
    Column,
    all_zero,
    columns,
    indent,
    names,
    tuple_of,
)

# Of a store with sums, of which every change adds to a node on each level, and of one without.
FAN_OUT, UNSUMMED_FAN_OUT = 16, 32


@dataclass(frozen=True, slots=True)
class NodeColumn:
    """A column of a node: gap g (exact kinds) or pair g (doubles) is at word `at + g` of the node.

    The high words of Int128 and the low words of doubles are `distance` words on. Of a column that is not
    `summed` the value of place p of a leaf is at word `at + p`.
    """

    column: Column
    at: int
    distance: int
    summed: bool = True

    @property
    def kind(self) -> str:
        return self.column.kind

    @property
    def number(self) -> int:
        return self.column.number

    def gap(self, node: str, gap: str) -> str:
        """The sum of everything before place `gap` of a node (exact kinds)."""
        if self.kind == "i":
            return f"load({node}, {self.at} + {gap})"
        return f"load_apart({node}, {self.at} + {gap}, {self.distance})"

    def between(self, node: str, start: str, end: str) -> str:
        """The sum of places start .. end - 1 of a node (exact kinds)."""
        before, after = self.gap(node, start), self.gap(node, end)
        return f"{after} - {before}" if self.kind == "i" else f"wide_difference({after}, {before})"

    def value(self, node: str, position: str) -> str:
        """The value at one place of a node."""
        if not self.summed:
            return f"load({node}, {self.at} + {position})"
        if self.kind == "i":
            return f"gap({node}, {self.at} + {position})"
        if self.kind == "d":
            pair = [f"load_double({node}, {at} + {position})" for at in (self.at, self.at + self.distance)]
            return " + ".join(pair)
        return self.between(node, position, f"{position} + 1")

    def plus(self, target: str, value: str) -> str:
        """The statement target += value."""
        return (
            f"{target} = checked_add({target}, {value}, H + 8 * ERROR)"
            if self.kind == "W"
            else f"{target} += {value}"
        )

    def minus(self, target: str, value: str) -> str:
        """The statement target -= value."""
        if self.kind == "W":
            return f"{target} = checked_subtract({target}, {value}, H + 8 * ERROR)"
        return f"{target} -= {value}"


def fan_out_of(summed: bool) -> int:
    """Places in a node of a store with sums, or without."""
    return FAN_OUT if summed else UNSUMMED_FAN_OUT


def node_columns(layout: str, fan_out: int, summed: bool = True) -> tuple[tuple[NodeColumn, ...], int]:
    """Where the columns of a node are, and where its children are."""
    room = fan_out + GAP_ROOM
    at, result = KEYS + fan_out + GAP_ROOM - 1, []
    for column in columns(layout):
        result.append(NodeColumn(column, at, room, summed))
        at += room * (1 if column.kind == "i" else 2)
    return tuple(result), at - GAP_ROOM + 1


def _raise(c: NodeColumn, fan_out: int, node: str = "leaf", shift: int = 0) -> str:
    arguments = f"{node} + {8 * c.at}, position, d{c.number}, {fan_out}, {shift}"
    if c.kind == "W":
        return f"raise_checked_after({arguments}, H + 8 * ERROR)"
    return f"raise_after({arguments})" if c.kind == "i" else f"raise_wide_after({arguments})"


def _insert_plain(c: NodeColumn, fan_out: int) -> str:
    return f"shift_words(leaf + {8 * c.at}, position, d{c.number}, {fan_out}, 1)"


def _remove_plain(c: NodeColumn, fan_out: int) -> str:
    return f"shift_words(leaf + {8 * c.at}, position, 0, {fan_out}, -1)"


def _set(c: NodeColumn, fan_out: int) -> str:
    """The statement by which the value of the entry of the last search is v<j>, d<j> more than it was."""
    return _raise(c, fan_out) if c.summed else f"store(leaf, {c.at} + position, v{c.number})"


def _raise_double(c: NodeColumn) -> list[str]:
    high, low = (f"{at} + position" for at in (c.at, c.at + c.distance))
    return [
        f"high, low = sum_doubles(load_double(leaf, {high}), load_double(leaf, {low}), d{c.number}, 0.0)",
        f"store_double(leaf, {high}, high)",
        f"store_double(leaf, {low}, low)",
    ]


def _shift_double(c: NodeColumn, fan_out: int, shift: int) -> list[str]:
    starts = (8 * at for at in (c.at, c.at + c.distance))
    return [f"shift_words(leaf + {start}, position, 0, {fan_out}, {shift})" for start in starts]


def _assign(cols: tuple[NodeColumn, ...], layout: str, prefix_first: str, fan_out: int) -> str:
    """The function `assign`: one search where sums are exact and cannot overflow, else two adds."""
    if set(layout) <= {"i", "w"}:
        return ASSIGN.substitute(
            prefix_first=prefix_first,
            comma_prefix=f", {prefix_first.rstrip(',')}" if prefix_first else "",
            values=names("v", len(cols)),
            deltas=names("d", len(cols)),
            changes=indent([f"d{c.number} = v{c.number} - {c.value('leaf', 'position')}" for c in cols], 3),
            no_delta=all_zero(layout, "d"),
            no_value=all_zero(layout, "v"),
            raise_leaf=indent([_set(c, fan_out) for c in cols], 3),
        )
    return ASSIGN_BY_ADDS.substitute(
        prefix_first=prefix_first,
        values=names("v", len(cols)),
        olds=tuple_of([f"o{c.number}" for c in cols]),
        lost=", ".join(f"-o{c.number}" for c in cols),
    )


def _export(cols: tuple[NodeColumn, ...], prefix_words: int) -> list[str]:
    lines = [f"out[row, {i}] = load(tree, {i} - PREFIX_WORDS)" for i in range(prefix_words)]
    lines.append(f"out[row, {prefix_words}] = load(leaf, KEYS + position)")
    word = prefix_words + 1
    for c in cols:
        if c.kind == "i":
            lines.append(f"out[row, {word}] = {c.value('leaf', 'position')}")
        elif c.kind == "d":
            lines += [
                f"out[row, {word + i}] = load(leaf, {c.at + i * c.distance} + position)" for i in range(2)
            ]
        else:
            lines.append(f"value = {c.value('leaf', 'position')}")
            lines += [f"out[row, {word}] = low_word(value)", f"out[row, {word + 1}] = high_word(value)"]
        word += 1 if c.kind == "i" else 2
    return lines


def _around(cols: tuple[NodeColumn, ...], fan_out: int) -> dict[str, str]:
    """Pieces of `around`; a<j>, b<j> and c<j> are the sums below, at and above."""
    below, at, above = ([f"{x}{c.number}" for c in cols] for x in "abc")
    passed = [c.plus(a, c.gap("node", "position")) for a, c in zip(below, cols, strict=True)]
    return {
        "zeros": tuple_of([c.column.zero for _ in range(3) for c in cols]),
        "tops": indent([f"c{c.number} = {c.gap('node', str(fan_out))}" for c in cols]),
        "no_sums": indent([f"a{c.number} = {c.column.zero}" for c in cols]),
        "accumulate": indent(passed, 2),
        "below": indent(passed),
        "at": indent([f"b{c.number} = {c.between('node', 'position', 'after')}" for c in cols]),
        "above": indent(
            [c.minus(z, part) for a, b, z, c in zip(below, at, above, cols, strict=True) for part in (a, b)]
        ),
        "result": tuple_of([*below, *at, *above]),
    }


def _prefixed(prefix_words: int) -> dict[str, str]:
    """Pieces that find and keep the tree of a prefix."""
    prefix = names("p", prefix_words)
    hash_text = "SEED"
    for i in range(prefix_words):
        hash_text = f"mix({hash_text}, p{i})"

    def index(lines: list[str]) -> str:
        return indent(lines if prefix_words else [])

    return {
        "hash": hash_text,
        "prefix": prefix,
        "prefix_first": _first(prefix_words),
        "comma_prefix": f", {prefix}" if prefix else "",
        "same_prefix": " and ".join(f"load(entry, {i}) == p{i}" for i in range(prefix_words)),
        "same_record": "".join(f" and load(tree, {i - prefix_words}) == p{i}" for i in range(prefix_words)),
        "store_prefix": indent([f"store(entry, {i}, p{i})" for i in range(prefix_words)]),
        "open_index": index(["index_open(H, PREFIX_WORDS, PREFIX_WORDS + 2)"]),
        "close_index": index(["index_close(H)"]),
        "clear_index": index(["index_clear(H)"]),
        "index_bytes": " + index_bytes(H)" if prefix_words else "",
    }


def _first(prefix_words: int) -> str:
    """The words of a prefix as first arguments."""
    return f"{names('p', prefix_words)}," if prefix_words else ""


def _changed(cols: tuple[NodeColumn, ...], fan_out: int) -> dict[str, str]:
    """Pieces that change the sums of nodes when a value changes, comes or goes."""
    exact, doubles = _by_exactness(cols)
    summed = [c for c in exact if c.summed]
    plain = [c for c in exact if not c.summed]
    above = [
        "height = load(tree, 1)",
        "for level in range(1, height + 1):",
        "    node = load(H, PATH + 2 * level)",
        "    position = load(H, PATH + 2 * level + 1)",
        *(f"    {_raise(c, fan_out, 'node')}" for c in summed),
    ]
    return {
        "raise_above": indent(above if summed else []),
        "refresh": indent(["tree_refresh(H, height)"] if doubles else []),
        "raise_leaf": indent([_set(c, fan_out) for c in exact]),
        "raise_keep": indent([_raise(c, fan_out) for c in summed], 2),
        "raise_insert": indent(
            [_raise(c, fan_out, shift=1) for c in summed]
            + [_insert_plain(c, fan_out) for c in plain]
            + [x for c in doubles for x in _shift_double(c, fan_out, 1) + _raise_double(c)]
        ),
        "raise_remove": indent(
            [_raise(c, fan_out, shift=-1) for c in summed]
            + [_remove_plain(c, fan_out) for c in plain]
            + [x for c in doubles for x in _shift_double(c, fan_out, -1)]
        ),
        "raise_doubles": indent([x for c in doubles for x in _raise_double(c)]),
        "sums": indent(
            [
                f"v{c.number} = checked_add({c.value('leaf', 'position')}, d{c.number}, H + 8 * ERROR)"
                if c.kind == "W"
                else f"v{c.number} = {c.value('leaf', 'position')} + d{c.number}"
                for c in exact
            ]
        ),
    }


def _summed(cols: tuple[NodeColumn, ...], fan_out: int) -> dict[str, str]:
    """Pieces that sum all values, or those of a range; a<j> are the sums."""
    exact, doubles = _by_exactness(cols)
    last_sum = "load_double(H, SUM) + load_double(H, SUM + 1)"

    def for_exact(statement: str, gap: str) -> list[str]:
        return [getattr(c, statement)(f"a{c.number}", c.gap("node", gap)) for c in exact]

    def double_range(low: str, high: str) -> list[str]:
        return [
            line
            for c in doubles
            for line in (f"tree_range_double(H, tree, {c.at}, {low}, {high})", f"a{c.number} = {last_sum}")
        ]

    return {
        "total_doubles": indent(double_range("LOWEST", "HIGHEST")),
        "totals": tuple_of([f"a{c.number}" if c.kind == "d" else c.gap("node", str(fan_out)) for c in cols]),
        "range_totals": indent([f"a{c.number} = {c.gap('node', str(fan_out))}" for c in exact]),
        "range_zeros": indent([f"a{c.number} = {c.column.zero}" for c in exact], 2),
        "range_accumulate": indent(for_exact("plus", "position"), 3),
        "range_accumulate_leaf": indent(for_exact("plus", "position"), 2),
        "range_reduce": indent(for_exact("minus", "position"), 3),
        "range_reduce_leaf": indent(for_exact("minus", "position"), 2),
        "range_doubles": indent(double_range("low", "high")),
        "range_result": tuple_of([f"a{c.number}" for c in cols]),
    }


def _by_exactness(cols: tuple[NodeColumn, ...]) -> tuple[list[NodeColumn], list[NodeColumn]]:
    return [c for c in cols if c.kind != "d"], [c for c in cols if c.kind == "d"]


def ordered_source(prefix_words: int, layout: str, fan_out: int = FAN_OUT, summed: bool = True) -> str:
    """The module's text. `fan_out` is the number of places in a node, a power of two from 8 on.

    Not `summed`: what gives sums is left out, all columns being `i`.
    """
    cols, children = node_columns(layout, fan_out, summed)
    kind_number = {"i": INTEGER if summed else PLAIN, "w": WIDE, "W": WIDE, "d": DOUBLE}
    values = {
        "title": f"Ordered store: {prefix_words} prefix words, values {layout!r}, fan-out {fan_out}"
        + ("." if summed else ", no sums."),
        "prefix_words": prefix_words,
        "layout": layout,
        "words": prefix_words + 1 + sum(1 if c.kind == "i" else 2 for c in cols),
        "fan_out": fan_out,
        "children": children,
        "offsets": "OFFSETS = " + tuple_of([str(c.at) for c in cols]),
        "header_words": COLUMN_KINDS + len(cols),
        "column_count": len(cols),
        "store_kinds": indent([f"store(H, COLUMN_KINDS + {c.number}, {kind_number[c.kind]})" for c in cols]),
        "deltas": names("d", len(cols)),
        "values": names("v", len(cols)),
        "no_delta": all_zero(layout, "d"),
        "no_value": all_zero(layout, "v"),
        "sparse": f"4 * count < {fan_out} and (count == 0 or (load(tree, 1) > 0 and joins(H, count)))",
        "assign": _assign(cols, layout, _first(prefix_words), fan_out),
        "zeros": tuple_of([c.column.zero for c in cols]),
        "reads": tuple_of([c.value("leaf", "position") for c in cols]),
        "export": indent(_export(cols, prefix_words), 3),
        **_prefixed(prefix_words),
        **_changed(cols, fan_out),
        **_summed(cols, fan_out),
    }
    text = HEAD.substitute(values) + (PREFIX if prefix_words else NO_PREFIX).substitute(values)
    text += STORE.substitute(values)
    if summed:
        text += SUMS.substitute(values)
    if summed and "d" not in layout:
        text += AROUND.substitute(values, **_around(cols, fan_out))
    text += "".join(WORD.substitute(number=i) for i in range(prefix_words))
    return text + "".join(VALUE.substitute(number=c.number, read=c.value("leaf", "position")) for c in cols)


IMPORTS = (
    "from orderbook.engine.maps.store_layout import COUNT, KEYS, LEFT, RIGHT",
    "from orderbook.engine.maps.wide_numbers import load_apart, sum_doubles, wide",
    "from orderbook.engine.maps.memory import load, load_double",
    "from orderbook.engine.maps.tree_nodes import "
    "count_at_most, count_below, count_wide_at_most, count_wide_below",
    "from orderbook.core.jit import jit",
)

CUT = Template('''\
@jit(forceinline=True)
def $name($arguments):
    """(found, key, sums): $what."""
    tree = $name_record(H$prefix)
    if tree == 0:
        return $nothing
    node = load(tree, 0)
    level = load(tree, 1)
$start
$check
    while True:
        count = load(node, COUNT)
$tops
        position = 0
$search
        position = min(position, count - 1)
$advance_doubles
        if level == 0:
            break
$advance
        node = load(node, $children + position)
        level -= 1
$advance_leaf
$boundary
''')

UPWARD_EXCLUSIVE = """\
if position + 1 < count:
    return $found_next
after = load(node, RIGHT)
if after != 0:
    return $found_after
return $all"""

DOWNWARD_EXCLUSIVE = """\
if position > 0:
    return $found_next
after = load(node, LEFT)
if after != 0:
    return $found_after
return $all"""


def cut_imports(name: str, prefix_words: int, layout: str, fan_out: int = FAN_OUT) -> tuple[str, ...]:
    """Lines a module needs above the function `name` of `cut_source`, with the same arguments."""
    return (
        *IMPORTS,
        "from orderbook.engine.maps.shapes import ordered",
        f'{name}_record = ordered({prefix_words}, "{layout}", {fan_out}).record',
    )


def cut_source(
    name: str,
    prefix_words: int,
    layout: str,
    descending: bool,
    inclusive: bool,
    predicate: str,
    parameters: tuple[str, ...],
    fan_out: int = FAN_OUT,
) -> str:
    """The source of a jitted function `name(H, p0.., *parameters) -> (found, boundary key, sums..)`.

    Entries are walked upwards, or downwards when `descending`. `predicate` is a Python expression over
    s0, s1, .. (the column sums over the entries before an entry; with it when `inclusive`) and the
    parameters, true on a leading run of entries. Returned are whether an entry follows that run, its
    key (0 when none) and the sums over the run. Parameters must not be called like the names used
    here (H, node, position, p0, s0, a0, ..).
    """
    cols, children = node_columns(layout, fan_out)
    cut = _Cut(cols, fan_out, descending, predicate)
    prefix = names("p", prefix_words)
    sums = [cut.accumulator(c) for c in cols]
    zeros = [c.column.zero for c in cols]

    def result(found: str, key: str, values: list[str]) -> str:
        return tuple_of([found, key, *values])

    ahead = "position - 1" if descending else "position + 1"
    edge = "load(after, KEYS + load(after, COUNT) - 1)" if descending else "load(after, KEYS)"
    if inclusive:
        boundary = f"return {result('True', 'load(node, KEYS + position)', sums)}"
        check = [*cut.total(), f"if {predicate}:", f"    return {result('False', '0', cut.totals())}"]
    else:
        last = " + load(node, COUNT) - 1" if descending else ""
        check = [
            *cut.assign_zero(),
            f"if not ({predicate}):",
            "    for _ in range(level):",
            f"        node = load(node, {children}{last})",
            f"    return {result('True', f'load(node, KEYS{last})', zeros)}",
        ]
        boundary = Template(DOWNWARD_EXCLUSIVE if descending else UPWARD_EXCLUSIVE).substitute(
            found_next=result("True", f"load(node, KEYS + {ahead})", sums),
            found_after=result("True", edge, sums),
            all=result("False", "0", sums),
        )
    way = ["downwards" if descending else "upwards", "inclusive" if inclusive else "exclusive"]
    return CUT.substitute(
        name=name,
        arguments=", ".join(x for x in ("H", prefix, ", ".join(parameters)) if x),
        what=", ".join([*way, predicate]),
        name_record=f"{name}_record",
        prefix=f", {prefix}" if prefix else "",
        nothing=result("False", "0", zeros),
        start=indent(cut.start()),
        check=indent(check),
        tops=indent(cut.tops(), 2),
        search=indent(cut.search(), 2),
        advance_doubles=indent(cut.advance_doubles(leaf=False), 2),
        advance=indent(cut.advance(whole=False), 2),
        advance_leaf=indent(
            [*cut.advance(whole=not inclusive), *([] if inclusive else cut.advance_doubles(leaf=True))]
        ),
        children=children,
        boundary=indent(boundary.split("\n")),
    )


class _Cut:
    """Pieces of the text; a<j> (exact) or h<j>, l<j> (double) are the sums of all passed so far."""

    def __init__(self, cols: tuple[NodeColumn, ...], fan_out: int, descending: bool, predicate: str) -> None:
        self.cols, self.fan_out, self.descending, self.predicate = cols, fan_out, descending, predicate
        self.read = [c for c in cols if re.search(rf"\bs{c.number}\b", predicate)]
        self.exact = [c for c in cols if c.kind != "d"]
        self.doubles = [c for c in cols if c.kind == "d"]
        self.step = 1 << ((fan_out.bit_length() - 1) // 2)

    def accumulator(self, c: NodeColumn) -> str:
        return f"h{c.number} + l{c.number}" if c.kind == "d" else f"a{c.number}"

    def start(self) -> list[str]:
        lines = [f"a{c.number} = {c.column.zero}" for c in self.exact]
        return lines + [f"h{c.number} = l{c.number} = 0.0" for c in self.doubles]

    def assign_zero(self) -> list[str]:
        return [f"s{c.number} = {c.column.zero}" for c in self.read]

    def total(self) -> list[str]:
        """s<j> of the whole tree, for every column."""
        lines = [f"s{c.number} = {c.gap('node', str(self.fan_out))}" for c in self.exact]
        for c in self.doubles:
            lines += [
                "high = low = 0.0",
                "for at in range(load(node, COUNT)):",
                f"    {self._fold(c, 'high', 'low', 'at')}",
                f"s{c.number} = high + low",
            ]
        return lines

    def totals(self) -> list[str]:
        return [f"s{c.number}" for c in self.cols]

    def tops(self) -> list[str]:
        """Downwards, b<j>: what is passed, with all of this node."""
        if not self.descending:
            return []
        return [f"b{c.number} = a{c.number} + {c.gap('node', str(self.fan_out))}" for c in self.exact]

    def _at_gap(self, c: NodeColumn, gap: str) -> str:
        here = c.gap("node", gap)
        return f"b{c.number} - {here}" if self.descending else f"a{c.number} + {here}"

    def _fold(self, c: NodeColumn, high: str, low: str, at: str) -> str:
        pair = ", ".join(f"load_double(node, {start} + {at})" for start in (c.at, c.at + c.distance))
        return f"{high}, {low} = sum_doubles({high}, {low}, {pair})"

    def search(self) -> list[str]:
        """Set position to the last place before which (in walking order) the predicate is true."""
        if any(c.kind == "d" for c in self.read):
            return self._linear_search()
        limited = re.fullmatch(r"\(?s(\d+) <= (\w+)\)?", self.predicate)
        if limited and self.cols[int(limited[1])].kind in "iwW":
            return self._limit_search(self.cols[int(limited[1])], limited[2])
        kept = "1 if not ({0}) else 0" if self.descending else "1 if {0} else 0"
        count = kept.format(self.predicate)
        step = self.step
        coarse = [f"s{c.number} = {self._at_gap(c, f'place * {step}')}" for c in self.read]
        fine = [f"s{c.number} = {self._at_gap(c, 'base + place')}" for c in self.read]
        return [
            f"for place in range(1, {self.fan_out // step}):",
            *(f"    {line}" for line in coarse),
            f"    position += {count}",
            f"base = position * {step}",
            "position = base",
            f"for place in range(1, {step}):",
            *(f"    {line}" for line in fine),
            f"    position += {count}",
        ]

    def _limit_search(self, c: NodeColumn, limit: str) -> list[str]:
        """One comparison of all places of a node; sums are not negative, so a limit below 0 is like -1."""
        gaps = f"node + 8 * {c.at + 1}"
        count, least = ("count", "-1") if c.kind == "i" else ("count_wide", "wide(-1)")
        if self.descending:
            return [f"position = {count}_below({gaps}, b{c.number} - max({limit}, {least}), {self.fan_out})"]
        return [f"position = {count}_at_most({gaps}, max({limit}, {least}) - a{c.number}, {self.fan_out})"]

    def _linear_search(self) -> list[str]:
        start, more, go = (
            ("count - 1", "position > 0", "-") if self.descending else ("0", "position < count - 1", "+")
        )
        gap = "position" if self.descending else "position + 1"
        running = [c for c in self.read if c.kind == "d"]
        lines = [f"position = {start}"]
        lines += [
            line for c in running for line in (f"x{c.number} = h{c.number}", f"y{c.number} = l{c.number}")
        ]
        lines.append(f"while {more}:")
        for c in self.read:
            if c.kind == "d":
                fold = self._fold(c, f"x{c.number}", f"y{c.number}", "position")
                lines += [f"    {fold}", f"    s{c.number} = x{c.number} + y{c.number}"]
            else:
                lines.append(f"    s{c.number} = {self._at_gap(c, gap)}")
        return [*lines, f"    if not ({self.predicate}):", "        break", f"    position {go}= 1"]

    def advance_doubles(self, leaf: bool) -> list[str]:
        """Add the doubles of the places before `position`, or at the leaf the one at it."""
        if leaf:
            return [self._fold(c, f"h{c.number}", f"l{c.number}", "position") for c in self.doubles]
        if not self.doubles:
            return []
        places = "position + 1, count" if self.descending else "position"
        return [f"for at in range({places}):"] + [
            f"    {self._fold(c, f'h{c.number}', f'l{c.number}', 'at')}" for c in self.doubles
        ]

    def advance(self, whole: bool) -> list[str]:
        """Add the exact sums of the places before `position`, and with `whole` the one at it."""
        gap = "position + 1" if self.descending != whole else "position"
        return [f"a{c.number} = {self._at_gap(c, gap)}" for c in self.exact]
