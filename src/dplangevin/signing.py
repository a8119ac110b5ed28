"""Signatures of model files, plans and reports: Ed25519 over canonical JSON (the extra `sign`).

A signature tells who stands behind a file, to someone who has their public key from elsewhere. It proves nothing about
privacy: that is what the guarantee and its theorem are for.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dplangevin import _files, _plain
from dplangevin.errors import DplangevinError, InvalidParameter

_LARGEST = 512 * _files.MEGABYTE
_BYTE_ORDER_MARK = "\ufeff"
_COMMENT = re.compile(r"<!-- dplangevin-signature (\{.*\}) -->\n\Z")
_FIELDS = {
    "algorithm": _plain.one_of("ed25519"), "signer": _plain.words, "key": _plain.words, "created": _plain.words,
    "value": _plain.words,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Signature:
    """Who signed, under which public key (64 hexadecimal digits), and when by their own clock."""

    signer: str
    key: str
    created: str

    def __str__(self) -> str:
        return (
            f"signed by {self.signer or 'someone without a name'} on {self.created} with the key {self.key}"
        )


class Signer:
    """A private key, read from the file that `new_key` wrote."""

    def __init__(self, path: str | Path) -> None:
        text = _files.read_text(path, "the key")
        try:
            self._key = _crypto().load_pem_private_key(text.encode(), None)
            self.key = self._key.public_key().public_bytes_raw().hex()
        except (ValueError, TypeError, AttributeError):
            raise InvalidParameter(f"{str(path)!r} is no private Ed25519 key without a password.") from None
        self.name = _name(text)

    def signed(self, text: str) -> str:
        """The text with a signature of all of it; one that it had is replaced.

        JSON gets the field "signature"; a page or a Markdown text gets a comment as its last line.
        """
        plain, content, _ = _taken_apart(text)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        by = {"algorithm": "ed25519", **asdict(Signature(signer=self.name, key=self.key, created=now))}
        mark = {**by, "value": self._key.sign(_message(content, by)).hex()}
        if isinstance(plain, dict):
            return json.dumps({**plain, "signature": mark}, indent=1, allow_nan=False) + "\n"
        written = json.dumps(mark).replace("-", "\\u002d").replace(">", "\\u003e")
        return f"{plain}<!-- dplangevin-signature {written} -->\n"


def new_key(path: str | Path, signer: str = "") -> str:
    """Write a new private key (mode 0600), and the public one beside it (.pub); returns the public key.

    `signer` is the name that files signed with it will show.
    """
    place, crypto = Path(path), _crypto()
    name = " ".join(_plain.words("signer", signer).split())
    for each in (place, _public(place)):
        if each.exists() or each.is_symlink():
            raise InvalidParameter(f"{str(each)!r} exists; a key is not overwritten. Choose another name.")
    key = crypto.Ed25519PrivateKey.generate()
    private, public = crypto.pems(key)
    try:
        with os.fdopen(
            os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
        ) as file:
            file.write(f"signer: {name}\n{private}")
        _files.write_text(_public(place), f"signer: {name}\n{public}")
    except OSError as error:
        raise InvalidParameter(f"the key {str(place)!r} cannot be written: {error.strerror}.") from None
    found: str = key.public_key().public_bytes_raw().hex()
    return found


def sign(path: str | Path, key: str | Path) -> None:
    """Sign a model file, a plan file or a report in its place, with a private key's file."""
    signer = Signer(key)
    _files.write_text(path, signer.signed(_files.read_text(path, "the file", most=_LARGEST)))


def verify(path: str | Path, key: str | Path | None = None) -> Signature | None:
    """Who signed a file, when it is unchanged since and `key` (a public key's file) is theirs; else InvalidParameter.

    Without a key the signature is checked against the key that it names itself, which tells damage but not who signed;
    None then says that there is no signature.
    """
    text = _files.read_text(path, "the file", most=_LARGEST, exactly=True)
    _, content, mark = _taken_apart(text.removeprefix(_BYTE_ORDER_MARK))
    if mark is None:
        if key is None:
            return None
        raise InvalidParameter(f"{str(path)!r} is not signed.")
    if text.startswith(_BYTE_ORDER_MARK):
        raise InvalidParameter(
            f"{str(path)!r} was altered after it was signed: it begins with a byte order mark, which an editor may "
            "have added. Sign it again, or ask for the file as it was."
        )
    by = _plain.record("signature", mark, _FIELDS)
    value, crypto = by.pop("value"), _crypto()
    if key is not None and by["key"] != _public_key(key):
        raise InvalidParameter(f"{str(path)!r} was signed with another key than {str(key)!r}.")
    try:
        found = crypto.Ed25519PublicKey.from_public_bytes(bytes.fromhex(by["key"]))
        found.verify(bytes.fromhex(value), _message(content, by))
    except (ValueError, crypto.InvalidSignature):
        raise InvalidParameter(
            f"{str(path)!r} was altered after it was signed, or its signature was."
        ) from None
    return Signature(signer=by["signer"], key=by["key"], created=by["created"])


def _taken_apart(text: str) -> tuple[Any, Any, dict[str, Any] | None]:
    """What is signed, as it is written and as it is hashed, and the signature if there is one."""
    if text.lstrip().startswith("{"):
        plain = _plain.mapping("the file", _plain.parse(text, "the file"))
        mark = plain.pop("signature", None)
        return plain, plain, None if mark is None else _plain.mapping("signature", mark)
    found = _COMMENT.search(text)
    body = text if found is None else text[: found.start()]
    body += "" if body.endswith("\n") else "\n"
    mark = None if found is None else _plain.mapping("signature", _plain.parse(found[1], "the signature"))
    return body, {"sha256": hashlib.sha256(body.encode()).hexdigest()}, mark


def _message(content: Any, by: dict[str, Any]) -> bytes:
    return _plain.canonical({"layout": "dplangevin-signature-1", "content": content, "by": by})


def _public(path: Path) -> Path:
    return path.with_name(path.name + ".pub")


def _public_key(path: str | Path) -> str:
    try:
        found = _crypto().load_pem_public_key(_files.read_text(path, "the key").encode())
        key: str = found.public_bytes_raw().hex()
    except (ValueError, AttributeError) as error:
        if isinstance(error, DplangevinError):
            raise
        raise InvalidParameter(f"{str(path)!r} is no public Ed25519 key; give the .pub file.") from None
    return key


def _name(text: str) -> str:
    first = text.split("\n", 1)[0]
    return first.removeprefix("signer:").strip() if first.startswith("signer:") else ""


def _crypto() -> Any:
    try:
        from dplangevin import _ed25519
    except ImportError:
        raise InvalidParameter("signatures need the extra: pip install 'dplangevin[sign]'.") from None
    return _ed25519
