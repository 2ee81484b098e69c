"""Write a result as one page that needs nothing but a browser: `otafl report`.

Settings, tables of final values, figures, a part to explore and environment in one HTML file.
Nothing is loaded from elsewhere, and no script runs but the page's own two, which the page's policy
names by their hashes. All text is escaped by the template, or becomes a node of text.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import markupsafe
import xarray as xr

from otafl.analysis.labels import read_labels, write_labels
from otafl.analysis.points import describe_slices, select_slices
from otafl.core.files import write_text
from otafl.report import comparisons, pictures, run_description, values
from otafl.report.explorer import build_explorer
from otafl.report.library import describe_missing, load_library
from otafl.results import origins

__all__ = ["describe_missing", "render_page", "write"]

MAX_PAGE = 3_000_000
"""Characters of a page."""
MAX_VALUES = 800_000
"""Characters of its numbers."""
TOO_LARGE = "There is no part to explore, because its names do not fit; --sel chooses fewer values."
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def render_page(
    ds: xr.Dataset,
    source: Path | str,
    sel: Mapping[str, Sequence[str]] | None = None,
    announce: Callable[[str], None] = lambda step: None,
) -> str:
    """Return the page of a result, as HTML.

    Parameters
    ----------
    source : the file or folder that the result was opened from.
    sel : axis -> the values that the figures, tables and tests are of; all for None.
    announce : is called with the name of each step before it begins.

    Raises
    ------
    UserError : for an axis or a value that is not there.
    """
    sel = sel or {}
    said = describe_slices(ds, sel)
    ds = select_slices(ds, sel)
    ds = write_labels(ds, {}, read_labels(ds))
    loader = jinja2.PackageLoader("otafl", "report")
    environment = jinja2.Environment(
        loader=loader,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    environment.filters["breakable"] = _escape_breakable
    style, _, _ = loader.get_source(environment, "page.css")
    program, _, _ = loader.get_source(environment, "explorer.js")
    library = load_library()
    figures, figure_note = pictures.draw_figures(ds, announce)
    announce("tables and paired tests")
    texts: dict[str, Any] = {
        "style": style,
        "library": library,
        "program": program,
        "policy": _make_policy(library, program) if library else POLICY,
        "title": ds.attrs["title"],
        "facts": run_description.list_facts(ds),
        "notices": [
            *([f"Only these values are shown: {said}."] if said else []),
            *run_description.list_notices(ds),
        ],
        "tables": values.build_tables(ds),
        "comparisons": comparisons.build_comparisons(ds),
        "figures": figures,
        "figure_note": figure_note,
        "axes": run_description.list_swept_axes(ds),
        "scenario": run_description.format_settings(ds),
        "command": run_description.format_command(ds, Path(source)),
        "environment": origins.list_environment(ds.attrs),
    }
    template = environment.get_template("page.html")
    if library is None:
        return template.render(texts, explorer=None)
    announce("part to explore")
    page = template.render(texts, explorer=build_explorer(ds, MAX_VALUES))
    if len(page.encode()) <= MAX_PAGE:
        return page
    return template.render(texts, explorer=None, notices=[*texts["notices"], TOO_LARGE])


def write(
    ds: xr.Dataset,
    path: Path | str,
    source: Path | str,
    sel: Mapping[str, Sequence[str]] | None = None,
    announce: Callable[[str], None] = lambda step: None,
) -> None:
    """Write the page of a result to a file.

    Parameters
    ----------
    source, sel, announce : as `render_page` takes them.

    Raises
    ------
    UserError : for an axis or a value that is not there.
    WriteError : where the file cannot be written.
    """
    write_text(Path(path), render_page(ds, source, sel, announce))


def _make_policy(*scripts: str) -> str:
    """Return the page's policy, which allows these scripts and no others."""
    hashes = (base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in scripts)
    allowed = " ".join(f"'sha256-{one}'" for one in hashes)
    return f"{POLICY}; script-src {allowed}; base-uri 'none'; form-action 'none'"


def _escape_breakable(text: str) -> markupsafe.Markup:
    """Escape a text, with places after brackets and underlines where a long name may be broken."""
    escaped = str(markupsafe.escape(text))
    return markupsafe.Markup(escaped.replace("(", "(<wbr>").replace("_", "_<wbr>"))
