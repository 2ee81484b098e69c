"""What no section of a scenario can tell alone: checks across sections."""

from __future__ import annotations

import itertools
import math
from typing import Any

from pydantic import BaseModel, ValidationError

from otafl.algorithms.config import FedRLRConfig, FedRLRPlusConfig
from otafl.algorithms.custom import averages, class_of, settings_of
from otafl.channels.config_own import CustomChannelConfig
from otafl.core import custom, registry
from otafl.core.choices import Choice
from otafl.core.errors import UserError
from otafl.core.problems import Path, Problem
from otafl.core.settings import CustomSettings
from otafl.core.words import did_you_mean
from otafl.models import geometry
from otafl.models.config import CnnConfig, MlpConfig, SoftmaxRegressionConfig
from otafl.scenario.errors import problems_of, shown
from otafl.scenario.keys import CHOICES
from otafl.scenario.schema import Scenario
from otafl.transport.config import DigitalConfig, OverTheAirConfig


def check(scenario: Scenario) -> list[Problem]:
    """Everything that is wrong between the sections of a point."""
    checks = [_devices, _frequency, _faults, _stop, _own_channel, _link, _images]
    of_method = [_levels, _server, _transport, _rank]
    problems = [problem for path in CHOICES for problem in _of_section(scenario, path)]
    if not any(problem.path[0] == "algorithm" for problem in problems):
        checks += of_method
    return problems + [problem for one in checks for problem in one(scenario)]


def _of_section(scenario: Scenario, path: Path) -> list[Problem]:
    """What a component finds wrong with the rest of the scenario."""
    section: Any = scenario
    for part in path:
        section = getattr(section, str(part))
    try:
        return list(section.check(scenario))
    except ValidationError as error:  # of the settings of a component of the user's
        tree: Any = section.options
        for part in reversed(path):
            tree = {part: tree}
        return problems_of(error, tree, Scenario)


def _own_channel(scenario: Scenario) -> list[Problem]:
    """Whether the user's own channel can be had, and the section's keys fit it."""
    config = scenario.channel
    if not isinstance(config, CustomChannelConfig):
        return []
    try:
        _, keys = config.load()
    except UserError as error:
        return [Problem(str(error), ("channel", "name"))]
    return _keys("channel", config.options, keys, CustomChannelConfig)


def _keys(
    section: str, given: dict[str, Any], keys: custom.Keys, settings: type[BaseModel]
) -> list[Problem]:
    """Keys of a section that a callable of the user's does not take, or lacks. settings: has the
    keys beside the callable's own."""
    known = [name for name in (*keys.names, *settings.model_fields) if name != "name"]
    problems = []
    for word in given:
        if word not in keys.names and not keys.any:
            hint = did_you_mean(word, known)
            text = f"{section}.{word}: unknown key{hint} (known keys: {', '.join(known)})"
            problems.append(Problem(text, (section, word)))
    for word in keys.required:
        if word not in given:
            text = f"{section}.{word}: must be given"
            problems.append(Problem(text, (section, word)))
    return problems


def layers(scenario: Scenario) -> list[tuple[int, int]] | None:
    """(inputs, outputs) of each layer's weight, or None where only the user's own code knows, or
    the data do not fit."""
    data, model = scenario.data, scenario.model
    if isinstance(data, CustomSettings):
        return None
    if isinstance(model, CnnConfig):
        try:
            sides = geometry.cnn(model, data.input_shape, data.classes)
        except UserError:
            return None
        return [(one.inputs, one.outputs) for one in sides]
    widths = [math.prod(data.input_shape), data.classes]
    if isinstance(model, MlpConfig):
        widths[1:1] = model.hidden
    elif not isinstance(model, SoftmaxRegressionConfig):
        return None
    return list(itertools.pairwise(widths))


