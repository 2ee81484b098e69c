"""The works that simulators are raced on, in words that need no simulator: plain FedAvg over a link
without errors, samples dealt out evenly. Every environment reads this file."""

from __future__ import annotations

from dataclasses import dataclass

CLASSES = 10
KERNEL = 5
"""Side of the convolutions' windows; zeros keep the images' size, and max-pooling halves it."""


@dataclass(frozen=True)
class LocalData:
    """A round: `participants` of `devices` take `steps` SGD steps of `batch` samples each.

    rounds : of a repetition, after which the accuracies are compared.
    channels : outputs of the model's convolutions, none by default.
    hidden : widths of the fully connected layers before the last, none by default.
    """

    title: str
    devices: int
    participants: int
    steps: int
    batch: int
    rate: float
    rounds: int
    channels: tuple[int, ...] = ()
    hidden: tuple[int, ...] = ()
    data: str = "fashion_mnist"

    @property
    def samples(self) -> int:
        """Count the samples that are trained on in a round."""
        return self.participants * self.steps * self.batch


WORKS = {
    "logistic": LocalData("Logistic regression", 1000, 10, 6, 10, rate=0.1, rounds=100),
    "mlp": LocalData("MLP 784-100-10", 100, 100, 20, 20, rate=0.1, rounds=10, hidden=(100,)),
    "cnn": LocalData(
        "CNN of McMahan et al. 2017, 1.66 million parameters",
        *(100, 10, 6, 10),
        rate=0.1,
        rounds=30,
        channels=(32, 64),
        hidden=(512,),
    ),
    "rehearsal": LocalData(
        "A rehearsal", 20, 5, 3, 5, rate=0.1, rounds=6, hidden=(8,), data="digits"
    ),
}

RACED = ("logistic", "mlp", "cnn")
"""What is raced if nothing else is asked for."""
