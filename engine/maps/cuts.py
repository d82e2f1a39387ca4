"""Cut search: how far into an ordered store a condition on running sums holds, in one descent.

Sums of non-negative weights only grow along the entries, so a condition that they falsify is true on
a leading run (Abeysinghe, He, Rompf, SIGMOD 2022, for aggregates that depend on such a cut). A node
keeps the running sums of its places, so the run's end is found by counting the places where the
condition holds, without a branch on the data: first among every `step`th, then among those between.
On weights of any sign the search still ends, within the tree, at some place.
"""

import re
from string import Template

from .columns import indent, names, tuple_of
from .ordered import FAN_OUT, NodeColumn, node_columns

IMPORTS = (
    "from engine.maps.doubles import sum_doubles",
    "from engine.maps.header import COUNT, KEYS, LEFT, RIGHT",
    "from engine.maps.int128 import load_apart, wide",
    "from engine.maps.memory import load, load_double",
    "from engine.maps.vectors import count_at_most, count_below",
    "from orderbook.jit import jit",
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
        "from engine.maps.shapes import ordered",
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
        if limited and self.cols[int(limited[1])].kind == "i":
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
        if self.descending:
            return [f"position = count_below({gaps}, b{c.number} - max({limit}, -1), {self.fan_out})"]
        return [f"position = count_at_most({gaps}, max({limit}, -1) - a{c.number}, {self.fan_out})"]

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
