"""A real PostgreSQL server of our own, for the length of a test module."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def _program(name: str) -> Path | None:
    """The newest installed server program; Debian keeps them out of the path."""
    found = sorted(
        Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda p: float(p.parts[4]), reverse=True
    )
    on_path = shutil.which(name)
    return found[0] if found else Path(on_path) if on_path else None


def _owner() -> str | None:
    """The server refuses to run as root; become somebody else if we are."""
    if os.getuid() != 0:
        return None
    names = {user.pw_name for user in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in names), None)


@contextmanager
def server() -> Iterator[str]:
    """The URL of an empty database on a fresh server; skips where PostgreSQL or its driver is not installed."""
    pytest.importorskip("psycopg", reason="needs psycopg: pip install 'dplangevin[postgres]'")
    initdb, postgres = _program("initdb"), _program("postgres")
    if initdb is None or postgres is None:
        pytest.skip("needs the PostgreSQL server programs (initdb and postgres)")
    owner = _owner()
    with tempfile.TemporaryDirectory(prefix="ledger-postgres-") as name:
        folder = Path(name)
        if owner is not None:
            shutil.chown(folder, owner)
        data = folder / "data"
        setup = [
            str(initdb),
            "-D",
            str(data),
            "-U",
            "ledger",
            "-A",
            "trust",
            "-N",
            "-E",
            "UTF8",
            "--no-locale",
        ]
        subprocess.run(setup, user=owner, check=True, capture_output=True, timeout=300, cwd=folder)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [str(postgres), "-D", str(data), "-h", "127.0.0.1", "-p", str(port), "-k", "", "-F"]
        with (folder / "log").open("wb") as log:
            running = subprocess.Popen(command, user=owner, stdout=log, stderr=log, cwd=folder)
        try:
            url = f"postgresql://ledger@127.0.0.1:{port}/postgres"
            _wait(url, running, folder / "log")
            yield url
        finally:
            running.send_signal(signal.SIGINT)  # end the connections that are left as well
            running.wait(timeout=60)


def _wait(url: str, running: subprocess.Popen[bytes], log: Path) -> None:
    import psycopg

    patience = time.monotonic() + 120
    while True:
        try:
            psycopg.connect(url, connect_timeout=5).close()
            return
        except psycopg.OperationalError:
            if running.poll() is not None or time.monotonic() > patience:
                raise RuntimeError(f"the server did not start: {log.read_text()[-2000:]}") from None
            time.sleep(0.1)
