"""Race Flower's simulation: its federated averaging, a client at a time on each core by Ray.

Beutel, Topal, Mathur, Qiu, Fernandez-Marques, Gao, Sani, Li, Parcollet, Gusmao, Lane 2020,
"Flower: A Friendly Federated Learning Research Framework". A client has one core, as its
documentation recommends so that as many as possible train at a time.
"""

from __future__ import annotations

import torch
from flower_client import app
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from measuring import Arrays, Lap, arguments, count_cores, main, measure_all_processes
from torch_network import accuracy, network
from works import LocalData


def race(work: LocalData, rounds: int, arrays: Arrays, lap: Lap) -> float:
    torch.manual_seed(0)
    given = arguments().parse_args()
    model = network(work, arrays["x_train"].shape[1])
    server = ServerApp()

    def end_round(number: int, trained: ArrayRecord) -> None:
        lap()
        if number == rounds:
            model.load_state_dict(trained.to_torch_state_dict())

    @server.main()
    def start(grid: Grid, context: Context) -> None:
        strategy = FedAvg(
            fraction_train=work.participants / work.devices,
            fraction_evaluate=0.0,
            min_available_nodes=work.devices,
        )
        arrays, told = (
            ArrayRecord(model.state_dict()),
            {"work": given.work, "data": str(given.data)},
        )
        # a round without training starts Ray's processes, which read the samples
        strategy.start(grid, arrays, 1, train_config=ConfigRecord({**told, "epochs": 0}))
        told["epochs"] = max(1, work.epochs)
        strategy.start(grid, arrays, rounds, train_config=ConfigRecord(told), evaluate_fn=end_round)

    run_simulation(
        server_app=server,
        client_app=app,
        num_supernodes=work.devices,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": count_cores()},
        },
    )
    x_test, y_test = (torch.from_numpy(arrays[f"{name}_test"]) for name in "xy")
    return accuracy(model, x_test, y_test)


if __name__ == "__main__":
    main(race, measure_all_processes)
