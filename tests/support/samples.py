"""How many examples properties draw, and how long tests wait."""

from hypothesis import settings

# What a property draws by default that says nothing else, and what the numbers of others are measured by.
DEFAULT, USUAL = 10, 15
# Seconds after which something is taken never to happen, also on a machine that does much else: tests end by
# what happened, so only a failure takes so long.
PATIENCE = 120


def examples(usual: int) -> settings:
    """So many where a property that says nothing draws USUAL; otherwise as many times more, or less."""
    return settings(max_examples=max(1, usual * settings().max_examples // USUAL))


def is_drawn(number: int, every: int, turn: int) -> bool:
    """Whether a case is in a sample of one in `every`: of so many in a row one, in the next row the next.

    So all values of a parameter that has as many of them are there; each of `every` turns has other cases.
    """
    row, place = divmod(number, every)
    return place == (row + turn) % every
