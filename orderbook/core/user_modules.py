"""Modules of users: strategies' and functions', found as Python finds them or in folders of the user's."""

import importlib
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType

from orderbook.core.errors import UserError, suggestion


def imported(
    name: str, folders: Sequence[Path], known: Callable[[], Iterable[str]], full_name: str | None = None
) -> ModuleType:
    """The module that a user calls `name`; the last of the folders is looked in first.

    known: names that it may have been meant to be. full_name: what it is imported as, where that is another
    name. Raises UserError where there is none, or it raises.
    """
    for folder in folders:
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    # A file may have come since Python last looked.
    importlib.invalidate_caches()
    try:
        return importlib.import_module(full_name or name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise UserError(f"no module {name!r}; {suggestion(name, known())}") from None
        raise UserError(f"{name} cannot be imported: {error}") from error
    except Exception as error:
        raise UserError(f"{name} cannot be imported: {type(error).__name__}: {error}") from error
