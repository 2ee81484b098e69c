"""A small scenario for every entry of the registry, with what the entry cannot do without."""

from __future__ import annotations

from typing import Any

import yaml

from otafl.core.registry_tables import TABLES
from otafl.scenario.keys import CHOICES, Path, put

SECTION: dict[str, Path] = {table: path for path, table in CHOICES.items()}
"""Table -> the section that chooses from it."""

_IMAGES = {"data.name": "fashion_mnist"}
_LEVELS = {"algorithm.name": "heterofl"}

BESIDE: dict[tuple[str, str], dict[str, Any]] = {
    ("algorithm", "fedbn"): {"model.name": "resnet", **_IMAGES},
    ("algorithm", "fedhm"): {"transport.name": "digital"},
    ("algorithm", "fedamp"): {"transport.name": "digital"},
    ("algorithm", "fedfomo"): {"transport.name": "digital", "data.validation": 0.1},
    ("algorithm", "fedpac"): {"transport.name": "digital"},
    ("algorithm", "pfedhn"): {"transport.name": "digital"},
    ("algorithm", "fedasync"): {"devices.protocol.name": "asynchronous"},
    ("algorithm", "fedbuff"): {"devices.protocol.name": "quorum"},
    ("algorithm", "local_only"): {"data.own_test": True},
    ("channel", "trace"): {"channel.path": "responses.npz"},
    ("power", "multi_antenna_ci"): {"channel.antennas": 4},
    ("power", "blind"): {"channel.antennas": 64},
    ("receiver", "mrc"): {"channel.antennas": 64, "power.name": "blind"},
    ("receiver", "eigen"): {"channel.antennas": 4},
    ("receiver", "uniform_forcing"): {"channel.antennas": 4, "power.name": "ci"},
    ("csi", "delay"): {"channel.speed_kmh": 3.0},
    ("codec", "matrix_sensing"): {"algorithm.name": "prox_sgd"},
    ("partition", "natural"): {"data.name": "femnist"},
    ("model", "lstm"): {"data.name": "sent140"},
    ("levels", "fixed"): _LEVELS,
    ("levels", "dynamic"): _LEVELS,
    ("levels", "compute"): {**_LEVELS, "devices.compute.name": "lognormal"},
    ("levels", "memory"): {**_LEVELS, "devices.levels.memory_mb": [64.0, 1.0]},
    ("levels", "channel"): _LEVELS,
    ("levels", "deadline"): {**_LEVELS, "devices.levels.seconds": 1.0},
    ("compute", "classes"): {
        "devices.compute.classes": [{"flops_per_s": 1e9}, {"flops_per_s": 1e8}]
    },
    ("compute", "csv"): {"devices.compute.file": "devices.csv"},
    ("availability", "trace"): {"devices.availability.file": "availability.csv"},
    ("frequency", "deadline"): {
        "devices.deadline_s": 0.1,
        "devices.compute.frequency_min_share": 0.3,
    },
    ("frequency", "joint"): {"devices.deadline_s": 0.1, "transport.name": "digital"},
}
"""Keys that an entry needs, or without which it would be of no use."""

ORDER = ("data", "model", "algorithm", "channel", "csi", "receiver", "power", "codec", "transport")


def example(table: str, name: str) -> dict[str, Any]:
    """The keys of a small scenario that uses an entry; everything left out has its default."""
    tree: dict[str, Any] = {"name": f"{table}_{name}"}
    settings = {".".join(map(str, (*SECTION[table], "name"))): name}
    for key, value in (settings | BESIDE.get((table, name), {})).items():
        tree = put(tree, tuple(key.split(".")), value)
    for path in sorted(CHOICES, key=len):
        tree = _name_first(tree, path)
    rank = {section: place for place, section in enumerate(("name", *ORDER))}
    return dict(sorted(tree.items(), key=lambda item: rank.get(item[0], len(rank))))


def _name_first(tree: dict[str, Any], path: Path) -> dict[str, Any]:
    node: Any = tree
    for part in path[:-1]:
        node = node.get(part, {})
    here = node.get(path[-1])
    if isinstance(here, dict) and "name" in here:
        return put(tree, path, {"name": here["name"], **here})
    return tree


def example_yaml(table: str, name: str) -> str:
    return str(yaml.safe_dump(example(table, name), sort_keys=False))


def everything() -> list[tuple[str, str]]:
    """Every (table, name)."""
    return [(table, name) for table, entries in TABLES.items() for name in entries]
