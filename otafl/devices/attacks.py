"""What devices do that misbehave: attackers in every round, faulty devices by chance.

The first `faults.byzantine` devices do what `faults.attack` names, in every round in which they
take part. Crashes also come by chance, with `faults.crash_probability`. So an attack says what is
done, and the section `faults` who does it.

A device misbehaves at one of three points of a round: in its local work (`changes_labels`), in its
update before the codec (`change_update`), or on the air (`change_limits`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.core.contracts import Group, Hyper, Tensors, TransmitLimits, unsqueeze_like
from otafl.core.settings import Settings, declare_stackable


@dataclass(frozen=True)
class Attacked:
    """A payload group with attackers among its rows.

    Parameters
    ----------
    group : Group
        The group as the devices have it, n rows.
    rows : Tensor, int64 [b]
        Rows of the attackers.
    trial : Tensor, int64 [n]
        Trial of each row.
    num_trials : int
        Number S of trials.
    scale : Tensor, float [b]
        Strength of each row's attack, `faults.scale`.
    draw_normal : callable
        Draws standard normal numbers [b, *shape] for a name and a shape.
    """

    group: Group
    rows: Tensor
    trial: Tensor
    num_trials: int
    scale: Tensor
    draw_normal: Callable[[str, tuple[int, ...]], Tensor]

    @property
    def own(self) -> Tensors:
        """The tensors of the attackers, [b, *shape]."""
        return {name: block[self.rows] for name, block in self.group.tensors.items()}

    @property
    def honest_mask(self) -> Tensor:
        """The rows of honest devices, bool [n]."""
        honest = torch.ones_like(self.trial, dtype=torch.bool)
        return honest.index_fill_(0, self.rows, False)

    def count_rows(self) -> tuple[Tensor, Tensor]:
        """Count the rows of each trial, and the honest ones among them, float [S]."""
        like = self.scale
        every = like.new_zeros(self.num_trials)
        rows = every.index_add(0, self.trial, torch.ones_like(self.trial, dtype=like.dtype))
        honest = every.index_add(0, self.trial, self.honest_mask.to(like.dtype))
        return rows, honest

    def compute_honest_mean(self, block: Tensor) -> Tensor:
        """Compute the mean [S, *shape] over the honest rows of a tensor [n, *shape]."""
        _, count = self.count_rows()
        kept = block * unsqueeze_like(self.honest_mask.to(block.dtype), block)
        total = block.new_zeros(self.num_trials, *block.shape[1:]).index_add_(0, self.trial, kept)
        return total / unsqueeze_like(count.clamp_min(1.0), total)

    def compute_honest_deviation(self, block: Tensor, mean: Tensor) -> Tensor:
        """Compute the standard deviation [S, *shape] over the honest rows, 0 of a single one."""
        _, count = self.count_rows()
        squared = self.compute_honest_mean((block - mean[self.trial]).square())
        unbiased = count / (count - 1.0).clamp_min(1.0)
        return (squared * unsqueeze_like(unbiased, squared)).sqrt()

    def replace_own(self, new: Tensors) -> Tensors:
        """Return what attackers send of new tensors [b, *shape] that need honest devices.

        Trials without honest devices keep theirs, and unknown coordinates are left out.
        """
        _, honest = self.count_rows()
        there, mask = honest[self.trial[self.rows]] > 0, self.group.full_mask
        own = self.own
        sent = {
            name: block.where(unsqueeze_like(there, block), own[name])
            for name, block in new.items()
        }
        if mask is None:
            return sent
        return {name: block * mask[name][self.rows] for name, block in sent.items()}


class Attack(Settings):
    """What an attacker does, the section `faults.attack`. An attack is its settings."""

    example: ClassVar[Mapping[str, Any]] = {"faults.byzantine": 2}

    changes_labels: ClassVar[bool] = False
    """The attacker trains on labels y that it turns into C - 1 - y, of C classes."""

    changes_updates: ClassVar[bool] = True
    """The attacker sends another update than its own."""

    needs_power_control: ClassVar[bool] = False
    """The attacker misleads the power control, which the uplink must have."""

    reports_norm: ClassVar[bool] = False
    """The attacker lies about the norm of its update, which devices must report."""

    sends_nonfinite: ClassVar[bool] = False
    """The attacker sends numbers that are not finite."""

    def change_update(self, attacked: Attacked) -> Tensors:
        """Return what the attackers send of a payload group.

        Parameters
        ----------
        attacked : Attacked
            The group, and who attacks.

        Returns
        -------
        dict of Tensor, float [b, *shape]
            The attackers' tensors.
        """
        return attacked.own

    def change_limits(
        self, limits: TransmitLimits, attacks: Tensor, hyper: Hyper
    ) -> TransmitLimits:
        """Return the limits of a slot with what the attackers do on the air.

        Parameters
        ----------
        limits : TransmitLimits
            Limits of the slot.
        attacks : Tensor, bool [S, K]
            The devices that misbehave in this slot.
        hyper : dict of Tensor, float [S]
            Stackable fields of the attack that are given.

        Returns
        -------
        TransmitLimits
            Limits with the attack.
        """
        return limits


def scale_rows(block: Tensor, factor: Tensor) -> Tensor:
    """Multiply rows [n, *shape] by factors [n]."""
    return block * unsqueeze_like(factor, block)


def compute_norms(tensors: Tensors) -> Tensor:
    """Compute the norm of each row of all tensors together, [n]."""
    norms = [torch.linalg.vector_norm(block.flatten(1), dim=1) for block in tensors.values()]
    return torch.linalg.vector_norm(torch.stack(norms), dim=0)


class SignFlip(Attack):
    """Send the update times -scale.

    Of factors of a product each is flipped, so a product of two is multiplied by scale squared.

    References
    ----------
    Blanchard, El Mhamdi, Guerraoui, Stainer 2017, "Machine Learning with Adversaries: Byzantine
        Tolerant Gradient Descent", NeurIPS.
    """

    name: Literal["sign_flip"] = "sign_flip"

    def change_update(self, attacked: Attacked) -> Tensors:
        return {name: scale_rows(own, -attacked.scale) for name, own in attacked.own.items()}


class Scale(Attack):
    """Send the update times scale."""

    name: Literal["scale"] = "scale"

    def change_update(self, attacked: Attacked) -> Tensors:
        return {name: scale_rows(own, attacked.scale) for name, own in attacked.own.items()}


class Gaussian(Attack):
    """Send normal noise of scale times the norm of the update.

    References
    ----------
    Blanchard, El Mhamdi, Guerraoui, Stainer 2017, "Machine Learning with Adversaries: Byzantine
        Tolerant Gradient Descent", NeurIPS.
    """

    name: Literal["gaussian"] = "gaussian"

    def change_update(self, attacked: Attacked) -> Tensors:
        own = attacked.own
        noise = {
            name: attacked.draw_normal(name, tuple(block.shape[1:])) for name, block in own.items()
        }
        if (mask := attacked.group.full_mask) is not None:  # unknown coordinates are not sent
            own = {name: block * mask[name][attacked.rows] for name, block in own.items()}
            noise = {name: block * mask[name][attacked.rows] for name, block in noise.items()}
        factor = attacked.scale * compute_norms(own) / compute_norms(noise).clamp_min(1e-30)
        return {name: scale_rows(block, factor) for name, block in noise.items()}


class Nan(Attack):
    """Send numbers that are not finite, which a modem refuses by default."""

    sends_nonfinite: ClassVar[bool] = True

    name: Literal["nan"] = "nan"

    def change_update(self, attacked: Attacked) -> Tensors:
        nan = torch.full_like(attacked.scale, torch.nan)
        return {name: scale_rows(own, nan) for name, own in attacked.own.items()}


class LabelFlip(Attack):
    """Train on false labels: class y becomes C - 1 - y, of C classes.

    The update is an honest one of false data, so its norm and its direction in most coordinates are
    like those of others.

    References
    ----------
    Tolpegin, Truex, Gursoy, Liu 2020, "Data Poisoning Attacks Against Federated Learning Systems",
        ESORICS.
    """

    changes_labels: ClassVar[bool] = True
    changes_updates: ClassVar[bool] = False

    name: Literal["label_flip"] = "label_flip"


MOST = 1.0 - 1e-6
"""Largest share whose quantile is taken."""


class ALittleIsEnough(Attack):
    """Send the honest mean less z honest standard deviations in each coordinate.

    The attackers know the updates of the honest devices of the round. Of n devices, b of them
    attackers, s = floor(n/2 + 1) - b honest ones must be further from the mean than the attackers
    for these to be in the majority, which gives

        z = Phi^-1((n - b - s) / (n - b)),

    at least 0. The step against the mean is that of the authors' program; their text has both
    signs.

    References
    ----------
    Baruch, Baruch, Goldberg 2019, "A Little Is Enough: Circumventing Defenses For Distributed
        Learning", NeurIPS, Algorithm 3.
    """

    name: Literal["a_little_is_enough"] = "a_little_is_enough"
    deviations: float | None = Field(None, ge=0)
    """z, standard deviations from the honest mean; the largest that hides by the paper's rule if
    not given"""

    def change_update(self, attacked: Attacked) -> Tensors:
        z, trial = compute_deviations(*attacked.count_rows()), attacked.trial[attacked.rows]
        if self.deviations is not None:
            z.fill_(self.deviations)
        sent = {}
        for name, block in attacked.group.masked_tensors.items():
            mean = attacked.compute_honest_mean(block)
            spread = attacked.compute_honest_deviation(block, mean)
            sent[name] = (mean - unsqueeze_like(z, mean) * spread)[trial]
        return attacked.replace_own(sent)


def compute_deviations(num_devices: Tensor, num_honest: Tensor) -> Tensor:
    """Compute z [S] of n devices, of which n - b are honest, float [S] each."""
    corrupted = num_devices - num_honest
    supporters = (num_devices / 2.0 + 1.0).floor() - corrupted
    share = (num_honest - supporters) / num_honest.clamp_min(1.0)
    return torch.special.ndtri(share.clamp(0.5, MOST))


class InnerProduct(Attack):
    """Send -scale times the mean of the honest updates.

    The attackers know the updates of the honest devices of the round. The inner product of the
    aggregate with the honest mean becomes negative if they are strong enough.

    References
    ----------
    Xie, Koyejo, Gupta 2020, "Fall of Empires: Breaking Byzantine-Tolerant SGD by Inner Product
        Manipulation", UAI.
    """

    name: Literal["inner_product"] = "inner_product"

    def change_update(self, attacked: Attacked) -> Tensors:
        trial = attacked.trial[attacked.rows]
        sent = {
            name: scale_rows(attacked.compute_honest_mean(block)[trial], -attacked.scale)
            for name, block in attacked.group.masked_tensors.items()
        }
        return attacked.replace_own(sent)


class Mimic(Attack):
    """Send a copy of one honest update, that of the first device of the round.

    The attackers know only this update. No rule can tell the copies from honest updates, and with
    unequal data they bias the aggregate towards one device's.

    References
    ----------
    Karimireddy, He, Jaggi 2022, "Byzantine-Robust Learning on Heterogeneous Datasets via
        Bucketing", ICLR, section 3.2.
    """

    name: Literal["mimic"] = "mimic"

    def change_update(self, attacked: Attacked) -> Tensors:
        number, last = torch.arange(len(attacked.trial), device=attacked.trial.device), 2**62
        honest = number.where(attacked.honest_mask, last)
        first = torch.full((attacked.num_trials,), last, device=number.device)
        first.scatter_reduce_(0, attacked.trial, honest, "amin")
        copied = first[attacked.trial[attacked.rows]].clamp_max(len(number) - 1)
        blocks = attacked.group.masked_tensors
        return attacked.replace_own({name: block[copied] for name, block in blocks.items()})


class FalseCsi(Attack):
    """Flip the update, and transmit it at full power with a channel report that hides this.

    The attacker reports a channel for which full power is what the policy asks for. So it transmits
    with its whole power budget, in phase, and the receive scaling is that of the true reports. Its
    effective gain is the larger the further the policy keeps others below their budgets: under
    channel inversion it is sqrt(q_k / eta), with q_k = P_k |h_k|^2 / m_k. It keeps its power
    budget.
    """

    example: ClassVar[Mapping[str, Any]] = {
        "faults.byzantine": 2,
        "transport.name": "over_the_air",
    }

    needs_power_control: ClassVar[bool] = True

    name: Literal["false_csi"] = "false_csi"

    def change_update(self, attacked: Attacked) -> Tensors:
        minus = -torch.ones_like(attacked.scale)
        return {name: scale_rows(own, minus) for name, own in attacked.own.items()}

    def change_limits(
        self, limits: TransmitLimits, attacks: Tensor, hyper: Hyper
    ) -> TransmitLimits:
        return replace(limits, full_power_mask=attacks)


class FalseNorm(Attack):
    """Report a norm that is `factor` times the true one, so that a common scale lowers all devices.

    Policies with a common receive scaling answer to the largest mean symbol power. The false report
    lowers the transmit powers of all devices, the attacker's too, and the noise drowns the sum. Its
    update is honest. It keeps its power budget.
    """

    changes_updates: ClassVar[bool] = False
    example: ClassVar[Mapping[str, Any]] = {
        "faults.byzantine": 2,
        "transport.name": "over_the_air",
    }

    needs_power_control: ClassVar[bool] = True
    reports_norm: ClassVar[bool] = True

    name: Literal["false_norm"] = "false_norm"
    factor: float = declare_stackable(100.0, gt=0)
    """reported norm over the true one"""

    def change_limits(
        self, limits: TransmitLimits, attacks: Tensor, hyper: Hyper
    ) -> TransmitLimits:
        power = hyper["factor"].square()[:, None].where(attacks, 1.0)
        return replace(limits, reported_power=power)


class Crash(Attack):
    """Crash in the middle of the slot, after a share of the symbols that is uniform in (0, 1).

    It also comes by chance, with `faults.crash_probability` of each transmitter and slot.
    """

    changes_updates: ClassVar[bool] = False

    name: Literal["crash"] = "crash"


class Duplicate(Attack):
    """Send the update twice in a slot."""

    changes_updates: ClassVar[bool] = False

    name: Literal["duplicate"] = "duplicate"
