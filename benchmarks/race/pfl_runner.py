"""Race pfl-research: its federated averaging with its simulated backend and a torch model.

Granqvist, Song, Cahill, van Dalen, Pelikan, Chan, Feng, Krishnaswami, Jina, Chitnis 2024,
"pfl-research: simulation framework for accelerating research in Private Federated Learning".
"""

from __future__ import annotations

import numpy as np
import torch
from measuring import Arrays, Lap, assign_samples, main
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch_network import accuracy, network
from works import LocalData


class Classifier(nn.Module):
    """A network with the loss and the metrics that pfl asks a model for."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        return {"loss": Weighted(len(y) * self.loss(x, y).item(), len(y))}


class AfterRound(TrainingProcessCallback):
    """Calls a function after each round."""

    def __init__(self, lap: Lap) -> None:
        self.lap = lap

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.lap()
        return False, Metrics()


def race(work: LocalData, rounds: int, arrays: Arrays, lap: Lap) -> float:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002, what pfl samples users with
    x, y, x_test, y_test = (
        torch.from_numpy(arrays[name]) for name in ("x_train", "y_train", "x_test", "y_test")
    )
    own = [torch.from_numpy(index) for index in assign_samples(work, arrays)]

    def samples_of(user: int) -> PyTorchTensorDataset:
        """Return a round's samples of a device, drawn anew: pfl reads them in their order."""
        few = own[user][torch.randint(len(own[user]), (work.steps * work.batch,))]
        return PyTorchTensorDataset((x[few], y[few]))

    users = list(range(work.devices))
    data = FederatedDataset(samples_of, get_user_sampler("minimize_reuse", users))
    body = network(work, x.shape[1])
    classifier = Classifier(body)
    model = PyTorchModel(
        classifier,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(classifier.parameters(), lr=1.0),
    )
    lap()
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=rounds,  # so that only the first round evaluates
            train_cohort_size=work.participants,
            val_cohort_size=None,
        ),
        SimulatedBackend(training_data=data, val_data=data),
        model,
        NNTrainHyperParams(
            local_num_epochs=None,
            local_num_steps=work.steps,
            local_learning_rate=work.rate,
            local_batch_size=work.batch,
        ),
        callbacks=[AfterRound(lap)],
        send_metrics_to_platform=False,
    )
    return accuracy(body, x_test, y_test)


if __name__ == "__main__":
    main(race)
