"""From validated points of a sweep to the parts of one stack: the only place that builds them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otafl.algorithms._legacy import adapted
from otafl.algorithms.base import Algorithm
from otafl.algorithms.custom import settings_of
from otafl.channels.config_own import CustomChannelConfig
from otafl.channels.custom import CustomChannel
from otafl.channels.fading import link_budget
from otafl.channels.long_term import statistics
from otafl.clock.stack_clock import Clock
from otafl.core import custom, registry
from otafl.core.contracts import (
    Blocks,
    Codec,
    Cohort,
    Hyper,
    LinkBudget,
    Receiver,
    ServerOptimiser,
    Transport,
)
from otafl.core.errors import UserError
from otafl.core.hyper import hyper_of
from otafl.core.rng import Streams
from otafl.core.settings import CustomSettings
from otafl.data.augment import augmentation
from otafl.data.class_window import published_labels
from otafl.data.config import DataConfig
from otafl.data.config_partition import ClassWindowConfig
from otafl.data.dataset import DataSet, load
from otafl.data.own import OwnSamples, Shares, cut, of_classes
from otafl.data.partition import pack, partition
from otafl.data.work import LocalData
from otafl.devices.availability import Availability, AvailabilitySetup
from otafl.devices.faults import Faults, jammer_power
from otafl.devices.frequency import Frequency, FrequencySetup
from otafl.devices.hardware import Hardware, devices_of
from otafl.devices.jitter import Jitter
from otafl.devices.protocol import rules_of
from otafl.downlink.downlink import Downlink, DownlinkSetup
from otafl.levels.levels import Levels, LevelSetup
from otafl.models.base import Model
from otafl.models.module import ModuleModel
from otafl.power.config import CustomPowerConfig
from otafl.power.custom import CustomPolicy
from otafl.scenario import Point, Scenario
from otafl.selection.choosing import Selection, SelectionSetup
from otafl.transport.impairments import Impairments
from otafl.transport.planned import orthogonal_uplink
from otafl.transport.setup import LinkSetup
from otafl.transport.signalling import Signalling


@dataclass(frozen=True)
class Uplink:
    """Everything between the devices' payloads and the server."""

    channel: Any
    budget: LinkBudget
    codec: Codec
    transport: Transport


@dataclass(frozen=True)
class Parts:
    """The parts of one stack of S trials over K devices, as `engine.Engine` uses them."""

    scenario: Scenario
    streams: Streams
    data: DataSet
    local_data: LocalData
    own_test: OwnSamples | None
    own_validation: OwnSamples | None
    share: Tensor
    """[S, K]: each device's number of samples."""
    model: Model
    algorithm: Algorithm
    hyper: Hyper
    server: ServerOptimiser
    link: Uplink
    clock: Clock
    hardware: Hardware
    frequency: Frequency
    jitter: Jitter
    deadline_s: np.ndarray
    round_budget_j: np.ndarray
    duration_s: np.ndarray
    """Of these three, [S], inf where there is no bound."""
    selection: Selection
    levels: Levels | None
    downlink: Downlink
    faults: Faults
    signalling: Signalling


def torch_device(name: str) -> torch.device:
    """The device of `engine.device`: auto takes a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("engine.device: 'cuda' was asked for but torch sees no GPU; auto or cpu do")
    return torch.device(name)


def build_model(scenario: Scenario, input_shape: tuple[int, ...], classes: int) -> Model:
    """The scenario's model; a user's own may be a `torch.nn.Module` or a `Model`."""
    config = scenario.model
    if not isinstance(config, CustomSettings):
        make = registry.component("model", config.name)
        model: Model = make(config, input_shape, classes)
        return model
    options = config.options | {"input_shape": input_shape, "classes": classes}
    made = custom.call(config.name, "model.name", options)
    if isinstance(made, torch.nn.Module):
        return ModuleModel(made, input_shape, classes)
    if not isinstance(made, Model):
        raise UserError(
            f"model.name: '{config.name}' returned a {type(made).__name__}; a torch.nn.Module or "
            "an otafl.models.Model would do"
        )
    return made


def build_algorithm(scenario: Scenario, model: Model) -> Algorithm:
    """The scenario's algorithm over a model; refuses what the model cannot give it."""
    made = registry.make("algorithm", scenario.algorithm, model, scenario.devices.count)
    return adapted(made)


