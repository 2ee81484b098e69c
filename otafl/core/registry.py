"""Tables of the components that a scenario can name, and their modules.

A table has the components that one section of a scenario chooses from. A component is a class. Its
name here is a word; its settings, summary and source are stated only in its file. A file with
several names is a family of components: the profiles of a channel, which share the description of
their file, or classes, each with its own.

Nothing is imported before its use. `read_info` reads summaries from the source, so listing the
components needs neither torch nor pydantic.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.resources
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

from otafl.core.errors import UserError
from otafl.core.settings import Settings
from otafl.core.suggestions import format_suggestion


@dataclass(frozen=True)
class Table:
    """Location of the components of a table.

    Parameters
    ----------
    section : str
        Section of a scenario that chooses from the table.
    folder : str
        Folder of the files, in `otafl`.
    noun : str
        Noun for one component.
    title : str
        Title of the table.
    families : str
        The components by module, `module: name name; module`.
    supports_custom : bool
        Whether a section may name a user-defined `module:callable`, which the package's module
        `custom` then wraps.
    """

    section: str
    folder: str
    noun: str
    title: str
    families: str
    supports_custom: bool

    @property
    def path(self) -> tuple[str, ...]:
        """The keys of the section."""
        return tuple(self.section.split("."))

    @property
    def package(self) -> str:
        """The package of the files."""
        return f"otafl.{self.folder}"

    @functools.cached_property
    def modules(self) -> dict[str, str]:
        """The module of each component, by name."""
        modules = {}
        for family in self.families.split("; "):
            module, _, names = family.partition(": ")
            for name in (names or module.rpartition(".")[2]).split():
                modules[name] = f"{self.package}.{module}"
        return modules

    @property
    def default(self) -> str:
        """The component of a section without a name."""
        return next(iter(self.modules))


_COMPONENTS = {
    "data": "digits; idx: mnist fashion_mnist; cifar: cifar10 cifar100; leaf: femnist sent140 "
    "shakespeare; ridge; parkinsons; uci_har; hugging_face: hf",
    "partition": "label_free: iid lognormal natural; by_class: shards dirichlet label_skew "
    "dirichlet_mix; by_place; class_window; flower",
    "model": "mlp; cnn: cnn vgg8; softmax_regression: softmax_regression linear; lstm: lstm "
    "token_lstm; ngram; transformer; vgg: conv_net vgg vgg11 vgg16; resnet: resnet resnet18 "
    "resnet34",
    "start": "given: drawn file own; pretrained_here",
    "loss": "cross_entropy: cross_entropy next_token; squared",
    "algorithm": "baselines.fedavg: fedavg fedprox; low_rank.fedrlr_plus; low_rank.fedrlr; "
    "baselines.whole_model_methods: fedmid prox_sgd magnitude_pruning; personal.pfedbred: pfedbred "
    "pfedme; personal.own_models: per_fedavg ditto apfl local_only; low_rank.tdpfed; "
    "baselines.scaffold; baselines.feddyn; baselines.fednova; baselines.moon; "
    "personal.partly_shared: fedrep fedbn; personal.fedem; "
    "asynchronous: fedasync fedbuff; submodels.fedhm; submodels.narrow_networks: heterofl fedrolex "
    "split_mix; personal.fedamp; personal.fedfomo; personal.fedpac; personal.pfedhn; "
    "personal.pfedbayes; adapters.lora; baselines.zeroth_order",
    "channel": "rayleigh; awgn; rician; tdl: tdl-a tdl-b tdl-c tdl-d tdl-e; cdl: cdl-a cdl-b cdl-c "
    "cdl-d cdl-e; cell: umi uma rma inh inf; ntn; trace",
    "csi": "estimates: perfect error pilots phase_feedback delay",
    "receiver": "base: auto scalar mrc eigen uniform_forcing",
    "power": "equal_power: gbma blind; inversion: genie ci multi_antenna_ci tci cotaf; "
    "least_error: full cao_static smcv open_loop; cao_average; energy: budget_paced lyapunov; "
    "pre_scaler",
    "transport": "coherent.over_the_air; ideal; coherent.ofdm; digital.digital; "
    "coherent.digital_sums: sumcomp bit_slices; "
    "noncoherent.energy_detection: fsk_majority_vote reed; type_based.type_based; "
    "type_based.unsourced; type_based.blind_unsourced",
    "server": "optimisers: average momentum adagrad adam yogi",
    "rule": "rules: mean coordinate_median trimmed_mean geometric_median krum multi_krum "
    "centred_clipping norm_bound",
    "downlink": "downlinks: ideal analog random_subset digital",
    "codec": "quantisers: identity uniform qsgd obda; subsets: topk random_subset shared_subset; "
    "sketch: count_sketch; sensing: compressed_sensing matrix_sensing; laser",
    "selection": "selections: uniform round_robin best_channel proportional_fair threshold "
    "update_norm poisson",
    "capacity_levels": "assignments: fixed dynamic compute memory channel deadline",
    "compute": "kinds: phone fixed lognormal classes csv mcu edge_gpu; drawn",
    "protocol": "protocols: rounds periodic quorum asynchronous",
    "availability": "availability: always markov diurnal trace; orbit",
    "cpu_frequency": "deadline: full deadline; joint",
    "attack": "attacks: sign_flip scale gaussian nan label_flip a_little_is_enough inner_product "
    "mimic false_csi false_norm crash duplicate",
    "topology": "cells: star cells hierarchical; cell_free; graph",
    "track": "trackers: none jsonl tensorboard",
}
"""Table -> its components by module, "module: name name", the default first.

