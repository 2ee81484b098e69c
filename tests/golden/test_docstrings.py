"""Docstrings of the public API follow numpydoc, by the checks that pyproject.toml names."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

from numpydoc.validate import ERROR_MSGS, validate

import otafl
import otafl.own_loop

ROOT = Path(__file__).parents[2]


def iterate_public_names() -> Iterator[str]:
    """Yield the public names of otafl, and the classes and functions of otafl.own_loop."""
    yield from (f"otafl.{name}" for name in otafl.__all__ if name != "__version__")
    yield from (f"otafl.WirelessUplink.{name}" for name in ("__call__", "deliver"))
    for info in pkgutil.iter_modules(otafl.own_loop.__path__, "otafl.own_loop."):
        for name, value in vars(importlib.import_module(info.name)).items():
            own = getattr(value, "__module__", None) == info.name
            if own and not name.startswith("_") and (inspect.isclass(value) or callable(value)):
                yield f"{info.name}.{name}"


def list_checks() -> set[str]:
    """Return the codes of the checks of pyproject.toml: "all" takes those that are not listed."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = set(tomllib.loads(text)["tool"]["numpydoc_validation"]["checks"])
    return ERROR_MSGS.keys() - listed if "all" in listed else listed


def test_public_docstrings_follow_numpydoc() -> None:
    checks = list_checks()
    assert {"PR01", "PR02", "PR04", "RT01", "YD01", "SS06"} <= checks
    found = [
        f"{name}: {code}: {text}"
        for name in iterate_public_names()
        for code, text in validate(name)["errors"]
        if code in checks
    ]
    assert found == []