def assemble(points: Sequence[Point], trials: Sequence[int]) -> Parts:
    """The parts for points of one stack key and these trial numbers; S = points x trials, point
    by point."""
    rows = [point.scenario for point in points for _ in trials]
    scenario = rows[0]
    device = torch_device(scenario.engine.device)
    dtype = getattr(torch, scenario.engine.dtype)
    numbers = [trial for _ in points for trial in trials]
    streams = Streams([row.seed for row in rows], numbers, device, dtype)
    data = load_data(scenario)
    model = build_model(scenario, data.input_shape, data.classes)
    held = _held(scenario, data, streams)
    if isinstance(scenario.data.partition, ClassWindowConfig):
        labels = published_labels(data.y_train, scenario.devices.count, scenario.data.partition)
        data = replace(data, y_train=labels)
    local_data, share = _local_data(scenario, data, held, streams)
    faults = Faults([row.faults for row in rows], streams, _hyper(rows, "faults", streams))
    hardware = Hardware.stack(
        [
            devices_of(row.devices.compute, row.devices.count, generator)
            for row, generator in zip(rows, streams.generators("compute"), strict=True)
        ]
    )
    frequency = scenario.devices.frequency
    link = build_link(rows, scenario.devices.count, streams, power_db=hardware.power_db)
    algorithm = build_algorithm(scenario, model)
    selection, setup = _selection(rows, link, streams)
    return Parts(
        scenario=scenario,
        streams=streams,
        data=data,
        local_data=local_data,
        own_test=_own(data, held, local_data, "test"),
        own_validation=_own(data, held, local_data, "validation"),
        share=share,
        model=model,
        algorithm=algorithm,
        hyper=_hyper(rows, "algorithm", streams),
        server=registry.component("server", scenario.server.name)(
            scenario.server, _hyper(rows, "server", streams)
        ),
        link=link,
        clock=_clock(rows, hardware, streams),
        hardware=hardware,
        frequency=registry.component("frequency", frequency.name)(
            frequency,
            FrequencySetup(
                hardware,
                link.budget,
                orthogonal_uplink(
                    scenario.transport, _hyper(rows, "transport", streams), link.codec, setup.csi
                ),
            ),
        ),
        jitter=Jitter([row.devices.compute for row in rows], streams),
        deadline_s=_bounds([row.devices.deadline_s for row in rows]),
        round_budget_j=_bounds([row.devices.round_budget_j for row in rows]),
        duration_s=_bounds([row.training.duration_s for row in rows]),
        selection=selection,
        levels=_levels(scenario, algorithm, hardware, setup),
        downlink=_downlink(rows, link, streams),
        faults=faults,
        signalling=Signalling([row.signalling for row in rows], link.budget),
    )


def _selection(
    rows: Sequence[Scenario], link: Uplink, streams: Streams
) -> tuple[Selection, SelectionSetup]:
    """How participants are chosen; what is believed of the channel is what the uplink believes."""
    config, csi = rows[0].devices.selection, rows[0].csi
    setup = SelectionSetup(
        csi=registry.component("csi", csi.name)(
            csi, link.channel, link.budget, streams, _hyper(rows, "csi", streams)
        ),
        budget=link.budget,
        streams=streams,
        hyper=_hyper([row.devices for row in rows], "selection", streams),
    )
    return registry.component("selection", config.name)(config, setup), setup


def _clock(rows: Sequence[Scenario], hardware: Hardware, streams: Streams) -> Clock:
    """The clocks of the trials, with their protocols' rules and their devices' comings and
    goings."""
    devices, output = rows[0].devices, rows[0].output
    rules = [
        rules_of(one.protocol, one.deadline_s, one.late) for one in (row.devices for row in rows)
    ]
    setup = AvailabilitySetup(devices.count, streams)
    availability: Availability = registry.component("availability", devices.availability.name)(
        devices.availability, setup
    )
    lives = [
        [availability.changes(trial, device) for device in range(devices.count)]
        for trial in range(len(rows))
    ]
    return Clock(hardware, rules, lives, output.save_timeline)


