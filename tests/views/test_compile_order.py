"""A program is the same text in every process: nothing iterates a set in the order of its hashes."""

import copy
import gc
import hashlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from fuzz import program_of
from paths import PROJECT, SUPPORT
from views_catalogue import CATALOGUE

import orderbook
from orderbook.views.calculus import ZERO, Var
from orderbook.views.m3 import program_text
from orderbook.views.maintenance.neighbours import Beyond

SCRIPT = """
import hashlib
import sys
from views_catalogue import CATALOGUE
from orderbook.views.compilation import compile_views
for entry in CATALOGUE[int(sys.argv[1])::int(sys.argv[2])]:
    text = compile_views(entry.sql, entry.parameters).m3
    print(entry.name, hashlib.sha256(text.encode()).hexdigest())
import orderbook
from test_compile_order import OF_MARKETS
for name in OF_MARKETS:
    print(name, hashlib.sha256(orderbook.compile(name).m3.encode()).hexdigest())
"""
# Views of views, whose columns are read by what lies beside them.
OF_MARKETS = ("market/imbalance_near", "market/cost_to_trade", "market/effective_spread")


@pytest.mark.sampled(2)
def test_programs_do_not_depend_on_the_order_of_hashes(part: Callable[[int], str]) -> None:
    """They are the same where hashes are as they happen to be, and where they are those of a seed."""
    first, every = part(12).split("/")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(PROJECT), str(SUPPORT), str(PROJECT / "tests" / "views"))),
        "PYTHONHASHSEED": "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1",
    }
    command = [sys.executable, "-c", SCRIPT, first, every]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        # Made in whichever process of this run came first.
        texts = {e.name: program_text(program_of(e)) for e in CATALOGUE[int(first) :: int(every)]}
        here = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
        here |= {n: hashlib.sha256(orderbook.compile(n).m3.encode()).hexdigest() for n in OF_MARKETS}
        told, _ = process.communicate()
    assert process.returncode == 0
    there = dict(line.split() for line in told.splitlines())
    assert not {name for name in here | there if here.get(name) != there.get(name)}
    assert len(here) > 50


@pytest.mark.sampled(2)
def test_a_variable_is_one_object_by_class_and_name() -> None:
    """In any number of threads, copied, and read from a pickle; what is not used any more is forgotten."""
    with ThreadPoolExecutor(8) as executor:
        made = list(executor.map(lambda number: Var(f"only here {number % 50}"), range(2000)))
    assert len({id(variable) for variable in made}) == 50
    assert all(pickle.loads(pickle.dumps(v)) is v and copy.deepcopy(v) is v for v in made[:50])
    beyond = Beyond("only here 0", ((), ZERO), (0,), (True,), (Var("only here 1"),), (), 1, 0)
    assert beyond is not made[0] and beyond != made[0] and made[0] != beyond
    assert pickle.loads(pickle.dumps(beyond)) is beyond and beyond.steps == 1
    assert Var("only here 0") == made[0] != made[1] and hash(Var("only here 0")) == hash(made[0])
    known = len(Var._known)
    del made
    gc.collect()
    assert len(Var._known) <= known - 48
