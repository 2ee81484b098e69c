"""Scenarios that run in milliseconds, and engines over them."""

from __future__ import annotations

import atexit
import copy
import dataclasses
import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from otafl import channels
from otafl.channels.trace import export_trace
from otafl.core import registry
from otafl.core.contracts import Cohort
from otafl.core.rng import Streams
from otafl.downlink.base import BroadcastDelivery
from otafl.engine.assembly import EngineParts, assemble, make_workload
from otafl.engine.engine import Engine
from otafl.engine.workload import SubmodelWorkload
from otafl.scenario import Point, Scenario, expand, load_scenario

BASE: dict[str, Any] = {
    "name": "small",
    "data": {"name": "digits", "train_samples": 300, "partition": {"name": "dirichlet"}},
    "model": {"name": "mlp", "hidden": [4]},
    "devices": {"count": 4},
    "training": {
        "rounds": 4,
        "batch_size": 4,
        "local_steps": 2,
        "eval_every": 1,
        "eval_samples": 40,
    },
    "trials": 3,
    "seed": 7,
    "engine": {"device": "cpu"},
}


@functools.cache
def trace() -> str:
    """The path of a trace of 12 rounds of Rayleigh fading of ten devices."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    config = registry.load_settings_class("channel", "rayleigh")()
    _, channel = channels.build([config], 10, Streams([3], [0]))
    path = f"{folder.name}/trace.npz"
    export_trace(channel, range(12), path, carrier_hz=config.carrier_hz, bandwidth_hz=1e6)
    return path


def section(channel: str) -> dict[str, Any]:
    """The channel's section with what it needs, kept small."""
    settings = registry.load_settings_class("channel", channel)
    if "path" in settings.model_fields:
        return {"name": channel, "path": trace()}
    wide = "subcarrier_groups" in settings.model_fields
    return {"name": channel, **({"subcarrier_groups": 3} if wide else {})}


def chosen(table: str, name: str) -> dict[str, Any]:
    """The section that chooses a component, as its settings' example fills it in."""
    path = f"{registry.TABLES[table].section}."
    example = registry.load_settings_class(table, name).example
    own = {key.removeprefix(path): at for key, at in example.items() if key.startswith(path)}
    return {"name": name, **own}


def small(table: str, name: str) -> dict[str, Any]:
    """The section that chooses a component, for few rounds of few devices."""
    own = section(name) if table == "channel" else chosen(table, name)
    return own | dict(registry.load_settings_class(table, name).small)


def model(name: str) -> dict[str, Any]:
    """The model's section, kept small as its settings' example does."""
    return chosen("model", name)


def normed(
    input_shape: tuple[int, ...], classes: int, hidden: Sequence[int] = (4,)
) -> torch.nn.Module:
    """A perceptron with a norm layer, for methods that keep its parameters at the devices."""
    (width,) = hidden
    first = torch.nn.Linear(input_shape[0], width)
    last = torch.nn.Linear(width, classes)
    return torch.nn.Sequential(first, torch.nn.LayerNorm(width), torch.nn.ReLU(), last)


ALGORITHMS = registry.list_names("algorithm")
TRANSPORTS = registry.list_names("transport")


def is_normed(method: Any) -> bool:
    """Whether a method needs normalisation layers, so that its example has a model with some."""
    return "model.name" in method.Settings.example


def needs(algorithm: str) -> str:
    """What the server must get of the updates, under default settings."""
    kind = registry.load_component("algorithm", algorithm)
    return kind.describe_payload(kind.Settings()).needs


def delivers(transport: str, algorithm: str) -> bool:
    """Whether the transport gives the algorithm what it needs."""
    link = registry.load_component("transport", transport)
    method = registry.load_component("algorithm", algorithm)
    return needs(algorithm) in link.provides and (
        link.provides_sums or "rules" not in method.excludes
    )


EVERY_METHOD = ("over_the_air", "digital")
EVERY_PAYLOAD = ("fedavg", "fedrlr", "heterofl")
"""Noisy transports that methods get along with, and a method of each kind of payload:
what is averaged, what is added up, and parts that differ from device to device."""


def over_fading(algorithm: str) -> str:
    """The first transport over fading that gives the algorithm what it needs."""
    return next(one for one in EVERY_METHOD if delivers(one, algorithm))


def pick_transport(algorithm: str) -> str:
    """The transport of an algorithm's tests: fading and packets alternate between algorithms."""
    fit = [one for one in EVERY_METHOD if delivers(one, algorithm)]
    return fit[ALGORITHMS.index(algorithm) % len(fit)]


