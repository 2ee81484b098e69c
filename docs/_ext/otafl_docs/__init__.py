"""The site's generated part, as a Sphinx extension: pages from registry, schema and docstrings."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def setup(app: Any) -> dict[str, Any]:
    from otafl_docs import formulas, links, pages, search

    pages.write(Path(app.srcdir) / "reference")
    app.connect("source-read", _read)
    app.connect("autodoc-process-docstring", _docstring)
    app.connect("autodoc-process-signature", _signature)
    formulas.setup(app)
    links.setup(app)
    search.setup(app)
    return {"parallel_read_safe": True}


def _read(app: Any, page: str, source: list[str]) -> None:
    from otafl_docs.recipes import with_gallery
    from otafl_docs.result_pages import in_site

    if not page.startswith("reference/"):
        source[0] = with_gallery(in_site(source[0]))


def _docstring(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    from otafl_docs.rst import prose

    if lines and lines[0].startswith("Alias for field number"):  # Python's, of a named tuple
        lines.clear()
    lines[:] = [*prose("\n".join(lines)).splitlines(), ""]


def _signature(
    app: Any, what: str, name: str, thing: Any, options: Any, arguments: str, returns: str
) -> tuple[str, str] | None:
    """Leave out the arguments of settings: they are the keys that follow, which say more."""
    from pydantic import BaseModel

    return ("", "") if isinstance(thing, type) and issubclass(thing, BaseModel) else None
