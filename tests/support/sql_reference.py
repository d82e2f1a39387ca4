"""The tables of docs/sql.md: constructs with an example each, and what it costs or how it is refused."""

import re

from paths import PROJECT

TEXT = (PROJECT / "docs" / "sql.md").read_text(encoding="utf-8")
DECLARATIONS = re.findall(r"```sql\n(.*?)```", TEXT, re.DOTALL)[0]
ROW = re.compile(
    r"^\| (?P<construct>.+?) \| `(?P<query>(?:SELECT|WITH|PIVOT) [^`]+)` \| (?P<promise>[^|]+?)"
    r"(?: \| (?:`(?P<instead>[^`]+)`|—))? \|$",
    re.M,
)
_FOUND = [
    {name: (part or "").replace("\\|", "|") for name, part in m.groupdict().items()}
    for m in ROW.finditer(TEXT)
]
ROWS = [(row["construct"], row["query"], row["promise"]) for row in _FOUND]
# What is refused, and a query that says the same.
REWRITES = [(row["construct"], row["instead"]) for row in _FOUND if row["instead"]]
MAINTAINED = [row for row in ROWS if row[2].startswith("O(")]
REFUSED = [row for row in ROWS if not row[2].startswith("O(")]
