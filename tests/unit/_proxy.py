"""A line between a client and a server that can go dead or be cut at a chosen word."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Proxy:
    """Forwards bytes until it sees the word; then the line is stalled or cut, with the word passed on or not.

    Parameters
    ----------
    word : what the client must send for it to happen; b"" is the first bytes. times : how many connections suffer.
    what : "stall" (silence, the line stays up) or "cut". passed : does the server still get the word?
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.word, self.what, self.passed, self.times = b"", "", False, 0
        self.suffered = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def trouble(self, word: bytes, what: str, *, passed: bool, times: int = 1) -> None:
        """What happens to the next connections that say the word."""
        self.word, self.what, self.passed, self.times = word, what, passed, times

    def close(self) -> None:
        """End every connection."""
        for line in [self._listening, *self._open]:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            with suppress(OSError):
                line.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._open += [client, server]
                dead = threading.Event()
                for source, target, watched in ((client, server, True), (server, client, False)):
                    arguments = (source, target, watched, dead)
                    threading.Thread(target=self._forward, args=arguments, daemon=True).start()

    def _forward(
        self, source: socket.socket, target: socket.socket, watched: bool, dead: threading.Event
    ) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if watched and self.times > 0 and self.word in data:
                    self.times -= 1
                    self.suffered += 1
                    dead.set()
                    if self.passed:
                        target.sendall(data)
                    if self.what == "stall":
                        return
                    for line in (source, target):
                        with suppress(OSError):
                            line.shutdown(socket.SHUT_RDWR)
                    return
                if not watched and dead.is_set():
                    continue  # the answer is lost
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxy(port: int) -> Iterator[Proxy]:
    """A proxy in front of a port of this machine."""
    found = Proxy(port)
    try:
        yield found
    finally:
        found.close()
