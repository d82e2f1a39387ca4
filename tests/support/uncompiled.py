"""Scripts of this folder in processes where generated code and the map library are plain Python."""

import os
import subprocess
import sys

from paths import PROJECT, SUPPORT


def run_uncompiled(script: str, *options: str) -> str:
    """What a script prints. Raises AssertionError, with the end of it, where its exit status is not 0."""
    done = subprocess.run(
        [sys.executable, str(SUPPORT / script), *options],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout
