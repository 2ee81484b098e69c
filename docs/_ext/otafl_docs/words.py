"""Words under which users look for what otafl calls otherwise.

What other programs or papers call a key, a section or an entry is said at its place, and leads to
it as a main entry of the index, which the site's search puts first.
"""

from __future__ import annotations

from collections.abc import Iterable

from otafl.core.registry import TABLES
from otafl.core.suggestions import SYNONYMS
from otafl.scenario.key_descriptions import UNITS

MORE = {
    "data": "training data, samples",
    "data.partition": "non-iid, non-iid data, data heterogeneity, data split",
    "loss": "objective, criterion, regression, language model, next-word prediction",
    "algorithm": "federated learning algorithm",
    "algorithm fedavg": "federated averaging, FedSGD",
    "channel": "wireless channel, noise",
    "csi": "CSI, channel estimation, imperfect CSI",
    "receiver": "MIMO, SIMO, beamforming",
    "power": "precoding",
    "transport": "aggregation",
    "transport over_the_air": "over-the-air computation, AirComp, analog aggregation",
    "transport ofdm": "waveform, cyclic prefix, PAPR, carrier frequency offset, CFO",
    "transport digital": "orthogonal access, packet errors",
    "faults.attack": "Byzantine attack, poisoning, adversary, malicious clients",
    "robust.rule": "robust aggregation, Byzantine resilience, defence, defense",
    "server": "FedOpt, FedAdam, FedYogi, server momentum",
    "downlink": "broadcast",
    "codec": "compression, quantization, sparsification",
    "devices.selection": "client selection, client sampling, scheduling",
    "devices.capacity_levels": "model heterogeneity, submodels",
    "devices.compute": "system heterogeneity, processor",
    "devices.protocol": "stragglers, synchronous",
    "devices.availability": "dropout, churn",
    "devices.count": "number of clients, number of devices",
    "devices.participants": "partial participation, client fraction",
    "trials": "Monte Carlo, confidence intervals",
    "seed": "random seed, reproducibility",
}
"""Key, section or `table entry` -> words for it that are nowhere in its name."""


def others(thing: str) -> list[str]:
    """What other programs and papers call a dotted key, a section or a `table entry`."""
    found = [_spaced(word) for word, key in SYNONYMS.items() if key == thing]
    return list(dict.fromkeys([*found, *filter(None, MORE.get(thing, "").split(", "))]))


def said(thing: str) -> str:
    """These words as a line in small print; an empty text without any."""
    listed = others(thing)
    return (listed and f":kind:`Other words: {', '.join(listed)}`") or ""


def entries(thing: str) -> str:
    """Entries of the index that lead to a key: its own name in words, and the others."""
    own = _spaced(thing.rpartition(".")[2])
    return indexed([own, *others(thing)])


def indexed(words: Iterable[str]) -> str:
    listed = ", ".join(f"! {word}" for word in words)
    return listed and f".. index:: {listed}"


def key_of(section: str, key: str) -> tuple[str, bool]:
    """The dotted key of a row of settings, and whether its words lead there.

    Those of a section that is a table lead to the table; of entries' keys, those of the entry that
    a section without a name has lead anywhere. section: a plain one, or `table-entry`.
    """
    table, _, name = section.partition("-")
    about = TABLES.get(table)
    dotted = f"{about.section if about else section}.{key}"
    is_table = any(one.section == dotted for one in TABLES.values())
    return dotted, not is_table and (about is None or name == about.default)


def _spaced(name: str) -> str:
    """A name in words, without the unit: `path_loss_db` -> "path loss"."""
    words = name.split("_")
    return " ".join(words[:-1] if len(words) > 1 and words[-1] in UNITS else words)
