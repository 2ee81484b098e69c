"""Tests of closed forms, by the intervals of `otafl validate`, with its quick samples."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest

from otafl.validation.bench import Bench
from otafl.validation.checks import Check


def holds(
    over: Collection[Any] = (),
) -> Callable[[Callable[..., Iterable[Check]]], Callable[..., None]]:
    """Turn a function that yields checks into a test that all of them pass.

    The function is run as `run(bench)`, or as `run(bench, value)` for each of some values.
    """

    def decorate(run: Callable[..., Iterable[Check]]) -> Callable[..., None]:
        def check(*value: Any) -> None:
            checks = list(run(Bench(quick=True), *value))
            assert [one for one in checks if not one.is_passed] == []
            assert checks

        if not over:
            return lambda: check()

        @pytest.mark.parametrize("value", over, ids=str)
        def test(value: Any) -> None:
            check(value)

        return test

    return decorate