def _devices(scenario: Scenario) -> list[Problem]:
    devices = scenario.devices
    problems = []
    if devices.participants is not None and devices.participants > devices.count:
        text = (
            f"devices.participants: got {devices.participants}, more than devices.count "
            f"({devices.count}); leave it out for all devices"
        )
        problems.append(Problem(text, ("devices", "participants"), (("devices", "count"),)))
    wanted = devices.participants or devices.count
    if devices.senders is not None and devices.senders > wanted:
        text = (
            f"devices.senders: got {devices.senders}, more than the {wanted} devices that take "
            "part; leave it out for all of them"
        )
        others = (("devices", "participants"), ("devices", "count"))
        problems.append(Problem(text, ("devices", "senders"), others))
    if devices.senders is not None and devices.selection.name == "update_norm":
        text = (
            "devices.senders: does not go with devices.selection: 'update_norm', which chooses who "
            "sends itself; leave it out"
        )
        problems.append(Problem(text, ("devices", "senders"), (("devices", "selection"),)))
    protocol = devices.protocol.name
    if devices.late == "next" and devices.deadline_s is None and protocol == "rounds":
        text = (
            "devices.late: 'next' needs devices.deadline_s: without a deadline the slot waits for "
            "everyone and nobody is late"
        )
        problems.append(Problem(text, ("devices", "late"), (("devices", "deadline_s"),)))
    if devices.deadline_s is not None and protocol in ("periodic", "asynchronous"):
        text = (
            f"devices.deadline_s: got {devices.deadline_s:g}, but protocol '{protocol}' has no "
            "deadline; leave it out, or devices.protocol: rounds or quorum would do"
        )
        problems.append(Problem(text, ("devices", "deadline_s"), (("devices", "protocol"),)))
    if protocol == "quorum" and devices.protocol.ready > wanted:
        text = (
            f"devices.protocol.ready: got {devices.protocol.ready:g}, more than the {wanted} "
            f"devices that take part; at most {wanted}"
        )
        others = (("devices", "participants"), ("devices", "count"))
        problems.append(Problem(text, ("devices", "protocol", "ready"), others))
    if protocol != "rounds" and devices.selection.name == "update_norm":
        text = (
            f"devices.protocol: '{protocol}' does not go with devices.selection: 'update_norm', "
            "which drops what is not sent in its own round; protocol: rounds would do"
        )
        problems.append(Problem(text, ("devices", "protocol"), (("devices", "selection"),)))
    if devices.late == "next" and devices.selection.name == "update_norm":
        text = (
            "devices.late: 'next' does not go with devices.selection: 'update_norm', which drops "
            "what is not sent in its own round; late: drop would do"
        )
        problems.append(Problem(text, ("devices", "late"), (("devices", "selection"),)))
    return problems


def _frequency(scenario: Scenario) -> list[Problem]:
    """Whether there is something to plan clock frequencies with."""
    devices, transport = scenario.devices, scenario.transport
    name, key = devices.frequency.name, ("devices", "frequency")
    if name == "full":
        return []
    problems = []
    protocol = devices.protocol.name
    if protocol in ("periodic", "asynchronous"):
        text = (
            f"devices.frequency: '{name}' plans for a deadline, which protocol '{protocol}' does "
            "not have; full would do, or devices.protocol: rounds or quorum"
        )
        problems.append(Problem(text, key, (("devices", "protocol"),)))
    elif devices.deadline_s is None:
        text = (
            f"devices.frequency: '{name}' needs devices.deadline_s, which it plans for; give it, "
            "or use full"
        )
        problems.append(Problem(text, key, (("devices", "deadline_s"),)))
    if name == "deadline" and not devices.compute.scales():
        text = (
            "devices.frequency: 'deadline' lowers the clock, and devices.compute."
            "frequency_min_share leaves each device one frequency; e.g. 0.3 would do"
        )
        problems.append(Problem(text, key, (("devices", "compute"),)))
    planned = isinstance(transport, DigitalConfig) and transport.rate == "shannon"
    if name == "joint" and not (planned and transport.over_budget == "drop"):
        text = (
            f"devices.frequency: 'joint' plans the power of transport 'digital' with rate shannon "
            f"and over_budget drop; got transport '{transport.name}'"
        )
        problems.append(Problem(text, key, (("transport",),)))
    return problems


def _levels(scenario: Scenario) -> list[Problem]:
    """Whether the method has model sizes, and as many as the devices' levels say."""
    config, algorithm = scenario.devices.levels, scenario.algorithm
    sizes = getattr(settings_of(scenario.algorithm), "levels", None)
    own = ("devices", "levels")
    if sizes is None:
        if config == Choice("levels").default():
            return []
        would_do = [
            name
            for name in registry.names("algorithm")
            if "levels" in registry.settings("algorithm", name).model_fields
        ]
        text = (
            f"devices.levels: algorithm '{algorithm.name}' has models of one size; leave it out, "
            f"or use one of the algorithms {', '.join(would_do)}"
        )
        return [Problem(text, own, (("algorithm",),))]
    problems = []
    wanted = {"shares": len(sizes), "min_snr_db": len(sizes) - 1}
    if config.name == "memory":
        wanted["shares"] = len(config.memory_mb or ())
    for key, count in wanted.items():
        values = getattr(config, key, None)
        if values is None:
            continue
        if len(values) != count:
            text = (
                f"devices.levels.{key}: got {len(values)} values, and there "
                f"{'is' if count == 1 else 'are'} {count} to give; algorithm '{algorithm.name}' "
                f"has {len(sizes)} levels"
            )
            problems.append(Problem(text, (*own, key), (("algorithm", "levels"),)))
        elif key == "shares" and sum(values) <= 0:
            text = "devices.levels.shares: all are 0; at least one above 0 would do"
            problems.append(Problem(text, (*own, key), ()))
    return problems


