"""The client of Flower's simulation, which Ray's processes import."""

from __future__ import annotations

import functools

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from measuring import assign_samples
from torch import Tensor
from torch_network import load_batches, network
from works import WORKS

app = ClientApp()


@functools.cache
def read_samples(name: str, path: str) -> tuple[Tensor, Tensor]:
    """Return the samples of every device, [devices, n, pixels] and [devices, n]."""
    with np.load(path) as arrays:
        index = assign_samples(WORKS[name], arrays)
        return torch.from_numpy(arrays["x_train"][index]), torch.from_numpy(
            arrays["y_train"][index]
        )


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the model that came on the device's own samples."""
    torch.set_num_threads(1)
    told = message.content["config"]
    work, device = WORKS[told["work"]], int(context.node_config["partition-id"])
    x, y = read_samples(told["work"], told["data"])
    model = network(work, x.shape[2])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD(model.parameters(), lr=work.rate)
    batches = load_batches(work, x[device], y[device])
    for _ in range(told["epochs"]):
        for inputs, labels in batches:
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            optimiser.step()
    content = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": x.shape[1]}),
    }
    return Message(content=RecordDict(content), reply_to=message)
