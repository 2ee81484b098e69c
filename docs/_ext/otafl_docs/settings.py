"""Tables of settings, from the pydantic classes that are the schema."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel

from otafl.scenario import key_descriptions
from otafl_docs import rst, words


def label(section: str, key: str) -> str:
    """The anchor of a key: `training`, `eval_every` -> `key-training-eval-every`."""
    return "key-" + f"{section}-{key}".strip("-").replace(".", "-").replace("_", "-").lower()


def settings_table(config: type[BaseModel], section: str, skip: tuple[str, ...] = ("name",)) -> str:
    """One row a key of a settings class, those of classes inside it below them; an empty text for
    one that has none. section: what the anchors begin with."""
    rows = list(_rows(config, section, skip))
    if not rows:
        return ""
    return rst.table(("Key", "Default", "Meaning"), rows, "settings keys", "24 21 55")


def _rows(
    config: type[BaseModel], section: str, skip: tuple[str, ...]
) -> Iterator[tuple[str, str, str]]:
    for key in key_descriptions.describe_keys(config, section, skip):
        dotted, leads = words.key_of(section, key.name)
        marks = " :stackable:`stackable`" if key.stackable else ""
        parts = (rst.escaped(key.meaning), f":kind:`{key.kind}`{marks}", words.said(dotted))
        meaning = rst.page(*parts).strip()
        anchor = f".. _{label(section, key.name)}:\n\n{rst.literal(key.name)}"
        index = words.entries(dotted) if leads else ""
        yield rst.page(index, anchor).rstrip(), _default(key.default), meaning


def _default(text: str | None) -> str:
    if text is None:
        return ":required:`required`"
    return text if text == "of its keys" else rst.literal(text)