A module alone has one component of its own name.
"""

_ABOUT = {
    "data": ("data", "data", "data set", "Data sets"),
    "partition": ("data.partition", "data.partitions", "partition", "Partitions"),
    "model": ("model", "models", "model", "Models"),
    "start": ("model.start", "models.starts", "start", "Starts of models"),
    "loss": ("loss", "losses", "loss", "Losses"),
    "algorithm": ("algorithm", "algorithms", "algorithm", "Algorithms"),
    "channel": ("channel", "channels", "channel", "Channels"),
    "csi": ("csi", "csi", "csi", "Channel knowledge"),
    "receiver": ("receiver", "receivers", "receiver", "Receivers"),
    "power": ("power", "power", "power policy", "Power policies"),
    "transport": ("transport", "uplink", "transport", "Transports"),
    "server": ("server", "server", "server optimiser", "Server optimisers"),
    "rule": ("robust.rule", "robust", "rule", "Robust rules"),
    "downlink": ("downlink", "downlink", "downlink", "Downlinks"),
    "codec": ("codec", "codecs", "codec", "Codecs"),
    "selection": ("devices.selection", "selection", "selection", "Selection of devices"),
    "capacity_levels": ("devices.capacity_levels", "submodels", "assignment", "Capacity levels"),
    "compute": ("devices.compute", "devices.compute", "compute", "Hardware of devices"),
    "protocol": ("devices.protocol", "devices", "protocol", "Slot protocols"),
    "availability": ("devices.availability", "devices", "availability", "Availability of devices"),
    "cpu_frequency": ("devices.cpu_frequency", "cpu_frequency", "DVFS policy", "CPU frequencies"),
    "attack": ("faults.attack", "devices", "attack", "Attacks and faults"),
    "topology": ("topology", "topology", "topology", "Topologies"),
    "track": ("track", "tracking", "tracker", "Trackers"),
}
"""Table -> its section, package, noun and title."""

_CUSTOM = (
    *("data", "partition", "model", "algorithm", "channel", "csi", "power", "codec"),
    *("server", "downlink", "selection", "track"),
)

TABLES = {name: Table(*about, _COMPONENTS[name], name in _CUSTOM) for name, about in _ABOUT.items()}


class ComponentInfo(NamedTuple):
    """Description of a component, read from its file.

    Parameters
    ----------
    summary : str
        First line.
    text : str
        Following text, without the references.
    references : tuple of str
        Papers and standards.
    """

    summary: str
    text: str
    references: tuple[str, ...]

    @property
    def citation(self) -> str:
        """The first reference as authors and year, or its start: `Sery and Cohen 2020`."""
        reference = self.references[0] if self.references else ""
        found = re.match(r"(.+?),? (\d{4})\b", reference)
        if not found:
            return reference.partition(",")[0].rstrip(".")
        authors, year = found[1].split(", "), found[2]
        if len(authors) > 2:
            return f"{authors[0]} et al. {year}"
        return f"{' and '.join(authors)} {year}"


def list_names(table: str) -> tuple[str, ...]:
    """List the components of a table."""
    return tuple(TABLES[table].modules)


def list_fitting(table: str, fits: Callable[[type[Any]], bool]) -> list[str]:
    """List the components of a table whose class fits, for the remedy of a message.

    All components of the table are imported.
    """
    return [name for name in list_names(table) if fits(load_component(table, name))]


def load_component(table: str, name: str) -> type[Any]:
    """Import the class of a component, or the wrapper of a user-defined `module:callable`.

    Raises UserError if the table does not have the name.
    """
    found = TABLES[table]
    is_custom = found.supports_custom and ":" in name
    if not is_custom and name not in found.modules:
        raise UserError(f"{table}: {format_unknown_name(table, name)}")
    return _find_custom_section(table) if is_custom else _find_component(found.modules[name], name)


def load_settings_class(table: str, name: str) -> type[Settings]:
    """Import the settings class of a component. Raises UserError as `load_component`."""
    return get_settings_class(load_component(table, name))


def make_component(table: str, settings: Any, *given: Any) -> Any:
    """Make the component of these settings; settings that are the component itself make it.

    given: further arguments of its class.
    """
    kind = load_component(table, settings.name)
    return settings.build(*given) if isinstance(settings, kind) else kind(settings, *given)


@functools.cache
def read_info(table: str, name: str) -> ComponentInfo:
    """Read the description of a component from its source, without importing it."""
    modules = TABLES[table].modules
    package, *inner = modules[name].split(".")
    *folders, file = inner
    source = importlib.resources.files(package).joinpath(*folders, f"{file}.py").read_text("utf-8")
    docstring = source.split('"""', 2)[1]
    if list(modules.values()).count(modules[name]) > 1:
        docstring = _find_docstring(source, name) or docstring
    lead, *sections = re.split(r"(?m)^([A-Z]\w+)\n-{3,}\n", inspect.cleandoc(docstring))
    references = dict(zip(sections[::2], sections[1::2], strict=True)).get("References", "")
    summary, _, text = lead.partition("\n")
    listed = re.split(r"\n(?=\S)", references.strip())
    return ComponentInfo(
        summary.removesuffix("."),
        text.strip(),
        tuple(" ".join(one.split()) for one in listed if one),
    )


