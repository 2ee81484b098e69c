"""Every algorithm, topology, selection and codec that privacy accepts, over two neighbouring data
sets: what reaches the servers differs by no more than the noise is charged for.

A combination counts as accepted if nothing refuses the scenario before or in its first rounds. What
a component cannot do without is in its settings (`example`, `DataDisclosure.instead`).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest
from contract.small import delivers, is_normed
from contract.small import scenario as small
from contract.small import small as small_section
from support.neighbouring import compare_neighbours

from otafl.core import registry
from otafl.core.errors import UserError
from otafl.core.settings import iterate_disclosures

ROUNDS = 3

TRAINING = {
    "rounds": ROUNDS,
    "weights": "uniform",
    "batch_size": 4,
    "local_steps": 1,
    "eval_samples": 10,
}

BASE: dict[str, Any] = {
    "privacy.clip": 0.02,  # less than most updates, so that what differs is near its bound
    "trials": 1,
    "training": TRAINING,
    "data": {"name": "digits", "train_samples": 100, "partition": "iid"},
    "model": {"name": "mlp", "hidden": [8]},
    "devices.count": 3,
    "power": "full",
    "engine.dtype": "float64",
}

SERVERS = {"servers": 3, "cross_gain_db": -3.0}

ALONE = {"data", "partition", "model", "transport", "track"}
"""Tables whose components are no way from a device's data to a server."""


def component(table: str, name: str, **more: Any) -> dict[str, Any]:
    """The section of a component, without a choice that reveals a device's data."""
    kind = registry.load_settings_class(table, name)
    quiet = {
        field: mark.instead
        for field, mark in iterate_disclosures(kind)
        if kind.model_fields[field].default == mark.choice
    }
    return small_section(table, name) | quiet | more


def keys(**components: Any) -> dict[str, Any]:
    """BASE with components, `table=name` or `table=section`."""
    out = copy.deepcopy(BASE)  # as dotted keys are put into its sections
    for table, one in components.items():
        own = component(table, one) if isinstance(one, str) else one
        out[registry.TABLES[table].section] = own
        if table == "algorithm" and is_normed(registry.load_component(table, own["name"])):
            out["model"] = {"name": "contract.small:normed", "hidden": [8]}
    return out


def told(changes: Mapping[str, Any], rounds: int = ROUNDS) -> tuple[list[str], float] | None:
    """What the servers learn besides, and the largest share of the charge that they see; None
    where the scenario is refused."""
    try:
        return compare_neighbours(small(changes), rounds)
    except UserError:
        return None


def algorithms() -> Iterator[str]:
    """Algorithms that can do with the sum that privacy is accounted for."""
    for name in registry.list_names("algorithm"):
        if delivers("over_the_air", name):
            yield name


def private(table: str) -> list[str]:
    """Components of a table of which fedavg's combination, for one, is not refused for privacy."""
    out = []
    for name in registry.list_names(table):
        try:
            small(keys(**{table: name}))
        except UserError as error:
            if "privacy.clip" in str(error):
                continue
        out.append(name)
    return out


AXES: dict[str, list[str]] = {
    "algorithm": list(algorithms()),
    "topology": list(private("topology")),
    "selection": list(private("selection")),
    "codec": list(private("codec")),
}


@pytest.mark.parametrize("algorithm", AXES["algorithm"])
def test_methods(algorithm: str) -> None:
    """With a topology, a selection and a codec, which change from method to method."""
    place = AXES["algorithm"].index(algorithm)
    others = {table: names for table, names in AXES.items() if table != "algorithm"}
    row = {table: names[place % len(names)] for table, names in others.items()}
    assert list_leaks([keys(algorithm=algorithm, **row)]) == {}


def list_leaks(cases: Iterable[dict[str, Any]]) -> dict[str, list[str]]:
    """Return scenario -> what the servers learn besides, without those that tell nothing more."""
    found = {str(case): told(case) for case in cases}
    return {case: one[0] for case, one in found.items() if one is not None and one[0]}


OTHERS = [table for table in registry.TABLES if table not in ALONE and table not in AXES]


@pytest.mark.parametrize("table", [one for one in OTHERS if one != "channel"])
def test_other_components(table: str) -> None:
    algorithm = "heterofl" if table == "capacity_levels" else "fedavg"
    names = registry.list_names(table)
    assert list_leaks(keys(algorithm=algorithm, **{table: name}) for name in names) == {}


