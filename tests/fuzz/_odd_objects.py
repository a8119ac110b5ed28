"""Stand-ins with the protocols of scalars of other libraries, and objects whose own methods raise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np


class Tensor:
    """As torch.Tensor: shape, item, __array__, __float__, __index__, __len__ and iteration over its first axis."""

    def __init__(self, value: Any) -> None:
        self._value = np.asarray(value)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._value.shape

    def item(self) -> Any:
        return self._value.item()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self._value if dtype is None else self._value.astype(dtype)

    def __float__(self) -> float:
        return float(self._value.item())

    def __index__(self) -> int:
        return int(self._value.item())

    def __bool__(self) -> bool:
        return bool(self._value.item())

    def __len__(self) -> int:
        if not self._value.ndim:
            raise TypeError("len() of a 0-d tensor")
        return len(self._value)

    def __iter__(self) -> Iterator[Any]:
        return (Tensor(value) for value in self._value)

    def __getitem__(self, place: Any) -> Any:
        return Tensor(self._value[place])


class Jax(Tensor):
    """As a JAX array: with a dtype, ndim and size too."""

    @property
    def dtype(self) -> Any:
        return self._value.dtype

    @property
    def ndim(self) -> int:
        return self._value.ndim

    @property
    def size(self) -> int:
        return self._value.size


class Indexed:
    """A whole number by __index__ alone."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __index__(self) -> int:
        return self._value


class Valued:
    """A number by __float__ alone."""

    def __init__(self, value: float) -> None:
        self._value = value

    def __float__(self) -> float:
        return self._value


class Loud(float):
    """A number that quotes itself."""

    def __float__(self) -> float:
        raise RuntimeError(f"SECRET {float.__repr__(self)}")


class Speaking:
    """A container that quotes what it holds."""

    def __len__(self) -> int:
        raise ValueError("SECRET")

    def __iter__(self) -> Iterator[Any]:
        raise ValueError("SECRET")

    def __getitem__(self, place: Any) -> Any:
        raise ValueError("SECRET")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise ValueError("SECRET")


class Raising:
    """An object every question to which raises."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("SECRET")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("SECRET")

    def __float__(self) -> float:
        raise RuntimeError("SECRET")

    def __index__(self) -> int:
        raise RuntimeError("SECRET")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("SECRET")

    def __hash__(self) -> int:
        raise RuntimeError("SECRET")

    def __bool__(self) -> bool:
        raise RuntimeError("SECRET")

    def __str__(self) -> str:
        raise RuntimeError("SECRET")

    __repr__ = __str__
