"""Functions compiled with `orderbook.core.jit`."""

import importlib.util
from pathlib import Path

import numpy as np
from numba.core import config

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