def _bounds(values: Sequence[float | None]) -> np.ndarray:
    """[S], inf for None."""
    return np.array([np.inf if value is None else value for value in values])


def _levels(
    scenario: Scenario, algorithm: Algorithm, hardware: Hardware, link: SelectionSetup
) -> Levels | None:
    """Who trains which model size; None for a method of one size."""
    sizes = algorithm.levels()
    if not sizes:
        return None
    batch = scenario.training.batch_size
    setup = LevelSetup(sizes, hardware, batch * scenario.training.local_steps, batch, link)
    config = scenario.devices.levels
    levels: Levels = registry.component("levels", config.name)(config, setup)
    return levels


def _downlink(rows: Sequence[Scenario], link: Uplink, streams: Streams) -> Downlink:
    """How the server's model reaches the devices."""
    config = rows[0].downlink
    rate_bps = np.array([row.devices.downlink_rate_bps for row in rows])
    hyper = _hyper(rows, "downlink", streams)
    setup = DownlinkSetup(rate_bps, link.budget, streams, hyper)
    downlink: Downlink = registry.component("downlink", config.name)(config, setup)
    return downlink


def build_link(
    rows: Sequence[Scenario],
    devices: int,
    streams: Streams,
    save_gram: bool = True,
    policy: Any = None,
    power_db: np.ndarray | None = None,
) -> Uplink:
    """The uplink of S trials (their scenarios) over K devices. policy: a `PowerPolicy` in the
    place of the scenario's own. power_db: [S, K] that devices' budgets are above the channel's."""
    scenario = rows[0]
    budget = link_budget([row.channel for row in rows], devices, streams.device, streams.dtype)
    if power_db is not None and power_db.any():
        more = torch.from_numpy(10.0 ** (power_db / 10.0)).to(budget.budget)
        budget = replace(budget, budget=budget.budget * more)
    own = isinstance(scenario.channel, CustomChannelConfig)
    make = CustomChannel if own else registry.component("channel", scenario.channel.name)
    channel = make(scenario.channel, budget, devices, streams, _hyper(rows, "channel", streams))
    csi = registry.component("csi", scenario.csi.name)(
        scenario.csi, channel, budget, streams, _hyper(rows, "csi", streams)
    )
    antennas = channel.state(0).h.shape[2]
    receiver = build_receiver(scenario.receiver, scenario.power, antennas)
    jammer = jammer_power([row.faults for row in rows], streams)
    impairments = Impairments.of([row.impairments for row in rows], jammer, streams)
    if policy is None and isinstance(scenario.power, CustomPowerConfig):
        policy = CustomPolicy(scenario.power)
    elif policy is None:
        policy = registry.make("power", scenario.power)
    codec = registry.component("codec", scenario.codec.name)(
        scenario.codec, _hyper(rows, "codec", streams), streams
    )
    setup = LinkSetup(
        budget=budget,
        csi=csi,
        receiver=receiver,
        policy=policy,
        statistics=statistics(channel, csi, receiver, budget, impairments.known_noise),
        policy_hyper=_hyper(rows, "power", streams),
        impairments=impairments,
        codec=codec,
        streams=streams,
        hyper=_hyper(rows, "transport", streams),
        save_link=scenario.output.save_link,
        save_gram=save_gram,
    )
    make = registry.component("transport", scenario.transport.name)
    return Uplink(channel, budget, codec, make(scenario.transport, setup))


def build_receiver(config: Any, power: Any, antennas: int) -> Receiver:
    """The receiver of the scenario, or the one that its power policy is made for."""
    make = registry.component("receiver", config.name)
    if config.name == "auto":
        name = make(config, power.receiver, antennas)
        config = registry.settings("receiver", name)(scale=config.scale)
        make = registry.component("receiver", name)
    receiver: Receiver = make(config)
    return receiver


def _hyper(rows: Sequence[Any], section: str, streams: Streams) -> Blocks:
    """Of a section of each trial's scenario, or of a part of it."""
    return hyper_of([settings_of(getattr(row, section)) for row in rows], streams)


