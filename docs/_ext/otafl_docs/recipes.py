"""The gallery at the top of the page of recipes, made of its headings and pictures."""

from __future__ import annotations

import re

MARKER = "<!-- gallery -->"
RECIPE = re.compile(r"^## (.+?)\n.*?^!\[(.+?)\]\((\S+?)\)$", re.MULTILINE | re.DOTALL)

CARD = """\
```{{grid-item-card}} {title}
:img-top: {picture}
:img-alt: {alt}
:link: "#{anchor}"
:link-type: url
```
"""


def with_gallery(text: str) -> str:
    """The page with a card for each recipe in place of the marker."""
    cards = [
        CARD.format(title=title, picture=picture, alt=alt, anchor=title.lower().replace(" ", "-"))
        for title, alt, picture in RECIPE.findall(text)
    ]
    return text.replace(MARKER, "\n".join(["````{grid} 2 3 4 5", ":gutter: 2\n", *cards, "````"]))
