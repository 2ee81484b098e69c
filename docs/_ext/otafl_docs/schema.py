"""The scenario reference, the list of result variables and the command line, as pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from otafl.core.registry import TABLES
from otafl.core.settings import get_description
from otafl.results.variables import VARIABLES
from otafl.scenario import Scenario
from otafl.scenario.key_descriptions import find_sections, format_type
from otafl.scenario.keys import iterate_fields
from otafl_docs import rst, words
from otafl_docs.entries import place
from otafl_docs.settings import label, settings_table

INTRO = """\
A scenario is a YAML file. Every key below may be left out, but for ``name`` of the scenario and
those marked *required*; ``otafl check FILE --full`` prints a scenario with everything filled
in, and ``otafl check --schema`` a JSON schema for editors. Unknown keys are errors.

Sections that choose an entry by ``name`` take its settings beside the name. A name alone may stand
for the section: ``power: gbma``. Any key can be swept (:doc:`/reference/sweep`); those marked
:stackable:`stackable` change no tensor's shape, so points that differ in them alone run in one
batched program.
"""

SWEEP = """\
``sweep`` maps dotted keys to lists of values; every combination is a point, the last key fastest. A
choice (``power``) replaces its whole section, and a name (``power.name``) keeps its other keys.
``zip`` holds a list of mappings of keys that advance together.

.. code-block:: yaml

   name: snr_by_policy
   trials: 3
   sweep:
     channel.snr_db: [0, 10, 20]
     power:
       - gbma
       - {name: tci, threshold: 0.2, constraint: peak}

.. code-block:: yaml

   name: two_cells
   sweep:
     zip:
       - {devices.count: 10, channel.snr_db: 10}
       - {devices.count: 40, channel.snr_db: 4}

Results have a dimension for each axis, named after the last part of its key (``device_count`` for
``devices.count``).
The random numbers of a point do not depend on what else is swept: see :doc:`/concepts`.
"""


def pages() -> Iterator[tuple[str, str]]:
    """Path without suffix, and text, of every page."""
    yield "scenario", _scenario()
    yield "sweep", rst.page(rst.heading("The section sweep"), SWEEP + "\n" + _stackable())
    yield "variables", _variables()
    yield "command_line", _command_line()


def _scenario() -> str:
    plain = find_sections(Scenario)
    rows = []
    for name, info in Scenario.model_fields.items():
        if name in plain:
            target = f":ref:`{name} <section-{name}>`"
            default = "of its keys"
        elif name in TABLES:
            target = f":ref:`{name} <{place(name)[1]}>`"
            default = rst.literal(TABLES[name].default)
        else:
            target = rst.literal(name)
            default = rst.literal(str(info.default))
            default = ":required:`required`" if info.is_required() else default
        kind = "" if name in plain or name in TABLES else format_type(info, name)
        meaning = rst.escaped(get_description(info))
        meaning += f"\n\n:kind:`{kind}`" if kind else ""
        anchor = f".. _{label('', name)}:\n\n{target}"
        if name not in plain and name not in TABLES:
            anchor = f"{words.entries(name)}\n\n{anchor}"
            meaning += f"\n\n{words.said(name)}"
        rows.append((anchor, default, meaning.strip()))
    parts = [rst.heading("The scenario"), INTRO]
    parts.append(rst.table(("Section", "Default", "Meaning"), rows, "settings keys", "20 18 62"))
    for name, config in plain.items():
        parts += [
            f".. _section-{name}:",
            rst.heading(name, 1),
            rst.prose(config.__doc__ or ""),
            settings_table(config, name, skip=()),
        ]
    listed = "\n".join(
        f"- {rst.literal(table.section)}: :ref:`{table.title} <{place(name)[1]}>`"
        for name, table in TABLES.items()
        if len(table.path) > 1
    )
    parts += [rst.heading("Choices inside sections", 1), listed]
    return rst.page(*parts)


def _stackable() -> str:
    marked = sorted({k for k, field in iterate_fields(Scenario) if _is_stackable(field)})
    lines = "\n".join(f"- {rst.literal(key)}" for key in marked)
    text = (
        "Keys over which a sweep costs least, as their points run in one batched program (of "
        "sections that choose an entry, those entries that have the key):"
    )
    return f"{rst.heading('Stackable keys', 1)}\n\n{text}\n\n.. rst-class:: columns\n\n{lines}\n"


def _is_stackable(info: Any) -> bool:
    extra = info.json_schema_extra
    return isinstance(extra, dict) and bool(extra.get("stackable"))


def _variables() -> str:
    intro = (
        "Every variable that a result can hold; a result has those that its method and its "
        "scenario give. Dims come after the axes of the sweep. Symbols, bits, joules, seconds and "
        "updates add up from round 0; ``train_loss``, ``aggregation_nmse``, ``participants`` and "
        "``tx_power_w`` are means over the rounds since the record before. :doc:`/results` shows "
        "how to work with them."
    )
    rows = [
        (
            f".. _variable-{name.replace('_', '-')}:\n\n{rst.literal(name)}",
            rst.escaped(one.units),
            rst.escaped(", ".join(one.dims)),
            rst.escaped(one.long_name),
        )
        for name, one in VARIABLES.items()
    ]
    head = ("Variable", "Units", "Dims", "What it is")
    return rst.page(
        rst.heading("Result variables"), intro, rst.table(head, rows, "settings", "30 10 20 40")
    )


def _command_line() -> str:
    from otafl.cli.commands import app

    parts = [
        rst.heading("The command line"),
        "What ``otafl COMMAND --help`` prints. Exit codes: 0; 2 for what can be mended, told in "
        "one message on stderr; 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP, told in one "
        "sentence; 1 for stacks that failed, a law that fails validation, results that differ and, "
        "with a traceback, for anything else.",
    ]
    for command in commands(app):
        path = " ".join(("otafl", *command))
        parts += [
            f".. _command-{path.replace(' ', '-')}:",
            rst.heading(path, 1),
            rst.code(help_of(app, command), "text"),
        ]
    return rst.page(*parts)


def commands(app: typer.Typer) -> Iterator[tuple[str, ...]]:
    """The words of every command, those of groups too."""
    for command in app.registered_commands:
        callback = command.callback
        yield (command.name or getattr(callback, "__name__", "").replace("_", "-"),)
    for group in app.registered_groups:
        if group.typer_instance:
            for words in commands(group.typer_instance):
                yield (str(group.name or group.typer_instance.info.name), *words)


def help_of(app: typer.Typer, words: tuple[str, ...]) -> str:
    from typer.testing import CliRunner

    runner = CliRunner(env={"COLUMNS": "90", "TERM": "dumb"})
    result = runner.invoke(app, [*words, "--help"], prog_name="otafl")
    if result.exit_code:
        raise RuntimeError(f"otafl {' '.join(words)} --help failed: {result.output}")
    return result.output
