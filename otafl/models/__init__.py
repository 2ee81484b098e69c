"""Models: functions of parameters with a leading row dimension. `Model` and `LayeredModel` are the
bases for one's own. Loaded on first use: settings are read without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otafl.models.base import Layer, LayeredModel, Model, Window

__all__ = ["Layer", "LayeredModel", "Model", "Window"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from otafl.models import base

        return getattr(base, name)
    raise AttributeError(f"module 'otafl.models' has no attribute {name!r}")
