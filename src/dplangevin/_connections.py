"""Connections to a PostgreSQL server that may fall silent."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

CONNECTION_OPTIONS = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Options of the driver that end a dead connection."""


@contextmanager
def enforce_deadline(descriptor: int, late: threading.Event, seconds: float) -> Iterator[None]:
    """Shut the connection down at the deadline: a silent server would otherwise be waited for without end."""
    connection_socket = socket.socket(fileno=os.dup(descriptor))

    def shut_down() -> None:
        late.set()
        with suppress(OSError):
            connection_socket.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, shut_down)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        connection_socket.close()
