"""The public names of the package exist, and are the same for the interpreter and the type checker."""

from __future__ import annotations

import ast

import pytest

import dplangevin
from architecture._source import SOURCE, tree


@pytest.mark.parametrize("exported", dplangevin.__all__)
def test_every_exported_name_exists_and_is_documented(exported: str) -> None:
    value = getattr(dplangevin, exported)
    assert exported == "__version__" or (value.__doc__ or "").strip()


def test_lazy_names_are_the_typed_ones() -> None:
    typed = set()
    for node in ast.walk(tree(SOURCE / "__init__.py")):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dplangevin."):
            home = (node.module or "").removeprefix("dplangevin.")
            typed |= {(alias.name, home) for alias in node.names}
    assert typed == set(dplangevin._HOME.items()) | {("__version__", "_version")}
    assert sorted(dplangevin.__all__) == sorted([*dplangevin._HOME, "__version__"])


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        dplangevin.nonsense  # noqa: B018
