"""Account for what an over-the-air uplink's noise hides of each device's data, and keep to a bound.

Devices clip what they send of a payload group to norm C. The server sees sum_k g_k x_k and noise of
variance N a real, where g_k is the gain with which the payload itself arrives: of a `curious`
server, which listens to all antennas and both quadratures, g_k^2 = sum_a |h_ka p_k|^2; of an
`honest` one, which keeps what it estimates from, Re(f^H h_k p_k)^2. Replacing the data of device k
moves what arrives by Delta_k = 2 C g_k at most (adding or removing it by C g_k), which the noise
hides with

    mu_k^2 = sum_t Delta_kt^2 / N,    mu = max_k mu_k,

summed over payload groups and rounds (`otafl.transport.accounting`). N is the receiver's own noise;
that of interferers and jammers, whom nobody need trust, hides more. Fades, weights and who takes
part are taken as known to all, and carry nothing of the data: every transmit scale comes from C, a
payload's mean symbol power counting as C^2 / d of d symbols.

The bound on epsilon limits powers before the policy runs. With H_k = max sum_a |h_ka|^2 over the
slot's fades, power P_k brings a payload of d symbols to mu_k^2 = (2 C)^2 (P_k d / C^2) H_k / N at
most, so a round's share mu_kt^2 of it allows

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

from otafl.core import registry, settings
from otafl.core.contracts import LEAST_SNR, NOISE_VARIANCE, Limits
from otafl.core.errors import UserError
from otafl.core.lasting import Lasting
from otafl.core.problems import Problem, problem
from otafl.core.rng import Streams
from otafl.core.settings import stackable
from otafl.power.base import PowerPolicy
from otafl.selection.base import Selection
from otafl.transport import accounting
from otafl.transport.on_air import OnAir, Slot, Symbols
from otafl.transport.superpose import Signal, squared_norm

ROUNDING = 1e-6
"""Steps of the grid of levels that a mu may be above one."""

ENERGY = (
    "bounds on energy limit what devices send by what they have sent before, which no noise hides; "
    "with privacy.clip devices on mains without devices.round_budget_j would do"
)


class Privacy(Lasting):
    """Clip payloads, limit powers and add up what the noise has not hidden, for S trials over K
    devices.

    spent: [S, K] float64, mu^2 so far; of sampled devices that of all rounds, whoever was drawn.
    rounds, limited: [S] with somebody on air, and those of them in which the bound was below the
    power budget of somebody. levels: [S, K, L] sampled rounds by their mu, as
    `accounting.level_mu`, the last for all above; None where devices are not sampled.

    Parameters
    ----------
    sections : S, which differ in stackable fields alone.
    planned : T, rounds that the bound is for.
    sampling : [S] probability with which each device takes part in a round by itself; None where
        participants are not drawn so.
    devices : K.
    streams : of the S trials.
    """

    lasting: ClassVar = ("spent", "rounds", "limited", "levels")

    class Settings(settings.Settings):
        """Say how payloads are clipped, and bound what the server learns of a device's data."""

        clip: float | None = Field(
            None,
            gt=0,
            description="largest norm C of what a device sends of a payload group; larger ones are "
            "scaled down to it, and results have dp_mu and dp_epsilon. Nothing is clipped if not "
            "given",
        )
        epsilon: float | None = stackable(
            None,
            gt=0,
            description="bound on dp_epsilon over all rounds, which limits the devices' powers; no "
            "bound if not given",
        )
        delta: float = stackable(
            1e-5, gt=0, lt=0.5, description="probability that epsilon leaves aside"
        )
        adjacency: Literal["replace", "add_remove"] = Field(
            "replace",
            description="what is hidden: which data a device has, or whether it has any",
        )
        adversary: Literal["curious", "honest"] = Field(
            "curious",
            description="a server that listens to all antennas and both quadratures, or one that "
            "keeps only what it estimates the aggregate from",
        )
        split: Literal["even", "left"] = Field(
            "even",
            description="a round's part of the bound: an even one of all, or of what the device "
            "has left for the rounds to come",
        )

        def check(self, scenario: Any) -> Iterable[Problem]:
            """Return what cannot be accounted for."""
            if self.clip is None:
                if self.epsilon is not None:
                    text = "needs privacy.clip, the norm that payloads are clipped to"
                    yield problem(text, "privacy.epsilon", "privacy.clip")
                return
            transport, selection = scenario.transport.name, scenario.devices.selection.name
            if not registry.component("transport", transport).accounts_privacy:
                text = (
                    f"nobody accounts for what transport '{transport}' tells of a device's data; "
                    "transport: over_the_air would do, or no privacy.clip"
                )
                yield problem(text, "privacy.clip", "transport")
            if registry.component("selection", selection).senders is not Selection.senders:
                text = (
                    f"'{selection}' goes by the updates themselves, which no noise hides; with "
                    "privacy.clip one that goes by channels or chance would do"
                )
                yield problem(text, "devices.selection", "privacy.clip")
            if scenario.devices.round_budget_j is not None:
                yield problem(ENERGY, "devices.round_budget_j", "privacy.clip")

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
        self._clip = self.settings.clip
        self._distance = 2.0 if self._replaces else 1.0
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
    def _replaces(self) -> bool:
        return self.settings.adjacency == "replace"

    def _bound(self, section: Settings, probability: float | None) -> float:
        """Return the mu^2 of all planned rounds that a trial's epsilon allows."""
        if section.epsilon is None:
            return math.inf
        bound = accounting.mu_of(section.epsilon, section.delta) ** 2
        if probability is None:
            return bound
        of_all = section.epsilon, section.delta, self._planned, probability, self._replaces
        level = accounting.sampled_level(*of_all)
        if level is not None:
            bound = max(bound, self._planned * accounting.level_mu(level) ** 2)
        return bound

    def clipped(self, sent: Signal) -> Signal:
        """Return the rows [n, P], scaled down to norm C where theirs is larger."""
        norm = squared_norm(sent.x).sqrt()
        return replace(sent, x=sent.x * (self._clip / norm.clamp_min(self._clip))[:, None])

    def scaled(self, symbols: Symbols) -> Symbols:
        """Return what devices have to send with the mean symbol powers [S, Q, K] that go with the
        norm C, in the place of their own."""
        lengths = symbols.segments.by_scope(symbols.lengths)
        power = self._clip**2 * symbols.scale.square()[:, None] / lengths
        return replace(symbols, power=symbols.sent.grid(power).mT)

    def limit(self, slot: Slot, sends: Tensor, limits: Limits) -> Slot:
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
        if limits.energy is not None:
            raise UserError(f"devices.compute: {ENERGY}")
        self._reaches(slot.symbols)
        gain = slot.h.abs().square().sum(2).amax(2).double()  # H
        cost = self._distance**2 * slot.symbols / NOISE_VARIANCE * gain  # mu^2 of unit power
        # less what powers in the stack's precision may be off
        share = self._share(slot.round) * (1.0 - 16.0 * torch.finfo(slot.budget.dtype).eps)
        bound = share / cost.clamp_min(torch.finfo(cost.dtype).tiny)
        budget = slot.budget.minimum(bound.to(slot.budget))
        self.rounds += sends.any(1)
        self.limited += ((bound < slot.budget) & sends).any(1)
        if self.levels is not None:
            self._spend_sampled(self.levels, budget * cost)
        return replace(slot, budget=budget)

    def _share(self, round: int) -> Tensor:
        """Return the mu^2 that a round may take, [S, 1] or [S, K]."""
        whole = self._bound_of[:, None]
        if self.settings.split == "even":
            return whole / self._planned
        return (whole - self.spent).clamp_min(0.0) / max(1, self._planned - round)

    def _reaches(self, symbols: int) -> None:
        """Raise UserError where the bound's largest part of a round leaves no signal."""
        parts = self._planned if self.settings.split == "even" else 1
        least = min(range(len(self._bounds)), key=self._bounds.__getitem__)
        snr = self._bounds[least] / parts * NOISE_VARIANCE / (self._distance**2 * symbols)
        if snr < LEAST_SNR:
            section = self._sections[least]
            raise UserError(
                f"privacy.epsilon: no power reaches {section.epsilon:g} at delta "
                f"{section.delta:g}: over {self._planned} rounds it leaves a payload of {symbols} "
                f"symbols {-10.0 * math.log10(snr):.0f} dB below the noise; a larger epsilon or "
                "delta, fewer training.rounds or a shorter payload would do"
            )

    def _spend_sampled(self, levels: Tensor, mu2: Tensor) -> None:
        """Count a round with these mu^2 [S, K] at full power, whoever is drawn for it."""
        self.spent += mu2
        octaves = 0.5 * (mu2 / accounting.LEAST**2).log2()
        steps = (octaves * accounting.LEVELS_AN_OCTAVE - ROUNDING).ceil()
        level = steps.clamp(0, accounting.LEVELS).long()[..., None]
        levels.scatter_add_(2, level, torch.ones_like(level))

    def spend(self, on_air: OnAir) -> None:
        """Add what the noise does not hide of a group's transmission."""
        if self.levels is not None:
            return  # `limit` has, for those too who were not drawn
        symbols, coefficients = on_air.symbols, on_air.coefficients
        if self.settings.adversary == "honest":
            heard = on_air.channels.h * coefficients.p
            gain = heard.real if on_air.segments.halves == 1 else heard.abs()
            power = gain.double().square()
        else:
            h = symbols.slot.h[..., list(on_air.segments.cells)]
            power = h.abs().square().sum(2).mT.double() * coefficients.p.abs().double().square()
        scale = symbols.sent.grid(symbols.scale).double()
        moved = self._distance * self._clip * scale
        self.spent += moved.square() * (power * coefficients.active).amax(1) / NOISE_VARIANCE

    def measures(self) -> dict[str, Tensor]:
        """Return dp_mu, dp_epsilon and dp_limited so far, [S] each."""
        mu = self.spent.amax(1).sqrt()
        told = [self._epsilon(trial, value) for trial, value in enumerate(mu.cpu().tolist())]
        return {
            "dp_mu": mu,
            "dp_epsilon": mu.new_tensor(told),
            "dp_limited": self.limited / self.rounds,
        }

    def _epsilon(self, trial: int, mu: float) -> float:
        """Return the epsilon of a trial at its delta, of the device that it is largest for."""
        delta, probability = self._sections[trial].delta, self._sampling[trial]
        epsilon = accounting.epsilon_of(mu, delta)
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
        sampled = accounting.sampled_epsilon(counts, probability, delta, self._replaces)
        return min(epsilon, sampled)


