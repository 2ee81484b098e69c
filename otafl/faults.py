"""Faults to inject: Byzantine devices and a jammer. Sign flips and normal noise are the attacks of
Blanchard, El Mhamdi, Guerraoui, Stainer 2017, "Machine Learning with Adversaries: Byzantine
Tolerant Gradient Descent"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from otafl.contracts import Blocks, Cohort, Group, Hyper, Payload
from otafl.faults_config import FaultsConfig
from otafl.rng import Streams
from otafl.units import db_to_linear


class Byzantine:
    """The first `byzantine` devices of each trial send something else than their update."""

    def __init__(self, config: FaultsConfig, streams: Streams, hyper: Hyper) -> None:
        self._attack = config.attack
        self._count, self._scale = hyper["byzantine"], hyper["scale"]
        self._some = bool(self._count.any())
        self._streams = streams

    def tamper(self, payload: Payload, cohort: Cohort, round: int) -> Payload:
        """The payload as the attackers among the cohort have it sent; what was given is not
        written to."""
        if not self._some:
            return payload
        attacks = cohort.device < self._count[cohort.trial]
        return tuple(
            self._group(str(index), group, attacks, cohort, round)
            for index, group in enumerate(payload)
        )

    def _group(
        self, stream: str, group: Group, attacks: Tensor, cohort: Cohort, round: int
    ) -> Group:
        rows = attacks.nonzero().squeeze(1)
        at = rows
        if group.rows is not None:
            at = attacks[group.rows].nonzero().squeeze(1)
            rows = group.rows[at]
        own = {name: block[at] for name, block in group.blocks.items()}
        scale = self._scale[cohort.trial[rows]]
        if self._attack == "gaussian":
            noise = {
                name: self._streams.device_normal(
                    f"fault/{stream}/{name}",
                    round,
                    cohort.trial[rows],
                    cohort.device[rows],
                    block.shape[1:],
                )
                for name, block in own.items()
            }
            if (mask := group.full_mask) is not None:  # what a device does not know is not sent
                own = {name: block * mask[name][at] for name, block in own.items()}
                noise = {name: block * mask[name][at] for name, block in noise.items()}
            scale, own = scale * _norm(own) / _norm(noise).clamp_min(1e-30), noise
        elif self._attack == "sign_flip":
            scale = -scale
        return replace(
            group,
            blocks={
                name: block.index_copy(0, at, _times(own[name], scale))
                for name, block in group.blocks.items()
            },
        )


def jammer_power(configs: Sequence[FaultsConfig], streams: Streams) -> Tensor:
    """[S]: the jammer's mean power over the receiver's complex noise, 0 without one."""
    powers = [0.0 if one.jammer_db is None else db_to_linear(one.jammer_db) for one in configs]
    return torch.tensor(powers, dtype=streams.dtype, device=streams.device)


def _norm(blocks: Blocks) -> Tensor:
    """[n]: of rows, all blocks together."""
    norms = [torch.linalg.vector_norm(block.flatten(1), dim=1) for block in blocks.values()]
    return torch.linalg.vector_norm(torch.stack(norms), dim=0)


def _times(block: Tensor, factor: Tensor) -> Tensor:
    """Rows [n, *shape] times [n]."""
    return block * factor.view(-1, *[1] * (block.dim() - 1))
