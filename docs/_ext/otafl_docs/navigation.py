"""The site's navigation: the tree of all pages, drawn once, with each page's own place marked.

Sphinx and the theme would draw the tree anew for each page, which took more than half the time of
the site. Trees of two pages differ by relative links, and by what is marked on the way to the page.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from sphinx.util.osutil import relative_uri

BEFORE_THE_THEME, AFTER_THE_THEME = 100, 900
"""Priorities of an event's handlers; the theme's has 500."""
OUTSIDE = "search"
"""A page in the root folder that the tree does not contain: its links begin at the root."""
TAG = re.compile(r"(</?(?:ul|li)\b[^>]*>|<(?:a|input)\b[^>]*>)")
LINK = re.compile(r'class="reference internal" href="([^"]*)"')


class Tree:
    """The navigation as HTML.

    Parameters
    ----------
    html : what the theme draws for `OUTSIDE`.
    """

    def __init__(self, html: str) -> None:
        self._parts = TAG.split(html)
        self._links: dict[int, str] = {}  # place of an <a> -> the page's address
        self._ways: dict[str, list[int]] = {}  # address -> places of <ul> and <li> around its <a>
        self._boxes: dict[int, int] = {}  # place of an <li> -> place of its checkbox
        above: list[int] = []
        for place, part in enumerate(self._parts):
            if part.startswith(("<ul", "<li")):
                above.append(place)
            elif part in {"</ul>", "</li>"}:
                above.pop()
            elif part.startswith("<input"):
                self._boxes[above[-1]] = place
            elif found := LINK.search(part):
                self._links[place] = found[1]
                self._ways[found[1]] = [*above]

    def draw(self, address: str) -> str:
        """Return the tree as the page of an address has it."""
        parts = [*self._parts]
        for place, to in self._links.items():
            kind = "current reference internal" if to == address else "reference internal"
            link = f'class="{kind}" href="{relative_uri(address, to) or "#"}"'
            parts[place] = LINK.sub(link, parts[place])
        way = self._ways.get(address, [])
        for place in way:
            if parts[place].startswith("<ul"):
                parts[place] = '<ul class="current">'
                continue
            parts[place] = re.sub(r"toctree-l\d+", r"\g<0> current", parts[place])
            if place in self._boxes:
                box = self._boxes[place]
                parts[box] = parts[box].replace(" class=", ' checked="" class=')
        if way:
            parts[way[-1]] = parts[way[-1]].replace('">', ' current-page">')
        return "".join(parts)


def setup(app: Any) -> None:
    app.connect("html-page-context", _hand_over_same_tree, BEFORE_THE_THEME)
    app.connect("html-page-context", _mark_place, AFTER_THE_THEME)


def _hand_over_same_tree(app: Any, page: str, template: str, context: Any, doctree: Any) -> None:
    """Have the theme draw the tree of `OUTSIDE`, which it keeps, whatever the page."""
    if "toctree" in context:
        context["toctree"] = functools.partial(_draw_outside, app.builder)


@functools.cache
def _draw_outside(builder: Any, **options: Any) -> str:
    return str(builder._get_local_toctree(OUTSIDE, **options))


def _mark_place(app: Any, page: str, template: str, context: Any, doctree: Any) -> None:
    tree = _read_tree(context["furo_navigation_tree"])
    context["furo_navigation_tree"] = tree.draw(app.builder.get_target_uri(page))


@functools.cache
def _read_tree(html: str) -> Tree:
    return Tree(html)
