"""Logging as a run is configured: text or JSON lines, to standard error or to a file.

What our own packages log is let through from the configured level on, what others log from "warning" on.
"""

import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from typing import TYPE_CHECKING

from orderbook.core.errors import ConfigurationError, visible_lines

if TYPE_CHECKING:
    from orderbook.configuration.options import LoggingOptions

# What a record may say of its cause: `logger.warning(text, extra={"venue": …, "symbol": …})`.
FIELDS = ("feed", "venue", "symbol", "stamp")
_OWN = ("orderbook",)
# What happens while a message is applied, and so has its stamp.
_STAMPED = ("orderbook.strategies", "orderbook.engine")


def log_to_standard_error() -> None:
    """Log warnings as plain text, until a configuration says otherwise."""
    _install(_ToStandardError(), logging.WARNING)


def configure_logging(options: "LoggingOptions") -> None:
    """Log as a configuration says. Raises ConfigurationError where the file cannot be written."""
    handler: logging.Handler
    if options.file is None:
        handler = _ToStandardError()
    else:
        try:
            # Goes on in a new file where another program has moved this one away.
            handler = WatchedFileHandler(options.file, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            problem = f"logging.file: {options.file} cannot be written: {error.strerror}"
            raise ConfigurationError(problem) from error
    if options.format == "json":
        handler.setFormatter(JsonFormatter())
    elif options.file is not None:
        handler.setFormatter(TextFormatter())
    _install(handler, getattr(logging, options.level.upper()))


@contextmanager
def stamped(read: Callable[[], int]) -> Iterator[None]:
    """Meanwhile records of strategies and views carry the stamp that `read` tells, of the message at hand."""

    def add(record: logging.LogRecord) -> bool:
        if record.name.startswith(_STAMPED) and not hasattr(record, "stamp"):
            record.stamp = read()
        return True

    handlers = list(logging.getLogger().handlers)
    for handler in handlers:
        handler.addFilter(add)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(add)


class JsonFormatter(logging.Formatter):
    """One JSON object: time (ISO, UTC), level, logger, message, and where known FIELDS and exception."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        entry = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= {name: getattr(record, name) for name in FIELDS if getattr(record, name, None) is not None}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class PlainFormatter(logging.Formatter):
    """The message on one line; those of an exception follow, indented."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        lines = [record.getMessage()]
        if record.exc_info:
            lines += self.formatException(record.exc_info).split("\n")
        return visible_lines(lines).replace("\n", "\n    ")


class TextFormatter(PlainFormatter):
    """A line with time, level and logger; those of an exception follow, indented."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        return f"{_time(record)} {record.levelname.lower()} {record.name}: {super().format(record)}"


class _ToStandardError(logging.Handler):
    """Writes to what is standard error at the moment, which a live display may have replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(PlainFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)


def _install(handler: logging.Handler, level: int) -> None:
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[handler], force=True)
    for name in _OWN:
        logging.getLogger(name).setLevel(level)


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z"
