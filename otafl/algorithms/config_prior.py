"""Settings of the methods whose devices turn the broadcast model into a prior of their own:
pFedBreD, its rival pFedMe, and Per-FedAvg."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from otafl.algorithms.config_personal import AveragedConfig, penalty, personal_rate
from otafl.core.settings import stackable

Strategy = Literal["none", "lg", "meg", "mh"]
Variant = Literal["code", "paper", "c2"]
Family = Literal["gaussian", "bernoulli", "poisson", "exponential"]

_PENALTY = (
    "lambda, the strength of the prior; of the authors: 30 for a DNN, 15 for every other model"
)
_PROX_STEPS = "K, gradient steps of the proximal solver in each local step"


def _must_converge(rate: float, weight: float) -> None:
    """ValueError where the proximal solver diverges on the penalty alone."""
    if rate * weight >= 2:
        raise ValueError(
            "personal_learning_rate times penalty must be below 2, or the steps of the proximal "
            f"solver grow without bound (below 1 they do not overshoot); got {rate:g} times "
            f"{weight:g}"
        )


class PFedBreDConfig(AveragedConfig):
    """pFedBreD (Shi et al. 2023, "PRIOR: Personalized Prior for Reactivating the Information
    Overlooked in Federated Learning"): each device turns the broadcast model into the mean of a
    prior of its own, and its personal model is the solution of the Bregman-proximal problem there.
    Local steps and the minibatch are `training.local_steps` and `training.batch_size`."""

    name: Literal["pfedbred"] = "pfedbred"
    strategy: Strategy = Field(
        "mh",
        description="the prior's mean: none (the local model, which is pFedMe), lg (a step along "
        "the loss gradient), meg (along the memorised envelope gradient), mh (both)",
    )
    variant: Variant = Field(
        "code",
        description="code: as the authors' program; paper: as equation (14); c2: mh as equation "
        "(24) of the appendix",
    )
    c2_two_batches: bool = Field(
        False, description="with variant: c2, a minibatch of its own for the inner gradient"
    )
    family: Family = Field(
        "gaussian",
        description="exponential family of the prior; the parameters of networks are real "
        "numbers, so gaussian alone",
    )
    penalty: float = penalty(15.0, _PENALTY)
    personal_learning_rate: float = personal_rate()
    eta: float = stackable(
        0.05,
        ge=0,
        description="step along the memorised envelope gradient, of meg and mh; the penalty is "
        "absorbed in it",
    )
    eta_alpha: float = stackable(
        0.01, ge=0, description="step along the loss gradient in the prior's mean, of lg and mh"
    )
    prox_steps: int = Field(5, ge=1, description=_PROX_STEPS)
    coherence: bool = Field(
        False,
        description="also measure the generalised coherence of the devices' envelope gradients "
        "(figure 2); each device then keeps its last one",
    )

    @model_validator(mode="after")
    def _fits(self) -> PFedBreDConfig:
        _must_converge(self.personal_learning_rate, self.penalty)
        if self.family != "gaussian":
            raise ValueError(
                f"family: {self.family} has parameters in a part of the real numbers alone, and a "
                "network's may take any value; gaussian would do"
            )
        if self.variant == "c2" and self.strategy != "mh":
            raise ValueError(
                f"variant: c2 is a form of mh, and strategy is {self.strategy}; strategy: mh, or "
                "variant: code or paper, would do"
            )
        if self.c2_two_batches and self.variant != "c2":
            raise ValueError(
                f"c2_two_batches is of variant: c2, and variant is {self.variant}; leave it out"
            )
        return self


class PFedMeConfig(AveragedConfig):
    """pFedMe (Dinh, Tran, Nguyen 2020, "Personalized Federated Learning with Moreau Envelopes",
    Algorithm 1): the personal model solves the proximal problem around the local model, which
    descends the Moreau envelope. Its authors' beta is `server_learning_rate`."""

    name: Literal["pfedme"] = "pfedme"
    penalty: float = penalty(15.0, _PENALTY)
    personal_learning_rate: float = personal_rate()
    prox_steps: int = Field(5, ge=1, description=_PROX_STEPS)
    implementation: Literal["paper", "original"] = Field(
        "paper",
        description="paper: as published; original: as its authors' program, whose proximal steps "
        "have a hidden weight decay, start where the last local step ended, and whose personal "
        "model is the local one in truth",
    )
    weight_decay: float = stackable(
        1e-3, ge=0, description="with implementation: original, the decay in each proximal step"
    )

    @model_validator(mode="after")
    def _converges(self) -> PFedMeConfig:
        _must_converge(self.personal_learning_rate, self.penalty)
        return self


class PerFedAvgConfig(AveragedConfig):
    """Per-FedAvg (Fallah, Mokhtari, Ozdaglar 2020, "Personalized Federated Learning with
    Theoretical Guarantees: A Model-Agnostic Meta-Learning Approach", Algorithm 1): the global model
    is one from which a gradient step of each device leads to a good model of its own."""

    name: Literal["per_fedavg"] = "per_fedavg"
    personal_learning_rate: float = stackable(
        0.01, gt=0, description="alpha, the step from the global model to a device's own"
    )
    hessian: Literal["none", "difference"] = Field(
        "none",
        description="the meta-gradient's second-order term: left out (FO), or by a difference of "
        "gradients (HF)",
    )
    spread: float = stackable(
        1e-3,
        gt=0,
        description="with hessian: difference, delta: gradients are taken at w +- delta g, g the "
        "gradient that the Hessian meets",
    )
    fine_tune_steps: int = Field(
        1,
        ge=1,
        description="steps from the global model to the personal one before it is tested; "
        "pFedBreD's text has 2, its program 1",
    )
