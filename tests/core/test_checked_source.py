"""What may be written to the cache folder as code: what our generators write, and nothing else."""

from collections.abc import Iterator
from types import CodeType

import pytest

from orderbook.core.generated_code import check_source, checked_code, publish_text

REFUSED = {
    "an import of anything else": "import os\n",
    "an import from anything else": "from os import system\n",
    "an import of all": "from orderbook.engine.maps.memory import *\n",
    "a relative import": "from . import cache\n",
    "an unknown name": "x = open\n",
    "a name that Python has": "x = __import__\n",
    "an attribute that Python has": "from orderbook.engine.maps.memory import load\nx = load.__globals__\n",
    "a call of what is called": "from orderbook.engine.maps.memory import load\nx = load(0)(1)\n",
    "a string": "x = 'rm'\n",
    "a formatted string": "x = f'{1}'\n",
    "bytes": "x = b''\n",
    "a lambda": "x = lambda: 1\n",
    "a class": "class A:\n    pass\n",
    "a comprehension": "x = [1 for _ in range(3)]\n",
    "an assertion": "assert 1\n",
    "deletion": "x = 1\ndel x\n",
    "a global": "def f():\n    global x\n    x = 1\n",
    "a decorator": "def g(f):\n    return f\n\n\n@g\ndef f():\n    return 1\n",
    "a function in a function": "def f():\n    def g():\n        return 1\n    return g\n",
    "a walrus": "x = (y := 1)\n",
    "a variable called as a function": "def f():\n    return 1\n\n\ndef g():\n    f = 2\n    return f\n",
    "a parameter called as a function": "def f():\n    return 1\n\n\ndef g(f):\n    return f\n",
    "a docstring with more than text": "def f():\n    '''\\x00'''\n    return 1\n",
    "a name that is too long": f"{'x' * 100} = 1\n",
    "an unknown name in a function": "def f():\n    return g\n",
    "text between functions": "x = 1\n\n\ndef f():\n    return 1\n\n\n'any text'\ny = 1\n",
    "a name of other letters": "\N{LATIN SMALL LIGATURE FI} = 1\n",
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_other_source_is_not_published(text: str) -> None:
    with pytest.raises(ValueError, match=r"^generated source has .* at line \d+; it is not run$"):
        publish_text("refused", text)


def test_source_as_generators_write_it_passes() -> None:
    check_source(
        '"""Says what it is."""\n\nfrom orderbook.engine.maps.memory import load\n'
        "from orderbook.core.jit import jit\n\n\n"
        '@jit(error_model="numpy")\ndef f(S):\n    """One."""\n    x1 = load(S, 1) + 1.5\n    return -x1\n'
    )


TEXT = """\
\"\"\"A module.\"\"\"

from orderbook.core.jit import (
    exported,
    jit,
)
x = 1
# Nothing.

@jit(error_model='numpy')
def f(S):
    \"\"\"Of two

lines.\"\"\"
    if S:
        return x

    return 0


def g(S):
    return f(S)
y = 2


@exported

def h(S):
    for i in range(S):
        z = g(i) + y
    return z
"""


def lines(code: CodeType) -> Iterator[tuple[object, ...]]:
    """Of functions: where each, and all that is in it, stands."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found = [line for _, _, line in constant.co_lines()]
            yield constant.co_name, constant.co_filename, constant.co_firstlineno, found
            yield from lines(constant)


def test_parts_stand_where_they_do_in_the_whole() -> None:
    # A docstring may not begin a line: the text is then not cut.
    for text, several in ((TEXT, False), (TEXT.replace("\n\nlines", " lines"), True)):
        for before in (0, 5):
            moved = "#\n" * before + text
            parts = checked_code(moved, "here.py")
            assert (len(parts) > 1) is several
            whole = compile(moved, "here.py", "exec")
            assert [line for part in parts for line in lines(part)] == list(lines(whole))


def test_what_fits_one_module_does_not_fit_another() -> None:
    """Parts are looked at once, whether their names are known is asked of each module."""
    function = "def f(S):\n    return y\n"
    checked_code("y = 1\n\n\n" + function, "one.py")
    with pytest.raises(ValueError, match="the unknown name y at line 6;"):
        checked_code("x = 1\n\n\n\n" + function, "two.py")
    with pytest.raises(ValueError, match="something of the module, S, at line 4;"):
        checked_code("S = y = 1\n\n\n" + function, "three.py")
