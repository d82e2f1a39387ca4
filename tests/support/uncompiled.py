"""Scripts of this folder in processes where generated code and the map library are plain Python.

They are forked from one process that has imported what all of them need: that takes longer than most of them.
"""

import gc
import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from paths import PROJECT, SUPPORT

_MOST_BYTES = 1 << 20


def run_uncompiled(
    script: str, *options: str, folder: Path = PROJECT, environment: Mapping[str, str] | None = None
) -> str:
    """What a script prints. Raises AssertionError, with the end of it, where its exit status is not 0."""
    status, out, errors = uncompiled(script, *options, folder=folder, environment=environment)
    assert status == 0, (out + errors)[-4000:]
    return out


def uncompiled(
    script: str, *options: str, folder: Path = PROJECT, environment: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """Exit status, output and errors of a script that ran in a folder, with changes of the environment."""
    order = json.dumps([str(SUPPORT / script), options, str(folder), dict(environment or {})])
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        line = _forking()
        socket.send_fds(line, [order.encode()], [out.fileno(), errors.fileno()])
        status = line.recv(_MOST_BYTES)
        assert status, "the process that scripts are forked from has ended"
        out.seek(0)
        errors.seek(0)
        return int(status), out.read(), errors.read()


@cache
def _forking() -> socket.socket:
    """The line to the process that scripts are forked from, which ends when the line does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.Popen(
            [sys.executable, str(SUPPORT / "uncompiled.py"), str(theirs.fileno())],
            env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(PROJECT)},
            pass_fds=(theirs.fileno(),),
        )
    return ours


def _serve(line: socket.socket) -> None:
    importlib.import_module("generated_runner")
    # Else each process looks through what all of them share.
    gc.freeze()
    while True:
        order, files, *_ = socket.recv_fds(line, _MOST_BYTES, 2)
        if not order:
            # DuckDB would print what is frozen as leaked.
            os._exit(0)
        child = os.fork()
        if not child:
            line.close()
            os._exit(_run(files, *json.loads(order)))
        for file in files:
            os.close(file)
        line.sendall(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


def _run(files: list[int], script: str, options: list[str], folder: str, environment: dict[str, str]) -> int:
    """The exit status of a script, as Python would run it."""
    os.dup2(files[0], 1)
    os.dup2(files[1], 2)
    os.chdir(folder)
    os.environ.update(environment)
    sys.argv = [script, *options]
    status: object = 0
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as ended:
        status = ended.code
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status if isinstance(status, int) else int(status is not None)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
