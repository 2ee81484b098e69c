"""Names in `code` that the reference knows become links: keys, result variables, entries."""

from __future__ import annotations

import functools
import re
from collections import Counter
from typing import Any

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

from otafl.cli.commands import app
from otafl.core import registry
from otafl.core.registry import TABLES
from otafl.results.variables import VARIABLES
from otafl.scenario import Scenario
from otafl.scenario.key_descriptions import find_sections
from otafl_docs.entries import place
from otafl_docs.schema import commands
from otafl_docs.settings import label

COMMON = {"none", "full"}
"""Names of entries that also mean something else."""


@functools.cache
def targets() -> dict[str, tuple[str, str]]:
    """Code -> page and anchor, of what means one thing only."""
    found = {table.section: place(name) for name, table in TABLES.items()}
    for section, config in find_sections(Scenario).items():
        for key in config.model_fields:
            found.setdefault(f"{section}.{key}", ("scenario", label(section, key)))
    for words in commands(app):
        path = " ".join(("otafl", *words))
        found[path] = ("command_line", f"command-{path.replace(' ', '-')}")
    found |= {name: ("variables", f"variable-{name.replace('_', '-')}") for name in VARIABLES}
    tables = Counter(name for table in TABLES.values() for name in table.modules)
    for table in ("algorithm", "channel", "power", "codec"):
        for name in registry.list_names(table):
            if tables[name] == 1 and name not in COMMON | set(found):
                found[name] = place(table, name)
    return {text: (f"reference/{page}", anchor) for text, (page, anchor) in found.items()}


class LinkNames(SphinxPostTransform):
    """Links inline code whose text, or whose key before a colon (`power: ci`), is known."""

    default_priority = 900

    def run(self, **kwargs: Any) -> None:
        if self.app.builder.format != "html":
            return
        here = self.env.docname
        if here.startswith("reference/measured"):
            return
        for node in list(self.document.findall(nodes.literal)):
            if isinstance(node.parent, nodes.reference | nodes.title | nodes.term):
                continue
            if _is_key(node):
                continue
            text = re.sub(r":( .*)?$", "", node.astext())
            page, anchor = targets().get(text, ("", ""))
            if not page or (page == here):
                continue
            uri = f"{self.app.builder.get_relative_uri(here, page)}#{anchor}"
            link = nodes.reference("", "", internal=True, refuri=uri, classes=["known"])
            node.replace_self(link)
            link += node


def _is_key(node: nodes.literal) -> bool:
    """Whether it is in the first column of a table of keys: its own, whatever else is called so."""
    entry, table = (_around(node, kind) for kind in (nodes.entry, nodes.table))
    return table is not None and "keys" in table["classes"] and entry is entry.parent[0]


def _around(node: nodes.Node, kind: type[nodes.Element]) -> Any:
    """The nearest element of a kind that a node is in, or None."""
    while node is not None and not isinstance(node, kind):
        node = node.parent
    return node


def setup(sphinx: Any) -> None:
    sphinx.add_post_transform(LinkNames)
