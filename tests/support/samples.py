"""How many examples properties draw."""

from hypothesis import settings

# What a property draws by default that says nothing else, and what the numbers of others are measured by.
DEFAULT, USUAL = 10, 15


def examples(usual: int) -> settings:
    """So many where a property that says nothing draws USUAL; otherwise as many times more, or less."""
    return settings(max_examples=max(1, usual * settings().max_examples // USUAL))
