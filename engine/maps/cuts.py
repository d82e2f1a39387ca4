"""The text of cut searches in ordered stores.

A cut search finds how far into an ordered store a condition on running sums holds, in one descent. Sums of
non-negative weights only grow along the entries, so a condition that they falsify is true on a leading run
(Abeysinghe, He, Rompf, SIGMOD 2022, for aggregates that depend on such a cut). A node keeps the running sums
of its places, so the run's end is found by counting the places where the condition holds, without a branch on
the data: first among every `step`th, then among those between. On weights of any sign the search still ends,
within the tree, at some place.
"""

import re
from string import Template

from orderbook.engine.maps.ordered import FAN_OUT, NodeColumn, node_columns
from orderbook.engine.maps.store_layout import indent, names, tuple_of

IMPORTS = (
    "from orderbook.engine.maps.store_layout import COUNT, KEYS, LEFT, RIGHT",
    "from orderbook.engine.maps.scales import load_scaled, units_within",
    "from orderbook.engine.maps.wide_numbers import sum_doubles, wide, wide_product",
    "from orderbook.engine.maps.memory import load, load_double",
    "from orderbook.engine.maps.tree_nodes import "
    "count_at_most, count_below, count_wide_at_most, count_wide_below",
    "from orderbook.core.jit import jit",
)

CUT = Template('''\
$wide@jit(forceinline=True)
def $name($arguments):
    """(found, key, sums): $what."""
    tree = $name_record(H$prefix)
    if tree == 0:
        return $nothing
$choose
$search
''')

CUT_OF_TREE = Template("""\
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
$boundary""")

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
    prefix = names("p", prefix_words)
    given = ", ".join(parameters)
    wide = [c for c in cols if c.wide]
    cuts = [
        _Cut(cols, fan_out, children, descending, inclusive, predicate, scaled) for scaled in (False, True)
    ]
    two_words, choose = "", []
    if wide:
        two_words = (
            f"@jit()\ndef {name}_wide(tree, {given}):\n"
            f'    """The same of sums of two words."""\n{indent(cuts[False].lines())}\n\n\n'
        )
        choose = [f"if {wide[0].scale('load(tree, 0)')} == 0:", f"    return {name}_wide(tree, {given})"]
    way = ["downwards" if descending else "upwards", "inclusive" if inclusive else "exclusive"]
    return CUT.substitute(
        name=name,
        arguments=", ".join(x for x in ("H", prefix, given) if x),
        what=", ".join([*way, predicate]),
        name_record=f"{name}_record",
        prefix=f", {prefix}" if prefix else "",
        nothing=cuts[False].result("False", "0", [c.column.zero for c in cols]),
        wide=two_words,
        choose=indent(choose),
        search=indent(cuts[bool(wide)].lines()),
    )


