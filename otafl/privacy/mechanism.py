"""Account for what an over-the-air uplink's noise hides of each device's data, and keep to a bound.

Devices clip what they send of a payload group to norm C. The server sees sum_k g_k x_k and noise of
variance N a real, where g_k is the gain with which the payload itself arrives: of a `curious`
server, which listens to all antennas and both quadratures, g_k^2 = sum_a |h_ka p_k|^2; of an
`honest` one, which keeps what it estimates from, Re(f^H h_k p_k)^2. Of several servers that hear a
device g_k^2 is the sum. Replacing the data of device k moves what arrives by Delta_k = 2 C g_k at
most (adding or removing it by C g_k), which the noise hides with

    mu_k^2 = sum_t Delta_kt^2 / N,    mu = max_k mu_k,

summed over payload groups and rounds (`otafl.privacy.accounting`). N is the receiver's own noise;
that of interferers and jammers, whom nobody need trust, hides more. Fades, weights and who takes
part are taken as known to all, and carry nothing of the data: every transmit scale comes from C, a
payload's mean symbol power counting as C^2 / d of d symbols.

The bound on epsilon limits powers before the policy runs. With H_k = max sum_a |h_ka|^2, of all
servers, over the slot's fades, power P_k brings a payload of d symbols to mu_k^2 =
(2 C)^2 (P_k d / C^2) H_k / N at most, so a round's share mu_kt^2 of it allows

    P_k = mu_kt^2 N / (4 d H_k),    or mu_kt^2 N / (d H_k) where devices are added or removed.

`split: even` gives each of the T rounds mu^2 / T; `left` shares what a device has left among the
rounds to come.

References
----------
Liu, Simeone 2021, "Privacy for Free: Wireless Federated Learning via Uncoded Transmission With
    Adaptive Power Control".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
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
from otafl.uplink.intercell import InterCellInterference
from otafl.uplink.layout import Slot
from otafl.uplink.normalise import Normalisation
from otafl.uplink.on_air import OnAir
from otafl.uplink.signal import Signal, compute_squared_norm

ROUNDING = 1e-6
"""Steps of the grid of levels that a mu may be above one."""


class Privacy(Stateful):
    """Clip payloads, limit powers and add up what the noise has not hidden, for S trials over K
    devices.

    spent: [S, K] float64, mu^2 so far; of sampled devices that of all rounds, whoever was drawn.
    rounds, limited: [S] with somebody on air, and those of them in which the bound was below the
    power budget of somebody. levels: [S, K, L] sampled rounds by their mu, as
    `accounting.get_level_mu`, the last for all above; None where devices are not sampled.

    Parameters
    ----------
    sections : S, which differ in stackable fields alone.
    planned : T, rounds that the bound is for.
    sampling : [S] probability with which each device takes part in a round by itself; None where
        participants are not drawn so.
    devices : K.
    streams : of the S trials.
    neighbours : what servers hear of each other's devices; None where they hear nothing.
    spins : carriers are off, so that a payload turns from one quadrature to the other.
    """

    state_attrs: ClassVar = ("spent", "rounds", "limited", "levels")

    class Settings(settings.Settings):
        """Say how payloads are clipped, and bound what the server learns of a device's data."""

        clip: float | None = Field(None, gt=0)
        """largest norm C of what a device sends of a payload group; larger ones are scaled down to
        it, and results have dp_mu and dp_epsilon. Nothing is clipped if not given"""
        epsilon: float | None = declare_stackable(None, gt=0)
        """bound on dp_epsilon over all rounds, which limits the devices' powers; no bound if not
        given"""
        delta: float = declare_stackable(1e-5, gt=0, lt=0.5)
        """probability that epsilon leaves aside"""
        adjacency: Literal["replace", "add_remove"] = "replace"
        """what is hidden: which samples a device has, if not how many; or whether it has any, or
        takes part with zeros"""
        adversary: Literal["curious", "honest"] = "curious"
        """a server that listens to all antennas and both quadratures, or one that keeps only what
        it estimates the aggregate from"""
        split: Literal["even", "left"] = "even"
        """a round's part of the bound: an even one of all, or of what the device has left for the
        rounds to come"""

        def check(self, scenario: Any) -> Iterable[Problem]:
            """Return what cannot be accounted for."""
            if self.clip is None:
                if self.epsilon is not None:
                    text = "needs privacy.clip, the norm that payloads are clipped to"
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
        *,
        neighbours: InterCellInterference | None = None,
        spins: bool = False,
    ) -> None:
        self._neighbours, self._spins = neighbours, spins
        self._elsewhere: Tensor | None = None
        self.settings, self._sections, self._planned = sections[0], sections, planned
        self._sampling = sampling
        assert self.settings.clip is not None
        self._clip = self.settings.clip
        self._distance = 2.0 if self._has_replacement else 1.0
        self._bounds = [self._bound(*of) for of in zip(sections, sampling, strict=True)]
        new = torch.zeros(len(sections), dtype=torch.float64, device=streams.device)
        self._bound_of = new + torch.tensor(self._bounds, dtype=new.dtype, device=new.device)
        self.spent = new[:, None].repeat(1, devices)
        self.rounds, self.limited = new.clone(), new.clone()
        self.levels: Tensor | None = None
        if sampling[0] is not None:
            shape = (len(sections), devices, accounting.LEVELS + 1)
            self.levels = torch.zeros(shape, dtype=torch.int64, device=new.device)

    @property
    def uses_sampling(self) -> bool:
        """Return whether participants are drawn, so that a slot is charged whoever is in it."""
        return self.levels is not None

    @property
    def _has_replacement(self) -> bool:
        return self.settings.adjacency == "replace"

    def _bound(self, section: Settings, probability: float | None) -> float:
        """Return the mu^2 of all planned rounds that a trial's epsilon allows."""
        if section.epsilon is None:
            return math.inf
        bound = accounting.compute_mu(section.epsilon, section.delta) ** 2
        if probability is None:
            return bound
        of_all = section.epsilon, section.delta, self._planned, probability, self._has_replacement
        level = accounting.compute_sampled_level(*of_all)
        if level is not None:
            bound = max(bound, self._planned * accounting.get_level_mu(level) ** 2)
        return bound

    def clip_rows(self, sent: Signal) -> Signal:
        """Return the rows [n, P], scaled down to norm C where theirs is larger; zeros for a row
        that is not finite."""
        norm = compute_squared_norm(sent.x).sqrt()
        x = sent.x * (self._clip / norm.clamp_min(self._clip))[:, None]
        return replace(sent, x=x.where(norm.isfinite()[:, None], 0.0))

    def scale(self, sent: Signal, normalised: Normalisation) -> Normalisation:
        """Return the normalisation with the mean symbol powers [S, Q, K] that go with the norm C,
        in the place of the rows' own."""
        lengths = normalised.segments.sum_over_scopes(normalised.lengths)
        power = self._clip**2 * normalised.scale.square()[:, None] / lengths
        return replace(normalised, power=sent.grid(power).mT)

    def limit_power(self, slot: Slot, sends: Tensor, limits: TransmitLimits) -> Slot:
        """Return a slot with what the bound leaves of its power budgets.

        Parameters
        ----------
        slot : with budgets [S, K].
        sends : [S, K] bool, who has something to send.
        limits : of the slot beside its power.

        Raises
        ------
        UserError : where no power that the bound leaves reaches the server; where the energy that
            devices have left limits them.
        """
        if limits.energy_budget is not None:
            raise UserError(f"devices.compute: {privacy_checks.ENERGY}")
        self._check_signal(slot.symbols)
        if self._neighbours is not None:
            self._elsewhere = self._neighbours.power_gains(slot)
        gain = self._compute_power_gains(slot).amax(2).double()  # H
        cost = self._distance**2 * slot.symbols / NOISE_VARIANCE * gain  # mu^2 of unit power
        # less what powers in the stack's precision may be off
        share = self._compute_round_share(slot.round) * (
            1.0 - 16.0 * torch.finfo(slot.budget.dtype).eps
        )
        bound = share / cost.clamp_min(torch.finfo(cost.dtype).tiny)
        budget = slot.budget.minimum(bound.to(slot.budget))
        self.rounds += sends.any(1)
        self.limited += ((bound < slot.budget) & sends).any(1)
        if self.levels is not None:
            charged = budget * cost
            if limits.trial_mask is not None:
                charged = charged * limits.trial_mask[:, None]
            self._spend_sampled(self.levels, charged, limits.trial_mask)
        return replace(slot, budget=budget)

    def _compute_power_gains(self, slot: Slot) -> Tensor:
        """Return sum |h|^2 over all antennas of all servers that hear a device, [S, K, cells]."""
        own = slot.h.abs().square().sum(2)
        return own if self._elsewhere is None else own + self._elsewhere

    def _compute_round_share(self, round: int) -> Tensor:
        """Return the mu^2 that a round may take, [S, 1] or [S, K]."""
        whole = self._bound_of[:, None]
        if self.settings.split == "even":
            return whole / self._planned
        return (whole - self.spent).clamp_min(0.0) / max(1, self._planned - round)

    def _check_signal(self, symbols: int) -> None:
        """Raise UserError where the bound's largest part of a round leaves no signal."""
        parts = self._planned if self.settings.split == "even" else 1
        least = min(range(len(self._bounds)), key=self._bounds.__getitem__)
        snr = self._bounds[least] / parts * NOISE_VARIANCE / (self._distance**2 * symbols)
        if snr < MIN_SNR:
            section = self._sections[least]
            raise UserError(
                f"privacy.epsilon: no power reaches {section.epsilon:g} at delta "
                f"{section.delta:g}: over {self._planned} rounds it leaves a payload of {symbols} "
                f"symbols {-10.0 * math.log10(snr):.0f} dB below the noise; a larger epsilon or "
                "delta, fewer training.rounds or a shorter payload would do"
            )

    def _spend_sampled(self, levels: Tensor, mu2: Tensor, running: Tensor | None) -> None:
        """Count a round with these mu^2 [S, K] at full power, whoever is drawn for it, of the
        running trials [S]."""
        self.spent += mu2
        octaves = 0.5 * (mu2 / accounting.LEAST**2).log2()
        steps = (octaves * accounting.LEVELS_AN_OCTAVE - ROUNDING).ceil()
        level = steps.clamp(0, accounting.LEVELS).long()[..., None]
        counted = torch.ones_like(level)
        if running is not None:
            counted = counted * running[:, None, None]
        levels.scatter_add_(2, level, counted)

    def spend(self, on_air: OnAir) -> None:
        """Add what the noise does not hide of a group's transmission."""
        if self.uses_sampling:
            return  # `limit_power` has, for those too who were not drawn
        coefficients = on_air.coefficients
        if self.settings.adversary == "honest":
            power = self._compute_estimated_gains(on_air)
        else:
            gains = self._compute_power_gains(on_air.slot)[..., list(on_air.segments.cells)]
            power = gains.mT.double() * coefficients.p.abs().double().square()
        scale = on_air.sent.grid(on_air.normalised.scale).double()
        moved = self._distance * self._clip * scale
        self.spent += moved.square() * power.amax(1) / NOISE_VARIANCE

    def _compute_estimated_gains(self, on_air: OnAir) -> Tensor:
        """Return the squared gains [S, Q, K] of devices in what all servers estimate from."""
        p = on_air.coefficients.p
        one_quadrature = on_air.segments.halves == 1 and not self._spins

        def compute_squared_gain(signal_gain: Tensor) -> Tensor:
            return (signal_gain.real if one_quadrature else signal_gain.abs()).double().square()

        power = compute_squared_gain(on_air.channels.h * p)
        if self._neighbours is None:
            return power
        table = self._neighbours.scalar_gains(on_air)  # [S, C K, Q, C]
        servers = table.shape[3]
        sent = p.unflatten(0, (-1, servers)).transpose(2, 3).flatten(1, 2)
        others = compute_squared_gain(table * sent[..., None]).sum(3)
        return power + others.unflatten(1, (servers, -1)).flatten(0, 1).mT

    def compute_metrics(self) -> dict[str, Tensor]:
        """Return dp_mu, dp_epsilon and dp_limited so far, [S] each."""
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
        """Return the epsilon of a trial at its delta, of the device that it is largest for."""
        delta, probability = self._sections[trial].delta, self._sampling[trial]
        epsilon = accounting.compute_epsilon(mu, delta)
        if self.levels is None or probability is None:
            return epsilon
        # a device with, level by level, as many rounds above it as any is worse off than all
        above = self.levels[trial].flip(1).cumsum(1).amax(0).flip(0).tolist()
        if above[-1]:
            return epsilon
        counts = tuple(
            (level, here - over)
            for level, (here, over) in enumerate(itertools.pairwise(above))
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
    neighbours: InterCellInterference | None = None,
) -> Privacy | None:
    """Make the accounting of S trials over K devices; None where nothing is clipped.

    Parameters
    ----------
    rows : the trials' scenarios, which differ in stackable fields alone.
    policy : of power.
    devices, streams : K, and of the S trials.
    mains : no device lives on a battery.
    neighbours : what servers hear of each other's devices; None where they hear nothing.

    Raises
    ------
    UserError : where what devices send with tells of their data or of who else takes part, or the
        bound cannot be kept.
    """
    scenario, sections = rows[0], [row.privacy for row in rows]
    if scenario.privacy.clip is None:
        return None
    bounded = any(one.epsilon is not None for one in sections)
    privacy_checks.refuse_parts(scenario, policy, mains, bounded)
    sampling = [row.devices.selection.values.sampling_probability for row in rows]
    spins = any(row.impairments.carrier_offset for row in rows)
    given = sections, scenario.training.rounds, sampling, devices, streams
    return Privacy(*given, neighbours=neighbours, spins=spins)
