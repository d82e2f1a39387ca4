"""A PostgreSQL server of the distribution's packages, in its own folder, reached by a unix socket only."""

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

# Where Debian puts what it has no links to.
_FOLDERS = ("/usr/local/bin", "/usr/bin", *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin"))))


def program(name: str) -> str | None:
    """The path of one of the server's programs; None where it is not installed."""
    return shutil.which(name, path=os.pathsep.join(_FOLDERS))


class PostgresServer:
    """Started when made. `kill` ends it as a failing machine would; `start` starts it again."""

    def __init__(self) -> None:
        # The path of a socket has 107 bytes at most.
        self.folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
        self.url = f"postgresql:///postgres?host={self.folder}&user=me"
        # A server refuses to run as root.
        self._user = "nobody" if os.geteuid() == 0 else None
        if self._user is not None:
            shutil.chown(self.folder, self._user)
        self._run("initdb", "-D", f"{self.folder}/data", "-A", "trust", "-U", "me", "--no-sync")
        self.start()

    def start(self) -> None:
        """Start it, and wait until it can be asked."""
        options = f"-k {self.folder} -c listen_addresses= -c fsync=off -c max_connections=20"
        self._pg_ctl("-o", options, "-l", f"{self.folder}/log", "-w", "start")

    def kill(self) -> None:
        """End it at once; what was committed stays."""
        self._pg_ctl("-m", "immediate", "-w", "stop")

    def close(self) -> None:
        """End it, and remove its folder."""
        self._pg_ctl("-m", "immediate", "-w", "stop", check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What a query gives; numeric as text."""
        from adbc_driver_postgresql import dbapi

        with dbapi.connect(self.url, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall()) if cursor.description else []

    def _pg_ctl(self, *arguments: str, check: bool = True) -> None:
        self._run("pg_ctl", "-D", f"{self.folder}/data", *arguments, check=check)

    def _run(self, name: str, *arguments: str, check: bool = True) -> None:
        path = program(name)
        assert path is not None
        user = pwd.getpwnam(self._user) if self._user is not None else None
        subprocess.run(
            [path, *arguments],
            check=check,
            cwd="/tmp",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=None if user is None else user.pw_uid,
            group=None if user is None else user.pw_gid,
            extra_groups=None if user is None else (),
        )
