"""What a day's ITCH file says of itself before the first order: its date, and its stocks by locate."""

import re
from collections.abc import Iterable
from datetime import date, datetime
from zoneinfo import ZoneInfo

from feeds import itch_messages as wire
from feeds.byte_stream import Blocks
from feeds.places import Place
from orderbook.errors import SourceError

# 01302019.NASDAQ_ITCH50.gz and 20190130.BX_ITCH_50.gz; S013019-v50.txt.gz.
_NAME = re.compile(r"(?P<digits>\d{8})\.\w+_ITCH_?50(\..+)?|S(?P<short>\d{6})-v50(\..+)?")
_ORDERS = frozenset(b"AFECXDUPQ")
_START_OF_MESSAGES = b"\x00\x0cS"


def is_itch(start: bytes) -> bool:
    """Whether a file that starts so is ITCH: its first message is a system event."""
    return start.startswith(_START_OF_MESSAGES)


def midnight_of(path: Place, stated: str | None) -> int:
    """ns since 1970 UTC of the start, in New York, of the day stated (ISO), else of that in the name.

    Raises SourceError where neither is there, or is no date.
    """
    try:
        day = date.fromisoformat(stated) if stated is not None else _date_of(path.name)
    except ValueError as error:
        raise SourceError(f"{path}: the date is none ({error}); write it as date=2019-01-30") from None
    if day is None:
        raise SourceError(
            f"{path}: ITCH times are of a day, and the name tells none, as 01302019.NASDAQ_ITCH50 does; "
            "write the day behind the path: ?date=2019-01-30"
        )
    midnight = datetime(day.year, day.month, day.day, tzinfo=ZoneInfo("America/New_York"))
    return round(midnight.timestamp()) * 1_000_000_000


def _date_of(name: str) -> date | None:
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    if short := found["short"]:
        return datetime.strptime(short, "%m%d%y").date()
    digits = found["digits"]
    return datetime.strptime(digits, "%Y%m%d" if digits.startswith("20") else "%m%d%Y").date()


def stock_directory(path: Place) -> dict[int, str]:
    """Symbols by stock locate, from the directory messages before the file's first order or trade.

    Raises SourceError where the file cannot be opened, is no ITCH, or has no directory there.
    """
    symbols: dict[int, str] = {}
    for message in _messages(Blocks(path)):
        kind = message[0]
        if len(message) != wire.LENGTHS[kind]:
            if wire.LENGTHS[kind]:
                break
        elif kind in _ORDERS:
            break
        elif kind == ord("R"):
            locate = int.from_bytes(message[wire.LOCATE : wire.LOCATE + 2], "big")
            name = message[wire.STOCK : wire.STOCK + wire.SYMBOL_BYTES]
            symbols[locate] = name.decode("ascii", "replace").rstrip()
    if not symbols:
        raise SourceError(
            f"{path}: no stock directory before its first order; get a whole day of ITCH 5.0, from its start"
        )
    return symbols


def _messages(blocks: Iterable[bytes]) -> Iterable[bytes]:
    """The complete messages of a file, without their frames, up to a frame of length 0."""
    rest = b""
    for block in blocks:
        rest += block
        position = 0
        while position + wire.FRAME <= len(rest):
            length = int.from_bytes(rest[position : position + wire.FRAME], "big")
            end = position + wire.FRAME + length
            if not length:
                return
            if end > len(rest):
                break
            yield rest[position + wire.FRAME : end]
            position = end
        rest = rest[position:]
