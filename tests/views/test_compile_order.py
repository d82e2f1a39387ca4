"""A program is the same text in every process: nothing iterates a set in the order of its hashes."""

import hashlib
import os
import subprocess
import sys

from fuzz import compiled_entry
from paths import PROJECT, SUPPORT
from views_catalogue import CATALOGUE

SCRIPT = """
import hashlib
from views_catalogue import CATALOGUE
from orderbook.views.compilation import compile_views
for entry in CATALOGUE[::2]:
    text = compile_views(entry.sql, entry.parameters).m3
    print(entry.name, hashlib.sha256(text.encode()).hexdigest())
"""


def test_programs_do_not_depend_on_the_order_of_hashes() -> None:
    """They are the same here, where hashes are as they happen to be, and where they are those of a seed."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(PROJECT), str(SUPPORT))),
        "PYTHONHASHSEED": "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1",
    }
    command = [sys.executable, "-c", SCRIPT]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        here = {e.name: hashlib.sha256(compiled_entry(e).m3.encode()).hexdigest() for e in CATALOGUE[::2]}
        told, _ = process.communicate()
    assert process.returncode == 0
    there = dict(line.split() for line in told.splitlines())
    assert not {name for name in here | there if here.get(name) != there.get(name)}
    assert len(here) > 100
