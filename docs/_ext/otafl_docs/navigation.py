"""The site's navigation, drawn on every page from the titles of all pages."""

from __future__ import annotations

from typing import Any

from sphinx import addnodes

BEFORE_THE_THEME = 100
"""Priority of an event's handler; the theme's has 500."""


def setup(app: Any) -> None:
    app.connect("html-page-context", _hand_over_titles, BEFORE_THE_THEME)


def _hand_over_titles(app: Any, page: str, template: str, context: Any, tree: Any) -> None:
    """Have the theme draw the navigation from titles alone.

    Sphinx copies all sections and documented names of all pages for each page, and drops them then:
    a third of the time of the site.
    """
    draw = context.get("toctree")

    def draw_titles(**options: Any) -> str:
        if not options.get("titles_only"):
            return draw(**options)
        everything, app.env.tocs = app.env.tocs, _get_titles(app)
        try:
            return draw(**options)
        finally:
            app.env.tocs = everything

    if draw:
        context["toctree"] = draw_titles


def _get_titles(app: Any) -> dict[str, Any]:
    """Return the title of each page with the pages below it, made once for a site."""
    if not hasattr(app, "otafl_titles"):
        app.otafl_titles = {page: _keep_titles(toc) for page, toc in app.env.tocs.items()}
    return app.otafl_titles


def _keep_titles(toc: Any) -> Any:
    titles = toc.deepcopy()
    for entry in titles.children:
        if len(entry) > 1:  # a title with what is below it
            below = list(entry.findall(addnodes.toctree))
            if below:
                entry[1][:] = below
            else:
                entry.pop(1)
    return titles
