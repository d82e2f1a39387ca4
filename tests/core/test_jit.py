"""Functions compiled with `orderbook.core.jit`."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core import config
from paths import PROJECT

from orderbook.core.jit import dependence

TEXT = """
from orderbook.core.jit import jit

@jit()
def scaled(value, factor):
    return value * factor

@jit()
def sums(value):
    return scaled(value, 2) + scaled(value, factor=3) + scaled(5, value)

@jit()
def sums_of(values):
    return sums(values[0])
"""


def test_calls_with_constants_share_what_is_compiled(tmp_path: Path) -> None:
    """In a file of its own, of which nothing was compiled before."""
    path = tmp_path / "constants.py"
    path.write_text(TEXT)
    specification = importlib.util.spec_from_file_location("constants", path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    assert module.sums(7) == module.sums_of(np.array([7])) == 14 + 21 + 35
    if not config.DISABLE_JIT:
        assert [len(signature) for signature in module.scaled.signatures] == [2]


@pytest.mark.skipif(config.DISABLE_JIT, reason="nothing is compiled")
@pytest.mark.sampled(2)
@pytest.mark.parametrize("level", [0, 3])
def test_what_calls_others_is_kept(level: int, tmp_path: Path) -> None:
    """Optimised or not: a second process compiles nothing."""
    (tmp_path / "calling.py").write_text(TEXT)
    script = "import calling, numpy; calling.sums_of(numpy.array([7])); print(calling.sums_of.stats)"
    first, second = (printed(script, tmp_path, level) for _ in range(2))
    assert "cache_misses=Counter({" in first
    assert "cache_misses=Counter()" in second


def printed(script: str, folder: Path, level: int) -> str:
    """What a process of its own prints, that has modules and kept code in the folder."""
    environment = {
        **os.environ,
        "NUMBA_OPT": str(level),
        "ORDERBOOK_CACHE": str(folder / "cache"),
        "PYTHONPATH": os.pathsep.join((str(PROJECT), str(folder))),
    }
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


CLOSURES = """
import numpy
from orderbook.core.jit import jit

def scaled_by(factor):
    @jit()
    def scaled(values):
        return values[0] * factor
    return scaled

double, triple = scaled_by(2), scaled_by(3)

@jit()
def doubled(values):
    return double(values)

@jit()
def tripled(values):
    return triple(values)

ones = numpy.ones(1, numpy.int64)
"""


@pytest.mark.skipif(config.DISABLE_JIT, reason="nothing is compiled")
@pytest.mark.sampled(2)
@pytest.mark.parametrize("level", [0, 3])
def test_functions_of_one_name_that_processes_kept_apart_are_not_mixed_up(level: int, tmp_path: Path) -> None:
    """Each process was as new as the other when it compiled its own."""
    (tmp_path / "closures.py").write_text(CLOSURES)
    for call in ("doubled", "tripled"):
        printed(f"from closures import *; {call}(ones)", tmp_path, level)
    both = "from closures import *; print(doubled(ones), tripled(ones), tripled.stats)"
    assert printed(both, tmp_path, level).startswith("2 3 ")


FORKED = """
import os
import closures
if not (child := os.fork()):
    closures.doubled(closures.ones)
    os._exit(0)
os.waitpid(child, 0)
closures.tripled(closures.ones)
"""


@pytest.mark.skipif(config.DISABLE_JIT, reason="nothing is compiled")
def test_nor_those_of_a_process_and_of_its_fork(tmp_path: Path) -> None:
    (tmp_path / "closures.py").write_text(CLOSURES)
    printed(FORKED, tmp_path, 0)
    both = "from closures import *; print(doubled(ones), tripled(ones), tripled.stats)"
    assert printed(both, tmp_path, 0).startswith("2 3 ")


LAYOUT = """
import numpy as np
from orderbook.core.jit import jit
from orderbook.market.block_memory import record_at

pair_at = record_at(np.dtype([(name, "i8") for name in {names}]))

@jit()
def first(address):
    return pair_at(address).first
"""


def test_what_is_kept_depends_on_the_layout_of_records(tmp_path: Path) -> None:
    """The text of the function is the same: the layout comes from elsewhere."""
    digests = set()
    for names in (("first", "second"), ("second", "first")):
        space = {"names": names, "__name__": "layouts"}
        path = tmp_path / "layouts.py"
        path.write_text(LAYOUT.replace("{names}", "names"))
        exec(compile(path.read_text(), str(path), "exec"), space)
        function = space["first"].py_func  # type: ignore[attr-defined]
        digests.add(dependence(function))
    assert len(digests) == 2 and None not in digests
