"""What a table of `otafl.core.registry` is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A name of a table. config: "module:Class" of its torch-free settings. implementation:
    "module:callable". summary: one line. citation: the paper it comes from, or empty."""

    name: str
    config: str
    implementation: str
    summary: str
    citation: str = ""


def table(module: str, *entries: tuple[str, ...]) -> dict[str, Entry]:
    """Entries (name, settings class, implementation, summary[, citation]) of settings that live in
    one module."""
    return {name: Entry(name, f"{module}:{config}", *rest) for name, config, *rest in entries}
