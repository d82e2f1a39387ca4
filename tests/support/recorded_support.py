"""Recorded sessions of cryptofeed, line by line."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zstandard


def recorded(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a recording: `t`, `data`, …"""
    with path.open("rb") as file:
        text = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        yield from map(json.loads, io.TextIOWrapper(text))
