"""A durable segmented log of records, which knows nothing of what they hold."""

from .errors import LogError
from .files import Files, OsFiles
from .log import Log
from .policy import SyncPolicy
from .reader import LogReader
from .records import Position, Record

__all__ = ["Files", "Log", "LogError", "LogReader", "OsFiles", "Position", "Record", "SyncPolicy"]
