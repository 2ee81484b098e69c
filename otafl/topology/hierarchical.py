"""One server of all devices, and servers whose models a cloud averages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from otafl.algorithms.base import Algorithm, select_shared
from otafl.algorithms.custom import get_class
from otafl.core.contracts import Tensors
from otafl.core.problems import Problem, make_problem
from otafl.core.rng import Streams
from otafl.core.settings import declare_stackable
from otafl.topology.base import Exchange, Topology
from otafl.topology.cells import Cells, CellsSettings


class Star(Topology):
    """One server that receives all devices."""

    class Settings(Topology.Settings):
        name: Literal["star"] = "star"


BITS = 32
"""Bits of a real number on the backhaul."""


class Hierarchical(Cells):
    """Several cells whose servers average their models in a cloud every few rounds.

    Between two averages each server trains as in `cells`, interference included. Then all servers
    wait for the slowest, send their models over a backhaul, and continue with the mean. The weight
    of a server is the number of training samples of its devices. All start from the model of the
    first. Low-rank models are truncated to their rank again. Momentum, and the state of a server
    optimiser, stay at the server.

    References
    ----------
    Liu, Zhang, Song, Letaief 2020, "Client-Edge-Cloud Hierarchical Federated Learning", IEEE ICC,
    Algorithm 1.
    """

    state_attrs: ClassVar = ("bits",)

    class Settings(CellsSettings):
        small: ClassVar[Mapping[str, Any]] = {**Cells.Settings.small, "cloud_every": 1}

        name: Literal["hierarchical"] = "hierarchical"
        cloud_every: int = Field(5, ge=1)
        """rounds of the servers between two averages in the cloud"""
        backhaul_rate_bps: float = declare_stackable(1e9, gt=0)
        """bit rate in bit/s between a server and the cloud, in one direction at a time"""

        def check(self, scenario: Any) -> Iterable[Problem]:
            yield from super().check(scenario)
            method = scenario.algorithm
            reason = get_class(method).excludes.get("merging")
            if reason:
                text = (
                    f"the cloud averages the servers' models, but '{method.name}' {reason}; use "
                    "topology: cells, or another algorithm"
                )
                yield make_problem(text, "topology", "algorithm")

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.bits = np.zeros(len(self.rows.scenarios))
        self._rate_bps = self.hyper["backhaul_rate_bps"].double().cpu().numpy()

    @property
    def init_streams(self) -> Streams:
        return self.rows.first

    def exchange(
        self, server: Tensors, share: Tensor, round: int, algorithm: Algorithm
    ) -> Exchange | None:
        if (round + 1) % self.settings.cloud_every:
            return None
        servers = self.rows.servers
        weight = share.sum(1).view(-1, servers)
        weight = weight / weight.sum(1, keepdim=True)
        shared = {
            name: _average_servers(block.unflatten(0, (-1, servers)), weight).repeat_interleave(
                servers, 0
            )
            for name, block in select_shared(server).items()
        }
        sent = BITS * sum(block[0].numel() for block in server.values())
        self.bits += 2 * sent
        return Exchange(server | shared, 2 * sent / self._rate_bps)

    def compute_metrics(self, server: Tensors, algorithm: Algorithm) -> dict[str, np.ndarray]:
        return {"backhaul_bits": self.bits.copy()}


def _average_servers(blocks: Tensor, share: Tensor) -> Tensor:
    """Compute the means [S, *shape] of the servers' tensors [S, C, *shape] with weights [S, C]."""
    return torch.einsum("sc,sc...->s...", share.to(blocks), blocks)
