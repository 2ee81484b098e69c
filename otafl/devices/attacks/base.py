"""The contract of an attack or fault: what a device does that misbehaves.

The first `faults.byzantine` devices do what `faults.attack` names, in every round in which they
take part. Crashes and duplicates also come by chance, with the probabilities of the section
`faults`. So an attack says what is done, and the section who does it.

A device misbehaves at one of three points of a round: in its local work (`changes_labels`), in its
update before the codec (`change_update`), or on the air (`change_limits`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from otafl.core.contracts import Group, Hyper, Tensors, TransmitLimits, unsqueeze_like
from otafl.core.settings import Settings


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
        self, limits: TransmitLimits, attacks: Tensor, shares: Tensor, hyper: Hyper
    ) -> TransmitLimits:
        """Return the limits of a slot with what the attackers do on the air.

        Parameters
        ----------
        limits : TransmitLimits
            Limits of the slot.
        attacks : Tensor, bool [S, K]
            The devices that misbehave in this slot.
        shares : Tensor, float [S, K]
            Numbers of a crash or a copy, uniform in (0, 1).
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
