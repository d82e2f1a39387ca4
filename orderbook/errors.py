"""Errors a user can cause, and where they happened."""


class OrderbookError(Exception):
    """Base of every error that is reported as one line; `exit_status` is the program's."""

    exit_status = 1


class UserError(OrderbookError):
    """Bad SQL, configuration, arguments or files; exit status 2."""

    exit_status = 2


class SqlError(UserError):
    """SQL that cannot be parsed, bound or maintained.

    `line` and `column` are 1-based positions in `file` (None for text given in code).
    """

    def __init__(self, message: str, line: int = 0, column: int = 0, file: str | None = None):
        where = f"{file or 'SQL'}:{line}:{column}: " if line else (f"{file}: " if file else "")
        super().__init__(where + message)
        self.message, self.line, self.column, self.file = message, line, column, file


class ConfigurationError(UserError):
    """A configuration file that cannot be read or does not validate."""


class SourceError(UserError):
    """A source (file, capture, feed address) that does not exist or is not of its format."""


class OutputError(OrderbookError):
    """A file that cannot be written, since the disk is full, fails or does not allow it; exit status 1."""


class StoreError(SourceError):
    """A store of files that refuses or cannot be reached; its files may be whole, and read another time."""


class DataError(OrderbookError):
    """A row or event that contradicts its declaration or the state (wrong type, deleted twice)."""


class ExactnessError(OrderbookError):
    """A sum or product that does not fit 128 bits; names the view."""


class CompileError(OrderbookError):
    """The process that compiles a changed program ended without it; the running one goes on."""