def _server(scenario: Scenario) -> list[Problem]:
    """Whether there is an averaged increment for the server to optimise over."""
    algorithm, server = scenario.algorithm, scenario.server.name
    if server == "average" or averages(class_of(algorithm)):
        return []
    would_do = [
        name
        for name in registry.names("algorithm")
        if averages(class_of(registry.settings("algorithm", name)()))
    ]
    text = (
        f"server: '{server}' steps along averaged increments, which algorithm "
        f"'{algorithm.name}' does not have; server: average would do, or one of the algorithms "
        f"{', '.join(would_do)}"
    )
    return [Problem(text, ("server",), (("algorithm",),))]


def _faults(scenario: Scenario) -> list[Problem]:
    byzantine, count = scenario.faults.byzantine, scenario.devices.count
    if byzantine <= count:
        return []
    text = (
        f"faults.byzantine: got {byzantine}, more than devices.count ({count}); at most all "
        "devices can attack"
    )
    return [Problem(text, ("faults", "byzantine"), (("devices", "count"),))]


def _stop(scenario: Scenario) -> list[Problem]:
    targets, data, problems = scenario.training.stop_at or {}, scenario.data, []
    if "validation_accuracy" in targets and not data.validation:
        text = (
            "training.stop_at.validation_accuracy: there are no validation samples; set "
            "data.validation, e.g. to 0.1"
        )
        path = ("training", "stop_at", "validation_accuracy")
        problems.append(Problem(text, path, (("data", "validation"),)))
    own = data.own_test or data.test == "per_device"
    if "personal_own_test_accuracy" in targets and not own:
        text = (
            "training.stop_at.personal_own_test_accuracy: devices have no test samples of their "
            "own; data.own_test: true or data.test: per_device would do"
        )
        path = ("training", "stop_at", "personal_own_test_accuracy")
        problems.append(Problem(text, path, (("data", "own_test"), ("data", "test"))))
    return problems


def _transport(scenario: Scenario) -> list[Problem]:
    needs, transport = class_of(scenario.algorithm).needs, scenario.transport
    if needs in transport.gives:
        return []
    would_do = [
        name
        for name in registry.names("transport")
        if needs in registry.settings("transport", name).gives
    ]
    text = (
        f"transport: '{transport.name}' gives the server only the {' and '.join(transport.gives)} "
        f"of the updates, but algorithm '{scenario.algorithm.name}' needs {needs} of them; "
        f"transports that would do: {', '.join(would_do)}"
    )
    return [Problem(text, ("transport",), (("algorithm",),))]


def _link(scenario: Scenario) -> list[Problem]:
    """Parts of the uplink that do not go together."""
    power, receiver, transport = scenario.power.name, scenario.receiver.name, scenario.transport
    problems = []
    if power == "blind" and receiver not in ("auto", "mrc"):
        text = (
            f"receiver: '{receiver}' does not go with power: 'blind', whose devices do not know "
            "their phases; auto or mrc would do"
        )
        problems.append(Problem(text, ("receiver",), (("power",),)))
    energy = isinstance(transport, OverTheAirConfig) and transport.snr_convention == "total_energy"
    if power == "cao_average" and energy:
        text = (
            "transport.snr_convention: 'total_energy' does not go with power: 'cao_average', which "
            "plans for a budget on the power; per_symbol would do"
        )
        problems.append(Problem(text, ("transport", "snr_convention"), (("power",),)))
    return problems


def _images(scenario: Scenario) -> list[Problem]:
    """Whether the data set's samples are images that every convolution can see."""
    data, model = scenario.data, scenario.model
    if not isinstance(model, CnnConfig) or isinstance(data, CustomSettings):
        return []
    try:
        geometry.cnn(model, data.input_shape, data.classes)
    except UserError as error:
        key = str(error).partition(":")[0].partition(".")[2]
        return [Problem(str(error), ("model", key), (("data",),))]
    return []


def _rank(scenario: Scenario) -> list[Problem]:
    algorithm, sizes = settings_of(scenario.algorithm), layers(scenario)
    if not isinstance(algorithm, FedRLRConfig | FedRLRPlusConfig) or sizes is None:
        return []
    rank, others = algorithm.rank, (("model",), ("data",))
    listed = ", ".join(f"{a}x{b}: {min(a, b)}" for a, b in sizes)
    if isinstance(rank, int):
        most = max(min(size) for size in sizes)
        if rank <= most:
            return []
        text = (
            f"algorithm.rank: {rank} is above the smaller side of every layer ({listed}); at most "
            f"{most}"
        )
        return [Problem(text, ("algorithm", "rank"), others)]
    if len(rank) != len(sizes):
        text = (
            f"algorithm.rank: got {shown(list(rank))} for {len(sizes)} layers ({listed}); give one "
            "for each, or one number for all"
        )
        return [Problem(text, ("algorithm", "rank"), others)]
    return [
        Problem(
            f"algorithm.rank[{i}]: {r} is above the smaller side of its layer, {a}x{b}; at most "
            f"{min(a, b)}",
            ("algorithm", "rank", i),
            others,
        )
        for i, (r, (a, b)) in enumerate(zip(rank, sizes, strict=True))
        if r > min(a, b)
    ]
