"""The site's search: names are found by their parts."""

from __future__ import annotations

from typing import Any

from sphinx.search.en import SearchEnglish


class Parts(SearchEnglish):
    """Takes `learning_rate` for one word, as Sphinx does, and for two."""

    def split(self, input: str) -> list[str]:
        words = super().split(input)
        return [*words, *(part for word in words if "_" in word for part in word.split("_"))]


def setup(app: Any) -> None:
    app.add_search_language(Parts)