def build(
    rows: Sequence[Any], policy: PowerPolicy, devices: int, streams: Streams, mains: bool = True
) -> Privacy | None:
    """Make the accounting of S trials over K devices; None where nothing is clipped.

    Parameters
    ----------
    rows : the trials' scenarios, which differ in stackable fields alone.
    policy : of power.
    devices, streams : K, and of the S trials.
    mains : no device lives on a battery.

    Raises
    ------
    UserError : where what devices send with tells of their data or of who else takes part, or the
        bound cannot be kept.
    """
    scenario, sections = rows[0], [row.privacy for row in rows]
    if scenario.privacy.clip is None:
        return None
    if not mains:
        raise UserError(f"devices.compute: {ENERGY}")
    named = f"power: '{scenario.power.name}'"
    if policy.wants_variation:
        raise UserError(
            f"{named} goes by how payloads vary over the devices, side information that no noise "
            "hides; with privacy.clip a policy that does not would do"
        )
    if any(one.epsilon is not None for one in sections):
        _can_bound(scenario, policy, named)
    sampling = [row.devices.selection.values.sampling for row in rows]
    if sampling[0] is not None:
        _can_sample(scenario, policy, named)
    return Privacy(sections, scenario.training.rounds, sampling, devices, streams)


def _can_bound(scenario: Any, policy: PowerPolicy, named: str) -> None:
    """Raise UserError where the power of a round cannot be limited to what it tells."""
    if policy.keeps != "peak":
        raise UserError(
            f"{named} does not keep the power budget in every round, and privacy.epsilon bounds "
            "every round; a policy that does would do, such as full, gbma or tci with constraint: "
            "peak"
        )
    if not registry.component("csi", scenario.csi.name).exact:
        raise UserError(
            f"csi: with '{scenario.csi.name}' devices do not know how well they are heard, and so "
            "not which power keeps privacy.epsilon; csi: perfect would do, or privacy.clip alone, "
            "which accounts for what is told"
        )


def _can_sample(scenario: Any, policy: PowerPolicy, named: str) -> None:
    """Raise UserError where others' signals tell whether a device was drawn, the bound is not split
    evenly, or the package is not there that accounts for it."""
    said = f"and devices.selection: '{scenario.devices.selection.name}' hides who takes part;"
    if not policy.alone:
        alone = [
            name for name in registry.names("power") if registry.component("power", name).alone
        ]
        raise UserError(
            f"{named} sets a device's power by who else takes part, {said} with privacy.clip "
            f"{' or '.join(alone)} would do"
        )
    if scenario.training.weights != "uniform":
        raise UserError(
            f"training.weights: '{scenario.training.weights}' scales what a device sends by who "
            f"else takes part, {said} with privacy.clip uniform would do"
        )
    if scenario.privacy.split != "even":
        raise UserError(
            f"privacy.split: '{scenario.privacy.split}' goes by what a device has left, {said} "
            "even would do"
        )
    accounting.package()
