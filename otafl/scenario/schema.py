"""The schema of a scenario: its sections and their keys.

A section that chooses from a table of `otafl.core.registry` is a mapping with a `name`, or only the
name. Without a name it has its default choice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from otafl.core.choices import declare_choice
from otafl.core.problems import Problem, make_problem
from otafl.core.settings import Settings, declare_stackable
from otafl.core.suggestions import shorten
from otafl.devices.faults import Faults
from otafl.devices.protocols import Late
from otafl.losses.metrics import METRICS, MODELS, list_variables
from otafl.privacy.mechanism import Privacy
from otafl.robust.aggregation import RobustSettings
from otafl.uplink.impairments.impairments import Impairments
from otafl.uplink.report import Signalling

TARGETS = list_variables(*MODELS, metrics=tuple(METRICS))

if TYPE_CHECKING:
    Target = str
else:
    Target = Literal[TARGETS]


class DevicesSettings(Settings):
    """The devices that train."""

    count: int = Field(10, ge=1)
    """devices in the population, K"""
    participants: int | None = Field(None, ge=1)
    """devices asked to take part in a round; all if not given"""
    senders: int | None = Field(None, ge=1)
    """participants whose update is aggregated, drawn again in each round; the others only train.
    All if not given"""
    selection: Any = declare_choice("selection", "how participants are chosen")
    capacity_levels: Any = declare_choice(
        "capacity_levels", "model size that each device trains, for methods with several"
    )
    compute: Any = declare_choice("compute", "hardware of the devices and its speed")
    protocol: Any = declare_choice("protocol", "when the uplink slot opens")
    availability: Any = declare_choice("availability", "when devices are available")
    cpu_frequency: Any = declare_choice(
        "cpu_frequency", "clock frequency of the processor during local work (DVFS)"
    )
    round_budget_j: float | None = declare_stackable(None, gt=0)
    """joules that a device may spend in a round: a device whose local work takes more does not take
    part, the others radiate at most the remainder; no bound if not given"""
    deadline_s: float | None = declare_stackable(None, gt=0)
    """seconds from the start of a round to its uplink slot; without it the slot waits for the
    slowest participant"""
    late: Late = "drop"
    """treatment of an update that misses the slot: dropped, or delivered in the next slot that it
    is ready for"""
    downlink_rate_bps: float = declare_stackable(1e7, gt=0)
    """bit rate at which the server's model reaches the devices"""

    def check(self, scenario: Any) -> Iterable[Problem]:
        """Check that no more devices are requested than exist."""
        if self.participants is not None and self.participants > self.count:
            text = (
                f"got {self.participants}, more than devices.count ({self.count}); leave it out "
                "for all devices"
            )
            yield make_problem(text, "devices.participants", "devices.count")
        wanted = self.participants or self.count
        if self.senders is not None and self.senders > wanted:
            text = (
                f"got {self.senders}, more than the {wanted} devices that take part; leave it out "
                "for all of them"
            )
            yield make_problem(text, "devices.senders", "devices.participants", "devices.count")


