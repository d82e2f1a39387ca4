"""The tables of docs/sql.md: constructs with an example each, and what it costs or how it is refused."""

import re

from paths import PROJECT

TEXT = (PROJECT / "docs" / "sql.md").read_text(encoding="utf-8")
DECLARATIONS = re.findall(r"```sql\n(.*?)```", TEXT, re.DOTALL)[0]
ROW = re.compile(
    r"^\| (?P<construct>.+?) \| `(?P<query>(?:SELECT|WITH|PIVOT) .+)` \| (?P<promise>.+) \|$", re.M
)
ROWS = [(m["construct"], m["query"].replace("\\|", "|"), m["promise"]) for m in ROW.finditer(TEXT)]
MAINTAINED = [row for row in ROWS if row[2].startswith("O(")]
REFUSED = [row for row in ROWS if not row[2].startswith("O(")]
