"""A durable segmented log of records, which knows nothing of what they hold."""

from orderbook.core.files import Files, OsFiles
from orderbook.engine.log.log import Log, LogReader, SyncPolicy
from orderbook.engine.log.segments import LogError, Position, Record

__all__ = ["Files", "Log", "LogError", "LogReader", "OsFiles", "Position", "Record", "SyncPolicy"]