class TrainingSettings(Settings):
    """Rounds, local work and evaluation."""

    idle_without: ClassVar = {"fine_tune_learning_rate": "fine_tune_steps"}

    rounds: int = Field(100, ge=1)
    """communication rounds"""
    local_steps: int = Field(1, ge=1)
    """minibatch steps of a device in a round"""
    local_epochs: int | None = Field(None, ge=1)
    """passes of a device over its own samples in a round (E of FedAvg), in place of local_steps: a
    device with n samples takes local_epochs * ceil(n / batch_size) steps; local_steps if not
    given"""
    batch_size: int = Field(20, ge=1)
    """samples in a minibatch"""
    weights: Literal["samples", "uniform"] = "samples"
    """weights of the devices in the server's mean: their numbers of training samples (FedAvg), or
    equal weights (pFedMe, Per-FedAvg)"""
    eval_every: int = Field(10, ge=1)
    """rounds between evaluations; the last round is always evaluated"""
    eval_samples: int | None = Field(None, ge=1)
    """test samples evaluated on; all if not given"""
    fine_tune_steps: int = Field(0, ge=0)
    """SGD steps by which each device fine-tunes a copy of its model before it is tested, in the
    results `tuned_*`; pFedBreD's trick FT is 1"""
    fine_tune_learning_rate: float = Field(0.01, gt=0)
    """step size of the fine-tuning before a test"""
    cross_test: bool = False
    """evaluate devices' models on the common test samples too, if they have test samples of their
    own"""
    class_losses: bool = False
    """save the test losses of the devices' personal models by class"""
    norm_samples: int | None = Field(None, ge=1)
    """training samples that the statistics of batch normalisation are estimated on before a test;
    all if not given"""
    duration_s: float | None = declare_stackable(None, gt=0)
    """simulated seconds after which a trial ends, regardless of the rounds; no bound if not
    given"""
    stop_at: dict[Target, float] | None = None
    """a trial stops once all of these results reach their values: an accuracy or r2 from below, a
    loss, mse or perplexity from above"""

    def find_conflicts(self) -> Iterable[str]:
        if self.local_epochs is not None and self.local_steps != 1:
            yield (
                f"local_epochs: got {self.local_epochs} beside local_steps: {self.local_steps}; "
                "give only one of the two"
            )

    def check(self, scenario: Any) -> Iterable[Problem]:
        """Check that targets are metrics of the loss, and that samples for them exist."""
        data = scenario.data
        has_own = data.own_test or data.test == "per_device"
        known = {"loss", *scenario.loss.get_metrics(data.labels)}
        for name, value in (self.stop_at or {}).items():
            tested, _, last = name.rpartition("_")
            key, metric = f"training.stop_at.{name}", METRICS[last]
            if not metric.lowest <= value <= metric.highest:
                side, bound = ("greater", metric.lowest)
                if value > metric.highest:
                    side, bound = ("less", metric.highest)
                text = f"got {value:g}; must be {side} than or equal to {bound:g}"
                yield make_problem(text, key)
            if name.startswith("validation_") and not data.validation:
                text = "there are no validation samples; set data.validation, e.g. to 0.1"
                yield make_problem(text, key, "data.validation")
            if name.startswith("personal_own_") and not has_own:
                text = (
                    "devices have no test samples of their own; set data.own_test: true or "
                    "data.test: per_device"
                )
                yield make_problem(text, key, "data.own_test", "data.test")
            if last not in known:
                fitting = " or ".join(f"{tested}_{one}" for one in sorted(known))
                text = f"loss '{scenario.loss.name}' has no {last} on these data; use {fitting}"
                yield make_problem(text, key, "loss", "data")
        if self.class_losses and data.labels not in (None, "classes"):
            text = "the labels of the data set are no classes; leave it out"
            yield make_problem(text, "training.class_losses", "data")


class EngineSettings(Settings):
    """Computation of a run; except for rounding, the results do not depend on it."""

    memory_gb: float = Field(2.0, gt=0)
    """bound on the memory of the tensors of one stack"""
    chunk_mb: float | None = Field(None, gt=0)
    """memory of the devices that are computed together, which should fit the processor's cache; 8
    on a CPU and 2048 on a GPU if not given"""
    dtype: Literal["float32", "float64"] = "float32"
    """precision"""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """processor; auto takes a GPU if there is one"""
    cuda_graphs: bool = True
    """whether a GPU records the local work of built-in methods and models in CUDA graphs, which it
    replays in later rounds"""
    threads: int | None = Field(None, ge=1, le=1024)
    """processor threads; torch's choice if not given"""


