"""Settings of the methods for heterogeneous devices that personalised learning is compared with.
All of them need the mean of what is sent alone."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from otafl.algorithms.config import Needs
from otafl.algorithms.config_personal import AveragedConfig, penalty, personal_rate
from otafl.core.settings import Settings, stackable


def _must_contract(rate_key: str, rate: float, weight: float) -> None:
    """ValueError where a step on a penalty would reach its centre or jump over it."""
    if rate * weight >= 1:
        raise ValueError(
            f"{rate_key} times penalty must be below 1, or a step on the penalty alone jumps over "
            f"the global model; got {rate:g} times {weight:g}"
        )


class FedProxConfig(AveragedConfig):
    """FedProx (Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith 2020, "Federated Optimization in
    Heterogeneous Networks"): federated averaging whose local loss has a penalty on the squared
    distance to the broadcast model."""

    name: Literal["fedprox"] = "fedprox"
    penalty: float = penalty(0.1, "mu: the local loss has mu/2 |w - w^t|^2 added")

    @model_validator(mode="after")
    def _contracts(self) -> FedProxConfig:
        _must_contract("learning_rate", self.learning_rate, self.penalty)
        return self


class ScaffoldConfig(AveragedConfig):
    """SCAFFOLD (Karimireddy, Kale, Mohri, Reddi, Stich, Suresh 2020, "SCAFFOLD: Stochastic
    Controlled Averaging for Federated Learning", Algorithm 1, option II): control variates take the
    drift of a device's own loss out of its steps. They travel too: the payload and the broadcast
    are twice as long."""

    name: Literal["scaffold"] = "scaffold"


class DittoConfig(AveragedConfig):
    """Ditto (Li, Hu, Beirami, Smith 2021, "Ditto: Fair and Robust Federated Learning Through
    Personalization", Algorithm 1): each device keeps a model of its own, drawn to the broadcast
    one, beside the model that is averaged."""

    name: Literal["ditto"] = "ditto"
    personal_learning_rate: float = personal_rate()
    penalty: float = penalty(
        1.0, "lambda: the loss of the device's own model v has lambda/2 |v - w|^2 added"
    )

    @model_validator(mode="after")
    def _contracts(self) -> DittoConfig:
        _must_contract("personal_learning_rate", self.personal_learning_rate, self.penalty)
        return self


class ApflConfig(AveragedConfig):
    """APFL (Deng, Kamani, Mahdavi 2020, "Adaptive Personalized Federated Learning", Algorithm 1):
    the personal model is alpha times a model of the device's own plus 1 - alpha times the averaged
    one. The paper has one step size for both."""

    name: Literal["apfl"] = "apfl"
    personal_learning_rate: float = personal_rate()
    mixing: float = stackable(
        0.5, ge=0, le=1, description="alpha, the share of the device's own model, at the start"
    )
    adaptive: bool = Field(
        True,
        description="each device learns its alpha, by a gradient step a round with "
        "personal_learning_rate, kept in 0 to 1",
    )


class FedRepConfig(AveragedConfig):
    """FedRep (Collins, Hassani, Mokhtari, Shakkottai 2021, "Exploiting Shared Representations for
    Personalized Federated Learning", Algorithm 1): the last layer, the head, stays at the device;
    what is before it, the body, is averaged."""

    name: Literal["fedrep"] = "fedrep"
    personal_learning_rate: float = personal_rate()
    head_factor: int = Field(
        1,
        ge=1,
        description="the head takes so many times training.local_steps steps, then the body takes "
        "training.local_steps",
    )


class FedBnConfig(AveragedConfig):
    """FedBN (Li, Jiang, Zhang, Kamp, Dou 2021, "FedBN: Federated Learning on Non-IID Features via
    Local Batch Normalization"): federated averaging in which the parameters of normalisation layers
    stay at the device."""

    name: Literal["fedbn"] = "fedbn"


class LocalOnlyConfig(Settings):
    """Every device trains a model of its own by SGD and nothing is sent: what communication must
    beat."""

    needs: ClassVar[Needs] = "mean"

    name: Literal["local_only"] = "local_only"
    personal_learning_rate: float = personal_rate()


class FedEMConfig(AveragedConfig):
    """FedEM (Marfoq, Neglia, Bellet, Kameni, Vidal 2021, "Federated Multi-Task Learning under a
    Mixture of Distributions", Algorithm 1): each device mixes the predictions of models that all
    share, with weights of its own, by expectation maximisation. All models are sent."""

    name: Literal["fedem"] = "fedem"
    components: int = Field(3, ge=1, description="M, the models that are mixed")
