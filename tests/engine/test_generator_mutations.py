"""The checks of generated code find out what is wrong in it: flipped signs, comparisons and NULL words."""

import re
from collections.abc import Callable

import pytest
from uncompiled import uncompiled

# Of flips of what a program holds before any event only one view has the first two, and its rows hide them;
# the third chooses between two ways to empty a map. A run of a cut that ends past a leaf's last entry ends at
# the highest key, as one that never ends does.
HIDDEN = {"initialise -", "initialise >=", "initialise >", "cut_wide <"}


def run(*options: str) -> set[str]:
    """The groups of mutants of which none is found out."""
    _, out, errors = uncompiled("mutation_runner.py", *options)
    found = re.search(r"^([0-9]+) groups, ([0-9]+) not found out", out, re.MULTILINE)
    assert found is not None, errors[-4000:]
    lost = set(re.findall(r"^not found out: (.*?) in ", errors, re.MULTILINE))
    assert int(found[1]) >= 50 and int(found[2]) == len(lost)
    return lost


def test_a_flip_in_the_text_of_every_emitter_is_found_out(part: Callable[[int], str]) -> None:
    """Of one group of flips in eight, others by each turn."""
    assert run("--seed", "0", "--tries", "40", "--part", part(8)) <= HIDDEN


@pytest.mark.exhaustive
def test_a_flip_of_every_kind_is_found_out() -> None:
    assert run("--seed", "0", "--tries", "40") <= HIDDEN


@pytest.mark.exhaustive
def test_flips_in_other_views_are_found_out(sample_seed: int) -> None:
    assert run("--seed", str(sample_seed), "--views", "500", "--tries", "60") <= HIDDEN
