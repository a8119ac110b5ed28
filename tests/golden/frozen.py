"""How results are frozen, renamed and compared. Nothing here knows the package.

An array becomes the hash of its dtype, shape and bytes, with its norm and first values for diagnosis; a number becomes
`float.hex()`; a `Document` (decoded JSON) stays what it is, without what differs between two runs (`UNSTABLE`) and
without sentences, whose wording is free: each is `TEXT_SUFFIXES`, so that their number is still compared.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import platform
import re
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg  # noqa: F401  # its BLAS is loaded before threads are limited
from threadpoolctl import threadpool_limits

HERE = Path(__file__).parent
UNSTABLE = {
    "created", "library", "version", "digest", "signature", "ledger_head", "expected_seconds", "seconds", "output",
}  # fmt: skip
TEXT = "<text>"
TOLERANCE = 1e-9
"""Relative, on a machine whose floating-point arithmetic may round otherwise than the one that froze the values."""
ROUNDING = 1e-12
"""Absolute, for released numbers there: coefficients shrunk to nothing are rounding errors of their terms."""
_RELEASED = re.compile(r"\.(value|coef|intercept|effect|coefficients)\b")
RENAMES: dict[str, Any] = tomllib.loads((HERE / "renames.toml").read_text(encoding="utf-8"))


class Document:
    """Decoded JSON, to be frozen as it is."""

    def __init__(self, content: Any) -> None:
        self.content = content


def frozen_result(case: Callable[[], Any]) -> Any:
    """What a case gives, frozen. One thread: how a sum is divided among threads changes its last bits."""
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        return freeze(case())


def freeze(result: Any) -> Any:
    """A result of a case as JSON."""
    if isinstance(result, Document):
        return {"document": _stable(result.content)}
    if isinstance(result, Mapping):
        return {str(name): freeze(value) for name, value in result.items()}
    if isinstance(result, list | tuple):
        return [freeze(value) for value in result]
    if isinstance(result, np.ndarray):
        return _freeze_array(result)
    if result is None or isinstance(result, bool | np.bool_):
        return result if result is None else bool(result)
    if isinstance(result, int | np.integer):
        return int(result)
    if isinstance(result, float | np.floating):
        return float(result).hex()
    if isinstance(result, str):
        return _without_sentence(result)
    raise TypeError(f"a case gave a {type(result).__name__}, which has no frozen form")


def _freeze_array(values: np.ndarray[Any, Any]) -> dict[str, Any]:
    if values.dtype.kind not in "biuf":  # labels
        return {"labels": [str(value) for value in values.ravel()], "shape": list(values.shape)}
    kind, content = values.dtype.str, np.ascontiguousarray(values)
    found = hashlib.sha256(f"{kind} {values.shape} ".encode() + content.tobytes())
    numbers = content.ravel().astype(float)
    return {
        "sha256": found.hexdigest(),
        "dtype": kind,
        "shape": list(values.shape),
        "norm": math.sqrt(math.fsum(value * value for value in numbers)).hex(),
        "first": [value.hex() for value in numbers[:3].tolist()],
    }


def _stable(content: Any) -> Any:
    """JSON content without what differs between two runs, and without wording."""
    if isinstance(content, Mapping):
        unstable = UNSTABLE | {RENAMES["fields"].get(name, name) for name in UNSTABLE}
        return {name: _stable(value) for name, value in content.items() if name not in unstable}
    if isinstance(content, list | tuple):
        return [_stable(value) for value in content]
    return _without_sentence(content) if isinstance(content, str) else content


def _without_sentence(text: str) -> str:
    """Names have at most three words."""
    return TEXT if len(text.split()) > 3 or len(text) > 60 else text


def renamed(frozen: Any, path: tuple[str, ...] = ()) -> Any:
    """Frozen content in the names of today: keys inside documents, and strings everywhere."""
    if isinstance(frozen, Mapping):
        kept = {}
        for name, value in frozen.items():
            inside = _inside(path, name)
            if not _matching(inside, RENAMES["skipped"]["removed"]):
                match = _matching(inside, RENAMES["fields"])
                kept[RENAMES["fields"][match] if match else name] = renamed(value, inside)
        return kept
    if isinstance(frozen, list):
        return [renamed(value, path) for value in frozen]
    return RENAMES["values"].get(frozen, frozen) if isinstance(frozen, str) else frozen


def without_added(found: Any, path: tuple[str, ...] = ()) -> Any:
    """What a case gives today, without fields that did not exist when the values were frozen."""
    if isinstance(found, Mapping):
        return {
            name: without_added(value, _inside(path, name))
            for name, value in found.items()
            if not _matching(_inside(path, name), RENAMES["skipped"]["added"])
        }
    return [without_added(value, path) for value in found] if isinstance(found, list) else found


def _inside(path: tuple[str, ...], name: str) -> tuple[str, ...]:
    """Where a value stands in a document; empty outside of documents, where keys are labels of the cases."""
    return (*path, name) if path or name == "document" else ()


def _matching(path: tuple[str, ...], names: Any) -> str | None:
    """The most specific of these dotted names that the path ends with."""
    ends = (".".join(path[start:]) for start in range(len(path)))
    return next((end for end in ends if end in names), None)


def option_names(options: Mapping[str, Any], owner: str = "") -> dict[str, Any]:
    """Keyword arguments by the names of today; values that are names, too."""
    names, values = RENAMES["options"], RENAMES["values"]
    return {
        names.get(f"{owner}.{name}", names.get(name, name)): values.get(value, value)
        if isinstance(value, str)
        else value
        for name, value in options.items()
    }


def flag_names(arguments: list[str]) -> list[str]:
    """A command line by the names of today."""
    return [RENAMES["flags"].get(each, RENAMES["values"].get(each, each)) for each in arguments]


def differences(frozen: Any, found: Any, exact: bool, path: str = "") -> Iterator[str]:
    """One line for each difference; numbers to `TOLERANCE` unless `exact`."""
    if isinstance(frozen, Mapping) and isinstance(found, Mapping):
        names = list(frozen) + [name for name in found if name not in frozen]
        for name in names:
            if name == "sha256" and not exact:
                continue
            if name not in found or name not in frozen:
                yield f"{path}.{name}: only {'frozen' if name in frozen else 'found'}"
            else:
                yield from differences(frozen[name], found[name], exact, f"{path}.{name}")
    elif isinstance(frozen, list) and isinstance(found, list) and len(frozen) == len(found):
        for index, pair in enumerate(zip(frozen, found, strict=True)):
            yield from differences(*pair, exact, f"{path}[{index}]")
    elif frozen != found and (
        exact or not _close(frozen, found, ROUNDING if _RELEASED.search(path) else 0.0)
    ):
        yield f"{path}: frozen {_shown(frozen)}, found {_shown(found)}"


def _close(frozen: Any, found: Any, rounding: float) -> bool:
    pair = _number(frozen), _number(found)
    return None not in pair and math.isclose(*pair, rel_tol=TOLERANCE, abs_tol=max(rounding, 1e-300))  # type: ignore[arg-type]


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    hexadecimal = isinstance(value, str) and re.fullmatch(r"-?0x[01]\.[0-9a-f]*p[+-]\d+", value)
    return float.fromhex(value) if hexadecimal else None


def _shown(value: Any) -> str:
    number = _number(value)
    return repr(value) if number is None or not isinstance(value, str) else f"{number!r} ({value})"


def fingerprint() -> dict[str, Any]:
    """What the last bits of a floating-point result depend on."""
    packages = {}
    for name in ("numpy", "scipy", "scikit-learn", "dp-accounting", "numba", "duckdb"):
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            packages[name] = None
    blas: Any = np.show_config(mode="dicts")["Build Dependencies"]["blas"]  # type: ignore[index]
    return {
        "packages": packages,
        "machine": platform.machine(),
        "libc": list(platform.libc_ver()),
        "blas": f"{blas.get('name')} {blas.get('version')}",
        "cpu_flags": _cpu_flags(),
    }


def _cpu_flags() -> str | None:
    """A hash of what the processor can do: libraries choose their kernels by it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return None
    flags = next((line for line in text.splitlines() if line.startswith(("flags", "Features"))), "")
    return hashlib.sha256(" ".join(sorted(flags.partition(":")[2].split())).encode()).hexdigest()


def machine_name() -> str:
    """A name of this machine's rounding: a hash of its fingerprint."""
    return hashlib.sha256(json.dumps(fingerprint(), sort_keys=True).encode()).hexdigest()[:12]


def load() -> dict[str, Any]:
    """The frozen file: values by the name of their case, the machine that froze each, and those machines."""
    content: dict[str, Any] = json.loads((HERE / "golden.json").read_text(encoding="utf-8"))
    return content
