"""The formula sheet of `otafl validate` as twins of the policies: one trial and segment at a time,
over the devices that send; and the first slot of `compute_budget_paced`, which the sheet does not
have."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
from support.power_links import ANTENNAS, HYPER, N, make_policy

from otafl.power.base import PowerPolicy
from otafl.validation import sheet

Scalars = tuple[np.ndarray, float, np.ndarray]
"""p [K], eta, active [K] of one trial and segment."""

Twin = Callable[..., Scalars]


def make_twin(rule: sheet.Rule, constraint: str = "average") -> Twin:
    """A rule of the sheet as a function of h, gain, budget, m, sends [K] and whether gains have the
    mean one."""
    config = SimpleNamespace(**HYPER, relative=False, constraint=constraint)

    def scalars(h, gain, budget, m, sends, linear) -> Scalars:  # type: ignore[no-untyped-def]
        rows = (value[sends][None] for value in (h, m, budget, gain))
        noise = np.array([N])
        found = rule(sheet.States(*rows, noise, ANTENNAS, config, linear))
        p, active = np.zeros(len(h), complex), np.zeros(len(h), bool)
        way = h.real if rule is sheet.blind_reference else h  # which sends without a phase
        p[sends] = found.c[0] * np.sqrt(found.eta[0]) / way[sends]
        active[sends] = found.active[0]
        return p, float(found.eta[0]), active

    return scalars


def compute_budget_paced(states: sheet.States) -> sheet.Scalars:
    """Invert to c_k = 1 the n devices of the largest q_k, at the least of them; n has the least
    error of the mean over all K, (K/n - 1)^2 sum_on m + sum_off m + (K/n)^2 N / eta, of those whose
    noise N / eta is not above sum_on m. The budget is that of the first slot.
    """
    share = min(1.0, 10.0 ** (states.config.energy_db / 10.0) * states.config.burst)
    q = states.root_q**2 * share
    order = np.argsort(-q, 1)
    level, m = np.take_along_axis(q, order, 1), np.take_along_axis(states.m, order, 1)
    ratio = q.shape[1] / np.arange(1, q.shape[1] + 1)
    on, noise = m.cumsum(1), states.noise[:, None] / level
    cost = (ratio - 1.0) ** 2 * on + m.sum(1, keepdims=True) - on + ratio**2 * noise
    cost = np.where(noise <= on, cost, np.inf)
    eta = np.take_along_axis(level, cost.argmin(1)[:, None], 1)
    active = (q >= eta * (1.0 - 1e-12)) & np.isfinite(cost).any(1, keepdims=True)
    return sheet.Scalars(active.astype(float), np.where(active.any(1), eta[:, 0], 1.0), active)


TWINS: dict[str, tuple[PowerPolicy, Twin]] = {
    "genie": (make_policy("genie"), make_twin(sheet.genie_reference)),
    "full": (make_policy("full"), make_twin(sheet.full_reference)),
    "ci": (make_policy("ci"), make_twin(sheet.ci_reference)),
    "multi_antenna_ci": (make_policy("multi_antenna_ci"), make_twin(sheet.ci_reference)),
    "tci": (make_policy("tci", relative=False), make_twin(sheet.tci_reference)),
    "tci, peak": (
        make_policy("tci", constraint="peak", relative=False),
        make_twin(sheet.tci_reference, constraint="peak"),
    ),
    "gbma": (make_policy("gbma"), make_twin(sheet.gbma_reference)),
    "cotaf": (make_policy("cotaf", relative=False), make_twin(sheet.cotaf_reference)),
    "cao_static": (make_policy("cao_static"), make_twin(sheet.cao_static_reference)),
    "smcv": (make_policy("smcv", variation=HYPER["variation"]), make_twin(sheet.smcv_reference)),
    "blind": (make_policy("blind"), make_twin(sheet.blind_reference)),
    "open_loop": (make_policy("open_loop"), make_twin(sheet.open_loop)),
    "budget_paced": (make_policy("budget_paced"), make_twin(compute_budget_paced)),
    "lyapunov": (
        make_policy("lyapunov"),
        make_twin(sheet.cao_static_reference),
    ),  # while its queues are empty
}
"""Every registered policy but `cao_average`, whose multipliers have tests of their own."""
