"""Law of FedRLR+'s linear increments, over the uplink."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from torch import Tensor

from otafl.algorithms.fedrlr_plus import FedRLRPlus
from otafl.core.contracts import Context, Received, Tensors
from otafl.factorised.lowrank import LowRank, project_out, to_dense
from otafl.laws.bench import CONFORMANCE, Bench
from otafl.laws.checks import Check, check_mean, state_law
from otafl.laws.coded_models import make_streams
from otafl.models.base import flatten, unflatten
from otafl.models.mlp import Mlp


@state_law(
    "algorithm fedrlr_plus: error in the tangent space", "s^2 sum w^2|x|^2 + v R (M + 1 + N - R)"
)
def _tangent_error(bench: Bench) -> Iterator[Check]:
    """Compare the server's error with GBMA at 0 dB, where s^2 = 4/pi - 1.

    Steps are so short that the retraction is the sum.
    """
    devices, rank, widths, trials = 5, 3, (14, 9, 6), bench.scale_size(2000)
    model = Mlp(Mlp.Settings(hidden=widths[1:-1]), widths[:1], widths[-1])
    algorithm = FedRLRPlus(FedRLRPlus.Settings(rank=rank), model, devices)
    one, streams = make_streams(bench, 1), make_streams(bench, devices)
    server, _ = algorithm.init(one, {})
    blocks: Tensors = {}
    for i, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        a = streams.draw_normal(CONFORMANCE / f"a{i}", 0, (inputs + 1, rank))
        b = streams.draw_normal(CONFORMANCE / f"b{i}", 0, (outputs, rank))
        b = project_out(server[f"v{i}"].expand(devices, -1, -1), b)
        blocks |= {f"a{i}": 1e-5 * a.mT, f"b{i}": 1e-5 * b.mT}
    shapes = {name: tuple(block.shape[1:]) for name, block in blocks.items()}
    x = flatten(blocks)
    point = {"channel": {"name": "rayleigh", "snr_db": 0.0}, "power": "gbma"}
    rig = bench.build_rig(devices, trials, point, weights=[8.0, 11.0, 30.0, 16.0, 9.0])
    weight = rig.cohort.weight[:devices]
    estimate, report = rig.send(x.repeat(trials, 1), 0)

    def step(received_mean: Tensor) -> list[Tensor]:
        size = len(received_mean)
        unit = received_mean.new_ones(size)
        message = Received((unflatten(received_mean, shapes),), (unit,), None, None)
        hyper = {"momentum": 0.0 * unit, "server_learning_rate": unit}
        state = {name: block.expand(size, *block.shape[1:]) for name, block in server.items()}
        out = algorithm.update_server(state, message, Context(rig.cohort, hyper, one, 0))
        points = [LowRank(*(out[f"{name}{i}"] for name in "usv")) for i in range(len(widths) - 1)]
        return [to_dense(at) for at in points]

    exact = step((weight[:, None] * x).sum(0)[None])
    error = sum(
        (found - law).square().sum((1, 2)) for found, law in zip(step(estimate), exact, strict=True)
    )
    noise = 0.5 / (report.saved_tensors["eta/0"][:, 0] * devices**2)
    size = sum(rank * (m + 1 + n - rank) for m, n in itertools.pairwise(widths))
    fading = (4.0 / math.pi - 1.0) * (weight.square() * x.square().sum(1)).sum()
    yield check_mean(1.0, (error / (fading + size * noise.mean())).cpu().numpy())
