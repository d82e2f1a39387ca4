"""The analytics of docs/first-week.md, read from the page: their SQL stands nowhere else.

The page's first block of SQL declares relations, the second has views that analytics read by their names.
Each heading of the third level is an analytic: its purpose, its query, and a line with what an event costs.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "first-week.md"
_SQL = re.compile(r"```sql\n(.*?)```", re.DOTALL)
_ANALYTIC = re.compile(
    r"^### (?P<name>[^\n]+)\n\n(?P<purpose>[^`#]+?)\n\n```sql\n(?P<query>[^`]+)```\n\n"
    r"(?P<cost>O\([^)]*\)) · (?P<ns>[\d,]+) ns$",
    re.M,
)
_VIEW = re.compile(r"CREATE VIEW (\w+) AS\s+(.*?);\s*(?=CREATE|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Analytic:
    """A query of the page; `cost` and `ns` are what the page says of an event, `views` are those it reads."""

    name: str
    purpose: str
    query: str
    cost: str
    ns: int
    views: Mapping[str, str]

    @property
    def sql(self) -> str:
        """The whole program, whose view of the analytic is `v`; `declarations()` go before."""
        views = {**self.views, "v": self.query}
        return "\n".join(f"CREATE VIEW {name} AS {query};" for name, query in views.items())


def declarations() -> str:
    """The relations that the page declares beside the shipped ones."""
    return str(_SQL.findall(PAGE.read_text(encoding="utf-8"))[0])


def shared_views() -> dict[str, str]:
    """The page's views that analytics read, by name."""
    return dict(_VIEW.findall(_SQL.findall(PAGE.read_text(encoding="utf-8"))[1]))


def analytics() -> Sequence[Analytic]:
    """All analytics, in the order of the page."""
    shared = shared_views()
    return [
        Analytic(
            m["name"],
            m["purpose"],
            m["query"].strip().rstrip(";"),
            m["cost"],
            int(m["ns"].replace(",", "")),
            _read(m["query"], shared),
        )
        for m in _ANALYTIC.finditer(PAGE.read_text(encoding="utf-8"))
    ]


def write_costs(costs: Mapping[str, tuple[str, float]]) -> None:
    """Has the page say these classes and ns, by the analytics' names."""

    def line(match: re.Match[str]) -> str:
        if match["name"] not in costs:
            return match[0]
        cost, ns = costs[match["name"]]
        return match[0][: match.start("cost") - match.start()] + f"{cost} · {ns:,.0f} ns"

    PAGE.write_text(_ANALYTIC.sub(line, PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def _read(query: str, shared: Mapping[str, str]) -> dict[str, str]:
    """The shared views that a query reads, those they read first."""
    found: dict[str, str] = {}
    for name, body in shared.items():
        if re.search(rf"\b(FROM|JOIN)\s+{name}\b", query):
            found |= {**_read(body, shared), name: body}
    return {name: body for name, body in shared.items() if name in found}
