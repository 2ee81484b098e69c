"""Small tensors of numbers that the host knows, sent to a GPU once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVarTuple

import torch
from torch import Tensor

Key = TypeVarTuple("Key")

_noting: list[list[Tensor]] = []


@contextmanager
def note_constants() -> Iterator[list[Tensor]]:
    """Note the constants that are handed out, to keep their memory for what reads it later."""
    _noting.append([])
    try:
        yield _noting[-1]
    finally:
        _noting.pop()


def cache_constants(maxsize: int) -> Callable[[Callable[[*Key], Tensor]], Callable[[*Key], Tensor]]:
    """Return a decorator of functions whose last `maxsize` tensors are returned again."""

    def decorate(make: Callable[[*Key], Tensor]) -> Callable[[*Key], Tensor]:
        cached = functools.lru_cache(maxsize=maxsize)(make)

        @functools.wraps(make)
        def get(*key: *Key) -> Tensor:
            constant: Tensor = cached(*key)
            for noted in _noting:
                noted.append(constant)
            return constant

        return get

    return decorate


@cache_constants(maxsize=1024)
def get_constant(
    values: float | tuple[float | tuple[float, ...], ...], dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Return the numbers as a tensor, the same one in every call. Do not write to it."""
    with torch.inference_mode(False):  # a later caller may take gradients
        return torch.tensor(values, dtype=dtype, device=device)
