"""Write a result as one page that needs nothing but a browser: `otafl report`.

Settings, tables of final values, figures and environment in one HTML file: no script, nothing
loaded from elsewhere, which the page's own policy enforces. All text is escaped by the template.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2
import markupsafe
import xarray as xr

from otafl.analysis.points import describe_slices, select_slices
from otafl.core.files import write_text
from otafl.report import comparisons, pictures, run_description, values

__all__ = ["render_page", "write"]


def render_page(
    ds: xr.Dataset, source: Path | str, sel: Mapping[str, Sequence[str]] | None = None
) -> str:
    """Return the page of a result, as HTML.

    Parameters
    ----------
    source : the file or folder that the result was opened from.
    sel : axis -> the values that the figures, tables and tests are of; all for None.

    Raises
    ------
    UserError : for an axis or a value that is not there.
    """
    sel = sel or {}
    said = describe_slices(ds, sel)
    ds = select_slices(ds, sel)
    loader = jinja2.PackageLoader("otafl", "report")
    environment = jinja2.Environment(
        loader=loader,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["breakable"] = _escape_breakable
    style, _, _ = loader.get_source(environment, "page.css")
    return environment.get_template("page.html").render(
        style=style,
        title=ds.attrs["title"],
        facts=run_description.list_facts(ds),
        notices=[
            *([f"Only these values are shown: {said}."] if said else []),
            *run_description.list_notices(ds),
        ],
        tables=values.build_tables(ds),
        comparisons=comparisons.build_comparisons(ds),
        figures=pictures.draw_figures(ds),
        axes=run_description.list_swept_axes(ds),
        scenario=ds.attrs["scenario"],
        command=run_description.format_command(ds, Path(source)),
        environment=run_description.list_environment(ds),
    )


def write(
    ds: xr.Dataset,
    path: Path | str,
    source: Path | str,
    sel: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Write the page of a result to a file.

    Parameters
    ----------
    source, sel : as `render_page` takes them.

    Raises
    ------
    UserError : for an axis or a value that is not there.
    WriteError : where the file cannot be written.
    """
    write_text(Path(path), render_page(ds, source, sel))


def _escape_breakable(text: str) -> markupsafe.Markup:
    """Escape a text, with places after brackets and underlines where a long name may be broken."""
    escaped = str(markupsafe.escape(text))
    return markupsafe.Markup(escaped.replace("(", "(<wbr>").replace("_", "_<wbr>"))
