"""What a worker does first with a function of a shipped project: unpack it, and import from there.

Functions of this module are pickled with their code, since the project is not importable yet where they run;
so it imports nothing but the standard library.
"""

import os
import pickle
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any


def arrive(archive: str, pickled: bytes) -> Any:
    """What `pickled` holds, imported from the archive of that name, which Spark put on sys.path.

    It is unpacked once on a machine, at a path that stays: machine code is cached by the path of its source.
    A process beside the driver, which Spark gives no archives, has the project as the driver has it.
    """
    digest = archive.removesuffix(".zip")
    root = Path(os.environ.get("ORDERBOOK_CACHE") or Path.home() / ".cache" / "orderbook")
    folder = root / digest
    if not folder.is_dir():
        zipped = next((entry for entry in sys.path if os.path.basename(entry) == archive), None)
        if zipped is None:
            return pickle.loads(pickled)
        root.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.mkdtemp(prefix=digest, dir=root)
        with zipfile.ZipFile(zipped) as files:
            files.extractall(temporary)
        try:
            os.rename(temporary, folder)
        except OSError:  # another worker was first
            shutil.rmtree(temporary)
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return pickle.loads(pickled)
