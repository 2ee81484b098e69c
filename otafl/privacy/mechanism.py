r"""Privacy accounting of an over-the-air uplink, and bounds on its powers.

Devices clip each payload group to norm C. The server sees :math:`\sum_k g_k x_k` and noise of
variance N per real symbol, where g_k is the gain of a device's payload:

- A `curious` server uses all antennas and both quadratures, :math:`g_k^2 = \sum_a |h_{ka} p_k|^2`.
- An `honest` server keeps only the symbols that it estimates from, :math:`g_k^2 = \mathrm{Re}(f^H
  h_k p_k)^2`.
- If several servers receive a device, g_k^2 is the sum.

Replacing the data of device k changes the received signal by at most Delta_k = 2 C g_k, and adding
or removing the device by C g_k. The noise hides this with

.. math:: \mu_k^2 = \sum_t \Delta_{kt}^2 / N, \qquad \mu = \max_k \mu_k,

summed over payload groups and rounds (`otafl.privacy.accounting`). N is the receiver's own noise.
Interferers and jammers, which need not be trusted, only hide more. Fading, weights and participants
are taken as public, and do not depend on the data: every transmit scalar follows from C, and a
payload of d symbols counts with the mean symbol power C^2 / d.

The bound on epsilon limits powers before the power policy runs. Let H_k be the largest
:math:`\sum_a |h_{ka}|^2` over the fades of the slot, summed over all servers. With power P_k, a
payload of d symbols has at most :math:`\mu_k^2 = (2 C)^2 (P_k d / C^2) H_k / N`. The share mu_kt^2
of a round therefore allows

.. math:: P_k = \mu_{kt}^2 N / (4 d H_k)

if data are replaced, and four times as much if devices are added or removed. `split: even` gives
each of the T rounds mu^2 / T. `left` divides the rest of a device among the remaining rounds.

References
----------
Liu, Simeone 2021, "Privacy for Free: Wireless Federated Learning via Uncoded Transmission With
    Adaptive Power Control".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.core import settings
from otafl.core.contracts import MIN_SNR, NOISE_VARIANCE, TransmitLimits
from otafl.core.errors import UserError
from otafl.core.problems import Problem, make_problem
from otafl.core.rng import Streams
from otafl.core.settings import declare_stackable
from otafl.core.stateful import Stateful
from otafl.power.base import PowerPolicy
from otafl.privacy import accounting
from otafl.privacy import checks as privacy_checks

ROUNDING = 1e-6
"""Steps by which a mu can exceed a level of the grid and still count as it."""


class Privacy(Stateful):
    """Privacy account of S trials over K devices: clipping, limits on power and privacy loss.

    Parameters
    ----------
    sections : Sequence of Privacy.Settings
        Sections `privacy` of the trials, which differ only in stackable fields.
    planned : int
        Number of rounds T of the bound.
    sampling : Sequence of float, optional
        Probability [S] with which each device takes part in a round independently; None if
        participants are not drawn so.
    devices : int
        Number of devices K.
    streams : Streams
        Random streams of the trials.

    Attributes
    ----------
    clip : float
        Norm C to which rows are clipped.
    spent : Tensor, float64 [S, K]
        mu^2 so far. For sampled devices it is that of all rounds, drawn or not.
    rounds, limited : Tensor, float64 [S]
        Number of rounds with transmitters, and of those in which the bound was below the power
        budget of a transmitter.
    levels : Tensor, int64 [S, K, L], optional
        Number of sampled rounds by level of mu (`accounting.LEVELS`), the last for all above; None
        if devices are not sampled.
    peaks : Tensor, float64 [S, L]
        Largest mu^2 of the sampled rounds of a level.
    """

    state_attrs: ClassVar = ("spent", "rounds", "limited", "levels", "peaks")

    class Settings(settings.Settings):
        """Clipping of payloads, and bound on what the server learns of a device's data."""

        clip: float | None = Field(None, gt=0)
        """largest norm C of a device's payload group, to which larger ones are scaled down; results
        then have dp_mu and dp_epsilon. No clipping if not given"""
        epsilon: float | None = declare_stackable(None, gt=0)
        """bound on dp_epsilon over all rounds, which limits the devices' powers; no bound if not
        given"""
        delta: float = declare_stackable(1e-5, gt=0, lt=0.5)
        """probability delta for which epsilon does not hold"""
        adjacency: Literal["replace", "add_remove"] = "replace"
        """data that are hidden. replace: the samples of a device, but not their number. add_remove:
        whether a device has data at all, or takes part with zeros"""
        adversary: Literal["curious", "honest"] = "curious"
        """observations of the server. curious: all antennas and both quadratures. honest: only the
        symbols from which it estimates the aggregate"""
        split: Literal["even", "left"] = "even"
        """share of a round in the bound. even: an equal one for all rounds. left: an equal one,
        among the remaining rounds, of what the device has left"""

        def check(self, scenario: Any) -> Iterable[Problem]:
            """Return conflicts with parts of the scenario that cannot be accounted for."""
            if self.clip is None:
                if self.epsilon is not None:
                    text = "needs privacy.clip, the norm of clipped payloads; give it"
                    yield make_problem(text, "privacy.epsilon", "privacy.clip")
                return
            yield from privacy_checks.find_problems(scenario)

    def __init__(
        self,
        sections: Sequence[Settings],
        planned: int,
        sampling: Sequence[float | None],
        devices: int,
        streams: Streams,
    ) -> None:
        self.settings, self._sections, self._planned = sections[0], sections, planned
        self._sampling = sampling
        assert self.settings.clip is not None
        self.clip = self.settings.clip
        self._distance = 2.0 if self._has_replacement else 1.0
        self._bounds = [self._bound(*of) for of in zip(sections, sampling, strict=True)]
        new = torch.zeros(len(sections), dtype=torch.float64, device=streams.device)
        self._bound_of = new + torch.tensor(self._bounds, dtype=new.dtype, device=new.device)
        self.spent = new[:, None].repeat(1, devices)
        self.rounds, self.limited = new.clone(), new.clone()
        self.levels: Tensor | None = None
        self.peaks = (new + accounting.LEAST**2)[:, None].repeat(1, accounting.LEVELS + 1)
        if sampling[0] is not None:
            shape = (len(sections), devices, accounting.LEVELS + 1)
            self.levels = torch.zeros(shape, dtype=torch.int64, device=new.device)

    @property
    def uses_sampling(self) -> bool:
        """Whether participants are sampled, so that every device is charged for each slot."""
        return self.levels is not None

    @property
    def _has_replacement(self) -> bool:
        """Whether neighbouring data sets replace the data of a device."""
        return self.settings.adjacency == "replace"

    def _bound(self, section: Settings, probability: float | None) -> float:
        """Compute the mu^2 of all planned rounds that a trial's epsilon allows."""
        if section.epsilon is None:
            return math.inf
        bound = accounting.compute_mu(section.epsilon, section.delta) ** 2
        if probability is None:
            return bound
        of_all = section.epsilon, section.delta, self._planned, probability, self._has_replacement
        return max(bound, self._planned * accounting.compute_sampled_mu(*of_all) ** 2)

    def clip_rows(self, rows: Tensor) -> Tensor:
        """Clip rows [n, P] to norm C; a row that is not finite becomes zero."""
        norm = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
        x = rows * (self.clip / norm.clamp_min(self.clip))[:, None].to(rows.dtype)
        return x.where(norm.isfinite()[:, None], 0.0)

    def limit_power(
        self,
        budget: Tensor,
        gain: Tensor,
        symbols: int,
        round: int,
        sends: Tensor,
        limits: TransmitLimits,
    ) -> Tensor:
        """Limit the power budgets of a slot to the bound.

        Parameters
        ----------
        budget : Tensor, float [S, K]
            Power budgets.
        gain : Tensor, float [S, K]
            Largest power gain H over the fades of the slot, summed over antennas and servers.
        symbols : int
            Channel uses of a device.
        round : int
            Number of the slot.
        sends : Tensor, bool [S, K]
            Mask of the devices with a payload.
        limits : TransmitLimits
            Further limits of the slot.

        Returns
        -------
        Tensor, float [S, K]
            The limited budgets.

        Raises
        ------
        UserError
            If no power within the bound reaches the server, or if the energy of devices is limited.
        """
        if limits.energy_budget is not None:
            raise UserError(f"devices.compute: {privacy_checks.ENERGY}")
        self._check_signal(symbols)
        cost = self._distance**2 * symbols / NOISE_VARIANCE * gain.double()  # mu^2 of unit power
        # reduced by the rounding error of powers in the stack's precision
        share = self._compute_round_share(round) * (1.0 - 16.0 * torch.finfo(budget.dtype).eps)
        bound = share / cost.clamp_min(torch.finfo(cost.dtype).tiny)
        limited = budget.minimum(bound.to(budget))
        self.rounds += sends.any(1)
        self.limited += ((bound < budget) & sends).any(1)
        if self.levels is not None:
            mu2 = limited * cost
            if limits.trial_mask is not None:
                mu2 = mu2 * limits.trial_mask[:, None]
            # charge all devices of running trials [S] for a round with mu^2 [S, K] at full power
            self.spent += mu2
            octaves = 0.5 * (mu2 / accounting.LEAST**2).log2()
            steps = (octaves * accounting.LEVELS_AN_OCTAVE - ROUNDING).ceil()
            level = steps.clamp(0, accounting.LEVELS).long()
            self.peaks.scatter_reduce_(1, level, mu2, "amax")
            counted = torch.ones_like(level)[..., None]
            if limits.trial_mask is not None:
                counted = counted * limits.trial_mask[:, None, None]
            self.levels.scatter_add_(2, level[..., None], counted)
        return limited

    def _compute_round_share(self, round: int) -> Tensor:
        """Compute the mu^2 that a round can use, [S, 1] or [S, K]."""
        whole = self._bound_of[:, None]
        if self.settings.split == "even":
            return whole / self._planned
        return (whole - self.spent).clamp_min(0.0) / max(1, self._planned - round)

    def _check_signal(self, symbols: int) -> None:
        """Raise UserError if the largest share of a round leaves no signal."""
        parts = self._planned if self.settings.split == "even" else 1
        least = min(range(len(self._bounds)), key=self._bounds.__getitem__)
        snr = self._bounds[least] / parts * NOISE_VARIANCE / (self._distance**2 * symbols)
        if snr < MIN_SNR:
            section = self._sections[least]
            raise UserError(
                f"privacy.epsilon: got {section.epsilon:g} at delta {section.delta:g}, which over "
                f"{self._planned} rounds leaves a payload of {symbols} symbols "
                f"{-10.0 * math.log10(snr):.0f} dB below the noise; use a larger epsilon or delta, "
                "fewer training.rounds or a shorter payload"
            )

    def spend(self, power: Tensor, scale: Tensor) -> None:
        """Add the privacy loss of a group's transmission.

        Parameters
        ----------
        power : Tensor, float64 [S, K]
            Squared gain g_k^2 with which the server observes a device's symbols, the largest of all
            segments.
        scale : Tensor, float64 [S, K]
            Factor of a device's row before it is transmitted.
        """
        if self.uses_sampling:
            return  # `limit_power` has charged all devices, drawn or not
        moved = self._distance * self.clip * scale
        self.spent += moved.square() * power / NOISE_VARIANCE

    def compute_metrics(self) -> dict[str, Tensor]:
        """Compute dp_mu, dp_epsilon and dp_limited so far, [S] each."""
        mu = self.spent.amax(1).sqrt()
        epsilons = [
            self._compute_epsilon(trial, value) for trial, value in enumerate(mu.cpu().tolist())
        ]
        return {
            "dp_mu": mu,
            "dp_epsilon": mu.new_tensor(epsilons),
            "dp_limited": self.limited / self.rounds,
        }

    def _compute_epsilon(self, trial: int, mu: float) -> float:
        """Compute the epsilon of a trial at its delta, the largest over the devices."""
        delta, probability = self._sections[trial].delta, self._sampling[trial]
        epsilon = accounting.compute_epsilon(mu, delta)
        if self.levels is None or probability is None:
            return epsilon
        # upper bound: a device with the largest number of rounds above each level, each of them as
        # revealing as the level's worst
        above = self.levels[trial].flip(1).cumsum(1).amax(0).flip(0).tolist()
        if above[-1]:
            return epsilon
        peaks = self.peaks[trial].sqrt().tolist()
        counts = tuple(
            (mu, here - over)
            for mu, (here, over) in zip(peaks, itertools.pairwise(above), strict=False)
            if here > over
        )
        sampled = accounting.compute_sampled_epsilon(
            counts, probability, delta, self._has_replacement
        )
        return min(epsilon, sampled)


def build(
    rows: Sequence[Any],
    policy: PowerPolicy,
    devices: int,
    streams: Streams,
    mains: bool = True,
) -> Privacy | None:
    """Build the privacy account of S trials over K devices.

    Parameters
    ----------
    rows : Sequence of Scenario
        Scenarios of the trials, which differ only in stackable fields.
    policy : PowerPolicy
        Power policy.
    devices : int
        Number of devices K.
    streams : Streams
        Random streams of the trials.
    mains : bool
        Whether no device has a battery.

    Returns
    -------
    Privacy, optional
        The account; None without clipping.

    Raises
    ------
    UserError
        If signals reveal data or participants, or if the bound cannot be kept.
    """
    scenario, sections = rows[0], [row.privacy for row in rows]
    if scenario.privacy.clip is None:
        return None
    bounded = any(one.epsilon is not None for one in sections)
    privacy_checks.refuse_parts(scenario, policy, mains, bounded)
    sampling = [row.devices.selection.values.sampling_probability for row in rows]
    return Privacy(sections, scenario.training.rounds, sampling, devices, streams)
