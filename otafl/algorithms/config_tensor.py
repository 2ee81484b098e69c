"""Settings of personalised learning with tensor-factorised models."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from otafl.core.settings import Settings, stackable

_Rank = Annotated[int, Field(ge=1)]


class _NeedsByAggregation:
    """`needs` of the settings, which depends on one of them; of the class, that of the default."""

    def __get__(self, config: TDPFedConfig | None, owner: Any) -> Literal["mean", "each"]:
        return "each" if config is not None and config.aggregation == "act" else "mean"


class TDPFedConfig(Settings):
    """Personal models by Nesterov steps on a Moreau envelope, whose centre is a CP-factorised
    local model; only the factors travel (Wang, Jin, Liu, Zong, Shao, Li, "Tensor Decomposition
    based Personalized Federated Learning", Algorithm 1). The paper's tau is training.local_steps.
    """

    needs: ClassVar[Any] = _NeedsByAggregation()

    name: Literal["tdpfed"] = "tdpfed"
    rank: _Rank | tuple[_Rank, ...] | None = Field(
        None,
        description="CP rank R of every layer, or a list with one rank a layer (clipped to what a "
        "layer can use); by compression_rate if not given",
    )
    compression_rate: float | None = Field(
        None,
        gt=0,
        description="weights of a layer over those of its factors: R = round(prod I_n / (rate sum "
        "I_n)); 2 where rank is not given either",
    )
    aggregation: Literal["afm", "act", "tangent"] = Field(
        "afm",
        description="afm: the mean of the factors (20). act: the mean of the tensors (21), "
        "factored again (22); needs each device. tangent (not in the paper): the mean of the "
        "tensors' changes, projected on the tangent space of the broadcast factors",
    )
    solver_steps: int = Field(5, ge=1, description="s, Nesterov steps on a minibatch")
    factor_steps: int = Field(
        17, ge=1, description="s', Adam steps on the factors after each solve"
    )
    factor_update: Literal["joint", "alternate"] = Field(
        "joint",
        description="all factors from one gradient, or mode by mode, each from a fresh one",
    )
    personal_learning_rate: float = stackable(
        0.08, gt=0, description="eta_p, the Nesterov step of the personal model"
    )
    factor_learning_rate: float = stackable(
        8e-4, gt=0, description="eta, the Adam step of the factors; 3e-4 in the paper's Table III"
    )
    penalty: float = stackable(12.0, gt=0, description="lambda, the weight of the penalty")
    server_learning_rate: float = stackable(
        1.0, gt=0, description="beta, the server's step towards the mean; above 1 it extrapolates"
    )
    weights: Literal["samples", "uniform"] = Field(
        "samples",
        description="devices count by their samples, as in (21), or equally, as (20) is printed",
    )
    sends: Literal["increment", "factors"] = Field(
        "increment",
        description="with afm and act, what travels: the factors' increment, or the factors. The "
        "same on a link without errors",
    )
    downlink: Literal["factors", "both"] = Field(
        "factors", description="the server sends the factors, or the full tensors too"
    )
    act_theta_start: Literal["factors", "tensor"] = Field(
        "factors",
        description="with act, personal models start a round from the new factors' tensor, or "
        "from the mean tensor itself, which needs downlink: both",
    )

    @model_validator(mode="after")
    def _one_way_to_say_the_rank(self) -> TDPFedConfig:
        if self.rank is not None and self.compression_rate is not None:
            raise ValueError("rank and compression_rate both set the ranks; give one of them")
        return self

    @model_validator(mode="after")
    def _tensor_start(self) -> TDPFedConfig:
        if self.act_theta_start == "tensor" and self.aggregation != "act":
            raise ValueError(
                f"act_theta_start: tensor is for aggregation: act, and it is {self.aggregation}; "
                "act_theta_start: factors would do"
            )
        if self.act_theta_start == "tensor" and self.downlink != "both":
            raise ValueError(
                "act_theta_start: tensor needs the tensor sent; downlink: both would do"
            )
        if self.aggregation == "tangent" and self.sends == "factors":
            raise ValueError(
                "aggregation: tangent sends coordinates of the change, never factors; "
                "sends: increment would do"
            )
        return self
