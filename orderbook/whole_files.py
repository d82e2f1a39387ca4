"""Files that appear whole: a reader sees what was there before, or all of what is there now."""

import os
import secrets
from pathlib import Path

from orderbook.errors import SourceError


def replace_file(path: Path, data: bytes) -> None:
    """Put a file there, on the disk on return, in place of one of that name. Raises SourceError."""
    # Readers, Spark among them, pass over names that begin with a dot.
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise SourceError(f"{path}: cannot write: {error.strerror or error}") from None
