"""Assembly of the parts of a stack, each built by its package."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from otafl import (
    clock,
    cpu_frequency,
    data,
    downlink,
    models,
    selection,
    submodels,
    topology,
    uplink,
)
from otafl.algorithms.base import Algorithm
from otafl.algorithms.custom import find_label_problems
from otafl.clock import Clock
from otafl.core import registry
from otafl.core.contracts import Cohort, Context, Hyper, Workload
from otafl.core.errors import UserError
from otafl.core.hyper import build_hyper
from otafl.core.rng import Streams
from otafl.data import Samples
from otafl.devices import compute
from otafl.devices.faults import Faults
from otafl.devices.hardware import Hardware
from otafl.devices.slowness import build_jitter
from otafl.downlink.base import Downlink
from otafl.engine.workload import SubmodelWorkload, WorkloadPlanner
from otafl.models import starts
from otafl.models.base import Model
from otafl.models.starts import ServerSamples
from otafl.robust.aggregation import RobustAggregation
from otafl.scenario import Point, Scenario
from otafl.selection.base import Selection
from otafl.server.optimisers import ServerOptimiser
from otafl.topology.base import Topology
from otafl.uplink import Uplink
from otafl.uplink.base import deliver
from otafl.uplink.report import Signalling


@dataclass(frozen=True)
class EngineParts:
    """Parts of one stack of S rows over K devices, as `engine.Engine` uses them.

    A row is a trial, or one server of it (`topology`).

    hyper, server_hyper: the stackable fields of method and server, [S] each. duration_s: [S], inf
    without a bound.
    """

    scenario: Scenario
    streams: Streams
    samples: Samples
    topology: Topology
    model: Model
    algorithm: Algorithm
    hyper: Hyper
    server: ServerOptimiser
    server_hyper: Hyper
    link: Uplink
    robust: RobustAggregation | None
    hardware: Hardware
    faults: Faults | None
    clock: Clock
    workload: WorkloadPlanner
    submodels: SubmodelWorkload
    selection: Selection
    downlink: Downlink
    signalling: Signalling | None
    duration_s: np.ndarray

    def make_context(self, cohort: Cohort, t: int) -> Context:
        """Return the method's context of a cohort in a round."""
        count = self.samples.training_data.count_steps
        return Context(
            *(cohort, self.hyper, self.streams, t),
            count_steps_fn=lambda: torch.from_numpy(count(cohort)).to(cohort.weight),
        )


