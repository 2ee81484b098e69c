"""Say what a scenario can name, and where it lives.

A table holds the components that one section of a scenario chooses from. A component is a file: its
name here is a word, its settings, its summary and its source are said in the file and nowhere else.
`name@module` is for files that hold a family of components, such as the profiles of a channel.

Nothing is imported before it is asked for, and `about` reads summaries from the source, so that
listing what there is needs neither torch nor pydantic.
"""

from __future__ import annotations

import functools
import importlib
import importlib.resources
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

from otafl.core.errors import UserError
from otafl.core.settings import CustomSettings, Settings
from otafl.core.words import did_you_mean


@dataclass(frozen=True)
class Table:
    """Name where the components of a table live.

    Parameters
    ----------
    section : of a scenario, that chooses from the table.
    package : of the files.
    noun : what one of them is called.
    title : of all of them.
    default : the component of a section that names none.
    modules : name -> module.
    custom : whether a section may name `module:callable` of the user's, which the package's module
        `custom` then adapts.
    """

    section: str
    package: str
    noun: str
    title: str
    default: str
    modules: dict[str, str]
    custom: bool = False

    @property
    def path(self) -> tuple[str, ...]:
        """Return the keys of the section."""
        return tuple(self.section.split("."))


def _table(
    section: str,
    package: str,
    noun: str,
    title: str,
    default: str,
    words: str,
    custom: bool = False,
) -> Table:
    """Make a table of words `name` or `name@module`."""
    modules = {}
    for word in words.split():
        name, _, module = word.partition("@")
        modules[name] = f"otafl.{package}.{module or name.replace('-', '_')}"
    return Table(section, f"otafl.{package}", noun, title, default, modules, custom)


TABLES = {
    "data": _table(
        "data",
        "data",
        "data set",
        "Data sets",
        "digits",
        "digits mnist fashion_mnist cifar10 cifar100 femnist sent140",
        custom=True,
    ),
    "partition": _table(
        "data.partition",
        "data.partitions",
        "partition",
        "Partitions",
        "iid",
        "iid shards dirichlet label_skew lognormal dirichlet_mix class_window natural",
    ),
    "model": _table(
        "model",
        "models",
        "model",
        "Models",
        "mlp",
        "mlp cnn softmax_regression lstm vgg8 conv_net resnet resnet18@resnet resnet34@resnet "
        "vgg vgg11@vgg vgg16@vgg",
        custom=True,
    ),
    "algorithm": _table(
        "algorithm",
        "algorithms",
        "algorithm",
        "Algorithms",
        "fedavg",
        "fedavg fedrlr fedrlr_plus fedmid prox_sgd magnitude_pruning pfedbred pfedme "
        "per_fedavg tdpfed fedprox scaffold ditto apfl fedrep fedbn fedem local_only fedasync "
        "fedbuff fedhm heterofl fedrolex split_mix fedamp fedfomo fedpac pfedhn pfedbayes",
        custom=True,
    ),
    "channel": _table(
        "channel",
        "channels",
        "channel",
        "Channels",
        "rayleigh",
        "awgn rayleigh rician tdl-a@tdl tdl-b@tdl tdl-c@tdl tdl-d@tdl tdl-e@tdl cdl-a@cdl "
        "cdl-b@cdl cdl-c@cdl cdl-d@cdl cdl-e@cdl umi@cell uma@cell rma@cell trace",
        custom=True,
    ),
    "csi": _table(
        "csi",
        "csi",
        "csi",
        "Channel knowledge",
        "perfect",
        "perfect error pilots phase_feedback delay",
    ),
    "receiver": _table(
        "receiver",
        "receivers",
        "receiver",
        "Receivers",
        "auto",
        "auto scalar mrc eigen uniform_forcing",
    ),
    "power": _table(
        "power",
        "power",
        "power policy",
        "Power policies",
        "gbma",
        "none full ci multi_antenna_ci tci gbma cotaf cao_static cao_average smcv blind "
        "open_loop budget_paced lyapunov",
        custom=True,
    ),
    "transport": _table(
        "transport",
        "transport",
        "transport",
        "Transports",
        "over_the_air",
        "ideal over_the_air digital",
    ),
    "server": _table(
        "server",
        "server",
        "server optimiser",
        "Server optimisers",
        "average",
        "average momentum adagrad adam yogi",
    ),
    "downlink": _table(
        "downlink",
        "downlink",
        "downlink",
        "Downlinks",
        "ideal",
        "ideal analog random_subset digital",
    ),
    "codec": _table(
        "codec",
        "codecs",
        "codec",
        "Codecs",
        "identity",
        "identity uniform qsgd topk random_subset obda compressed_sensing matrix_sensing",
    ),
    "selection": _table(
        "devices.selection",
        "selection",
        "selection",
        "Selection of devices",
        "uniform",
        "uniform round_robin best_channel proportional_fair threshold update_norm",
    ),
    "levels": _table(
        "devices.levels",
        "levels",
        "levels",
        "Model sizes of devices",
        "fixed",
        "fixed dynamic compute memory channel deadline",
    ),
    "compute": _table(
        "devices.compute",
        "devices.compute",
        "compute",
        "Hardware of devices",
        "phone",
        "fixed lognormal classes drawn csv mcu phone edge_gpu",
    ),
    "protocol": _table(
        "devices.protocol",
        "devices.protocols",
        "protocol",
        "Slot protocols",
        "rounds",
        "rounds periodic quorum asynchronous",
    ),
    "availability": _table(
        "devices.availability",
        "devices.availability",
        "availability",
        "Availability of devices",
        "always",
        "always markov diurnal trace",
    ),
    "frequency": _table(
        "devices.frequency",
        "frequency",
        "frequency",
        "Clock frequencies",
        "full",
        "full deadline joint",
    ),
}


