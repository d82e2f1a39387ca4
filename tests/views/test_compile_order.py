"""A program is the same text in every process: nothing iterates a set in the order of its hashes."""

import os
import subprocess
import sys

from paths import PROJECT, SUPPORT

SCRIPT = """
import hashlib
from views_catalogue import CATALOGUE
from orderbook.views.compilation import compile_views
for entry in CATALOGUE[::2]:
    text = compile_views(entry.sql, entry.parameters).m3
    print(entry.name, hashlib.sha256(text.encode()).hexdigest())
"""


def test_programs_do_not_depend_on_the_order_of_hashes() -> None:
    path = os.pathsep.join((str(PROJECT), str(SUPPORT)))
    running = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    first, second = (process.communicate()[0].splitlines() for process in running)
    assert [process.returncode for process in running] == [0, 0]
    assert not set(first) ^ set(second)
    assert len(first) > 100
