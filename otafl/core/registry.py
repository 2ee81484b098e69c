"""Tables of the components that a scenario can name, and their modules.

A table has the components that one section of a scenario chooses from. A component is a file. Its
name here is a word; its settings, summary and source are stated only in the file. `name@module` is
for files with a family of components: the profiles of a channel, which share the description of
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
    default : str
        Component of a section without a name.
    component_names : str
        The components, `name` or `name@module`.
    supports_custom : bool
        Whether a section may name a user-defined `module:callable`, which the package's module
        `supports_custom` then wraps.
    """

    section: str
    folder: str
    noun: str
    title: str
    default: str
    component_names: str
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
        for word in self.component_names.split():
            name, _, module = word.partition("@")
            modules[name] = f"{self.package}.{module or name.replace('-', '_')}"
        return modules


WORDS = {
    "data": "digits mnist@idx fashion_mnist@idx cifar10@cifar cifar100@cifar femnist@leaf "
    "sent140@leaf ridge parkinsons shakespeare@leaf hf@hugging_face",
    "partition": "iid@label_free shards@by_class dirichlet@by_class label_skew@by_class "
    "lognormal@label_free dirichlet_mix@by_class class_window natural@label_free flower",
    "model": "mlp cnn softmax_regression linear@softmax_regression lstm ngram token_lstm@lstm "
    "transformer vgg8@cnn conv_net@vgg resnet resnet18@resnet resnet34@resnet vgg vgg11@vgg "
    "vgg16@vgg",
    "start": "drawn@given file@given pretrained_here own@given",
    "loss": "cross_entropy squared next_token@cross_entropy",
    "algorithm": "fedavg@baselines.fedavg fedrlr_plus@low_rank.fedrlr_plus fedrlr@low_rank.fedrlr "
    "fedmid@baselines.whole_model_methods prox_sgd@baselines.whole_model_methods "
    "magnitude_pruning@baselines.whole_model_methods pfedbred@personal.pfedbred "
    "pfedme@personal.pfedbred per_fedavg@personal.own_models tdpfed@low_rank.tdpfed "
    "fedprox@baselines.fedavg scaffold@baselines.scaffold feddyn@baselines.feddyn "
    "ditto@personal.own_models "
    "apfl@personal.own_models fedrep@personal.partly_shared fedbn@personal.partly_shared "
    "fedem@personal.fedem local_only@personal.own_models fedasync@asynchronous "
    "fedbuff@asynchronous fedhm@submodels.fedhm heterofl@submodels.narrow_networks "
    "fedrolex@submodels.narrow_networks split_mix@submodels.narrow_networks fedamp@personal.fedamp "
    "fedfomo@personal.fedfomo fedpac@personal.fedpac pfedhn@personal.pfedhn "
    "pfedbayes@personal.pfedbayes lora@adapters.lora zeroth_order@baselines.zeroth_order",
    "channel": "awgn rayleigh rician tdl-a@tdl tdl-b@tdl tdl-c@tdl tdl-d@tdl tdl-e@tdl cdl-a@cdl "
    "cdl-b@cdl cdl-c@cdl cdl-d@cdl cdl-e@cdl umi@cell uma@cell rma@cell trace",
    "csi": "perfect@estimates error@estimates pilots@estimates phase_feedback@estimates "
    "delay@estimates",
    "receiver": "auto@base scalar@base mrc@base eigen@base uniform_forcing@base",
    "power": "genie@inversion full@least_error ci@inversion multi_antenna_ci@inversion "
    "tci@inversion gbma@equal_power cotaf@inversion cao_static@least_error cao_average "
    "smcv@least_error blind@equal_power open_loop@least_error budget_paced@energy "
    "lyapunov@energy pre_scaler",
    "transport": "ideal over_the_air@coherent.over_the_air ofdm@coherent.ofdm "
    "digital@digital.digital fsk_majority_vote@noncoherent.energy_detection "
    "reed@noncoherent.energy_detection type_based@type_based.type_based",
    "server": "average@optimisers momentum@optimisers adagrad@optimisers adam@optimisers "
    "yogi@optimisers",
    "rule": "mean@rules coordinate_median@rules trimmed_mean@rules geometric_median@rules "
    "krum@rules multi_krum@rules centred_clipping@rules norm_bound@rules",
    "downlink": "ideal@downlinks analog@downlinks random_subset@downlinks digital@downlinks",
    "codec": "identity@quantisers uniform@quantisers qsgd@quantisers topk@subsets "
    "random_subset@subsets shared_subset@subsets obda@quantisers compressed_sensing@sensing "
    "matrix_sensing@sensing count_sketch@subsets laser",
    "selection": "uniform@selections round_robin@selections best_channel@selections "
    "proportional_fair@selections threshold@selections update_norm@selections "
    "poisson@selections",
    "capacity_levels": "fixed@assignments dynamic@assignments compute@assignments "
    "memory@assignments channel@assignments deadline@assignments",
    "compute": "fixed@kinds lognormal@kinds classes@kinds drawn csv@kinds mcu@kinds phone@kinds "
    "edge_gpu@kinds",
    "protocol": "rounds@protocols periodic@protocols quorum@protocols asynchronous@protocols",
    "availability": "always@availability markov@availability diurnal@availability "
    "trace@availability",
    "cpu_frequency": "full@deadline deadline joint",
    "attack": "sign_flip@attacks scale@attacks gaussian@attacks nan@attacks label_flip@attacks "
    "a_little_is_enough@attacks inner_product@attacks mimic@attacks false_csi@attacks "
    "false_norm@attacks crash@attacks duplicate@attacks",
    "topology": "star@cells cells hierarchical@cells cell_free graph",
    "track": "none@trackers jsonl@trackers tensorboard@trackers",
}
"""Table -> its components: words `name` or `name@module`."""

