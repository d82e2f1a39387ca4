"""Where the project, its tests and what they need are."""

from pathlib import Path

SUPPORT = Path(__file__).resolve().parent
TESTS = SUPPORT.parent
PROJECT = TESTS.parent
FIXTURES = TESTS / "fixtures"
VIEWS = PROJECT / "views"
