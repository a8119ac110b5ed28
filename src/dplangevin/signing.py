"""Signatures of model files, plans and reports: Ed25519 over canonical JSON (the extra `sign`).

A signature shows who issued a file, to a reader who has the signer's public key from a trusted source. It proves
nothing about privacy: that is what the guarantee and its theorem are for.
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

MAX_FILE_BYTES = 512 * _files.MEGABYTE
_BYTE_ORDER_MARK = "\ufeff"
_COMMENT = re.compile(r"<!-- dplangevin-signature (\{.*\}) -->\n\Z")
_FIELDS = {
    "algorithm": _plain.choice_reader("ed25519"),
    "signer": _plain.read_text,
    "key": _plain.read_text,
    "created": _plain.read_text,
    "value": _plain.read_text,
}


@dataclass(frozen=True, kw_only=True)
class Signature:
    """The signer's name, public key (64 hexadecimal digits), and time of signing by the signer's clock."""

    signer: str
    key: str
    created: str

    def __str__(self) -> str:
        return f"signed by {self.signer or 'an unnamed signer'} on {self.created} with the key {self.key}"


class Signer:
    """A private key, read from a file that `create_key` wrote.

    Attributes
    ----------
    key : the public key, as 64 hexadecimal digits.
    name : the name of the signer.
    """

    def __init__(self, path: str | Path) -> None:
        text = _files.read_text(path, "the key")
        try:
            self._key = _load_cryptography().load_pem_private_key(text.encode(), None)
            self.key = self._key.public_key().public_bytes_raw().hex()
        except (ValueError, TypeError, AttributeError):
            raise InvalidParameter(
                f"{str(path)!r} is not a private Ed25519 key without a password; make one with create_key."
            ) from None
        self.name = _signer_name(text)

    def sign_text(self, text: str) -> str:
        """Return the text with a signature over all of it; an existing signature is replaced.

        JSON gets the field "signature"; HTML and Markdown get a comment as their last line.
        """
        unsigned, content, _ = _split_signature(text)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        by = {"algorithm": "ed25519", **asdict(Signature(signer=self.name, key=self.key, created=now))}
        signature = {**by, "value": self._key.sign(_signed_message(content, by)).hex()}
        if isinstance(unsigned, dict):
            return json.dumps({**unsigned, "signature": signature}, indent=1, allow_nan=False) + "\n"
        # escaped, so that a signer's name cannot end the comment
        comment = json.dumps(signature).replace("-", "\\u002d").replace(">", "\\u003e")
        return f"{unsigned}<!-- dplangevin-signature {comment} -->\n"


def create_key(path: str | Path, signer: str = "") -> str:
    """Write a new private key (mode 0600), and the public key beside it (.pub); return the public key.

    signer : the name that files signed with this key will show.
    """
    key_path, crypto = Path(path), _load_cryptography()
    name = " ".join(_plain.read_text("signer", signer).split())
    for file_path in (key_path, _public_key_path(key_path)):
        if file_path.exists() or file_path.is_symlink():
            raise InvalidParameter(
                f"{str(file_path)!r} exists; a key is not overwritten. Choose another name."
            )
    key = crypto.Ed25519PrivateKey.generate()
    private, public = crypto.encode_key_pair(key)
    try:
        with os.fdopen(
            os.open(key_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
        ) as file:
            file.write(f"signer: {name}\n{private}")
        _files.write_text(_public_key_path(key_path), f"signer: {name}\n{public}")
    except OSError as error:
        raise InvalidParameter(f"the key {str(key_path)!r} cannot be written: {error.strerror}.") from None
    public_hex: str = key.public_key().public_bytes_raw().hex()
    return public_hex


def sign_file(path: str | Path, key: str | Path) -> None:
    """Sign a model file, a plan file or a report in place, with the private key in the file `key`."""
    signer = Signer(key)
    _files.write_text(path, signer.sign_text(_files.read_text(path, "the file", max_bytes=MAX_FILE_BYTES)))


def verify_file(path: str | Path, key: str | Path | None = None) -> Signature | None:
    """Return the signature of a file, or raise InvalidParameter where it does not match the content or the key.

    key : the signer's public key file. Without it the signature is checked against the key that it names itself,
        which detects damage but does not prove who signed; None is returned where the file has no signature.
    """
    text = _files.read_text(path, "the file", max_bytes=MAX_FILE_BYTES, keep_byte_order_mark=True)
    _, content, signature = _split_signature(text.removeprefix(_BYTE_ORDER_MARK))
    if signature is None:
        if key is None:
            return None
        raise InvalidParameter(f"{str(path)!r} is not signed.")
    if text.startswith(_BYTE_ORDER_MARK):
        raise InvalidParameter(
            f"{str(path)!r} was altered after it was signed: it begins with a byte order mark, which an "
            "editor may have added. Sign it again, or ask for the file as it was."
        )
    by = _plain.read_record("signature", signature, _FIELDS)
    value, crypto = by.pop("value"), _load_cryptography()
    if key is not None and by["key"] != _read_public_key(key):
        raise InvalidParameter(f"{str(path)!r} was signed with another key than {str(key)!r}.")
    try:
        public_key = crypto.Ed25519PublicKey.from_public_bytes(bytes.fromhex(by["key"]))
        public_key.verify(bytes.fromhex(value), _signed_message(content, by))
    except (ValueError, crypto.InvalidSignature):
        raise InvalidParameter(
            f"{str(path)!r} was altered after it was signed, or its signature was."
        ) from None
    return Signature(signer=by["signer"], key=by["key"], created=by["created"])


def _split_signature(text: str) -> tuple[Any, Any, dict[str, Any] | None]:
    """Return the signed content as it is written and as it is hashed, and the signature if there is one."""
    if text.lstrip().startswith("{"):
        plain = _plain.read_mapping("the file", _plain.parse_json(text, "the file"))
        signature = plain.pop("signature", None)
        return plain, plain, None if signature is None else _plain.read_mapping("signature", signature)
    match = _COMMENT.search(text)
    body = text if match is None else text[: match.start()]
    body += "" if body.endswith("\n") else "\n"
    signature = (
        None
        if match is None
        else _plain.read_mapping("signature", _plain.parse_json(match[1], "the signature"))
    )
    return body, {"sha256": hashlib.sha256(body.encode()).hexdigest()}, signature


def _signed_message(content: Any, by: dict[str, Any]) -> bytes:
    return _plain.canonical_json({"layout": "dplangevin-signature-1", "content": content, "by": by})


def _public_key_path(path: Path) -> Path:
    return path.with_name(path.name + ".pub")


def _read_public_key(path: str | Path) -> str:
    try:
        public_key = _load_cryptography().load_pem_public_key(_files.read_text(path, "the key").encode())
        key: str = public_key.public_bytes_raw().hex()
    except (ValueError, AttributeError) as error:
        if isinstance(error, DplangevinError):
            raise
        raise InvalidParameter(f"{str(path)!r} is not a public Ed25519 key; give the .pub file.") from None
    return key


def _signer_name(text: str) -> str:
    first = text.split("\n", 1)[0]
    return first.removeprefix("signer:").strip() if first.startswith("signer:") else ""


def _load_cryptography() -> Any:
    try:
        from dplangevin import _ed25519
    except ImportError:
        raise InvalidParameter("signatures need the extra: pip install 'dplangevin[sign]'.") from None
    return _ed25519