class About(NamedTuple):
    """Hold what the file of a component says of it.

    Parameters
    ----------
    summary : its first line.
    text : all that follows, without the references.
    references : papers and standards, a text each.
    """

    summary: str
    text: str
    references: tuple[str, ...]

    @property
    def citation(self) -> str:
        """Return the first reference, short: `Sery and Cohen 2020`."""
        return _cited(self.references[0]) if self.references else ""


def names(table: str) -> tuple[str, ...]:
    """List the components of a table."""
    return tuple(TABLES[table].modules)


def component(table: str, name: str) -> type[Any]:
    """Import the class of a component, or what adapts the user's `module:callable`.

    Raises UserError if the table does not have the name.
    """
    found = TABLES[table]
    is_custom = found.custom and ":" in name
    if not is_custom and name not in found.modules:
        raise UserError(f"{table}: {unknown_name(table, name)}")
    return _adapter(found.package) if is_custom else _component(found.modules[name], name)


def settings(table: str, name: str) -> type[Settings]:
    """Import the settings class of a component. Raises UserError as `component`."""
    return _settings_of(component(table, name))


def make(table: str, chosen: Any, *given: Any) -> Any:
    """Make the component of these settings: the settings themselves where they are one.

    given: what its class takes besides them.
    """
    kind = component(table, chosen.name)
    return chosen if isinstance(chosen, kind) else kind(chosen, *given)


@functools.cache
def about(table: str, name: str) -> About:
    """Read what the source of a component says of it, without importing it."""
    package, *inner = TABLES[table].modules[name].split(".")
    *folders, file = inner
    source = importlib.resources.files(package).joinpath(*folders, f"{file}.py").read_text("utf-8")
    _, docstring, _ = source.split('"""', 2)
    summary, _, rest = docstring.partition("\n")
    text, _, references = rest.partition("\nReferences\n----------\n")
    listed = re.split(r"\n(?=\S)", references.strip()) if references else []
    return About(
        summary.strip().removesuffix("."),
        inspect.cleandoc(text),
        tuple(" ".join(one.split()) for one in listed if one),
    )


def unknown_name(table: str, name: str) -> str:
    """Say that a table does not have a name, and which it has."""
    found = TABLES[table]
    hint = did_you_mean(name, found.modules)
    custom = ", or module:callable of your own" if found.custom else ""
    known = ", ".join(found.modules)
    return f"unknown {found.noun} '{name}'{hint or ';'} known: {known}{custom}"


def _settings_of(kind: type[Any]) -> type[Settings]:
    own: type[Settings] = getattr(kind, "Settings", kind)
    return own


@functools.cache
def _component(module: str, name: str) -> type[Any]:
    """Find the class of a file whose settings have this name."""
    for kind in _classes(module):
        field = getattr(_settings_of(kind), "model_fields", {}).get("name")
        if field is not None and name in get_args(field.annotation):
            return kind
    raise LookupError(f"{module} has no component whose settings say name: {name!r}")


@functools.cache
def _adapter(package: str) -> type[Any]:
    """Find the class of a package that adapts what the user's `module:callable` names."""
    return next(
        kind
        for kind in _classes(f"{package}.custom")
        if issubclass(_settings_of(kind), CustomSettings)
    )


def _classes(module: str) -> Iterator[type[Any]]:
    """Yield the classes that a module defines, in order."""
    for value in vars(importlib.import_module(module)).values():
        if isinstance(value, type) and value.__module__ == module:
            yield value


def _cited(reference: str) -> str:
    """Return authors and year of a reference; its beginning where it has no year."""
    found = re.match(r"(.+?),? (\d{4})\b", reference)
    if not found:
        return reference.partition(",")[0].rstrip(".")
    authors, year = found[1].split(", "), found[2]
    if len(authors) > 2:
        return f"{authors[0]} et al. {year}"
    return f"{' and '.join(authors)} {year}"
