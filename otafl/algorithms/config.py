"""Settings of federated methods. `needs` says what a method must get from the transport: the mean
of the updates, or each of them; `averages`, True for some, that its server's block "model" moves by
averaged increments, so that a server optimiser may take the step instead."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from otafl.core.settings import Settings, stackable

Needs = Literal["mean", "each"]


class FedAvgConfig(Settings):
    """Federated averaging (McMahan et al. 2017, Algorithm 1): local SGD from the broadcast model,
    increments averaged by data share."""

    needs: ClassVar[Needs] = "mean"
    averages: ClassVar[bool] = True

    name: Literal["fedavg"] = "fedavg"
    learning_rate: float = stackable(0.1, gt=0, description="SGD step of the first round")
    decay: float = stackable(
        0.0, ge=0, description="the step of round t is learning_rate / (1 + decay t)"
    )
    server_learning_rate: float = stackable(
        1.0, gt=0, description="factor on the averaged increment"
    )
    sends: Literal["increment", "model"] = Field(
        "increment",
        description="what devices send: the increment to the broadcast model, all parameters in "
        "one block, or the model, a block for each parameter",
    )
    bias_mode: Literal["ideal", "ota"] = Field(
        "ota",
        description="with sends: model, biases carried free of error and uncounted, or over the "
        "uplink",
    )

    @model_validator(mode="after")
    def _biases_apart(self) -> FedAvgConfig:
        if self.bias_mode == "ideal" and self.sends == "increment":
            raise ValueError(
                "bias_mode: ideal needs the biases apart from the weights, and the increment is "
                "one block; sends: model would do"
            )
        return self


class FedRLRConfig(Settings):
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
    evaluate_mean: bool = Field(
        False,
        description="also evaluate Theta_0*, the error-free projected mean of the local models: a "
        "diagnostic",
    )

    @model_validator(mode="after")
    def _penalty_contracts(self) -> FedRLRConfig:
        if self.mu_schedule == "inverse_eta" and self.c1 >= 1:
            raise ValueError(f"c1 must be below 1 (Lemma 2), got {self.c1:g}")
        return self


class FedRLRPlusConfig(Settings):
    """Low-rank learning in the tangent space of the broadcast model, where superposed increments
    add exactly; the uplink of FedRLR, R(M + N) reals a layer, and R more for its bias."""

    needs: ClassVar[Needs] = "mean"

    name: Literal["fedrlr_plus"] = "fedrlr_plus"
    rank: Annotated[int, Field(ge=1)] | tuple[Annotated[int, Field(ge=1)], ...] = Field(
        4,
        description="rank R of every layer (clipped to the layer's smaller side), or a list with "
        "one rank a layer",
    )
    learning_rate: float = stackable(0.1, gt=0, description="SGD step of the first round")
    decay: float = stackable(
        0.0, ge=0, description="the step of round t is learning_rate / (1 + decay t)"
    )
    server_learning_rate: float = stackable(
        1.0, gt=0, description="factor on the server's step along the averaged increments"
    )
    momentum: float = stackable(
        0.8, ge=0, lt=1, description="share of the server's last step that it takes again"
    )
