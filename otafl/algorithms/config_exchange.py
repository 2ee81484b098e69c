"""Settings of the methods whose server must know each device's model, or hands each device another
one; and of pFedBayes, whose devices send the mean and the spread of theirs."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from otafl.algorithms.config import Needs
from otafl.algorithms.config_personal import AveragedConfig, penalty, personal_rate
from otafl.core.settings import Settings, stackable

_RATE = "SGD step of a device's model"


class FedAMPConfig(Settings):
    """FedAMP (Huang, Chu, Zhou, Wang, Liu, Pei, Zhang 2021, "Personalized Cross-Silo Federated
    Learning on Non-IID Data", Algorithm 1): each device is drawn to a mixture of all devices'
    models, in which models like its own weigh most. `weights: cosine` is its heuristic for deep
    networks, HeurFedAMP."""

    needs: ClassVar[Needs] = "each"

    name: Literal["fedamp"] = "fedamp"
    learning_rate: float = stackable(0.01, gt=0, description=_RATE)
    penalty: float = penalty(
        15.0, "lambda / alpha_k: the local loss has half of it times |w - u|^2 added, u the mixture"
    )
    prox_steps: int = Field(5, ge=1, description="gradient steps on each minibatch")
    weights: Literal["kernel", "cosine"] = Field(
        "kernel",
        description="weights of the others' models: exp(-|w_i - w_j|^2 / sigma) (FedAMP), or "
        "exp(cosine_scale cos(w_i, w_j)), normalised (HeurFedAMP)",
    )
    sigma: float = stackable(
        0.1, gt=0, description="scale of the squared distance between models; weights: kernel"
    )
    attention: float = stackable(
        1.0,
        ge=0,
        le=1,
        description="alpha_k K / sigma: 1 is the largest that keeps all weights positive, by which "
        "equal models get equal weights; 0 is a device alone; weights: kernel",
    )
    cosine_scale: float = stackable(
        1.0, ge=0, description="HeurFedAMP's sigma, factor on the cosine; weights: cosine"
    )
    self_weight: float = stackable(
        0.5, ge=0, le=1, description="xi_ii, weight of a device's own model; weights: cosine"
    )


class FedFomoConfig(Settings):
    """FedFomo (Zhang, Sapra, Fidler, Yeung, Alvarez 2021, "Personalized Federated Learning with
    First Order Model Optimization"): each device mixes the models that the server forwards by how
    much each lowers the loss on its validation samples."""

    needs: ClassVar[Needs] = "each"

    name: Literal["fedfomo"] = "fedfomo"
    learning_rate: float = stackable(0.01, gt=0, description=_RATE)
    models: int = Field(
        5, ge=0, description="M, models forwarded to each device (fewer where there are fewer)"
    )
    baseline: Literal["last", "current"] = Field(
        "last",
        description="what models are compared with and added to: the device's model before its "
        "last local training, its trained one being a candidate too; or the trained one",
    )
    validation: float = Field(
        0.2, gt=0, lt=1, description="share of a device's samples that it validates on"
    )
    explore: float = stackable(
        0.3,
        ge=0,
        le=1,
        description="chance in the first round that a forwarded model is picked at random, in the "
        "place of the best known one",
    )
    explore_decay: float = stackable(
        0.05, ge=0, description="by so much that chance falls in each round, down to 0"
    )


class FedPACConfig(AveragedConfig):
    """FedPAC (Xu, Tong, Huang 2023, "Personalized Federated Learning with Feature Alignment and
    Classifier Collaboration"): a shared feature extractor, features drawn to the classes' global
    centroids, and for each device a mixture of all devices' last layers. learning_rate is the
    extractor's."""

    needs: ClassVar[Needs] = "each"

    name: Literal["fedpac"] = "fedpac"
    personal_learning_rate: float = personal_rate()
    head_steps: int | None = Field(
        None,
        ge=1,
        description="SGD steps on the last layer before training.local_steps on the extractor; a "
        "fifth of these, at least one, if not given (the paper: one epoch, then five)",
    )
    penalty: float = penalty(
        1.0, "lambda: the extractor's loss has it times the mean square of f(x) - c_y added"
    )


class PFedHNConfig(Settings):
    """pFedHN (Shamsian, Navon, Fetaya, Chechik 2021, "Personalized Federated Learning using
    Hypernetworks", Algorithm 1): a network at the server generates each device's model from an
    embedding of the device, and learns from what local training changes."""

    needs: ClassVar[Needs] = "each"

    name: Literal["pfedhn"] = "pfedhn"
    learning_rate: float = stackable(0.01, gt=0, description=_RATE)
    server_learning_rate: float = stackable(
        1.0,
        gt=0,
        description="step of the hypernetwork along the mean over devices; the paper's step for "
        "one device at a time, 0.01 with momentum 0.9, adds up to as much over ten of them",
    )
    embedding_learning_rate: float = stackable(
        0.1, gt=0, description="step of a device's embedding; the paper: 0.01 with momentum 0.9"
    )
    embedding: int = Field(32, ge=1, description="length of a device's embedding")
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (100, 100),
        min_length=1,
        description="widths of the hypernetwork's hidden layers; one more layer gives the model",
    )


class PFedBayesConfig(AveragedConfig):
    """pFedBayes (Zhang, Li, Li, Guo, Shi 2022, "Personalized Federated Learning via Variational
    Bayesian Inference"): each device learns a normal distribution over models, drawn to a global
    one. learning_rate is that of the device's copy of the global distribution."""

    averages: ClassVar[bool] = False  # its model is one block of two that belong together

    name: Literal["pfedbayes"] = "pfedbayes"
    personal_learning_rate: float = personal_rate()
    personal_steps: int = Field(
        1,
        ge=1,
        description="SGD steps of a device's own distribution on each minibatch; the paper: 1, its "
        "authors' code: 5",
    )
    penalty: float = penalty(
        10.0, "zeta, weight of the divergence from the global distribution beside the log-loss sum"
    )
    rho_start: float = Field(
        -2.5, description="rho at first; the standard deviation is ln(1 + exp(rho))"
    )