class _Cut:
    """Pieces of the text; a<j> (exact) or h<j>, l<j> (double) are the sums of all passed so far.

    Where they are `scaled`, those of 128-bit columns are in units of the scale g<j>.
    """

    def __init__(
        self,
        cols: tuple[NodeColumn, ...],
        fan_out: int,
        children: int,
        descending: bool,
        inclusive: bool,
        predicate: str,
        scaled: bool,
    ) -> None:
        self.cols, self.fan_out, self.children = cols, fan_out, children
        self.descending, self.inclusive, self.predicate = descending, inclusive, predicate
        self.read = [c for c in cols if re.search(rf"\bs{c.number}\b", predicate)]
        self.exact = [c.scaled() if scaled else c for c in cols if c.kind != "d"]
        self.doubles = [c for c in cols if c.kind == "d"]
        self.scaled = [c for c in cols if c.wide] if scaled else []
        self.step = 1 << ((fan_out.bit_length() - 1) // 2)

    def lines(self) -> list[str]:
        """The body of the search in `tree`."""
        whole = [*self.advance(whole=True), *([] if self.inclusive else self.advance_doubles(leaf=True))]
        sums = [
            f"h{c.number} + l{c.number}" if c.kind == "d" else self._sum(c, f"a{c.number}") for c in self.cols
        ]
        text = CUT_OF_TREE.substitute(
            start="\n".join(self.start()),
            check="\n".join(self.check()),
            tops=indent(self.tops()),
            search=indent(self.search()),
            advance_doubles=indent(self.advance_doubles(leaf=False)),
            advance=indent(self.advance(whole=False)),
            advance_leaf="\n".join(self.advance(whole=False) if self.inclusive else whole),
            children=self.children,
            boundary=self.boundary(sums),
        )
        return [line for line in text.split("\n") if line.strip()]

    @staticmethod
    def result(found: str, key: str, values: list[str]) -> str:
        return tuple_of([found, key, *values])

    def check(self) -> list[str]:
        """What is told before any search: that all entries are in the run, or none."""
        if self.tells_all_last:
            return ["everything = True"]
        if self.inclusive:
            return [*self.total(), *self._all()]
        last = " + load(node, COUNT) - 1" if self.descending else ""
        zeros = [c.column.zero for c in self.cols]
        return [
            *(f"s{c.number} = {c.column.zero}" for c in self.read),
            f"if not ({self.predicate}):",
            "    for _ in range(level):",
            f"        node = load(node, {self.children}{last})",
            f"    return {self.result('True', f'load(node, KEYS{last})', zeros)}",
        ]

    def _all(self) -> list[str]:
        totals = [f"s{c.number}" for c in self.cols]
        return [f"if {self.predicate}:", f"    return {self.result('False', '0', totals)}"]

    @property
    def tells_all_last(self) -> bool:
        """Whether the last entry tells that all are in the run: to add up all doubles first takes longer."""
        return self.inclusive and any(c.kind == "d" for c in self.read)

    def _told_last(self) -> list[str]:
        """As `check`, at the last entry, where all places before it are in the run."""
        top, gap = "load(tree, 0)", str(self.fan_out)
        lines = [f"s{c.number} = {self._sum(c, self._word(c).gap(top, gap))}" for c in self.exact]
        for c in self.doubles:
            lines += [self._folded(c, "position"), f"s{c.number} = x{c.number} + y{c.number}"]
        return ["if everything:", *(f"    {line}" for line in (*lines, *self._all()))]

    def boundary(self, sums: list[str]) -> str:
        if self.inclusive:
            found = f"return {self.result('True', 'load(node, KEYS + position)', sums)}"
            return "\n".join([*self._told_last(), found]) if self.tells_all_last else found
        ahead = "position - 1" if self.descending else "position + 1"
        edge = "load(after, KEYS + load(after, COUNT) - 1)" if self.descending else "load(after, KEYS)"
        return Template(DOWNWARD_EXCLUSIVE if self.descending else UPWARD_EXCLUSIVE).substitute(
            found_next=self.result("True", f"load(node, KEYS + {ahead})", sums),
            found_after=self.result("True", edge, sums),
            all=self.result("False", "0", sums),
        )

    def _sum(self, c: NodeColumn, value: str) -> str:
        """The sum of a column from what is counted of it."""
        return f"wide_product({value}, g{c.number})" if c in self.scaled else value

    def _word(self, c: NodeColumn) -> NodeColumn:
        return c.scaled() if c in self.scaled else c

    def start(self) -> list[str]:
        lines = [f"g{c.number} = {c.scale('node')}" for c in self.scaled]
        lines += [f"a{c.number} = {c.column.zero}" for c in self.exact]
        limited = self._limited()
        if limited and limited[0] in self.scaled:
            lines.append(f"units = units_within({limited[1]}, tree, {limited[0].record_at})")
        return lines + [f"h{c.number} = l{c.number} = 0.0" for c in self.doubles]

    def total(self) -> list[str]:
        """s<j> of the whole tree, for every column."""
        lines = [
            f"s{c.number} = {self._sum(c, self._word(c).gap('node', str(self.fan_out)))}"
            for c in self.cols
            if c.kind != "d"
        ]
        for c in self.doubles:
            lines += [
                "high = low = 0.0",
                "for at in range(load(node, COUNT)):",
                f"    {self._fold(c, 'high', 'low', 'at')}",
                f"s{c.number} = high + low",
            ]
        return lines

    def tops(self) -> list[str]:
        """Downwards, b<j>: what is passed, with all of this node."""
        if not self.descending:
            return []
        return [f"b{c.number} = a{c.number} + {c.gap('node', str(self.fan_out))}" for c in self.exact]

    def _at_gap(self, c: NodeColumn, gap: str) -> str:
        here = c.gap("node", gap)
        return f"b{c.number} - {here}" if self.descending else f"a{c.number} + {here}"

    def _sum_at(self, c: NodeColumn, gap: str) -> str:
        return self._sum(c, self._at_gap(self._word(c), gap))

    def _fold(self, c: NodeColumn, high: str, low: str, at: str) -> str:
        pair = ", ".join(f"load_double(node, {start} + {at})" for start in (c.at, c.at + c.distance))
        return f"{high}, {low} = sum_doubles({high}, {low}, {pair})"

    def _limited(self) -> tuple[NodeColumn, str] | None:
        """The exact column and the limit of a predicate that is one comparison."""
        limited = re.fullmatch(r"\(?s(\d+) <= (\w+)\)?", self.predicate)
        if limited and self.cols[int(limited[1])].kind in "iwW":
            return self.cols[int(limited[1])], limited[2]
        return None

    def search(self) -> list[str]:
        """Set position to the last place before which (in walking order) the predicate is true."""
        if any(c.kind == "d" for c in self.read):
            return self._linear_search()
        limited = self._limited()
        if limited:
            return self._limit_search(*limited)
        kept = "1 if not ({0}) else 0" if self.descending else "1 if {0} else 0"
        count = kept.format(self.predicate)
        step = self.step
        coarse = [f"s{c.number} = {self._sum_at(c, f'place * {step}')}" for c in self.read]
        fine = [f"s{c.number} = {self._sum_at(c, 'base + place')}" for c in self.read]
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
        count = "count_wide" if c.wide and c not in self.scaled else "count"
        if c in self.scaled:
            most = "units"
        else:
            most = f"max({limit}, {'wide(-1)' if c.wide else '-1'})"
        if self.descending:
            return [f"position = {count}_below({gaps}, b{c.number} - {most}, {self.fan_out})"]
        return [f"position = {count}_at_most({gaps}, {most} - a{c.number}, {self.fan_out})"]

    def _linear_search(self) -> list[str]:
        start, more, go = (
            ("count - 1", "position > 0", "-") if self.descending else ("0", "position < count - 1", "+")
        )
        gap = "position" if self.descending else "position + 1"
        running = [c for c in self.read if c.kind == "d"]
        lines = [f"position = {start}", f"while {more}:"]
        for c in self.read:
            if c.kind == "d":
                lines.append(f"    {self._folded(c, 'position')}")
                lines.append(f"    s{c.number} = x{c.number} + y{c.number}")
            else:
                lines.append(f"    s{c.number} = {self._sum_at(c, gap)}")
        lines.append(f"    if not ({self.predicate}):")
        lines += ["        everything = False"] if self.tells_all_last else []
        lines.append("        break")
        lines += [f"    h{c.number}, l{c.number} = x{c.number}, y{c.number}" for c in running]
        return [*lines, f"    position {go}= 1"]

    def _folded(self, c: NodeColumn, at: str) -> str:
        """x, y: the sum of the places passed and one more."""
        fold = self._fold(c, f"h{c.number}", f"l{c.number}", at)
        return f"x{c.number}, y{c.number} = {fold.partition(' = ')[2]}"

    def advance_doubles(self, leaf: bool) -> list[str]:
        """Add the doubles of the places before `position`, or at the leaf the one at it."""
        if leaf:
            return [self._fold(c, f"h{c.number}", f"l{c.number}", "position") for c in self.doubles]
        # Those that are searched by have been added on the way.
        others = [c for c in self.doubles if c not in self.read]
        if not others:
            return []
        places = "position + 1, count" if self.descending else "position"
        return [f"for at in range({places}):"] + [
            f"    {self._fold(c, f'h{c.number}', f'l{c.number}', 'at')}" for c in others
        ]

    def advance(self, whole: bool) -> list[str]:
        """Add the exact sums of the places before `position`, and with `whole` the one at it."""
        gap = "position + 1" if self.descending != whole else "position"
        return [f"a{c.number} = {self._at_gap(c, gap)}" for c in self.exact]