def assemble(points: Sequence[Point], trials: Sequence[int]) -> EngineParts:
    """Build the parts for points of one stack key and these trial numbers.

    S = points x trials x servers, point by point.

    Raises UserError for errors that no section of the scenario shows.
    """
    scenario = points[0].scenario
    device = select_torch_device(scenario.engine.device)
    if torch.is_autocast_enabled(device.type):
        raise UserError(
            "engine.dtype: torch.autocast is on, but engine.dtype is the precision of a run; call "
            "otafl outside of torch.autocast"
        )
    laid_out = topology.Rows.build(
        [point.scenario for point in points for _ in trials],
        [trial for _ in points for trial in trials],
        device,
        getattr(torch, scenario.engine.dtype),
    )
    rows, streams = laid_out.scenarios, laid_out.streams
    scenario, count = rows[0], rows[0].devices.count
    of_devices = [row.devices for row in rows]
    servers = topology.build(laid_out)
    own, scope = servers.device_streams, scenario.topology.partition_scope
    hardware = compute.build([one.compute for one in of_devices], count, own, servers.first_devices)
    of_faults = [row.faults for row in rows]
    faults = Faults(of_faults, own) if any(one.is_active for one in of_faults) else None
    link = uplink.build(
        rows,
        count,
        streams,
        power_db=hardware.power_db,
        mains=hardware.is_on_mains,
        reached=servers.get_uplink_channel,
        neighbours=servers.build_intercell,
    )
    shared = laid_out.trials if own is streams and scope == "all" else own
    places = topology.locate_devices(laid_out, (servers, link.budget, link.channel))
    samples = data.build(scenario.data, count, scenario.training, streams, shared, places)
    check_labels(scenario, samples)
    shape, classes = samples.data.input_shape, samples.data.classes
    model = models.build(scenario.model, shape, classes, scenario.loss)
    starts.load(scenario.model, model, get_server_samples(scenario, samples))
    algorithm = build_algorithm(scenario, model)
    link.codec.model_shapes = algorithm.sent_shapes
    chosen, setup = selection.build(
        [one.selection for one in of_devices], link.csi, link.budget, streams
    )
    load = make_workload(scenario, samples)
    sized = submodels.build(
        scenario.devices.capacity_levels, algorithm.levels, hardware, load, setup
    )
    clocks = clock.build(
        of_devices,
        hardware,
        streams,
        scenario.output.save_timeline,
        servers.list_presence(link.channel),
    )
    clocks.together = laid_out.servers if servers.together else 1
    workload = WorkloadPlanner(
        hardware,
        cpu_frequency.build(
            scenario.devices.cpu_frequency, hardware, link.budget, link.transport.get_access_plan()
        ),
        build_jitter([one.compute for one in of_devices], streams),
        faults,
        clocks,
        link.budget,
        _to_bounds([one.deadline_s for one in of_devices]),
        _to_bounds([one.round_budget_j for one in of_devices]),
    )
    rate_bps = np.array([one.downlink_rate_bps for one in of_devices])
    robust, carry = None, partial(deliver, link.transport)
    if scenario.robust.is_active:
        robust = RobustAggregation(rows, carry, link.transport.counts != "all", streams)
    return EngineParts(
        scenario=scenario,
        streams=streams,
        samples=samples,
        topology=servers,
        model=model,
        algorithm=algorithm,
        hyper=build_hyper([row.algorithm.values for row in rows], streams),
        server=registry.make_component("server", scenario.server),
        server_hyper=build_hyper([row.server for row in rows], streams),
        link=link,
        robust=robust,
        hardware=hardware,
        faults=faults,
        clock=clocks,
        workload=workload,
        submodels=SubmodelWorkload(algorithm, sized, link.channel, load),
        selection=chosen,
        downlink=downlink.build([row.downlink for row in rows], rate_bps, link.budget, streams),
        signalling=Signalling([row.signalling for row in rows], link.budget)
        if scenario.signalling.charge
        else None,
        duration_s=_to_bounds([row.training.duration_s for row in rows]),
    )


def build_algorithm(scenario: Scenario, model: Model) -> Algorithm:
    """Make the scenario's method for a model. Raises UserError if the model lacks a requirement."""
    made: Algorithm = registry.make_component(
        "algorithm", scenario.algorithm, model, scenario.devices.count
    )
    return made


def get_server_samples(scenario: Scenario, samples: Samples) -> ServerSamples | None:
    """Return the samples that no device holds; None where there are none."""
    data, server = samples.data, scenario.data.server
    if data.x_server is None or data.y_server is None or server is None:
        return None
    place = samples.training_data.x.device
    x, y = (torch.from_numpy(one).to(place) for one in (data.x_server, data.y_server))
    return ServerSamples(x, y, server.classes is not None)


def check_labels(scenario: Scenario, samples: Samples) -> None:
    """Raise UserError if the samples have labels of another kind than loss and method need."""
    found = samples.data.labels
    for problem in scenario.loss.find_misfits(found, scenario.data.name):
        raise UserError(f"loss: {problem}")
    for problem in find_label_problems(scenario.algorithm, found):
        raise UserError(problem)
    if scenario.faults.attack.changes_labels and found != "classes":
        raise UserError(
            f"faults.attack: '{scenario.faults.attack.name}' replaces classes by others, and the "
            "labels of the data set are no classes; use another attack"
        )


def make_workload(scenario: Scenario, samples: Samples) -> Workload:
    """Return the local work of the devices [S, K] in a round."""
    training, held = scenario.training, samples.sample_share.double().cpu().numpy()
    return Workload(training.local_steps, training.batch_size, held, training.local_epochs)


def select_torch_device(name: str) -> torch.device:
    """Return the torch device of `engine.device`: auto takes a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("engine.device: got 'cuda', but torch sees no GPU; use auto or cpu")
    return torch.device(name)


def _to_bounds(values: Sequence[float | None]) -> np.ndarray:
    """Return the bounds [S], inf for None."""
    return np.array([np.inf if value is None else value for value in values])
