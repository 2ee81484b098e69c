"""Pages of the registry: a page for each algorithm, channel and power policy, and one page with a
section an entry for every other table."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from otafl.core import registry
from otafl.core.errors import UserError
from otafl.core.registry_entry import Entry
from otafl.core.registry_tables import CUSTOM, TABLES
from otafl.scenario import load_scenario
from otafl.scenario.keys import DEFAULTS, dotted
from otafl_docs import rst
from otafl_docs.examples import SECTION, example_yaml
from otafl_docs.settings import settings_table

PAGED = ("algorithm", "channel", "power")

TITLES = {
    "algorithm": "Algorithms",
    "channel": "Channels",
    "power": "Power policies",
    "data": "Data sets",
    "partition": "Partitions",
    "model": "Models",
    "csi": "Channel knowledge",
    "receiver": "Receivers",
    "codec": "Codecs",
    "transport": "Transports",
    "server": "Server optimisers",
    "downlink": "Downlinks",
    "selection": "Selection of devices",
    "levels": "Model sizes of devices",
    "compute": "Hardware of devices",
    "protocol": "Slot protocols",
    "availability": "Availability of devices",
    "frequency": "Clock frequencies",
}

CONSTRAINTS = {
    "peak": "within the budget in every round",
    "average": "within the budget on average over fading; a round may be above it",
    "none": "not bounded by the budget",
}


def place(table: str, name: str = "") -> tuple[str, str]:
    """Page and anchor of a table or of one of its entries."""
    if not name:
        return (f"{table}/index" if table in PAGED else table), f"table-{table}"
    page = f"{table}/{name}" if table in PAGED else table
    return page, f"entry-{table}-{name}".replace("_", "-")


def pages() -> Iterator[tuple[str, str]]:
    """Path without suffix, and text, of every page."""
    for table, entries in TABLES.items():
        if table in PAGED:
            yield place(table)[0], _index(table)
            for entry in entries.values():
                yield place(table, entry.name)[0], _entry(table, entry, 0)
        else:
            yield place(table)[0], _index(table)


def _index(table: str) -> str:
    entries, title = TABLES[table].values(), TITLES.get(table, table.capitalize())
    key = dotted(SECTION[table])
    default = ""
    if table in DEFAULTS:
        default = f" Without a name it is {rst.literal(DEFAULTS[table])}."
    intro = f"The section {rst.literal(key)} of a scenario chooses one by name.{default}"
    rows = [
        (
            f":ref:`{e.name} <{place(table, e.name)[1]}>`",
            rst.escaped(e.summary),
            rst.escaped(e.citation),
        )
        for e in entries
    ]
    parts = [
        f".. _{place(table)[1]}:",
        rst.heading(title),
        intro,
        rst.table(("Name", "What it is", "Source"), rows, "entries", "22 50 28"),
        _own(table),
    ]
    if table in PAGED:
        parts.append(rst.contents((e.name for e in entries), hidden=True))
    else:
        parts += [_shared(table), *(_entry(table, e, 1) for e in entries)]
    return rst.page(*parts)


def _own(table: str) -> str:
    """What a table takes of the user's own."""
    if table not in CUSTOM:
        return ""
    said = (
        f"Instead of a name, {rst.literal('module:callable')} names one of your own "
        "(:doc:`/extending`)."
    )
    keys = settings_table(registry.settings(table, "own:own"), f"{table}-own")
    return rst.page(said, keys and "Keys that it has besides its own arguments:", keys).strip()


def _module(entry: Entry) -> str:
    return entry.implementation.partition(":")[0]


def _shared(table: str) -> str:
    """The text of modules that implement several entries."""
    modules = [_module(entry) for entry in TABLES[table].values()]
    texts = dict.fromkeys(one for one in modules if modules.count(one) > 1)
    return "\n\n".join(rst.prose(importlib.import_module(one).__doc__ or "") for one in texts)


def _entry(table: str, entry: Entry, level: int) -> str:
    config = registry.settings(table, entry.name)
    about = rst.escaped(entry.summary[:1].upper() + entry.summary[1:].rstrip(".") + ".")
    source = f"**Source:** {rst.escaped(entry.citation)}" if entry.citation else ""
    anchor = place(table, entry.name)[1]
    own = settings_table(config, f"{table}-{entry.name}")
    said = rst.prose(config.__doc__ or "")
    about_it, about_settings = ("", said) if own and _alone(table, entry) else (said, "")
    return rst.page(
        f".. _{anchor}:",
        rst.heading(entry.name, level),
        about,
        source,
        _part("Description", rst.page(about_it, _description(table, entry)).strip(), level),
        _part("Works with", _works_with(table, entry, config), level),
        _part("Settings", rst.page(about_settings, own or "It has none.").strip(), level),
        _part("Scenario", _scenario(table, entry), level),
        _part("Code", _code(entry, config), level),
    )


