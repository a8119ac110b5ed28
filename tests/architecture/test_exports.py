"""The public names of the package exist, and are the same for the interpreter and the type checker."""

from __future__ import annotations

import pytest

import dplangevin


@pytest.mark.parametrize("exported", dplangevin.__all__)
def test_every_exported_name_exists_and_is_documented(exported: str) -> None:
    value = getattr(dplangevin, exported)
    assert (value.__doc__ or "").strip()


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        dplangevin.nonsense  # noqa: B018
