"""The works that simulators are raced on, in words that need no simulator: plain FedAvg over a link
without errors, samples dealt out evenly. Every environment reads this file."""

from __future__ import annotations

from dataclasses import dataclass

CLASSES = 10
KERNEL = 5
"""Side of the convolutions' windows; max-pooling then halves the images."""


@dataclass(frozen=True)
class LocalData:
    """A round: `participants` of `devices` take `steps` SGD steps of `batch` samples each.

    rounds : of a repetition, after which the accuracies are compared.
    channels : outputs of the model's convolutions, none by default.
    hidden : widths of the fully connected layers before the last, none by default.
    planes : colours of the images.
    padding : zeros around an image, so that a convolution keeps its size ("same"), or "valid".
    epochs : passes over a device's samples that the steps are; 0 if each step draws its samples.
    warm_up : first rounds, in which programs compile and allocate; they are not measured.
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
    planes: int = 1
    padding: str = "same"
    epochs: int = 0
    warm_up: int = 3

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
    "lenet": LocalData(
        "BlazeFL's own benchmark: LeNet of 62,006 parameters, generated colour images",
        *(100, 100, 50, 50),
        rate=0.1,
        rounds=1,
        channels=(6, 16),
        hidden=(120, 84),
        data="generated:images",
        planes=3,
        padding="valid",
        epochs=5,
        warm_up=0,
    ),
    "rehearsal": LocalData(
        "A rehearsal", 20, 5, 3, 5, rate=0.1, rounds=6, hidden=(8,), data="digits"
    ),
}

RACED = ("logistic", "mlp", "cnn", "lenet")
"""What is raced if nothing else is asked for."""
