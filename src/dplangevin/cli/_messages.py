"""What the command line says: errors in the words of its flags, warnings in one line."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer

# Arguments of the library that have another name here; what is left has the name of its flag with underscores.
_OTHER_NAMES = {
    "random_state": "seed",
    "public_data": "public",
    "n_models": "models",
    "n_features": "p",
    "target_bounds": "target_bounds",
}
_VALUES = {
    "--target-bounds": "--target-bounds LOW,HIGH",
    "--classes": "--classes A,B,...",
    "--public": "--public FILE",
}
_NAMES = re.compile(r"(?<=; did you mean )\w+|(?<=; the options are )[\w, ]+")
_CLASS = re.compile(r"\bDP[A-Z]\w+ (?=needs|must)")
_START = re.compile(r"^([a-z]\w*)(?= (?:(?:must|needs|has|is|and|differs)\b|= ))")


def flags_of(command: Any) -> dict[str, str]:
    """Every option of a command by the library's name for it: data_norm is --data-norm."""
    own = {
        part.name: max(part.opts, key=len)
        for part in command.params
        if part.opts and part.opts[0].startswith("-")
    }
    found = dict(own)
    for theirs, ours in _OTHER_NAMES.items():
        if ours in own:
            found[theirs] = own[ours]
    return found


def command_of(group: Any, arguments: Sequence[str]) -> Any:
    """The command that these arguments run."""
    command = group
    for word in arguments:
        inner = getattr(command, "commands", None)
        if inner is None:
            break
        if word in inner:
            command = inner[word]
        elif "model" in inner and word.startswith("-"):  # `audit --model ...`
            command = inner["model"]
            break
    return command


def in_flags(message: str, flags: Mapping[str, str]) -> str:
    """The message with flags in the place of the library's arguments.

    A name of several words is one wherever it stands; a single word only before "=" or at the beginning, since it may
    be prose elsewhere.

    Examples
    --------
    >>> flags = {"data_norm": "--data-norm", "epsilon": "--epsilon", "secure": "--secure"}
    >>> in_flags("DPRidge needs data_norm, or epsilon with secure=True; state data_norm=1.0.", flags)
    'the model needs --data-norm, or epsilon with --secure; state --data-norm 1.0.'
    >>> in_flags("epsilon must be positive, got -1.", flags)
    '--epsilon must be positive, got -1.'
    >>> in_flags("alfa is not an option; the options are epsilon, secure.", flags)
    'alfa is not an option; the options are --epsilon, --secure.'
    >>> in_flags("epsilon = -1 is not positive.", flags)
    '--epsilon = -1 is not positive.'
    """
    text = _CLASS.sub("the model ", message)
    text = _START.sub(lambda found: flags.get(found[1], found[1]), text)
    text = _NAMES.sub(lambda found: ", ".join(flags.get(name, name) for name in found[0].split(", ")), text)
    for name, flag in flags.items():
        bare = r"(?<![\w.\-'\"])" + re.escape(name)
        text = re.sub(bare + r"=True\b", flag, text)
        text = re.sub(bare + r"=(?:\([^)]*\)|\[[^\]]*\])", _VALUES.get(flag, flag), text)
        text = re.sub(bare + r"=(?=[\w'\"])", f"{flag} ", text)
        if "_" in name:
            text = re.sub(bare + r"\b(?![=(.])", flag, text)
    return text


@contextmanager
def short_warnings(arguments: Sequence[str], flags: Mapping[str, str]) -> Iterator[None]:
    """Warnings of the library as one line on standard error, and none with -q.

    Others (of NumPy, pandas, ...) are not shown: what they say may depend on a single record.
    """
    quiet = any(word in ("-q", "--quiet") for word in arguments)

    def show(message: Any, category: type[Warning], *_: Any) -> None:
        if category is UserWarning and not quiet:
            typer.echo("warning: " + in_flags(" ".join(str(message).split()), flags), err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show  # type: ignore[assignment]
        yield


def given(arguments: Sequence[str] | None) -> list[str]:
    """The arguments of the call, or of the process."""
    return list(sys.argv[1:] if arguments is None else arguments)
