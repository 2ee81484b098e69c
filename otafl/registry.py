"""What a scenario can name: explicit tables of names, settings classes and implementations.

Nothing is imported before it is asked for: listing names needs neither torch nor pydantic.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from otafl import custom
from otafl.errors import UserError


@dataclass(frozen=True)
class Entry:
    """A name of a table. config: "module:Class" of its torch-free settings. implementation:
    "module:callable". summary: one line. citation: the paper it comes from, or empty."""

    name: str
    config: str
    implementation: str
    summary: str
    citation: str = ""


def _table(module: str, *entries: tuple[str, ...]) -> dict[str, Entry]:
    """Entries (name, settings class, implementation, summary[, citation]) of settings that live in
    one module."""
    return {name: Entry(name, f"{module}:{config}", *rest) for name, config, *rest in entries}


_SPEEDS = "otafl.clock:device_speeds"

TABLES: dict[str, dict[str, Entry]] = {
    "data": _table(
        "otafl.data.config",
        (
            "digits",
            "DigitsConfig",
            "otafl.data.digits:load",
            "scikit-learn's 1,797 digits of 8x8 pixels; needs no download",
            "Alpaydin and Kaynak 1998",
        ),
        (
            "mnist",
            "MnistConfig",
            "otafl.data.mnist:load",
            "70,000 handwritten digits of 28x28 pixels",
            "LeCun et al. 1998",
        ),
        (
            "fashion_mnist",
            "FashionMnistConfig",
            "otafl.data.fashion_mnist:load",
            "70,000 articles of clothing, 28x28 pixels",
            "Xiao et al. 2017",
        ),
    ),
    "partition": _table(
        "otafl.data.config",
        ("iid", "IidConfig", "otafl.data.partition:partition", "shuffled and dealt out evenly"),
        (
            "shards",
            "ShardsConfig",
            "otafl.data.partition:partition",
            "sorted by label and cut into shards, a few for each device",
            "McMahan et al. 2017",
        ),
        (
            "dirichlet",
            "DirichletConfig",
            "otafl.data.partition:partition",
            "each class split by Dirichlet proportions",
            "Yurochkin et al. 2019",
        ),
        (
            "label_skew",
            "LabelSkewConfig",
            "otafl.data.partition:partition",
            "each device holds a fixed number of classes",
        ),
    ),
    "model": _table(
        "otafl.models.config",
        ("mlp", "MlpConfig", "otafl.models.mlp:Mlp", "fully connected layers with ReLU"),
        (
            "softmax_regression",
            "SoftmaxRegressionConfig",
            "otafl.models.softmax_regression:SoftmaxRegression",
            "multinomial logistic regression (MCLR)",
        ),
    ),
    "algorithm": _table(
        "otafl.algorithms.config",
        (
            "fedavg",
            "FedAvgConfig",
            "otafl.algorithms.fedavg:FedAvg",
            "federated averaging",
            "McMahan et al. 2017",
        ),
        (
            "fedrlr",
            "FedRLRConfig",
            "otafl.algorithms.fedrlr:FedRLR",
            "Riemannian low-rank compression with random linear coding",
            "Xue and Lau, FedRLR",
        ),
    ),
    "channel": _table(
        "otafl.channels.config",
        ("awgn", "AwgnConfig", "otafl.channels.awgn:Awgn", "no fading, h = 1"),
        (
            "rayleigh",
            "RayleighConfig",
            "otafl.channels.rayleigh:Rayleigh",
            "flat Rayleigh block fading, h ~ CN(0, 1)",
        ),
    ),
    "csi": _table(
        "otafl.channels.config",
        ("perfect", "PerfectCsiConfig", "otafl.channels.csi:PerfectCsi", "h is known"),
        ("error", "ErrorCsiConfig", "otafl.channels.csi:ErrorCsi", "h is known with an error"),
    ),
    "power": _table(
        "otafl.power.config",
        ("full", "FullConfig", "otafl.power.full:Full", "every device at full power"),
        (
            "ci",
            "CiConfig",
            "otafl.power.ci:ChannelInversion",
            "channel inversion by the weakest device",
        ),
        (
            "tci",
            "TciConfig",
            "otafl.power.tci:TruncatedChannelInversion",
            'channel inversion, weak devices silent (FedRLR\'s "CI")',
        ),
        (
            "gbma",
            "GbmaConfig",
            "otafl.power.gbma:Gbma",
            "equal power, phase pre-compensation only",
            "Sery and Cohen 2020",
        ),
    ),
    "transport": _table(
        "otafl.transport.config",
        ("ideal", "IdealConfig", "otafl.transport.ideal:Ideal", "error-free"),
        (
            "over_the_air",
            "OverTheAirConfig",
            "otafl.transport.over_the_air:OverTheAir",
            "analog superposition: all devices at once on the same symbols",
        ),
        (
            "digital",
            "DigitalConfig",
            "otafl.transport.digital:Digital",
            "orthogonal access (TDMA) at the Shannon rate, error-free",
        ),
    ),
    "codec": _table(
        "otafl.codecs.config",
        ("identity", "IdentityConfig", "otafl.codecs.identity:Identity", "the payload as it is"),
        (
            "uniform",
            "UniformConfig",
            "otafl.codecs.uniform:Uniform",
            "uniform quantisation of each block",
        ),
    ),
    "compute": _table(
        "otafl.clock_config",
        ("fixed", "FixedComputeConfig", _SPEEDS, "all devices equally fast"),
        ("lognormal", "LognormalComputeConfig", _SPEEDS, "speeds drawn from a lognormal law"),
        ("classes", "ClassesComputeConfig", _SPEEDS, "devices of several kinds"),
        (
            "phone",
            "PhoneComputeConfig",
            _SPEEDS,
            "smartphones, clock uniform over 1 to 2 GHz",
            "Yang et al. 2021",
        ),
    ),
}
"""Table -> name -> entry. Most tables are a section of a scenario; `partition` is `data.partition`
and `compute` is `devices.compute`."""

CUSTOM = {
    "data": "otafl.data.config:CustomDataConfig",
    "model": "otafl.models.config:CustomModelConfig",
}
"""Tables that also take `module:callable` of the user's own, and the settings class of that."""

