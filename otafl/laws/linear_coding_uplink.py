"""Laws of FedRLR's random linear coding over the uplink: two readings of the SNR, and fading.

Squared errors are those of the Frobenius norm, over that of the mean of the devices' models.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import torch

from otafl.core.contracts import Group, Tensors
from otafl.factorised.lowrank import to_dense
from otafl.laws.bench import Bench
from otafl.laws.checks import Check, check_exact, check_mean, state_law
from otafl.laws.coded_models import draw_points, make_streams, send_models
from otafl.laws.linear_coding import FEDRLR, compute_noise
from otafl.uplink.base import deliver


@functools.lru_cache(maxsize=2)
def _draw_factors(bench: Bench, trials: int, devices: int, m: int, n: int, rank: int) -> Tensors:
    """Draw U F and V F over sqrt(K), [S K, R, M] and [S K, R, N], and Theta = U V^T."""
    point = draw_points(bench, (1.0,) * rank, m, n, 1)
    coded = send_models(make_streams(bench, trials), point, devices).coded
    factors = {name: coded[f"{name}0"].flatten(0, 1).mT.contiguous() for name in "uv"}
    return factors | {"theta": to_dense(point)[0]}


READINGS = (
    ("gbma", "per_symbol", 3.2e-4),
    ("tci", "per_symbol", 5.8e-4),
    ("gbma", "total_energy", 1.64),
    ("tci", "total_energy", 3.47),
)
"""Power policy, reading of the SNR, and the error that noise adds in figures."""


@state_law(
    "algorithm fedrlr: two readings of the SNR", f"{FEDRLR}; 25 dB", "{0[0]}, {0[1]}", READINGS
)
def _snr_readings(bench: Bench, reading: tuple[str, str, float]) -> Iterator[Check]:
    """Compare the noise of a 784 x 256 layer over the uplink.

    The rank is 4, the singular values are equal, and ten devices transmit.
    """
    policy, convention, figure = reading
    m, n, rank, devices, trials = 784, 256, 4, 10, bench.scale_size(40)
    power = {"name": policy, "reference": "mean"} | ({"threshold": 0.1} if policy == "tci" else {})
    rig = bench.build_rig(devices, trials, {
        "channel": {"name": "rayleigh", "snr_db": 25.0},
        "power": power,
        "transport": {"name": "over_the_air", "snr_convention": convention},
    })  # fmt: skip
    factors = _draw_factors(bench, trials, devices, m, n, rank)
    payload = (Group({"u": factors["u"], "v": factors["v"]}, weighting="none"),)
    state = rig.link.channel.get_state(0)
    received, report = deliver(rig.link.transport, payload, rig.cohort, state, 0)
    eta = report.saved_tensors["eta/0"][:, 0]
    v = 0.5 / float(eta[0])
    yield check_exact(figure, compute_noise(rank, rank, m, n, v) / rank, 0.015, "in figures")
    saved = report.saved_tensors
    gain = (saved["h/0"] * saved["p/0"]).real[:, 0] / eta.sqrt()[:, None]
    noisy = received.mean[0]["u"].mT @ received.mean[0]["v"]
    left, right = (factors[name].unflatten(0, (trials, devices)) for name in "uv")
    clean = torch.einsum("sk,skrm->smr", gain, left) @ torch.einsum("sk,skrn->srn", gain, right)
    added = (noisy - clean).square().sum((1, 2)) / rank
    on_air = float((gain > 0).double().mean()) if policy == "tci" else 1.0
    law = compute_noise(rank * on_air, rank, m, n, v) / rank
    yield check_mean(1.0, added.cpu().numpy() / law, "added")


@state_law("algorithm fedrlr: coherence blocks of the factors", "(E|h|)^2 = pi/4, E|h|^2 = 1")
def _factor_fades(bench: Bench) -> Iterator[Check]:
    """Send both factors of a layer over one fade or over their own, with GBMA."""
    side, rank, devices, trials = 4, 2, 3, bench.scale_size(4000)
    factors = _draw_factors(bench, trials, devices, side, side, rank)
    payload = (Group({"u": factors["u"], "v": factors["v"]}, weighting="none"),)
    for block, law in ((side * rank, math.pi / 4.0), (None, 1.0)):
        channel = {"name": "rayleigh", "snr_db": 20.0, "block_symbols": block}
        power = {"name": "gbma", "reference": "mean"}
        rig = bench.build_rig(devices, trials, {"channel": channel, "power": power})
        state = rig.link.channel.get_state(0)
        received, _ = deliver(rig.link.transport, payload, rig.cohort, state, 0)
        product = received.mean[0]["u"].mT @ received.mean[0]["v"]
        along = (product * factors["theta"]).sum((1, 2)) / rank
        yield check_mean(law, along.cpu().numpy(), "two fades" if block else "one fade")
