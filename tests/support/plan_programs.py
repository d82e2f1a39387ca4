"""Hand-written M3 programs that together use every step of a plan, over one stream of small domains."""

from collections.abc import Sequence
from dataclasses import dataclass

from oracle import SqlValue

DOMAINS: dict[str, Sequence[SqlValue]] = {
    "g": (1, 2, 3),
    "p": (-3, 0, 1, 2, 5, 7),
    "id": (1, 2),
    "x": (-2.5, -0.5, 0.0, 0.5, 3.0, None),
    "y": (0, 1, None),
}

RELATION = "STREAM r(g INTEGER, p INTEGER, id INTEGER, x DOUBLE NULL, y INTEGER NULL) MAX 1000;\n"

# Maps that an event changes at one key, and what it adds.
KEPT = {
    "groups": ("g", "1"),
    "prices": ("g, p", "1"),
    "rows": ("g, p, id", "1"),
    "levels": ("p", "1"),
    "reals": ("g, x", "1"),
    "maybe": ("g, y", "1"),
    "real_levels": ("x", "1"),
    "all": ("", "1"),
    "sum_p": ("", "p"),
}
TYPES = {"g": "INTEGER", "p": "INTEGER", "id": "INTEGER", "x": "DOUBLE", "y": "INTEGER"}


@dataclass(frozen=True, slots=True)
class PlanProgram:
    """A program: the kept maps it reads, statements after each event, and the view that shows the result."""

    name: str
    kept: tuple[str, ...]
    maps: str = ""
    statements: str = ""
    view: str = "VIEW v[] { n = groups_read; COLUMN n INTEGER = n; }"
    before: str = ""

    def domain(self, relation: str, column: str) -> Sequence[SqlValue]:
        return DOMAINS[column]

    @property
    def text(self) -> str:
        lines = [RELATION]
        for name in self.kept:
            keys = [k for k in KEPT[name][0].split(", ") if k]
            typed = ", ".join(f"{k} {TYPES[k]}" for k in keys)
            low = -3000 if name == "sum_p" else 0
            lines.append(f"MAP {name}[{typed}] INTEGER[{low}..7000] = r(g, p, id, x, y) * {KEPT[name][1]};\n")
        lines.append(self.maps)
        for sign, factor in (("+", ""), ("-", "-1 * ")):
            kept = "".join(f"  {n}[{KEPT[n][0]}] += {factor}{KEPT[n][1]};\n" for n in self.kept)
            own = self.before + kept + self.statements
            lines.append(f"ON {sign} r(g, p, id, x, y) {{\n{own}}}\n")
        return "".join(lines) + self.view


def _of_groups(body: str, lets: str = "", kind: str = "INTEGER") -> str:
    """A view with a row for each group, whose column is `found`, 0 where nothing is."""
    return f"VIEW v[g INTEGER g] GROUPS groups {{ {lets} found = {body}; COLUMN found {kind} = found; }}"


def _shown(keys: str, target: str = "target") -> str:
    typed = ", ".join(f"{k} {TYPES[k]} {k}" for k in keys.split(", "))
    return f"VIEW v[{typed}] GROUPS {target} {{ n = {target}[{keys}]; COLUMN n INTEGER = n; }}"


def _target(keys: str, most: int = 1000) -> str:
    typed = ", ".join(f"{k} {TYPES[k]}" for k in keys.split(", "))
    return f"MAP target[{typed}] INTEGER[-{most}..{most}] = 0;\n"


TOP = "(before ^= prices[g_2, q] * {q > p_2}) * {before < 2}"
WITHIN = "(all_rows ^= all[]) * (above ^= levels[q] * {q > p_2}) * {(2 * above) < all_rows}"

