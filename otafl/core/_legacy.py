"""TEMPORARY: tables that are not converted to one file a component yet."""

from __future__ import annotations

import importlib
from typing import Any

from otafl.core.registry_tables import CUSTOM, TABLES


def is_old(kind: Any) -> bool:
    return not (hasattr(kind, "Settings") or hasattr(kind, "model_fields"))


def _load(path: str) -> Any:
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)


def settings(table: str, name: str) -> Any:
    return _load(CUSTOM[table] if ":" in name else TABLES[table][name].config)


def component(table: str, name: str) -> Any:
    if ":" in name:
        from otafl.core import custom

        return custom.load(name, f"{table}.name")
    return _load(TABLES[table][name].implementation)


def about(table: str, name: str) -> tuple[str, str]:
    return TABLES[table][name].summary, TABLES[table][name].citation