PAIRS = [(algorithm, pick_transport(algorithm)) for algorithm in ALGORITHMS]
PAIRS += [
    (EVERY_PAYLOAD[0], transport)
    for transport in TRANSPORTS
    if delivers(transport, EVERY_PAYLOAD[0]) and (EVERY_PAYLOAD[0], transport) not in PAIRS
]
"""Every algorithm over a transport in turn, and every transport with one algorithm."""


def tree(changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """BASE with some dotted keys changed; a whole section replaces the base's."""
    out = copy.deepcopy(BASE)
    for key, value in (changes or {}).items():
        at = out
        *path, last = key.split(".")
        for part in path:
            inner = at.setdefault(part, {})
            if not isinstance(inner, dict):
                inner = at[part] = {"name": inner}
            at = inner
        at[last] = value
    transport = out.get("transport", {})
    name = transport.get("name") if isinstance(transport, dict) else transport
    if name in TRANSPORTS:  # with what it cannot do without
        for key, value in registry.load_settings_class("transport", name).example.items():
            section, _, own = key.partition(".")
            out.setdefault(section, {own: value})
    algorithm = out.get("algorithm")
    name = algorithm.get("name") if isinstance(algorithm, dict) else algorithm
    if name in ALGORITHMS:
        method = registry.load_component("algorithm", name)
        if is_normed(method) and "model" not in (changes or {}):
            out["model"] = {"name": "contract.small:normed", "hidden": [4]}
        if algorithm == name:
            out["algorithm"] = {"name": name, **method.Settings.small}
    return out


def scenario(changes: Mapping[str, Any] | None = None) -> Scenario:
    return load_scenario(tree(changes))


def points(changes: Mapping[str, Any] | None = None) -> list[Point]:
    return expand(scenario(changes))


def prepare_first_round(one: Engine) -> tuple[BroadcastDelivery, Cohort]:
    """The inputs of local work in the first round: the broadcast, and the cohort."""
    cohort = one.select_cohort(one.find_available(0), 0, one.draw_channel(0))
    sent = one.parts.algorithm.broadcast(one.server, cohort)
    return one.parts.downlink.send(sent, cohort, 0), cohort


def engine(
    changes: Mapping[str, Any] | Sequence[Point] | None = None,
    trials: Sequence[int] | None = None,
    probe: Callable[[EngineParts], Any] | None = None,
    chosen: Sequence[int] | None = None,
) -> Engine:
    """The engine of one stack: these trials of these points (all, if not given). `probe` makes
    another algorithm of the parts. Points instead of changes need not be read again."""
    all_points = changes if isinstance(changes, Sequence) else points(changes)
    stacked = all_points if chosen is None else [all_points[index] for index in chosen]
    numbers = range(stacked[0].scenario.trials) if trials is None else trials
    parts = assemble(stacked, list(numbers))
    if probe is not None:
        made = probe(parts)
        sizes = SubmodelWorkload(
            made, None, parts.link.channel, make_workload(parts.scenario, parts.samples)
        )
        parts = dataclasses.replace(parts, algorithm=made, submodels=sizes)
    return Engine(parts)


def run(one: Engine, rounds: int) -> Engine:
    for t in range(rounds):
        one.run_round(t)
    return one


@torch.no_grad()
def scores(one: Engine) -> dict[str, Tensor]:
    """What every view predicts, [S, models of a trial, 20, classes]: unlike the parameters of a
    factored model, it is unique. On the CPU."""
    x = torch.from_numpy(one.parts.samples.data.x_test[:20]).to(one.sample_share)
    views = one.parts.algorithm.build_views(one.server, one.devices.get_all())
    out = {}
    for name, view in views.items():
        value = view.predict_fn(view.params, x[None])
        out[name] = value.view(one.num_trials, -1, *value.shape[1:]).cpu()
    return out


def state(one: Engine) -> dict[str, Tensor]:
    """The blocks of the server and of all devices."""
    devices = {f"device {name}": block for name, block in one.devices.get_all().items()}
    return {**one.server, **devices}


def close(one: Mapping[str, Tensor], other: Mapping[str, Tensor], tolerance: float) -> None:
    """Largest difference within the tolerance, relative to the largest value."""
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].shape == other[name].shape
        scale = float(other[name].abs().max())
        assert scale > 0
        assert float((one[name] - other[name]).abs().max()) <= tolerance * scale, name


def equal(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> None:
    """Bit for bit."""
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name
