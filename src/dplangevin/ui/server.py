"""The server of the page: on loopback, for one user, until it is stopped with Ctrl-C."""

from __future__ import annotations

import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dplangevin.errors import DplangevinError, InvalidParameter

ADDRESS = "127.0.0.1"


def open_socket(port: int) -> socket.socket:
    """Return a socket that listens on loopback only; port 0 takes a free one."""
    listener = socket.socket(
        socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP
    )  # asyncio looks for the protocol
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((ADDRESS, port))
    except OSError as error:
        listener.close()
        raise InvalidParameter(
            f"the page cannot use port {port}: {error.strerror}; choose another --port, or 0."
        ) from None
    return listener


def serve_page(
    folder: Path,
    ledger: str | None,
    port: int,
    *,
    start: Path,
    open_browser: bool,
    announce: Callable[[str], None],
) -> None:
    """Serve the page until it is stopped; deliver first what earlier runs were charged for.

    Parameters
    ----------
    folder : of the releases, created if absent.
    ledger : URL of the ledger; None keeps one in the folder.
    port : on loopback; 0 takes a free one.
    start : the folder whose files are shown first.
    open_browser : open the page in the user's browser.
    announce : shows a line to the user.
    """
    try:
        import uvicorn

        from dplangevin.ui.pages import PageRoutes
    except ImportError as error:
        raise InvalidParameter(
            f"the page needs {error.name}, which is not installed: pip install 'dplangevin[ui]'."
        ) from None
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidParameter(
            f"--folder {str(folder)!r} cannot be created: {error.strerror}; choose another."
        ) from None
    url = ledger or f"sqlite:///{folder.resolve() / 'ledger.db'}"
    listener = open_socket(port)
    token, number = secrets.token_urlsafe(32), listener.getsockname()[1]
    routes = PageRoutes(start, folder, url)
    app: Any = routes.build_app(token, number)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,
        ws="none",
        timeout_keep_alive=5,
    )
    address = f"http://{ADDRESS}:{number}/?token={token}"
    announce(f"Open {address}")
    announce(
        "The page answers on this machine only. Stop it with Ctrl-C: releases that run go on and are kept."
    )
    threading.Thread(target=_deliver_interrupted, args=(routes, announce), daemon=True).start()
    if open_browser:
        threading.Timer(0.5, webbrowser.open, (address,)).start()
    uvicorn.Server(config).run(sockets=[listener])


def _deliver_interrupted(routes: Any, announce: Callable[[str], None]) -> None:
    try:
        routes.runner.deliver_interrupted()
    except DplangevinError as error:
        routes.runner.notes.append(str(error))
    for note in routes.runner.notes:
        announce(f"note: {note}")
