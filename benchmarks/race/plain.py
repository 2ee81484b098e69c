"""Race the lean loop over devices that one would write by hand."""

from __future__ import annotations

import torch
from measuring import Arrays, Lap, assign_samples, main
from plain_loop import PlainFedAvg
from torch_network import accuracy, network
from works import LocalData


def race(work: LocalData, rounds: int, arrays: Arrays, lap: Lap) -> float:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, y, x_test, y_test = (
        torch.from_numpy(arrays[name]) for name in ("x_train", "y_train", "x_test", "y_test")
    )
    loop = PlainFedAvg(
        network(work, x.shape[1]),
        *(x, y, torch.from_numpy(assign_samples(work, arrays))),
        *(work.steps, work.batch, work.rate, work.participants),
    )
    lap()
    for _ in range(rounds):
        loop.round()
        lap()
    return accuracy(loop.get_trained_model(), x_test, y_test)


if __name__ == "__main__":
    main(race)
