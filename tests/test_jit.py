"""Functions compiled with `orderbook.jit`."""

from numba.core import config

from orderbook.jit import jit


@jit()
def scaled(value: int, factor: int) -> int:
    return value * factor


@jit()
def sums(value: int) -> int:
    return scaled(value, 2) + scaled(value, factor=3) + scaled(5, value)


def test_calls_with_constants_share_what_is_compiled() -> None:
    assert sums(7) == 14 + 21 + 35
    if not config.DISABLE_JIT:
        assert [len(signature) for signature in scaled.signatures] == [2]
