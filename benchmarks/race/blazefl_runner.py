"""Race BlazeFL 3: the federated averaging that it comes with, in the mode that suits the cores.

Azuma, Nishio 2026, "BlazeFL: Fast and Deterministic Federated Learning Simulation". Its README
recommends threads on a Python without a global lock; processes take their place with one, and on
one core the devices train one after another.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
from blazefl.contrib import (
    FedAvgBaseClientTrainer,
    FedAvgBaseServerHandler,
    FedAvgPartitionType,
    FedAvgProcessPoolClientTrainer,
    FedAvgThreadPoolClientTrainer,
)
from blazefl.core import ModelSelector, PartitionedDataset
from measuring import Arrays, Lap, assign_samples, count_cores, main, measure_all_processes
from torch import Generator, nn
from torch.utils.data import DataLoader, Dataset
from torch_network import accuracy, load_batches, network
from works import LocalData


class Samples(PartitionedDataset[FedAvgPartitionType]):
    """The samples of every device, [devices, n, pixels] and [devices, n]."""

    def __init__(self, work: LocalData, arrays: Arrays) -> None:
        index = assign_samples(work, arrays)
        self.work = work
        self.x, self.y = (torch.from_numpy(arrays[f"{name}_train"][index]) for name in "xy")

    def get_dataloader(
        self, type_: str, cid: int, batch_size: int, generator: Generator | None = None
    ) -> DataLoader:
        return load_batches(self.work, self.x[cid], self.y[cid], generator)

    def set_dataset(self, type_: str, cid: int, dataset: Dataset) -> None:
        """Processes would hand back what has changed; nothing has."""


class Selector(ModelSelector):
    """Builds the work's network."""

    def __init__(self, work: LocalData, pixels: int) -> None:
        self.work, self.pixels = work, pixels

    def select_model(self, model_name: str) -> nn.Module:
        return network(self.work, self.pixels)


def race(work: LocalData, rounds: int, arrays: Arrays, lap: Lap) -> float:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    common = {
        "model_selector": Selector(work, arrays["x_train"].shape[1]),
        "model_name": work.title,
        "dataset": Samples(work, arrays),
        "num_clients": work.devices,
        "device": "cpu",
        "batch_size": work.batch,
        "seed": 0,
    }
    server = FedAvgBaseServerHandler(
        global_round=rounds, sample_ratio=work.participants / work.devices, **common
    )
    own = {**common, "epochs": max(1, work.epochs), "lr": work.rate}
    cores = count_cores()
    with tempfile.TemporaryDirectory() as folder:
        if cores == 1:
            trainer = FedAvgBaseClientTrainer(**own)
        elif not sys._is_gil_enabled():
            trainer = FedAvgThreadPoolClientTrainer(num_parallels=cores, **own)
        else:
            trainer = FedAvgProcessPoolClientTrainer(
                num_parallels=cores, state_dir=Path(folder), **own
            )
        lap()
        while not server.is_stopped():
            chosen = server.sample_clients()
            trainer.local_process(server.downlink_package(), chosen)
            for package in trainer.uplink_package():
                server.load(package)
            lap()
    x_test, y_test = (torch.from_numpy(arrays[f"{name}_test"]) for name in "xy")
    return accuracy(server.model, x_test, y_test)


if __name__ == "__main__":
    main(race, measure_all_processes)
