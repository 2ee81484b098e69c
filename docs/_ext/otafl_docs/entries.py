"""Pages of the registry: a page for each algorithm, channel and power policy, and one page with a
section a component for every other table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from otafl.algorithms import base as algorithms
from otafl.core import registry
from otafl.core.errors import UserError
from otafl.core.registry import TABLES
from otafl.scenario import load_scenario
from otafl.scenario.writing import format_example
from otafl_docs import rst, words
from otafl_docs.settings import settings_table

PAGED = ("algorithm", "channel", "power")

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
    for table in TABLES:
        yield place(table)[0], _index(table)
        if table in PAGED:
            for name in registry.list_names(table):
                yield place(table, name)[0], _entry(table, name, 0)


def _index(table: str) -> str:
    about, names = TABLES[table], registry.list_names(table)
    intro = (
        f"The section {rst.literal(about.section)} of a scenario chooses one by name. Without a "
        f"name it is {rst.literal(about.default)}."
    )
    rows = []
    for name in names:
        one = registry.read_info(table, name)
        link = f":ref:`{name} <{place(table, name)[1]}>`"
        rows.append((link, rst.escaped(one.summary), rst.escaped(one.citation)))
    parts = [
        words.indexed(words.others(about.section)),
        f".. _{place(table)[1]}:",
        rst.heading(about.title),
        intro,
        words.said(about.section),
        rst.table(("Name", "What it is", "Source"), rows, "entries", "22 50 28"),
        _custom(table),
    ]
    if table in PAGED:
        parts.append(rst.contents(names, hidden=True))
    else:
        parts += [_entry(table, name, 1) for name in names]
    return rst.page(*parts)


def _custom(table: str) -> str:
    """What a table takes of the user's own."""
    if not TABLES[table].supports_custom:
        return ""
    said = (
        f"Instead of a name, {rst.literal('module:callable')} names one of your own "
        "(:doc:`/extending`)."
    )
    keys = settings_table(registry.load_settings_class(table, "own:own"), f"{table}-own")
    return rst.page(said, keys and "Keys that it has besides its own arguments:", keys).strip()


def _entry(table: str, name: str, level: int) -> str:
    about, anchor = registry.read_info(table, name), place(table, name)[1]
    sources = [f"- {rst.escaped(one)}" for one in about.references]
    own = settings_table(registry.load_settings_class(table, name), f"{table}-{name}")
    return rst.page(
        words.indexed(words.others(f"{table} {name}")),
        f".. _{anchor}:",
        rst.heading(name, level),
        rst.escaped(f"{about.summary}."),
        words.said(f"{table} {name}"),
        _part("Description", _description(table, name), level),
        _part("Sources", "\n".join(sources), level),
        _part("Works with", _works_with(table, name), level),
        _part("Settings", own or "It has none.", level),
        _part("Scenario", _scenario(table, name), level),
        _part("Code", _code(table, name), level),
    )


def _part(title: str, text: str, level: int) -> str:
    """A section of a page; a line in bold on a page that has many entries."""
    if not text:
        return ""
    head = rst.heading(title, 1) if level == 0 else f".. rubric:: {title}"
    return f"{head}\n\n{text}"


def _description(table: str, name: str) -> str:
    """The text of the file, then that of the class."""
    kind = registry.load_component(table, name)
    texts = [registry.read_info(table, name).text, kind.__doc__ if "__doc__" in vars(kind) else ""]
    return "\n\n".join(rst.prose(text) for text in texts if text)


def _works_with(table: str, name: str) -> str:
    kind = registry.load_component(table, name)
    if table == "algorithm":
        return _algorithm(kind)
    if table == "power":
        return _power(name, kind)
    if table == "transport":
        gives = " and ".join(sorted(kind.provides, reverse=True))
        return f"Gives the server the {gives} of the updates."
    if table == "receiver":
        return _receiver(name)
    return ""


def _algorithm(kind: type[algorithms.Algorithm]) -> str:
    needs = kind.describe_payload(kind.Settings()).needs
    able = [
        name
        for name in registry.list_names("transport")
        if needs in registry.load_component("transport", name).provides
    ]
    what = "the mean" if needs == "mean" else "each"
    lines = [f"- Needs {what} of the updates: transports {_links('transport', able)}."]
    if kind.acknowledged_state:
        blocks = " and ".join(map(rst.literal, kind.acknowledged_state))
        lines.append(f"- Devices change {blocks} by what the server has received.")
    if kind.averages_increments:
        table = TABLES["server"]
        others = [name for name in table.modules if name != table.default]
        lines.append(f"- The server may optimise over its increment: {_links('server', others)}.")
    if "levels" in kind.Settings.model_fields:
        links = _links("capacity_levels", registry.list_names("capacity_levels"))
        lines.append(f"- Models of several sizes: {links} say which device trains which.")
    return "\n".join(lines)


def _power(name: str, kind: type[Any]) -> str:
    policy = kind()
    acts = _links("transport", ["over_the_air"])
    digital, ideal = _links("transport", ["digital"]), _links("transport", ["ideal"])
    lines = [
        f"- Acts on the transport {acts}; {digital} sends at full power, {ideal} without any.",
        f"- Receivers: {_links('receiver', _receivers(name))}.",
        f"- Transmit power: {CONSTRAINTS[policy.power_constraint]}.",
        f"- With several antennas, {rst.literal('receiver: auto')} is "
        f"{_links('receiver', [policy.receiver])}.",
    ]
    if policy.may_be_silent:
        lines.append("- All devices may be silent in a round; nothing is aggregated then.")
    if policy.needs_variation:
        lines.append("- Asks for the symbols' variation over the devices: side information.")
    return "\n".join(lines)


def _receivers(power: str) -> list[str]:
    """Those that a scenario may name with a policy."""
    able = []
    for receiver in registry.list_names("receiver"):
        tree = {"name": "any", "power": power, "receiver": receiver}
        try:
            load_scenario(tree)
        except UserError:
            continue
        able.append(receiver)
    return able


def _receiver(name: str) -> str:
    policies = registry.list_names("power")
    made_for = [p for p in policies if registry.load_settings_class("power", p).receiver == name]
    if not made_for:
        return ""
    auto, listed = rst.literal("auto"), _links("power", made_for)
    return f"What {auto} stands for with several antennas and {listed}."


def _links(table: str, names: Any) -> str:
    return ", ".join(f":ref:`{name} <{place(table, name)[1]}>`" for name in names)


def _scenario(table: str, name: str) -> str:
    example = format_example(table, name)
    text = "Everything that is left out has its default (:doc:`/reference/scenario`)."
    if ".csv" in example or ".npz" in example:
        text += " The file is one of yours."
    return f"{rst.code(example, 'yaml')}\n\n{text}"


def _code(table: str, name: str) -> str:
    kind = registry.load_component(table, name)
    file = rst.literal(f"{kind.__module__.replace('.', '/')}.py")
    return f"{rst.literal(kind.__name__)} in {file}."
