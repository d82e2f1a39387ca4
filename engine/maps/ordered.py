"""The text of an ordered store's module, a B+-tree with partial sums for each prefix."""

from dataclasses import dataclass, replace

from orderbook.engine.maps.ordered_text import (
    ADD,
    ADD_FITTED,
    ADD_SCALED,
    AROUND,
    ASSIGN,
    ASSIGN_BY_ADDS,
    ASSIGN_BY_DIFFERENCE,
    CHANGE,
    HEAD,
    JOINS,
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
    NODE_SCALES,
    PLAIN,
    SCALE_WORDS,
    SCALES,
    WIDE,
    Column,
    all_zero,
    columns,
    indent,
    names,
    tuple_of,
)

SCALE_IMPORTS = (
    "from orderbook.engine.maps.scales import INVERSE, REST, load_scaled, quotient, tree_begin, tree_fit"
)
# Places in a node: most trees of a store of many prefixes have a few entries, in one leaf.
FAN_OUT = 16


@dataclass(frozen=True, slots=True)
class NodeColumn:
    """A column of a node: gap g (exact kinds) or pair g (doubles) is at word `at + g` of the node.

    The high words of Int128 and the low words of doubles are `distance` words on. The scale of an Int128 (see
    scales.py) is at word `scale_at` of a node and `record_at` of the tree's record. Of a column that is not
    `summed` the value of place p of a leaf is at word `at + p`.
    """

    column: Column
    at: int
    distance: int
    summed: bool = True
    scale_at: int = 0
    record_at: int = 0

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
        return f"load_scaled({node}, {self.at} + {gap}, {self.distance}, {self.scale(node)})"

    def scale(self, node: str) -> str:
        """What an Int128 of a node is a multiple of, or 0."""
        return f"load({node}, {self.scale_at})"

    @property
    def wide(self) -> bool:
        return self.kind in "wW"

    def scaled(self) -> "NodeColumn":
        """The quotients of an Int128, where the low words are otherwise; another column as it is."""
        return replace(self, column=replace(self.column, kind="i")) if self.wide else self

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


def node_columns(layout: str, fan_out: int, summed: bool = True) -> tuple[tuple[NodeColumn, ...], int]:
    """Where the columns of a node are, and where its children are."""
    room, gaps = fan_out + (GAP_ROOM if summed else 1), GAP_ROOM - 1 if summed else 0
    at, result, wide = KEYS + fan_out + gaps, [], 0
    for column in columns(layout):
        scale: tuple[int, ...] = ()
        if column.kind in "wW":
            own = NODE_SCALES + wide
            scale = (own if own < KEYS else at - 1, SCALES + SCALE_WORDS * wide)
            wide += 1
        result.append(NodeColumn(column, at, room, summed, *scale))
        at += room * (1 if column.kind == "i" else 2)
    return tuple(result), at - gaps


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
    """The function `assign`: of one search where sums take one word, else of several."""
    pieces = {
        "prefix_first": prefix_first,
        "comma_prefix": f", {prefix_first.rstrip(',')}" if prefix_first else "",
        "values": names("v", len(cols)),
        "olds": tuple_of([f"o{c.number}" for c in cols]),
    }
    if set(layout) == {"i"}:
        return ASSIGN.substitute(
            pieces,
            deltas=names("d", len(cols)),
            differences=indent(
                [f"d{c.number} = v{c.number} - {c.value('leaf', 'position')}" for c in cols], 3
            ),
            no_delta=all_zero(layout, "d"),
            no_value=all_zero(layout, "v"),
            raise_leaf=indent([_set(c, fan_out) for c in cols], 3),
        )
    if set(layout) <= {"i", "w"}:
        gained = ", ".join(
            f"wide_difference(v{c.number}, o{c.number})" if c.wide else f"v{c.number} - o{c.number}"
            for c in cols
        )
        return ASSIGN_BY_DIFFERENCE.substitute(
            pieces,
            gained=gained,
            zeros=tuple_of([c.column.zero for c in cols]),
            reads=tuple_of([c.value("leaf", "position") for c in cols]),
        )
    return ASSIGN_BY_ADDS.substitute(pieces, lost=", ".join(f"-o{c.number}" for c in cols))


