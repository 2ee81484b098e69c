"""Every algorithm, topology, selection and codec that privacy accepts, over two neighbouring data
sets: what reaches the servers differs by no more than the noise is charged for.

A combination counts as accepted if nothing refuses the scenario before or in its first rounds. What
a component cannot do without is in its settings (`example`, `DataDisclosure.instead`).

One device has other data in the second run. All that the noise covers, the sums of signals that
servers receive, is taken from the first run and handed to the second in the place of its own. What
servers know must then be the same to the last bit: their models, who takes part, with which
weights, masks and powers, when slots open. Only the signal of the one device may differ, and by no
more than was charged: this is the adaptive composition that the accounting rests on.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from contract.small import delivers, is_normed
from contract.small import scenario as small
from contract.small import small as small_section
from torch import Tensor

from otafl import data
from otafl.core import registry
from otafl.core.contracts import NOISE_VARIANCE
from otafl.core.errors import UserError
from otafl.core.settings import iterate_disclosures
from otafl.data import Samples
from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.scenario import Point, Scenario
from otafl.uplink.delivery import Delivery
from otafl.uplink.signal import compute_energies
from otafl.uplink.transmission import Transmission

ROUNDING = 1e-6


@dataclass
class Sight:
    """What a round shows to the servers.

    known: name -> what is in the clear. heard: what is received of each group, noise included, and
    the unit that it is in. on_air: the transmissions. charged: [S, K] mu^2 of the round.
    """

    known: dict[str, Any] = field(default_factory=dict)
    heard: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    on_air: list[Transmission] = field(default_factory=list)
    charged: Tensor | None = None


class Tapped:
    """An engine whose servers' sight is recorded, `told` what they receive if it is given."""

    def __init__(
        self,
        scenario: Scenario,
        samples_of: Callable[..., Samples] = data.build,
        told: list[Sight] | None = None,
    ) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(data, "build", samples_of)
            self.engine = Engine(assemble([Point(0, {}, scenario)], [0]))
        self.sights: list[Sight] = []
        self._told = told
        transport: Any = self.engine.parts.link.transport
        self._carry, self._superpose = transport.transmit, transport._superpose
        transport.transmit, transport._superpose = self.transmit, self.superpose

    @property
    def privacy(self) -> Any:
        return self.engine.parts.link.transport.privacy

    def round(self, t: int) -> Sight:
        self.sights.append(Sight())
        before = self.privacy.spent.clone()
        self.engine.run_round(t)
        sight = self.sights[-1]
        sight.charged = self.privacy.spent - before
        parts, engine = self.engine.parts, self.engine
        seen = {
            "server": engine.server,
            "server optimiser": engine.server_memory,
            "codec": parts.link.codec.state_dict(),
            "method": parts.algorithm.state_dict(),
            "selection": parts.selection.state_dict(),
            "topology": parts.topology.state_dict(),
            "clock": parts.clock.get_time_s(),
            "updates": engine.counts,
            "ended": engine.ended,
        }
        sight.known |= dict(_iterate_leaves(seen))
        return sight

    def transmit(self, delivery: Delivery) -> None:
        known: dict[str, Any] = {"cohort": delivery.cohort, "limits": delivery.limits}
        for index, group in enumerate(delivery.payload):
            clear = group.tensors if group.route == "ideal" else None
            shapes = {name: tuple(block.shape) for name, block in group.tensors.items()}
            bare = replace(group, tensors={}, reason="-")
            known[f"group {index}"] = bare, shapes, clear
        self._carry(delivery)
        received, report = delivery.get_received(), delivery.report()
        known["received"] = (
            received.any_delivered,
            received.group_weight,
            received.coordinate_weight,
            received.delivered_mask,
        )
        names = "symbols", "side_symbols", "airtime_s", "participants"
        known["report"] = {name: getattr(report, name) for name in names}
        known["delivered"] = [one() for one in report.delivered_mask_fns]
        self.sights[-1].known |= dict(_iterate_leaves(known))

    def superpose(self, on_air: Transmission, unwanted: Any) -> tuple[Tensor, Tensor]:
        sight, index = self.sights[-1], on_air.sent.index
        total, exact = self._superpose(on_air, unwanted)
        unit = on_air.expand(on_air.received_unit)
        if self._told is not None:
            heard, by = self._told[len(self.sights) - 1].heard[len(sight.heard)]
            total = heard if torch.equal(by, unit) else heard / by.where(by != 0, 1.0) * unit
        sight.heard.append((total.clone(), unit))
        sight.on_air.append(on_air)
        known = (
            on_air.scalars.p, on_air.scalars.eta, on_air.scalars.active_mask, on_air.scale,
            on_air.combiner, on_air.segments.bounds, on_air.segments.cells,
        )  # fmt: skip
        sight.known |= dict(_iterate_leaves(known, f"on air {index}"))
        return total, exact