PROGRAMS = (
    PlanProgram(
        "greatest", ("groups", "prices"), view=_of_groups("(best ^= MAX[q](prices[g, q])) * [(best + 100)]")
    ),
    PlanProgram(
        "least", ("groups", "prices"), view=_of_groups("(best ^= MIN[q](prices[g, q])) * [(best + 100)]")
    ),
    PlanProgram(
        "least_in_range",
        ("groups", "prices"),
        view=_of_groups("(best ^= MIN[q](prices[g, q] * {q > 0} * {q <= 5})) * [(best + 100)]"),
    ),
    PlanProgram(
        "greatest_of_longer_keys",
        ("groups", "rows"),
        view=_of_groups("(best ^= MAX[q](rows[g, q, i] * {(2 * q) < 9})) * [(best + 100)]"),
    ),
    PlanProgram(
        "greatest_where_known",
        ("groups", "prices"),
        view=_of_groups("prices[g, p] * (p ^= MAX[q](prices[g, q]))"),
    ),
    PlanProgram(
        "greatest_below_a_sum",
        ("groups", "prices", "all", "sum_p"),
        view=_of_groups("(best ^= MAX[q](prices[g, q] * (s ^= sum_p[]) * {q < s} * all[])) * [(best + 100)]"),
    ),
    PlanProgram(
        "greatest_not_null",
        ("groups", "maybe"),
        view=_of_groups("(best ^= MIN[q](maybe[g, q] * [not(is_null(q))])) * [(best + 100)]"),
    ),
    PlanProgram(
        "greatest_of_several_maps",
        ("groups", "prices", "levels"),
        view=_of_groups(
            "(best ^= MAX[q](prices[g, q] * levels[q] * {q <> 5} + levels[q] * {q < g})) * [(best + 100)]"
        ),
    ),
    PlanProgram(
        "extremes_of_doubles",
        ("groups", "reals"),
        view="VIEW v[g INTEGER g] GROUPS groups {"
        " low = (best ^= MIN[q](reals[g, q])) * [(best + 100.0)];"
        " high = (best ^= MAX[q](reals[g, q] * {q < 0.5})) * [(best + 100.0)];"
        " COLUMN low DOUBLE = low; COLUMN high DOUBLE = high; }",
    ),
    PlanProgram(
        "range_of_doubles",
        ("groups", "reals", "real_levels"),
        view="VIEW v[g INTEGER g] GROUPS groups {"
        " up = reals[g, q] * {q >= -0.5}; above = reals[g, q] * {q > -0.5}; below = reals[g, q] * {q < 0.0};"
        " run = real_levels[q] * {q <= double(g, 0)};"
        " COLUMN up INTEGER = up; COLUMN above INTEGER = above; COLUMN below INTEGER = below;"
        " COLUMN run INTEGER = run; }",
    ),
    PlanProgram(
        "top_rows", ("prices", "rows"), _target("g, p, id"),
        f"  target[g_2, p_2, id_2] := rows[g_2, p_2, id_2] * {TOP};\n", _shown("g, p, id"),
    ),
    PlanProgram(
        "top_rows_of_the_group", ("prices", "rows"), _target("g, p, id"),
        "  target[g, p_2, id_2] := rows[g, p_2, id_2] * "
        "(before ^= prices[g, q] * {q > p_2}) * {before < 2};\n", _shown("g, p, id"),
    ),
    PlanProgram(
        "top_prices_by_change", ("prices",), _target("g, p"),
        "  after target[g, p_2] += prices[g, p_2] * (before ^= prices[g, q] * {q > p_2}) * {before < 2};\n",
        _shown("g, p"),
        "  target[g, p_2] += -1 * prices[g, p_2] * (before ^= prices[g, q] * {q > p_2}) * {before < 2};\n",
    ),
    PlanProgram(
        "later_rows", ("prices", "rows"), _target("g, p, id"),
        "  target[g_2, p_2, id_2] := rows[g_2, p_2, id_2] * "
        "(before ^= prices[g_2, q] * {q <= p_2}) * {before > 2};\n", _shown("g, p, id"),
    ),
    PlanProgram(
        "groups_within_a_cut", ("prices", "levels", "all"), _target("g"),
        f"  target[g_2] := prices[g_2, p_2] * {WITHIN};\n", _shown("g"),
    ),
    PlanProgram(
        "groups_of_a_group_within_a_cut", ("rows", "levels", "all"), _target("g, id"),
        f"  target[g, id_2] := rows[g, p_2, id_2] * {WITHIN};\n", _shown("g, id"),
    ),
    PlanProgram(
        "compared_with_a_mean", ("prices", "all", "sum_p"), _target("g"),
        "  target[g_2] := (s ^= sum_p[]) * (n ^= all[]) * prices[g_2, p_2]"
        " * {double(p_2, 1) >= (0.1 * (double(s, 0) / double(n, 0)))};\n", _shown("g"),
    ),
    PlanProgram(
        "groups_that_exist",
        ("groups", "prices", "levels"),
        view=_of_groups("EXISTS[q](prices[g, q] * levels[q] + -1 * prices[g, q]) * [(q + 10)]"),
    ),
    PlanProgram(
        "groups_of_conditions",
        ("groups", "rows", "prices"),
        view=_of_groups("EXISTS[i](rows[g, q, i] * {q > 0}) * prices[i, p] * [(p + 10)]"),
    ),
    PlanProgram(
        "reads_what_it_writes", ("prices",), _target("g", 10**6) ,
        "  after target[g_2] += -2 * target[g_2];\n  after target[g] += p;\n", _shown("g"),
    ),
    PlanProgram(
        "replaces_what_it_reads", ("prices",), _target("g", 10**6),
        "  target[g_2] := -1 * target[g_2] + prices[g_2, p_2] * p_2;\n", _shown("g"),
    ),
)  # fmt: skip
