"""Faults: devices that misbehave, crashes, stragglers and a jammer.

`otafl.devices.attacks` contains what a device does that misbehaves. This module says which devices
do it: the first ones in every round, or each device by chance. The fault of a device in a round
does not depend on the other participants. Slow computing is in `otafl.devices.slowness`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otafl.core import registry, settings
from otafl.core.choices import declare_choice
from otafl.core.contracts import (
    Cohort,
    Group,
    LocalData,
    Payload,
    TransmitLimits,
)
from otafl.core.hyper import build_hyper
from otafl.core.problems import Problem, make_problem
from otafl.core.rng import Purpose, Streams, declare_family
from otafl.core.settings import Decibels, declare_stackable
from otafl.core.units import db_to_linear
from otafl.devices.attacks import Attack, Attacked, Crash, Duplicate
from otafl.devices.slowness import SlowBursts

FAULT = declare_family("fault", __name__)
CRASH, STRAGGLER = FAULT / "crash", FAULT / "straggler"


class Faults:
    """Faults of S trials.

    A method returns None, or its argument unchanged, for a fault that no trial of the stack has.

    Parameters
    ----------
    sections : Sequence of Faults.Settings
        Sections `faults` of the trials, which differ only in stackable fields.
    streams : Streams
        Random streams of the trials.
    """

    class Settings(settings.Settings):
        """Faults and attacks of a scenario; none by default.

        Most attackers change their update before it is encoded and normalised. Their power control
        and power budgets are then those of all devices.
        """

        byzantine: int = declare_stackable(0, ge=0)
        """number of Byzantine devices, the first ones"""
        attack: Any = declare_choice("attack", "attack of the Byzantine devices")
        scale: float = declare_stackable(1.0, gt=0)
        """strength of the attack, a factor on what an attacker sends"""
        jammer_db: Decibels | None = declare_stackable(None)
        """mean power of a jammer's white noise over the receiver's noise, in dB; it fades, and the
        server does not know of it; no jammer if not given"""
        crash_probability: float = declare_stackable(0.0, ge=0, le=1)
        """probability that a transmitter crashes during the slot, after a uniformly distributed
        share of its symbols"""
        straggler_probability: float = declare_stackable(0.0, ge=0, le=1)
        """probability per round that a burst of slow computing begins, for a device without one"""
        straggler_rounds: float = declare_stackable(5.0, ge=1)
        """mean length of a burst in rounds, geometrically distributed"""
        straggler_factor: float = declare_stackable(4.0, ge=1)
        """factor of the seconds of local work during a burst"""

        @property
        def is_active(self) -> bool:
            """Whether there are attackers, crashes or slow devices."""
            return bool(self.byzantine or self.crash_probability or self.straggler_probability)

        @property
        def has_rejection(self) -> bool:
            """Whether devices do not send an update that is not finite.

            Without `attack: nan` such an update spoils the model, and the trial ends as diverged.
            """
            return self.attack.sends_nonfinite and self.byzantine > 0

        def check(self, scenario: Any) -> Iterable[Problem]:
            count = scenario.devices.count
            if self.byzantine > count:
                text = f"got {self.byzantine}; must be at most devices.count ({count})"
                yield make_problem(text, "faults.byzantine", "devices.count")
            if self.byzantine and self.attack.needs_power_control:
                yield from self._find_power_problems(scenario)

        def _find_power_problems(self, scenario: Any) -> Iterable[Problem]:
            """Yield what keeps an attacker from misleading the power control."""
            transport, name = scenario.transport.name, self.attack.name
            if not registry.load_component("transport", transport).obeys_power:
                text = (
                    f"'{name}' misleads the power control, which transport '{transport}' does not "
                    "have; use transport: over_the_air or another attack"
                )
                yield make_problem(text, "faults.attack", "transport")
                return
            lies = f"'{name}' lies about a norm, and"
            if self.attack.reports_norm and scenario.privacy.clip is not None:
                text = f"{lies} with privacy.clip no device reports one; use another attack"
                yield make_problem(text, "faults.attack", "privacy.clip")
            if self.attack.reports_norm and not hasattr(scenario.transport, "normalise"):
                text = f"{lies} on '{transport}' no device reports one; use another attack"
                yield make_problem(text, "faults.attack", "transport")

    def __init__(self, sections: Sequence[Settings], streams: Streams) -> None:
        first = sections[0]
        self._attack: Attack = first.attack
        self._attack_hyper = build_hyper([one.attack for one in sections], streams)
        self._streams = streams
        self._hyper = build_hyper(sections, streams)
        self._count, self._scale = self._hyper["byzantine"], self._hyper["scale"]
        self._has_attackers = any(one.byzantine for one in sections)
        self._refuses = any(one.has_rejection for one in sections)
        attack = type(self._attack) if self._has_attackers else None
        self._crash = attack is Crash or any(one.crash_probability for one in sections)
        self._twice = attack is Duplicate
        self._bursts: SlowBursts | None = None
        if any(one.straggler_probability for one in sections):
            self._bursts = SlowBursts(
                np.array([one.straggler_probability for one in sections]),
                np.array([one.straggler_rounds for one in sections]),
                np.array([one.straggler_factor for one in sections]),
                streams,
                STRAGGLER,
            )

    def tamper(self, payload: Payload, cohort: Cohort, round: int) -> Payload:
        """Return the payload with the updates of the attackers in a cohort.

        Parameters
        ----------
        payload : Payload
            Payload of the cohort, not written to.
        cohort : Cohort
            Its rows.
        round : int
            Number of the round.

        Returns
        -------
        Payload
            Payload to transmit.
        """
        if not (self._has_attackers and self._attack.changes_updates):
            return payload
        attacks = self._find_attackers(cohort)
        return tuple(
            self._attack_group(FAULT / index, group, attacks, cohort, round)
            for index, group in enumerate(payload)
        )

    def select_finite(self, payload: Payload, cohort: Cohort) -> Tensor | None:
        """Select the rows with a finite update, which are the only ones sent.

        Parameters
        ----------
        payload : Payload
            Payload of the cohort.
        cohort : Cohort
            Its rows.

        Returns
        -------
        Tensor, bool [N], optional
            Mask of the rows; None if devices do not reject updates.
        """
        if not self._refuses:
            return None
        bad = torch.zeros_like(cohort.device)
        for group in payload:
            for block in group.tensors.values():
                own = (~block.isfinite()).flatten(1).any(1).to(bad.dtype)
                bad = (
                    bad + own if group.row_index is None else bad.index_add(0, group.row_index, own)
                )
        return bad == 0

    def change_labels(self, local_data: LocalData, cohort: Cohort) -> LocalData:
        """Return the local data of a cohort with the labels that attackers train on."""
        if not (self._has_attackers and self._attack.changes_labels):
            return local_data
        return local_data.flip_labels(self._find_attackers(cohort))

    def change_limits(self, limits: TransmitLimits, cohort: Cohort, round: int) -> TransmitLimits:
        """Return the limits of a slot with crashes, copies and attacks on the air.

        Parameters
        ----------
        limits : TransmitLimits
            Limits of the slot.
        cohort : Cohort
            The transmitters.
        round : int
            Number of the slot.

        Returns
        -------
        TransmitLimits
            Limits with faults.
        """
        crashes, copies = self.draw_crashes(cohort, round), self.count_copies(cohort)
        if crashes is not None or copies is not None:
            limits = replace(limits, sent_fraction=crashes, num_copies=copies)
        if not self._has_attackers or isinstance(self._attack, Crash | Duplicate):
            return limits
        attacks = cohort.scatter_to_grid(self._find_attackers(cohort), False)
        return self._attack.change_limits(limits, attacks, self._attack_hyper)

    def draw_crashes(self, cohort: Cohort, round: int) -> Tensor | None:
        """Draw the crashes of a slot.

        Parameters
        ----------
        cohort : Cohort
            Transmitters.
        round : int
            Number of the round.

        Returns
        -------
        Tensor, [S, K], optional
            Share of its symbols that each device sends, 1 without a crash; None without this fault.
        """
        if not self._crash:
            return None
        draw = self._streams.draw_device_uniform(CRASH, round, cohort.trial, cohort.device, (2,))
        crashed = draw[:, 0] < self._hyper["crash_probability"][cohort.trial]
        if self._has_attackers and isinstance(self._attack, Crash):
            crashed = crashed | self._find_attackers(cohort)
        return cohort.scatter_to_grid(draw[:, 1].where(crashed, 1.0), 1.0)

    def count_copies(self, cohort: Cohort) -> Tensor | None:
        """Count the copies [S, K] of its update that each device sends; None if all send one."""
        if not self._twice:
            return None
        attacks = cohort.scatter_to_grid(self._find_attackers(cohort), False)
        return attacks.to(self._scale.dtype) + 1.0

    def _find_attackers(self, cohort: Cohort) -> Tensor:
        """Return the rows of attackers, [N] bool."""
        return cohort.device < self._count[cohort.trial]

    def draw_slowdown(self, trial: np.ndarray, device: np.ndarray, round: int) -> np.ndarray | None:
        """Draw the slowdown of local work.

        Parameters
        ----------
        trial, device : ndarray, int64 [N]
            Trials and devices.
        round : int
            Number of the round.

        Returns
        -------
        ndarray, float64 [N], optional
            Factors of the seconds of local work; None without stragglers.
        """
        return None if self._bursts is None else self._bursts.draw_factor(trial, device, round)

    def _attack_group(
        self, stream: Purpose, group: Group, attacks: Tensor, cohort: Cohort, round: int
    ) -> Group:
        """Return a payload group with the attackers' updates; `attacks` [N] is their mask."""
        rows = attacks.nonzero().squeeze(1)
        at, trial = rows, cohort.trial
        if group.row_index is not None:
            at = attacks[group.row_index].nonzero().squeeze(1)
            rows, trial = group.row_index[at], trial[group.row_index]
        pairs = cohort.trial[rows], cohort.device[rows]
        attacked = Attacked(
            group=group,
            rows=at,
            trial=trial,
            num_trials=cohort.num_trials,
            scale=self._scale[pairs[0]],
            draw_normal=lambda name, shape: self._streams.draw_device_normal(
                stream / name, round, *pairs, shape
            ),
        )
        sent = self._attack.change_update(attacked)
        return replace(
            group,
            tensors={
                name: block.index_copy(0, at, sent[name]) for name, block in group.tensors.items()
            },
        )


def compute_jammer_power(sections: Sequence[Faults.Settings], streams: Streams) -> Tensor:
    """Compute the jammer's mean power over the receiver's complex noise, [S], else 0."""
    powers = [0.0 if one.jammer_db is None else db_to_linear(one.jammer_db) for one in sections]
    return torch.tensor(powers, dtype=streams.dtype, device=streams.device)