def _part(title: str, text: str, level: int) -> str:
    """A section of a page; a line in bold on a page that has many entries."""
    if not text:
        return ""
    head = rst.heading(title, 1) if level == 0 else f".. rubric:: {title}"
    return f"{head}\n\n{text}"


def _alone(table: str, entry: Entry) -> bool:
    """Whether the implementing module's text is of this entry."""
    names = [_module(one) for one in TABLES[table].values()]
    return table in PAGED or names.count(_module(entry)) == 1


def _description(table: str, entry: Entry) -> str:
    thing = registry.component(table, entry.name)
    own = thing.__doc__ if isinstance(thing, type) else None
    texts = [importlib.import_module(_module(entry)).__doc__] if _alone(table, entry) else []
    return "\n\n".join(rst.prose(text) for text in (*texts, own) if text)


def _works_with(table: str, entry: Entry, config: type[Any]) -> str:
    if table == "algorithm":
        return _algorithm(config)
    if table == "power":
        return _power(entry.name, config)
    if table == "transport":
        gives = " and ".join(sorted(config.gives, reverse=True))
        return f"Gives the server the {gives} of the updates."
    if table == "receiver":
        return _receiver(entry.name)
    return ""


def _algorithm(config: type[Any]) -> str:
    needs = config().needs
    able = [
        name
        for name in registry.names("transport")
        if needs in registry.settings("transport", name).gives
    ]
    lines = [
        f"- Needs the {needs} of the updates: transports {_links('transport', able)}."
        if needs == "mean"
        else f"- Needs each of the updates: transports {_links('transport', able)}."
    ]
    if getattr(config, "averages", False):
        others = [name for name in registry.names("server") if name != DEFAULTS["server"]]
        lines.append(f"- The server may optimise over its increment: {_links('server', others)}.")
    if "levels" in config.model_fields:
        lines.append(
            f"- Models of several sizes: {_links('levels', registry.names('levels'))} say "
            "which device trains which."
        )
    return "\n".join(lines)


def _power(name: str, config: type[Any]) -> str:
    policy = registry.component("power", name)(config())
    acts = _links("transport", ["over_the_air"])
    digital, ideal = _links("transport", ["digital"]), _links("transport", ["ideal"])
    lines = [
        f"- Acts on the transport {acts}; {digital} sends at full power, {ideal} without any.",
        f"- Receivers: {_links('receiver', _receivers(name))}.",
        f"- Transmit power: {CONSTRAINTS[policy.constraint]}.",
        f"- With several antennas, {rst.literal('receiver: auto')} is "
        f"{_links('receiver', [config.receiver])}.",
    ]
    if policy.may_be_silent:
        lines.append("- All devices may be silent in a round; nothing is aggregated then.")
    if policy.wants_variation:
        lines.append("- Asks for the symbols' variation over the devices: side information.")
    return "\n".join(lines)


def _receivers(power: str) -> list[str]:
    """Those that a scenario may name with a policy."""
    able = []
    for receiver in registry.names("receiver"):
        tree = {"name": "any", "power": power, "receiver": receiver}
        try:
            load_scenario(tree)
        except UserError:
            continue
        able.append(receiver)
    return able


def _receiver(name: str) -> str:
    policies = registry.names("power")
    made_for = [p for p in policies if registry.settings("power", p).receiver == name]
    if not made_for:
        return ""
    auto, listed = rst.literal("auto"), _links("power", made_for)
    return f"What {auto} stands for with several antennas and {listed}."


def _links(table: str, names: Any) -> str:
    return ", ".join(f":ref:`{name} <{place(table, name)[1]}>`" for name in names)


def _scenario(table: str, entry: Entry) -> str:
    example = example_yaml(table, entry.name)
    text = "Everything that is left out has its default (:doc:`/reference/scenario`)."
    if ".csv" in example or ".npz" in example:
        text += " The file is one of yours."
    return f"{rst.code(example, 'yaml')}\n\n{text}"


def _code(entry: Entry, config: type[Any]) -> str:
    where = rst.literal(entry.implementation)
    return f"Implementation {where}, settings {rst.literal(entry.config)}."