def _export(cols: tuple[NodeColumn, ...], prefix_words: int) -> list[str]:
    lines = [f"store(out, {i}, load(tree, {i} - PREFIX_WORDS))" for i in range(prefix_words)]
    lines.append(f"store(out, {prefix_words}, load(leaf, KEYS + position))")
    word = prefix_words + 1
    for c in cols:
        if c.kind == "i":
            lines.append(f"store(out, {word}, {c.value('leaf', 'position')})")
        elif c.kind == "d":
            lines += [
                f"store(out, {word + i}, load(leaf, {c.at + i * c.distance} + position))" for i in range(2)
            ]
        else:
            lines.append(f"value = {c.value('leaf', 'position')}")
            lines += [f"store(out, {word}, low_word(value))", f"store(out, {word + 1}, high_word(value))"]
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


def _prefixed(prefix_words: int, cols: tuple[NodeColumn, ...]) -> dict[str, str]:
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
        "open_record": indent(["tree_begin(H, tree)"] if any(c.wide for c in cols) else []),
        "open_index": index([f"index_open(H, PREFIX_WORDS, PREFIX_WORDS + {_record_words(cols)})"]),
        "close_index": index(["index_close(H)"]),
        "clear_index": index(["index_clear(H)"]),
        "index_bytes": " + index_bytes(H)" if prefix_words else "",
    }


def _record_words(cols: tuple[NodeColumn, ...]) -> int:
    return SCALES + SCALE_WORDS * sum(c.wide for c in cols)


def _first(prefix_words: int) -> str:
    """The words of a prefix as first arguments."""
    return f"{names('p', prefix_words)}," if prefix_words else ""


def _changed(cols: tuple[NodeColumn, ...], layout: str, fan_out: int, suffix: str, inline: str) -> str:
    """The functions that change the sums of nodes when a value changes, comes or goes."""
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
    pieces = {
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
    return CHANGE.substitute(
        pieces,
        suffix=suffix,
        inline=inline,
        fan_out=fan_out,
        deltas=names("d", len(cols)),
        no_delta=all_zero(layout, "d"),
        no_value=all_zero(layout, "v"),
        sparse=f"4 * count < {fan_out} and (count == 0 or (load(tree, 1) > 0 and joins(H, count)))",
    )


def _add(cols: tuple[NodeColumn, ...], layout: str, prefix_words: int, fan_out: int) -> str:
    """All that `add` takes, and it."""
    deltas = names("d", len(cols))
    wide = [(c, c.record_at) for c in cols if c.wide]
    text = JOINS + _changed(cols, layout, fan_out, "", "" if wide else "forceinline=True")
    pieces = {
        **_prefixed(prefix_words, cols),
        "deltas": deltas,
        "no_delta": all_zero(layout, "d"),
        "change": f"    change(H, tree, leaf, position, found, key, {deltas})",
    }
    if wide:
        scaled = tuple(c.scaled() for c in cols)
        text += _changed(scaled, layout, fan_out, "_scaled", "forceinline=True")
        pieces |= {
            "fit": indent(
                [
                    f"tree_fit(H, tree, {c.at}, {at}, low_word(d{c.number}), high_word(d{c.number}))"
                    for c, at in wide
                ]
            ),
            "quotients": indent(
                [
                    line
                    for c, at in wide
                    for line in (
                        f"q{c.number} = quotient(d{c.number}, load(tree, {at}), load(tree, {at} + INVERSE))",
                        f"rest{c.number} = load(tree, {at} + REST)",
                    )
                ]
            ),
            "unfit": " or ".join(
                f"q{c.number} > rest{c.number} or q{c.number} < -rest{c.number} "
                f"or wide_product(q{c.number}, load(tree, {at})) != d{c.number}"
                for c, at in wide
            ),
            "count_down": indent(
                [f"store(tree, {at} + REST, rest{c.number} - abs(q{c.number}))" for c, at in wide]
            ),
            "scaled": ", ".join(f"{'q' if c.wide else 'd'}{c.number}" for c in cols),
        }
        text += ADD_FITTED.substitute(pieces)
        pieces["change"] = ADD_SCALED.substitute(pieces)
    return text + ADD.substitute(pieces)


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
        "header_words": COLUMN_KINDS + len(cols) + _record_words(cols),
        "column_count": len(cols),
        "store_kinds": indent([f"store(H, COLUMN_KINDS + {c.number}, {kind_number[c.kind]})" for c in cols]),
        "deltas": names("d", len(cols)),
        "values": names("v", len(cols)),
        "scales": SCALE_IMPORTS if any(c.wide for c in cols) else "",
        "changes": _add(cols, layout, prefix_words, fan_out),
        "assign": _assign(cols, layout, _first(prefix_words), fan_out),
        "zeros": tuple_of([c.column.zero for c in cols]),
        "reads": tuple_of([c.value("leaf", "position") for c in cols]),
        "export": indent(_export(cols, prefix_words), 3),
        **_prefixed(prefix_words, cols),
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