BLOCKS = {"name": "rayleigh", "antennas": 2, "block_symbols": 40}

UNEQUAL = {"name": "digits", "train_samples": 100, "partition": "dirichlet"}

CIRCUMSTANCES: list[dict[str, Any]] = [
    {"channel": BLOCKS},
    {"channel": BLOCKS, "topology": {"name": "cells", **SERVERS}},
    {"channel": BLOCKS, "topology": {"name": "cells", **SERVERS}, "privacy.epsilon": 2.0},
    {"channel": BLOCKS, "transport": {"name": "over_the_air", "quadrature": True}},
    {"transport": {"name": "over_the_air", "normalise": "block"}, "algorithm": "pfedbayes"},
    {"transport": {"name": "over_the_air", "snr_convention": "total_energy"}},
    {"privacy.adversary": "honest", "channel": "awgn"},
    {"privacy.adjacency": "add_remove"},
    {"privacy.epsilon": 3.0, "privacy.split": "left"},
    {"faults.crash_probability": 0.7},
    {"faults": {"byzantine": 1, "attack": "duplicate"}},
    {"faults": {"byzantine": 1, "attack": "gaussian"}},
    {"faults": {"byzantine": 2, "attack": "scale", "scale": 1e30}},
    {"faults.jammer_db": 3.0},
    {"faults.straggler_probability": 0.5},
    {"impairments.residual_phase_rad": 0.5},
    {"impairments.carrier_offset": 0.01},
    {"impairments.timing_offset": 0.4},
    {"impairments.clip_db": 1.0},
    {"impairments.adc_bits": 4},
    {"impairments.interference_db": 3.0},
    {"impairments.interference_db": 3.0, "impairments.interference": "alpha_stable"},
    {"devices": {"count": 3, "participants": 2}},
    {"devices": {"count": 3, "senders": 2}, "algorithm": "scaffold"},
    {"devices": {"count": 3, "late": "next", "deadline_s": 1e-3}},
    {"devices": {"count": 3, "protocol": "asynchronous"}, "algorithm": "fedbuff"},
    {"devices": {"count": 3, "selection": {"name": "poisson", "probability": 0.2}}},
    {"training": TRAINING | {"weights": "samples"}, "data": UNEQUAL},
    {"training": TRAINING | {"weights": "samples"}, "data": UNEQUAL, "algorithm": "fedrlr"},
]


@pytest.mark.parametrize("changes", CIRCUMSTANCES, ids=str)
def test_circumstances(changes: dict[str, Any]) -> None:
    """None of these is refused."""
    found = told(with_(changes))
    assert found is not None
    assert found[0] == []


def with_(changes: Mapping[str, Any]) -> dict[str, Any]:
    """BASE with changes, of which `algorithm` names a component."""
    named = changes.get("algorithm", "fedavg")
    out = keys(algorithm=named) if isinstance(named, str) else keys() | {"algorithm": named}
    if "devices" in changes:
        del out["devices.count"]
    return out | {key: value for key, value in changes.items() if key != "algorithm"}


LEAKS: dict[str, tuple[dict[str, Any], str]] = {
    "biases in the clear": ({"algorithm": {"name": "fedrlr", "bias_mode": "ideal"}}, "group 1"),
    "classes that a device has": ({"algorithm": {"name": "heterofl"}}, "group 0"),
    "means of payloads": ({"transport": {"name": "over_the_air", "centre": True}}, "server model"),
    "a choice by updates": (
        {"devices": {"count": 3, "participants": 1, "selection": "update_norm"}},
        "cohort device",
    ),
    "powers that follow payloads": ({"power": "smcv"}, "on air 0"),
}


@pytest.mark.parametrize("leak", LEAKS)
def test_a_leak_is_found(leak: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing refused, the differences have what would be in the clear."""
    changes, where = LEAKS[leak]
    module = "otafl.privacy.checks"
    monkeypatch.setattr(f"{module}.find_problems", lambda scenario: ())
    monkeypatch.setattr(f"{module}.refuse_parts", lambda *given: None)
    monkeypatch.setattr("otafl.uplink.coherent.over_the_air.refuse_ideal", lambda payload: None)
    found = told(with_(changes))
    assert found is not None
    assert any(where in one for one in found[0])