def _make_other(victim: int) -> Callable[..., Samples]:
    """Return a function that builds the samples, the victim's replaced by as many of weak noise
    and of one class."""

    build_own = data.build

    def build(*given: Any) -> Samples:
        samples = build_own(*given)
        local = samples.training_data
        count, old = int(local.count[victim]), len(local.y)
        generator = torch.Generator().manual_seed(5)
        shape = (count, *local.x.shape[1:])
        noise = 0.1 * torch.rand(shape, generator=generator, dtype=torch.float64)
        local.x = torch.cat([local.x, noise.to(local.x)])
        local.y = torch.cat([local.y, torch.zeros_like(local.y[:count])])
        local.flat_x = local.x.flatten(1)
        local.index[victim, :count] = torch.arange(old, old + count)
        return samples

    return build


def _find_busiest(sights: Sequence[Sight], devices: int) -> int:
    """Return the device of the first server that takes part most often."""
    times = torch.zeros(devices, dtype=torch.int64)
    for known in (sight.known for sight in sights if "cohort device" in sight.known):
        own = known["cohort device"][known["cohort trial"] == 0]
        times += torch.bincount(own, minlength=devices)
    return int(times.argmax())


def compare_neighbours(scenario: Scenario, rounds: int) -> tuple[list[str], float]:
    """Run a scenario over two neighbouring data sets.

    Returns
    -------
    What reaches the servers beside the noise, or beyond what was charged; empty if nothing does.
    And the largest share of what was charged that a round shows, 0 where nothing differs.
    """
    one = Tapped(scenario)
    for t in range(rounds):
        one.round(t)
    victim, found, share = _find_busiest(one.sights, one.engine.num_devices), [], 0.0
    two = Tapped(scenario, _make_other(victim), one.sights)
    total = torch.zeros_like(one.privacy.spent)
    for t, first in enumerate(one.sights):
        second = two.round(t)
        found += [f"round {t}: {said}" for said in _find_distinguishing(first.known, second.known)]
        if len(first.on_air) != len(second.on_air):
            found.append(f"round {t}: {len(first.on_air)} groups or {len(second.on_air)}")
        shown = torch.zeros_like(total)
        for a, b in zip(first.on_air, second.on_air, strict=False):
            shown += _view(one.engine, a, b)
            norm = float(a.sent.x.norm(dim=1).amax()) if len(a.sent.x) else 0.0
            if norm > scenario.privacy.clip * (1.0 + ROUNDING):
                found.append(f"round {t}: a payload of norm {norm:g}")
        total += shown
        assert first.charged is not None
        over = shown > first.charged * (1.0 + ROUNDING) + 1e-12
        if over.any():
            most = float((shown / first.charged.clamp_min(1e-30)).amax())
            found.append(f"round {t}: a signal of {most:g} times what was charged")
        if float(shown.sum() - shown[0, victim]) > ROUNDING * float(shown.sum()):
            found.append(f"round {t}: signals of devices whose data are the same")
        share = max(share, float((shown / first.charged.clamp_min(1e-30)).amax()))
    mu = float(one.engine.parts.link.transport.compute_metrics()["dp_mu"].amax())
    if float(total.amax()) > mu**2 * (1.0 + ROUNDING) + 1e-12:
        found.append(f"mu {mu:g} where signals show {float(total.amax()) ** 0.5:g}")
    return found, share