_ABOUT = {
    "data": ("data", "data", "data set", "Data sets", "digits"),
    "partition": ("data.partition", "data.partitions", "partition", "Partitions", "iid"),
    "model": ("model", "models", "model", "Models", "mlp"),
    "start": ("model.start", "models.starts", "start", "Starts of models", "drawn"),
    "loss": ("loss", "losses", "loss", "Losses", "cross_entropy"),
    "algorithm": ("algorithm", "algorithms", "algorithm", "Algorithms", "fedavg"),
    "channel": ("channel", "channels", "channel", "Channels", "rayleigh"),
    "csi": ("csi", "csi", "csi", "Channel knowledge", "perfect"),
    "receiver": ("receiver", "receivers", "receiver", "Receivers", "auto"),
    "power": ("power", "power", "power policy", "Power policies", "gbma"),
    "transport": ("transport", "uplink", "transport", "Transports", "over_the_air"),
    "server": ("server", "server", "server optimiser", "Server optimisers", "average"),
    "rule": ("robust.rule", "robust", "rule", "Robust rules", "mean"),
    "downlink": ("downlink", "downlink", "downlink", "Downlinks", "ideal"),
    "codec": ("codec", "codecs", "codec", "Codecs", "identity"),
    "selection": ("devices.selection", "selection", "selection", "Selection of devices", "uniform"),
    "capacity_levels": (
        "devices.capacity_levels",
        "submodels",
        "assignment of capacity levels",
        "Capacity levels of devices",
        "fixed",
    ),
    "compute": ("devices.compute", "devices.compute", "compute", "Hardware of devices", "phone"),
    "protocol": ("devices.protocol", "devices", "protocol", "Slot protocols", "rounds"),
    "availability": (
        "devices.availability",
        "devices",
        "availability",
        "Availability of devices",
        "always",
    ),
    "cpu_frequency": (
        "devices.cpu_frequency",
        "cpu_frequency",
        "frequency policy",
        "CPU frequencies",
        "full",
    ),
    "attack": ("faults.attack", "devices", "attack", "Attacks and faults", "sign_flip"),
    "topology": ("topology", "topology", "topology", "Topologies", "star"),
    "track": ("track", "tracking", "tracker", "Trackers", "none"),
}
"""Table -> its section, package, noun, title and default."""

_CUSTOM = (
    *("data", "partition", "model", "algorithm", "channel", "csi", "power", "codec"),
    *("server", "downlink", "selection", "track"),
)

TABLES = {name: Table(*about, WORDS[name], name in _CUSTOM) for name, about in _ABOUT.items()}


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
        """The first reference in short form, `Sery and Cohen 2020`."""
        return _format_citation(self.references[0]) if self.references else ""


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


def _format_citation(reference: str) -> str:
    """Return authors and year of a reference, or its start if it has no year."""
    found = re.match(r"(.+?),? (\d{4})\b", reference)
    if not found:
        return reference.partition(",")[0].rstrip(".")
    authors, year = found[1].split(", "), found[2]
    if len(authors) > 2:
        return f"{authors[0]} et al. {year}"
    return f"{' and '.join(authors)} {year}"