def _find_docstring(source: str, name: str) -> str | None:
    """Find what a class says of its component, in a file with several of them."""
    for kind in ast.parse(source).body:
        fields = (one for one in ast.walk(kind) if isinstance(one, ast.AnnAssign))
        names = [ast.unparse(one.annotation) for one in fields if ast.unparse(one.target) == "name"]
        if isinstance(kind, ast.ClassDef) and names == [f"Literal[{name!r}]"]:
            return ast.get_docstring(kind)
    return None


def format_unknown_name(table: str, name: str) -> str:
    """Write that a table does not have a name, and list the names that it has."""
    found = TABLES[table]
    hint = format_suggestion(name, found.modules)
    custom = ", or module:callable of your own" if found.supports_custom else ""
    known = ", ".join(found.modules)
    return f"unknown {found.noun} '{name}'{hint or ';'} known: {known}{custom}"


def get_settings_class(kind: type[Any]) -> type[Settings]:
    """Return the settings class of a component: its own, or itself if the class is its settings."""
    own: type[Settings] = getattr(kind, "Settings", kind)
    return own


@functools.cache
def _find_component(module: str, name: str) -> type[Any]:
    """Find the class of a file whose settings have this name."""
    for kind in _iterate_classes(module):
        field = getattr(get_settings_class(kind), "model_fields", {}).get("name")
        if field is not None and name in get_args(field.annotation):
            return kind
    raise LookupError(f"{module} has no component whose settings say name: {name!r}")


@functools.cache
def _find_custom_section(table: str) -> type[Any]:
    """Find the class that wraps a user-defined `module:callable` for a table."""
    kinds = _iterate_classes(f"{TABLES[table].package}.custom")
    return next(kind for kind in kinds if getattr(get_settings_class(kind), "table", None) == table)


def _iterate_classes(module: str) -> Iterator[type[Any]]:
    """Yield the classes that a module defines, in order."""
    for value in vars(importlib.import_module(module)).values():
        if isinstance(value, type) and value.__module__ == module:
            yield value
