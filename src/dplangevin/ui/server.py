"""The server of the page: on loopback, for one user, until it is stopped with Ctrl-C; and whose requests it answers.

Other users of the machine and pages of other sites can send requests to a loopback address too. Every request must
therefore name this server as its host (which stops rebinding of domain names), come from no other site, and carry the
token in a cookie; one that changes something must also name this server as its origin and carry a second token in the
form. Nothing in the page is executed or loaded that this server did not send as a file of its own.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import socket
import threading
import webbrowser
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from dplangevin.errors import DplangevinError, InvalidParameter

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MAX_FORM_BYTES = 2**20
MAX_FORM_FIELDS = 20_000
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# A report is a page of its own, with its style inside; it loads and runs nothing and knows nothing of this origin.
REPORT_POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
)
_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # "no-referrer" would make the origin of a form "null"
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class RequestGuard:
    """The outermost layer of the server: refuses requests of others, and adds the headers of every response.

    Parameters
    ----------
    app : the server behind it. A form arrives there as `request.state.form`, a list of names and values.
    token : that the browser must carry.
    port : at which the server listens on loopback.
    """

    def __init__(self, app: Any, token: str, port: int) -> None:
        self._app, self._token = app, token
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._origins = {f"http://{host}" for host in self._hosts}
        self.cookie_name = f"dplangevin-{port}"  # cookies know no ports
        self.form_token = hmac.new(token.encode(), b"form", hashlib.sha256).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # no web sockets
            await send({"type": "websocket.close", "code": 1008})
            return
        refusal = self._check_sender(scope) or self._check_token(scope)
        if refusal is None and scope["method"] == "POST":
            refusal = await self._check_form(scope, receive)
        await (refusal or self._app)(scope, receive, _add_headers(send))

    def _check_sender(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        client = (scope.get("client") or ("",))[0]
        if not _is_loopback(client):
            return _refuse("this page answers on this machine only.")
        if headers.getlist("host") not in [[host] for host in self._hosts]:
            return _refuse("the request names another host; open the address that the terminal shows.")
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return _refuse("the page knows only GET and POST.", 405)
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return _refuse("another site sent this request; open the address that the terminal shows.")
        return None

    def _check_token(self, scope: Scope) -> Response | None:
        request = Request(scope)
        if _is_equal(request.cookies.get(self.cookie_name, ""), self._token):
            return None
        stated = request.query_params.get("token", "")
        if scope["method"] == "GET" and scope["path"] == "/" and _is_equal(stated, self._token):
            response = RedirectResponse("/", status_code=303)
            response.set_cookie(self.cookie_name, self._token, httponly=True, samesite="strict", path="/")
            return response
        return _refuse("this browser does not know the token; open the address that the terminal shows.")

    async def _check_form(self, scope: Scope, receive: Receive) -> Response | None:
        headers = Headers(scope=scope)
        if headers.getlist("origin") not in [[origin] for origin in self._origins]:
            return _refuse("the form was not sent by this page; reload the page and send it again.")
        if headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
            return _refuse("the page takes plain forms only.", 415)
        body = b""
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return _refuse("the form did not arrive whole; send it again.", 400)
            body += message.get("body", b"")
            if len(body) > MAX_FORM_BYTES:
                return _refuse("the form is larger than a megabyte; shorten the lists in it.", 413)
            if not message.get("more_body", False):
                break
        try:
            fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS)
        except ValueError:
            return _refuse("the form cannot be read; send it again.", 400)
        if not _is_equal(dict(fields).get("form_token", ""), self.form_token):
            return _refuse("the form is of an earlier start of the page; reload the page and send it again.")
        scope.setdefault("state", {})["form"] = fields
        return None


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _is_equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(errors="replace"), other.encode())


def _refuse(reason: str, status: int = 403) -> Response:
    return PlainTextResponse(f"Refused: {reason}\n", status_code=status)


def _add_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.setdefault("content-security-policy", _POLICY)
            for name, value in _HEADERS.items():
                headers[name] = value
        await send(message)

    return send_with_headers


def first_values(fields: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the first value of each field of a form."""
    values: dict[str, str] = {}
    for name, value in fields:
        values.setdefault(name, value)
    return values


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
