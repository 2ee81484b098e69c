"""Write a result as one page that needs nothing but a browser: `otafl report`.

Settings, tables of final values, figures and environment in one HTML file: no script, nothing
loaded from elsewhere, which the page's own policy enforces. All text is escaped by the template.
"""

from __future__ import annotations

from pathlib import Path

import jinja2
import markupsafe
import xarray as xr

from otafl.core.files import write_text
from otafl.report import about, pictures, values

__all__ = ["page", "write"]


def page(ds: xr.Dataset, source: Path | str) -> str:
    """Return the page of a result, as HTML.

    Parameters
    ----------
    source : the file or folder that the result was opened from.
    """
    loader = jinja2.PackageLoader("otafl", "report")
    environment = jinja2.Environment(
        loader=loader,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["breakable"] = _breakable
    style, _, _ = loader.get_source(environment, "page.css")
    return environment.get_template("page.html").render(
        style=style,
        title=ds.attrs["title"],
        facts=about.facts(ds),
        notices=about.notices(ds),
        tables=values.tables(ds),
        figures=pictures.figures(ds),
        axes=about.axes(ds),
        scenario=ds.attrs["scenario"],
        command=about.command(ds, Path(source)),
        environment=about.environment(ds),
    )


def write(ds: xr.Dataset, path: Path | str, source: Path | str) -> None:
    """Write the page of a result to a file.

    Parameters
    ----------
    source : as `page` takes it.

    Raises
    ------
    WriteError : where the file cannot be written.
    """
    write_text(Path(path), page(ds, source))


def _breakable(text: str) -> markupsafe.Markup:
    """Escape a text, with places after brackets and underlines where a long name may be broken."""
    escaped = str(markupsafe.escape(text))
    return markupsafe.Markup(escaped.replace("(", "(<wbr>").replace("_", "_<wbr>"))
