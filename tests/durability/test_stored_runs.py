"""Runs that versions of this program have left on the disk go on: a log and a checkpoint of each format.

    PYTHONPATH=tests/support python tests/durability/test_stored_runs.py FOLDER

writes one of the format of now, with the rows that it has. Those of earlier formats stay as they are.
"""

import json
import shutil
import sys
from pathlib import Path

import pytest
from durable_support import Trader, items, rows
from paths import FIXTURES
from recovery_support import SCORES, STREAM, feed, session, sql_of

from orderbook.durability import journal
from orderbook.durability.durable_run import checkpoints_of
from orderbook.engine.checkpoint import FORMAT
from orderbook.feeds.change_stream import RelationChange
from orderbook.feeds.merge import ChangeItem

RUNS = FIXTURES / "runs"
SQL = sql_of(["depth", "asked", "levels", "my_orders", "my_fills", "states", "aged"]) + STREAM + SCORES
CURRENT = f"{journal.IDENTITY.decode().replace(' ', '-')}-checkpoint-{FORMAT}"


def write(folder: Path) -> None:
    """Leaves a log, a checkpoint in the midst of it, and the rows at its end."""
    received = items(1, 320)
    half = len(received) // 2
    with session(folder / "log", SQL, [Trader], segment="1 MB") as (pipeline, run):
        run.start()
        feed(run, received[:half])
        row = {"symbol": "AAA-USD", "score": "1.25"}
        feed(
            run,
            [ChangeItem("news", [RelationChange(1, "news", "+", row), RelationChange(2, "news", "+", row)])],
        )
        assert run.checkpoint()
        feed(run, [ChangeItem("news", [RelationChange(3, "news", "-", row)]), *received[half:]])
        expected = rows(pipeline)
    (folder / "log" / "lock").unlink(missing_ok=True)
    (folder / "rows.json").write_text(json.dumps(expected, indent=1) + "\n")


@pytest.mark.parametrize("stored", sorted(RUNS.glob("*")), ids=lambda path: path.name)
@pytest.mark.parametrize("what", ["checkpoint", "log alone"])
def test_a_run_that_was_stored_goes_on(stored: Path, what: str, tmp_path: Path) -> None:
    expected = json.loads((stored / "rows.json").read_text())
    shutil.copytree(stored / "log", tmp_path / "log")
    if what == "log alone":
        shutil.rmtree(checkpoints_of(tmp_path / "log"))
    with session(tmp_path / "log", SQL, [Trader]) as (pipeline, run):
        assert rows(pipeline) == expected and all(expected.values())
        assert run.checkpoint()
        run.start()
        feed(run, items(2, 60))


def test_the_format_of_now_is_stored() -> None:
    """Whoever changes a format stores a run of it, and sees to it that the one before is read or refused."""
    assert (RUNS / CURRENT).is_dir()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
