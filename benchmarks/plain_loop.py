"""What a user would write without otafl: FedAvg as a lean loop over devices with nn.Module and
torch.optim, one model reused by all devices, no data loader."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PlainFedAvg:
    """x: [n, inputs], y: [n]; index: [K, n_k] samples of each device; participants: devices drawn
    each round, all by default."""

    def __init__(
        self,
        model: nn.Module,
        x: Tensor,
        y: Tensor,
        index: Tensor,
        steps: int,
        batch: int,
        rate: float,
        participants: int | None = None,
    ) -> None:
        self.model, self.x, self.y, self.index = model, x, y, index
        self.steps, self.batch = steps, batch
        self.participants = len(index) if participants is None else participants
        self.loss = nn.CrossEntropyLoss()
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=rate)
        self.server = [p.detach().clone() for p in self.model.parameters()]

    def round(self) -> None:
        total = [torch.zeros_like(p) for p in self.server]
        for device in torch.randperm(len(self.index))[: self.participants]:
            own = self.index[device]
            self.get_trained_model()
            for _ in range(self.steps):
                sample = own[torch.randint(len(own), (self.batch,))]
                self.optimiser.zero_grad()
                self.loss(self.model(self.x[sample]), self.y[sample]).backward()
                self.optimiser.step()
            with torch.no_grad():
                torch._foreach_add_(total, [p.detach() for p in self.model.parameters()])
        self.server = [t / self.participants for t in total]

    @torch.no_grad()
    def get_trained_model(self) -> nn.Module:
        """The model, with the server's parameters."""
        for p, server in zip(self.model.parameters(), self.server, strict=True):
            p.copy_(server)
        return self.model


def mlp(inputs: int, hidden: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, 10))
