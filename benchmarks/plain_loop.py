"""What a user would write without otafl: FedAvg as a lean loop over devices with nn.Module and
torch.optim, one model reused by all devices, no data loader."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PlainFedAvg:
    """x: [n, 784], y: [n]; index: [K, n_k] samples of each device."""

    def __init__(
        self, x: Tensor, y: Tensor, index: Tensor, hidden: int, steps: int, batch: int, rate: float
    ) -> None:
        self.x, self.y, self.index = x, y, index
        self.steps, self.batch = steps, batch
        self.model = nn.Sequential(nn.Linear(x.shape[1], hidden), nn.ReLU(), nn.Linear(hidden, 10))
        self.loss = nn.CrossEntropyLoss()
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=rate)
        self.server = [p.detach().clone() for p in self.model.parameters()]

    def round(self) -> None:
        total = [torch.zeros_like(p) for p in self.server]
        for own in self.index:
            with torch.no_grad():
                for p, start in zip(self.model.parameters(), self.server, strict=True):
                    p.copy_(start)
            for _ in range(self.steps):
                sample = own[torch.randint(len(own), (self.batch,))]
                self.optimiser.zero_grad()
                self.loss(self.model(self.x[sample]), self.y[sample]).backward()
                self.optimiser.step()
            with torch.no_grad():
                torch._foreach_add_(total, [p.detach() for p in self.model.parameters()])
        self.server = [t / len(self.index) for t in total]
