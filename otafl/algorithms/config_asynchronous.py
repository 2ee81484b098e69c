"""Settings of the methods for asynchronous uplinks, whose server weighs an update by its staleness:
how many steps the server's model took since the device received it."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from otafl.algorithms.config import Needs
from otafl.core.settings import Settings, stackable


class FedAsyncConfig(Settings):
    """FedAsync (Xie, Koyejo, Gupta 2020, "Asynchronous Federated Optimization", Algorithm 1): the
    server mixes every model that arrives into its own, the less the staler it is."""

    needs: ClassVar[Needs] = "mean"
    averages: ClassVar[bool] = True

    name: Literal["fedasync"] = "fedasync"
    learning_rate: float = stackable(0.1, gt=0, description="SGD step of the devices, gamma")
    mixing: float = stackable(
        0.6,
        gt=0,
        le=1,
        description="alpha: share of an update without staleness in the server's new model",
    )
    staleness: Literal["constant", "polynomial", "hinge"] = Field(
        "polynomial",
        description="s(d), the factor on alpha at a staleness of d: 1; (1 + d)^-exponent; or 1 up "
        "to hinge_after and 1 / (hinge_slope (d - hinge_after) + 1) beyond",
    )
    exponent: float = stackable(
        0.5, ge=0, description="a of the polynomial; the default is the paper's experiments'"
    )
    hinge_slope: float = stackable(
        10.0, ge=0, description="a of the hinge; the default is the paper's experiments'"
    )
    hinge_after: float = stackable(
        4.0,
        ge=0,
        description="b of the hinge, server steps; the default is the paper's experiments'",
    )
    rho: float = stackable(
        0.005, ge=0, description="the local loss has rho/2 |x - x_tau|^2 added, x_tau as received"
    )
    sends: Literal["model", "increment"] = Field(
        "model",
        description="what devices send: the model, as in the paper, so that x becomes (1 - a) x + "
        "a x_new; or its increment, x + a (x_new - x_tau), which is much smaller, and so is the "
        "noise that an analogue uplink adds to it",
    )

    @model_validator(mode="after")
    def _contracts(self) -> FedAsyncConfig:
        if self.learning_rate * self.rho >= 1:
            raise ValueError(
                "learning_rate times rho must be below 1, or a step on the penalty alone jumps "
                f"over the received model; got {self.learning_rate:g} times {self.rho:g}"
            )
        return self


class FedBuffConfig(Settings):
    """FedBuff (Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba 2022, "Federated Learning with
    Buffered Asynchronous Aggregation", Algorithm 1): increments are gathered in a buffer, and the
    server steps along their mean once so many have come."""

    needs: ClassVar[Needs] = "mean"

    name: Literal["fedbuff"] = "fedbuff"
    learning_rate: float = stackable(0.1, gt=0, description="SGD step of the devices, eta_l")
    server_rate: float = stackable(1.0, gt=0, description="eta_g, factor on the mean of the buffer")
    buffer: int = stackable(
        10, ge=1, description="M, updates after which the server steps (the paper's K)"
    )
    exponent: float = stackable(
        0.5,
        ge=0,
        description="an update of staleness d counts (1 + d)^-exponent; 0.5 is the paper's, 0 "
        "counts all alike",
    )
    momentum: float = stackable(
        0.0, ge=0, lt=1, description="share of the server's last step that it takes again"
    )