NOUNS = {"data": "data set", "power": "power policy"}


def names(table: str) -> tuple[str, ...]:
    """The names of a table."""
    return tuple(TABLES[table])


def config_class(table: str, name: str) -> type[Any]:
    """The settings class of an entry, or of the user's own `module:callable`. UserError if the
    table does not have the name."""
    if table in CUSTOM and ":" in name:
        return _load(CUSTOM[table])
    return _load(_entry(table, name).config)


def implementation(table: str, name: str) -> Any:
    """The object that implements an entry, or the user's own `module:callable`. UserError if it
    cannot be had."""
    if table in CUSTOM and ":" in name:
        return custom.load(name, f"{table}.name")
    return _load(_entry(table, name).implementation)


def closest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate most like the word, if any is like it."""
    found = difflib.get_close_matches(word, list(candidates), n=1, cutoff=0.6)
    return found[0] if found else None


def unknown_name(table: str, name: str) -> str:
    """The sentence for a name that the table does not have."""
    guess = closest(name, names(table))
    hint = f"did you mean '{guess}'? " if guess else ""
    own = ", or module:callable of your own" if table in CUSTOM else ""
    noun = NOUNS.get(table, table)
    return f"unknown {noun} '{name}'; {hint}known: {', '.join(names(table))}{own}"


def _entry(table: str, name: str) -> Entry:
    if name not in TABLES[table]:
        raise UserError(f"{table}: {unknown_name(table, name)}")
    return TABLES[table][name]


def _load(path: str) -> Any:
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)