def bytes_per_trial(scenario: Scenario) -> int:
    """Memory that one trial adds to a stack, roughly: state of server and devices before and after
    a round, one payload as large as what a device receives, and the index of who holds which
    sample."""
    data = load_data(scenario)
    model = build_model(scenario, data.input_shape, data.classes)
    algorithm = build_algorithm(scenario, model)
    streams = Streams([scenario.seed], [0], "cpu", getattr(torch, scenario.engine.dtype))
    server, devices = algorithm.init(streams, _hyper([scenario], "algorithm", streams))
    server_reals = sum(block[0].numel() for block in server.values())
    first = torch.zeros(1, dtype=torch.int64)
    one = Cohort.fresh(first, first, torch.ones(1), (1,), 1)
    payload_reals = algorithm.broadcast(server, one).reals
    device_reals = 0
    if scenario.engine.device_state == "memory":
        device_reals = sum(block[0, 0].numel() for block in devices.values())
    count = scenario.devices.count
    senders = scenario.devices.participants or count
    reals = 4 * server_reals + 2 * count * device_reals + 2 * senders * payload_reals
    return reals * torch.finfo(streams.dtype).bits // 8 + 16 * len(data.y_train)


@functools.lru_cache(maxsize=2)
def _loaded(config: DataConfig) -> DataSet:
    return load(config)


def load_data(scenario: Scenario) -> DataSet:
    """The scenario's data set; the stacks of a sweep share it."""
    return _loaded(scenario.data)


def _held(scenario: Scenario, data: DataSet, streams: Streams) -> list[list[Shares]]:
    """[S][K]: who holds which samples; trials that share all numbers share a partition."""
    config = scenario.data
    parts: dict[int, list[Shares]] = {}
    rows = []
    seeds = streams.seeds("partition", 0)
    for seed, generator in zip(seeds, streams.generators("partition"), strict=True):
        if seed not in parts:
            dealt = partition(
                config.partition, data.y_train, scenario.devices.count, generator, data.owner
            )
            if config.test == "per_device" and not config.partition.shuffled:
                dealt = [generator.permutation(part) for part in dealt]
            parts[seed] = [_shares(config, data, part) for part in dealt]
        rows.append(parts[seed])
    return rows


def _shares(config: DataConfig, data: DataSet, part: np.ndarray) -> Shares:
    """What a device holds: of the training samples, and its own test and validation samples."""
    if config.test == "per_device":
        return cut(part, config.test_share, config.validation)
    if not config.own_test:
        return Shares(part, part[:0], part[:0])
    test = of_classes(part, data.y_train, data.y_test)
    if config.partition.name == "natural" and data.owner is not None:
        assert data.owner_test is not None  # a data set's users are in both of its parts
        test = of_classes(part, data.owner, data.owner_test)
    return Shares(part, test, of_classes(part, data.y_train, data.y_validation))


def _local_data(
    scenario: Scenario, data: DataSet, held: list[list[Shares]], streams: Streams
) -> tuple[LocalData, Tensor]:
    """The devices' shares of the training data."""
    index, count = (
        torch.from_numpy(array).to(streams.device)
        for array in pack([[one.train for one in row] for row in held])
    )
    local_data = LocalData(
        torch.from_numpy(data.x_train).to(streams.device, streams.dtype),
        torch.from_numpy(data.y_train).to(streams.device),
        index,
        count,
        data.classes,
        streams,
        scenario.training.batch_size,
        scenario.training.local_steps,
        augmentation(scenario.data.augment, data.input_shape, data.black, streams),
    )
    return local_data, count.to(streams.dtype)


def _own(data: DataSet, held: list[list[Shares]], local: LocalData, part: str) -> OwnSamples | None:
    """The devices' own samples, `part` being test or validation; None where they have none."""
    parts = [[getattr(one, part) for one in row] for row in held]
    sizes = [len(one) for row in parts for one in row]
    if not any(sizes):
        return None
    if not all(sizes):
        raise UserError(
            f"data.own_test: a device trains on classes of which there are no {part} samples; more "
            "samples or another data.partition would do"
        )
    if len(data.y_test):
        x, y = (torch.from_numpy(getattr(data, f"{name}_{part}")) for name in ("x", "y"))
        return OwnSamples.of(x.to(local.x), y.to(local.y), parts, data.classes)
    return OwnSamples.of(local.x, local.y, parts, data.classes)
