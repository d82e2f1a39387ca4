"""The Python of docs/live.md runs as it stands there."""

import re
from pathlib import Path


def test_every_block_runs(project: Path) -> None:
    text = (project / "docs" / "live.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 7
    exec("\n".join(blocks), {})
