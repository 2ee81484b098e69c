"""Mistakes put into the code, which a law of `otafl validate` must notice."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

from otafl.laws import suite
from otafl.laws.bench import Bench

QUICK, WHOLE = Bench("cpu", quick=True), Bench("cpu")

Patch = Callable[[pytest.MonkeyPatch], None]


def owner_of(path: str) -> tuple[Any, str]:
    """Module or class, and the attribute's name, of `module.name` or `module:Class.name`."""
    module, name = path.rsplit(".", 1)
    module, _, of = module.partition(":")
    owner: Any = importlib.import_module(module)
    return (getattr(owner, of) if of else owner), name


def replaced(path: str, make: Callable[[Any], Any]) -> Patch:
    """A function, method or value in whose place comes what `make` makes of it."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        owner, name = owner_of(path)
        monkeypatch.setattr(owner, name, make(getattr(owner, name)))

    return patch


def turned(path: str, change: Callable[[Any], Any]) -> Patch:
    """A function or method whose result is changed."""
    return replaced(path, lambda real: lambda *args, **kwargs: change(real(*args, **kwargs)))


def scaled(path: str, factor: float) -> Patch:
    """A function or method whose result (or its first tensor) is multiplied."""

    def change(out: Any) -> Any:
        return (factor * out[0], *out[1:]) if isinstance(out, tuple) else factor * out

    return turned(path, change)


def constant(path: str, value: Any) -> Patch:
    return replaced(path, lambda real: value)


def made(path: str, change: Callable[[Any], None]) -> Patch:
    """A class, `module:Class`, whose objects are changed once they are made."""

    def make(real: Any) -> Any:
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            real(self, *args, **kwargs)
            change(self)

        return init

    return replaced(f"{path}.__init__", make)


def failing(
    text: str, patch: Patch, monkeypatch: pytest.MonkeyPatch, bench: Bench = WHOLE
) -> set[str]:
    """The names of the laws that fail with the mistake, of those whose name contains the text."""
    patch(monkeypatch)
    forget()
    failed = [one for one in suite.run(bench, suite.laws(text)) if not one.passed]
    forget()
    assert not any(one.fault for one in failed), [one.fault for one in failed]
    return {one.law.name for one in failed}


def forget() -> None:
    """What has been measured so far."""
    for module in suite.MODULES:
        for value in vars(module).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()
