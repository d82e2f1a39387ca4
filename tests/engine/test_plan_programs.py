"""The generated code of every plan step against the interpreter, on hand-written M3."""

import pytest
from plan_programs import PROGRAMS
from plan_runner import check
from uncompiled import run_uncompiled

# Together these use every step that the compiled views of the catalogue do not.
COMPILED = ("extremes_of_doubles", "top_rows", "groups_of_a_group_within_a_cut", "compared_with_a_mean")


def test_uncompiled_code_equals_the_interpreter_for_every_program() -> None:
    assert len(run_uncompiled("plan_runner.py").splitlines()) == len(PROGRAMS)


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_code_equals_the_interpreter(name: str) -> None:
    entry = next(e for e in PROGRAMS if e.name == name)
    assert check(entry, 1, 40) > 40
