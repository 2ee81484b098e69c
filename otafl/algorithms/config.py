"""Settings of federated methods. `needs` says what a method must get from the transport: the mean
of the updates, or each of them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from otafl.config import Config, stackable

Needs = Literal["mean", "each"]


class FedAvgConfig(Config):
    """Federated averaging (McMahan et al. 2017, Algorithm 1): local SGD from the broadcast model,
    increments averaged by data share."""

    needs: ClassVar[Needs] = "mean"

    name: Literal["fedavg"] = "fedavg"
    learning_rate: float = stackable(0.1, gt=0, description="SGD step of the first round")
    decay: float = stackable(
        0.0, ge=0, description="the step of round t is learning_rate / (1 + decay t)"
    )
    server_learning_rate: float = stackable(
        1.0, gt=0, description="factor on the averaged increment"
    )


class FedRLRConfig(Config):
    """Riemannian low-rank compression with random linear coding (Xue and Lau, "Riemannian Low-Rank
    Model Compression for Federated Learning with Over-the-Air Aggregation", Algorithm 1)."""

    needs: ClassVar[Needs] = "mean"

    name: Literal["fedrlr"] = "fedrlr"
    rank: Annotated[int, Field(ge=1)] | tuple[Annotated[int, Field(ge=1)], ...] = Field(
        4,
        description="rank R of every layer (clipped to the layer's smaller side), or a list with "
        "one rank a layer",
    )
    q: float = stackable(2.0, gt=0, description="step size eta = q / (nu + t)")
    nu: float = stackable(1000.0, gt=0, description="step size eta = q / (nu + t)")
    mu_schedule: Literal["inverse_eta", "constant"] = Field(
        "inverse_eta", description="penalty weight mu = c1 / eta, or the constant mu"
    )
    c1: float = stackable(0.006, ge=0, description="penalty constant of inverse_eta")
    mu: float = stackable(3.0, ge=0, description="penalty weight of the constant schedule")
    inv_k_gradient: bool = Field(True, description="the paper's factor 1/K on the loss gradient")
    inv_k_penalty: bool | None = Field(
        None, description="factor 1/K on the penalty; as inv_k_gradient if not given"
    )
    bias_mode: Literal["ideal", "ota"] = Field(
        "ideal", description="biases carried free of error and uncounted, or over the uplink"
    )
    init_rescale: bool = Field(
        True, description="the rank-R start keeps the Frobenius norm it had before truncation"
    )

    @model_validator(mode="after")
    def _penalty_contracts(self) -> FedRLRConfig:
        if self.mu_schedule == "inverse_eta" and self.c1 >= 1:
            raise ValueError(f"c1 must be below 1 (Lemma 2), got {self.c1:g}")
        return self