class OutputSettings(Settings):
    """Files and variables of the results."""

    folder: str = Field("results", min_length=1)
    """folder of the results"""
    save_link: bool = False
    """save channels, transmit scalars and receive scaling of recorded rounds"""
    save_timeline: bool = False
    """save the activities of every device, one row per event"""
    save_models: bool = False
    """save the trained models at the end of each trial"""
    each_device_up_to: int = Field(10_000, ge=0)
    """largest population whose devices are recorded one by one; for a larger one, joules are
    recorded as sums over the devices, and other variables of devices are left out"""

    def check(self, scenario: Any) -> Iterable[Problem]:
        """Check that the links of no more devices are saved than are recorded one by one."""
        count = scenario.devices.count
        if self.save_link and count > self.each_device_up_to:
            text = (
                f"saves the channel of each of {count} devices, but output.each_device_up_to is "
                f"{self.each_device_up_to}; use fewer devices or a larger bound"
            )
            yield make_problem(
                text, "output.save_link", "output.each_device_up_to", "devices.count"
            )


MAX_LETTERS = 150
"""Largest number of bytes in a name: a file's name has at most 255, with endings of otafl's."""

MAX_TRIALS = 10**6
"""Largest number of trials of a point: the plan of a sweep lists them."""


def _check_file_name(name: str) -> str:
    if not re.fullmatch(r"\w[\w.\-]*", name) or len(name.encode()) > MAX_LETTERS:
        shown = shorten(name, 60)
        raise ValueError(
            f"got {shown!r}; must be letters, digits, '_', '-' and '.', at most {MAX_LETTERS} "
            "bytes, because files are named after it"
        )
    return name


class Scenario(Settings):
    """A wireless federated-learning experiment."""

    name: Annotated[str, AfterValidator(_check_file_name)]
    """name of the run and of its files"""
    data: Any = declare_choice("data", "data set and its partition over devices")
    model: Any = declare_choice("model", "model that is trained")
    loss: Any = declare_choice(
        "loss", "loss that training lowers; the data set's own if not given", chosen_by="data"
    )
    algorithm: Any = declare_choice("algorithm", "federated method")
    channel: Any = declare_choice("channel", "radio channel of the uplink")
    csi: Any = declare_choice("csi", "channel knowledge of server and devices")
    receiver: Any = declare_choice("receiver", "combining and receive scaling")
    power: Any = declare_choice("power", "power control of the uplink")
    impairments: Impairments.Settings = Field(default_factory=Impairments.Settings)
    """further impairments of the uplink"""
    faults: Faults.Settings = Field(default_factory=Faults.Settings)
    """faults of devices and attacks on the training"""
    codec: Any = declare_choice("codec", "compression of the updates")
    transport: Any = declare_choice("transport", "how updates reach the server")
    signalling: Signalling.Settings = Signalling.Settings()
    """control overhead of a slot"""
    privacy: Privacy.Settings = Privacy.Settings()
    """privacy of the devices' data by the uplink's noise"""
    robust: RobustSettings = Field(default_factory=RobustSettings)
    """groups of devices, and a robust rule over their means"""
    server: Any = declare_choice("server", "server optimiser, applied to the averaged increment")
    downlink: Any = declare_choice("downlink", "how the model reaches the devices")
    topology: Any = declare_choice(
        "topology", "servers, and the devices that each of them receives"
    )
    devices: DevicesSettings = Field(default_factory=DevicesSettings)
    """the devices"""
    training: TrainingSettings = TrainingSettings()
    """the training"""
    trials: int = Field(1, ge=1, le=MAX_TRIALS)
    """Monte-Carlo trials of every point"""
    seed: int = Field(0, ge=0, lt=2**63)
    """root seed of all random numbers"""
    sweep: dict[str, list[Any]] = Field({})
    """axes: dotted key -> values; a component's section (power) is replaced, its name (power.name)
    keeps the other keys. zip: a list of mappings of keys that advance together"""
    engine: EngineSettings = EngineSettings()
    """memory, precision and processor of the computation"""
    output: OutputSettings = OutputSettings()
    """files and variables of the results"""
    track: Any = declare_choice("track", "tracker that receives every evaluation during the run")


@dataclass(frozen=True)
class Point:
    """A point of the sweep.

    Parameters
    ----------
    index : int
        Number of the point, from 0.
    coords : dict
        Coordinate name -> value.
    scenario : Scenario
        Its scenario, without a sweep.
    """

    index: int
    coords: dict[str, Any]
    scenario: Scenario
