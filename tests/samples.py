"""How many examples properties draw."""

from hypothesis import settings

# What a property draws by default that says nothing else.
USUAL = 15


def examples(usual: int) -> settings:
    """So many by default; in an exhaustive run as many times more as of every other property."""
    return settings(max_examples=max(1, usual * settings().max_examples // USUAL))
