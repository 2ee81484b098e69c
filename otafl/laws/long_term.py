"""Laws of long-term statistics: closed forms of what policies plan with, and simulated channels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from otafl.csi.long_term import compute_statistics
from otafl.laws.bench import Bench
from otafl.laws.channels import MOVING
from otafl.laws.checks import Check, check_mean, state_law
from otafl.receivers.scalar import Scalar

PATH_LOSS_DB = 3.0
THRESHOLD = 0.15
VARIANCE = 0.2

FLAT = {"subcarrier_groups": 1}
CASES: dict[str, dict[str, Any]] = {
    "rayleigh": {},
    "rician": {},
    "tdl-a": FLAT,
    "tdl-a, moving": FLAT | MOVING,
}
"""Case -> keys of the channel, whose name comes first."""


@state_law("csi statistics: closed forms", "means over fading and errors of estimates", "{}", CASES)
def _closed_forms(bench: Bench, case: str) -> Iterator[Check]:
    """Compare closed forms with means over devices and trials, for known and noisy estimates.

    They are E|h|^2, E Re(h exp(-j arg h_hat)), E[1 / |h_hat|^2; |h_hat|^2 >= g], and two shares of
    |h_hat|^2 >= g, with and without large-scale gain. Rician fading has the first two of them.
    """
    name = case.partition(",")[0]
    channel = {"name": name, "path_loss_db": PATH_LOSS_DB} | CASES[case]
    for csi in ("perfect", {"name": "error", "variance": VARIANCE}):
        rig = bench.build_rig(
            32, bench.scale_size(256), {"channel": channel, "csi": csi, "power": "full"}
        )
        link, noise = rig.link, torch.ones(rig.num_trials).to(rig.cohort.weight)
        known = compute_statistics(link.channel, link.csi, Scalar(), link.budget, noise)
        state = link.channel.get_state(0)
        estimate = link.csi.estimate(state.h, state.gain, 0)
        root = state.gain.sqrt().cpu().numpy()
        h, unit = (one[:, :, 0, 0, 0].cpu().numpy() for one in (state.h, estimate))
        h, h_hat = root * h, root * unit
        power, least = np.abs(h_hat) ** 2, torch.full_like(noise, THRESHOLD)
        law, found = {"mean power": known.mean_power()}, {"mean power": np.abs(h) ** 2}
        if csi == "perfect" or link.channel.is_gaussian:
            law["mean amplitude"] = known.mean_amplitude()
            found["mean amplitude"] = (h * np.exp(-1j * np.angle(h_hat))).real
        if link.channel.is_gaussian:
            law["mean inverse"] = known.mean_inverse(least)
            found["mean inverse"] = np.where(power >= THRESHOLD, 1.0 / power, 0.0)
            law["share above"] = known.prob_gain_above(least[:, None].expand(-1, 32))
            law["share of units above"] = known.prob_unit_gain_above(least)
            found["share above"] = power >= THRESHOLD
            found["share of units above"] = np.abs(unit) ** 2 >= THRESHOLD
        for what, value in found.items():
            expected = float(law[what].mean())  # the same of all devices
            yield check_mean(expected, value, f"{'known' if csi == 'perfect' else 'noisy'}, {what}")
