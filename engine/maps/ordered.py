"""The text of an ordered store's module: a B+-tree with partial sums for each prefix."""

from dataclasses import dataclass

from .around_text import AROUND
from .columns import Column, all_zero, columns, indent, names, tuple_of
from .header import COLUMN_KINDS, GAP_ROOM, KEYS
from .ordered_text import HEAD, NO_PREFIX, PREFIX, STORE, VALUE, WORD

FAN_OUT = 16


@dataclass(frozen=True, slots=True)
class NodeColumn:
    """A column of a node: gap g (exact kinds) or pair g (doubles) is at word `at + g` of the node.

    The high words of Int128 and the low words of doubles are `distance` words on.
    """

    column: Column
    at: int
    distance: int

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


def node_columns(layout: str, fan_out: int) -> tuple[tuple[NodeColumn, ...], int]:
    """Where the columns of a node are, and where its children are."""
    room = fan_out + GAP_ROOM
    at, result = KEYS + fan_out + GAP_ROOM - 1, []
    for column in columns(layout):
        result.append(NodeColumn(column, at, room))
        at += room * (1 if column.kind == "i" else 2)
    return tuple(result), at - GAP_ROOM + 1


def _raise(c: NodeColumn, fan_out: int, node: str = "leaf", shift: int = 0) -> str:
    arguments = f"{node} + {8 * c.at}, position, d{c.number}, {fan_out}, {shift}"
    if c.kind == "W":
        return f"raise_checked_after({arguments}, H + 8 * ERROR)"
    return f"raise_after({arguments})" if c.kind == "i" else f"raise_wide_after({arguments})"


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


def _assign(layout: str, prefix_first: str, count: int) -> list[str]:
    if set(layout) <= {"i", "w"}:
        return [f"add(H, {prefix_first} key, {', '.join(f'v{i} - o{i}' for i in range(count))})"]
    return [
        f"add(H, {prefix_first} key, {', '.join(f'-o{i}' for i in range(count))})",
        f"add(H, {prefix_first} key, {', '.join(f'v{i}' for i in range(count))})",
    ]


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
            [
                c.minus(z, part)
                for a, b, z, c in zip(below, at, above, cols, strict=True)
                for part in (a, b)
            ]
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
        "same_record": "".join(
            f" and load(tree, {i - prefix_words}) == p{i}" for i in range(prefix_words)
        ),
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
    return {
        "raise_above": indent([_raise(c, fan_out, "node") for c in exact], 2),
        "refresh": indent(["tree_refresh(H, height)"] if doubles else []),
        "raise_leaf": indent([_raise(c, fan_out) for c in exact]),
        "raise_keep": indent([_raise(c, fan_out) for c in exact], 2),
        "raise_insert": indent(
            [_raise(c, fan_out, shift=1) for c in exact]
            + [x for c in doubles for x in _shift_double(c, fan_out, 1) + _raise_double(c)]
        ),
        "raise_remove": indent(
            [_raise(c, fan_out, shift=-1) for c in exact]
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


def ordered_source(prefix_words: int, layout: str, fan_out: int = FAN_OUT) -> str:
    """The module's text. `fan_out` is the number of places in a node, a power of two from 8 on."""
    cols, children = node_columns(layout, fan_out)
    kind_number = {"i": 0, "w": 1, "W": 1, "d": 2}
    values = {
        "title": f"Ordered store: {prefix_words} prefix words, values {layout!r}, fan-out {fan_out}.",
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
        "olds": "(" + "".join(f"o{c.number}, " for c in cols).rstrip() + ")",
        "no_delta": all_zero(layout, "d"),
        "no_value": all_zero(layout, "v"),
        "sparse": f"4 * count < {fan_out} and (count == 0 or (load(tree, 1) > 0 and joins(H, count)))",
        "assign": indent(_assign(layout, _first(prefix_words), len(cols))),
        "zeros": tuple_of([c.column.zero for c in cols]),
        "reads": tuple_of([c.value("leaf", "position") for c in cols]),
        "export": indent(_export(cols, prefix_words), 3),
        **_prefixed(prefix_words),
        **_changed(cols, fan_out),
        **_summed(cols, fan_out),
    }
    text = HEAD.substitute(values) + (PREFIX if prefix_words else NO_PREFIX).substitute(values)
    text += STORE.substitute(values)
    if "d" not in layout:
        text += AROUND.substitute(values, **_around(cols, fan_out))
    text += "".join(WORD.substitute(number=i) for i in range(prefix_words))
    return text + "".join(VALUE.substitute(number=c.number, read=c.value("leaf", "position")) for c in cols)
