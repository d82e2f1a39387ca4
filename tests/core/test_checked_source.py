"""What may be written to the cache folder as code: what our generators write, and nothing else."""

import pytest

from orderbook.core.generated_code import check_source, publish_text

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