def _view(engine: Engine, one: Transmission, other: Transmission) -> Tensor:
    """Return the squared distance [S, K], over the noise, between what all servers' antennas
    receive of each device in the two runs."""
    cells = list(one.segments.cells)
    x = one.signal.x - other.signal.x
    if engine.parts.scenario.privacy.adjacency == "add_remove":  # the neighbour sends zeros
        x = one.signal.x * x.ne(0).any(1, keepdim=True)
    apart = replace(one.signal, x=x)
    energy = compute_energies(apart.x, one.segments) * one.scale.square()[:, None]
    sent = one.sent.grid(energy).mT * one.scalars.p.abs().square()  # [S, Q, K]
    gains = one.slot.h.abs().square().sum(2)
    for row, power in _iterate_unaffected(engine, one):
        gains[row] += power
    return (sent * gains[..., cells].mT).sum(1).double() / NOISE_VARIANCE


def _iterate_unaffected(engine: Engine, on_air: Transmission) -> Iterator[tuple[int, Tensor]]:
    """Yield a row and the |h|^2 [K, cells] of its devices to another server, for each of these."""
    others, slot = engine.parts.link.transport.neighbours, on_air.slot
    if others is None:
        return
    state = others.channel.get_state(slot.round)
    h = state.extend_to(slot.num_uses).flatten(3) * state.gain.sqrt()[..., None, None]
    each = h.unflatten(1, (-1, engine.num_devices))  # [C, J, K, A, cells]
    for server, heard in enumerate(others.interferers):
        for row in sorted(set(heard)):  # of one that is seen at several places, all of these
            places = [place for place, name in enumerate(heard) if name == row]
            yield row, each[server, places].sum(0).abs().square().sum(1)


def _iterate_leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what a value is made of, each with its name, as copies."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _iterate_leaves(inner, f"{name} {key}".strip())
    elif isinstance(value, list | tuple):
        yield name, len(value)
        for place, inner in enumerate(value):
            yield from _iterate_leaves(inner, f"{name} {place}")
    elif is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            yield from _iterate_leaves(getattr(value, each.name), f"{name} {each.name}")
    elif isinstance(value, Tensor):
        yield name, value.clone()
    else:
        yield name, copy.copy(value)


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two leaves are the same to the last bit."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        one, other = one.numpy(), other.numpy()
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")
    return bool(one == other or (one != one and other != other))


def _find_distinguishing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the names of what is not the same to the last bit."""
    alike = {name for name in one if name in other and _is_same(one[name], other[name])}
    return [name for name in {**one, **other} if name not in alike]


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
    {"channel": BLOCKS, "topology": {"name": "cells", **SERVERS}, "privacy.epsilon": 2.0},
    {"channel": BLOCKS, "transport": {"name": "over_the_air", "quadrature": True}},
    {"transport": {"name": "over_the_air", "normalise": "block"}, "algorithm": "pfedbayes"},
    {"privacy.adversary": "honest", "channel": "awgn"},
    {"privacy.adjacency": "add_remove"},
    {"faults.crash_probability": 0.7},
    {"faults": {"byzantine": 1, "attack": "duplicate"}},
    {"faults": {"byzantine": 2, "attack": "scale", "scale": 1e30}},
    {"faults.jammer_db": 3.0},
    {"impairments.carrier_offset": 0.01},
    {"impairments.clip_db": 1.0},
    {"impairments.adc_bits": 4},
    {"impairments.interference_db": 3.0},
    {"devices": {"count": 3, "senders": 2}, "algorithm": "scaffold"},
    {"devices": {"count": 3, "late": "next", "deadline_s": 1e-3}},
    {"devices": {"count": 3, "protocol": "asynchronous"}, "algorithm": "fedbuff"},
    {"devices": {"count": 3, "selection": {"name": "poisson", "probability": 0.2}}},
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
