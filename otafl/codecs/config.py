"""Settings of codecs: what happens to a payload between the algorithm and the transport."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from otafl.core.settings import Settings, stackable


class IdentityConfig(Settings):
    """The payload as it is: 32 bits a real on a digital uplink."""

    name: Literal["identity"] = "identity"


class UniformConfig(Settings):
    """Uniform quantisation between each block's smallest and largest value (FedRLR, baseline 4)."""

    name: Literal["uniform"] = "uniform"
    bits: int = Field(8, ge=1, le=24, description="bits a real")


class QsgdConfig(Settings):
    """Unbiased stochastic quantisation of magnitudes in units of each block's norm (QSGD)."""

    name: Literal["qsgd"] = "qsgd"
    bits: int = Field(
        4, ge=2, le=16, description="bits a real: a sign, and s = 2^(bits - 1) - 1 levels above 0"
    )
    norm: Literal["l2", "max"] = Field(
        "l2",
        description="the paper's Euclidean norm, or the largest magnitude, which its experiments "
        "use; 32 bits beside each block or bucket",
    )
    bucket: int | None = Field(
        None, ge=1, description="reals that share a norm; a whole block if not given"
    )


class TopKConfig(Settings):
    """The largest magnitudes of a device's payload, the rest zero."""

    name: Literal["topk"] = "topk"
    keep: float = Field(0.1, gt=0, le=1, description="share of the reals that is kept")
    scope: Literal["payload", "block"] = Field(
        "payload", description="chosen among all reals of a payload group, or block by block"
    )
    error_feedback: bool = Field(
        True, description="what is left out is added to what the device sends next"
    )


class RandomSubsetConfig(Settings):
    """A random subset of a device's payload, drawn anew for each device and round; FedAvg with it
    is TDPFed's rival "FedAvg (s.a.r.)"."""

    name: Literal["random_subset"] = "random_subset"
    keep: float = Field(0.5, gt=0, le=1, description="share of the reals that is sent")
    fill: Literal["zero", "keep"] = Field(
        "zero",
        description="what is not sent counts as 0 in the mean, or each coordinate's mean is over "
        "the devices that sent it, 0 if none did (so that with increments the server keeps its "
        "own)",
    )
    positions: bool = Field(
        True,
        description="count the bits that tell which reals are sent; not needed where both ends "
        "draw the same subset from a shared seed",
    )


class ObdaConfig(Settings):
    """One-bit aggregation: devices send signs, the server takes their majority vote."""

    name: Literal["obda"] = "obda"
    step: float = stackable(
        0.001, gt=0, description="size of the step that the server takes along each sign"
    )
    vote: Literal["majority", "weighted"] = Field(
        "majority", description="one vote a device, or votes weighted by its share of the samples"
    )


class CompressedSensingConfig(Settings):
    """Sparse updates sent as random projections, recovered from their sum by approximate message
    passing."""

    name: Literal["compressed_sensing"] = "compressed_sensing"
    keep: float = Field(
        0.05, gt=0, le=1, description="share of the reals that a device keeps, the largest ones"
    )
    ratio: float = Field(0.5, gt=0, le=1, description="measurements a real")
    chunk: int = Field(
        1024,
        ge=8,
        description="reals that are projected together, at most; neighbours are dealt out to "
        "different chunks, so that each is about as sparse as the payload",
    )
    iterations: int = Field(30, ge=1, le=1000, description="of approximate message passing")
    threshold: float = Field(
        1.5, gt=0, le=10, description="soft threshold over the noise that a step estimates"
    )
    error_feedback: bool = Field(
        True, description="what is left out is added to what the device sends next"
    )
    matrix_seed: int = Field(
        0, ge=0, lt=2**63, description="seed of the projection, the same in all trials and rounds"
    )

    @model_validator(mode="after")
    def _measurements_for_what_is_kept(self) -> CompressedSensingConfig:
        if self.keep > self.ratio:
            raise ValueError(
                f"keep ({self.keep:g}) is above ratio ({self.ratio:g}): fewer measurements than "
                "reals that are kept cannot tell them apart; ratio of 3 times keep or more would do"
            )
        return self


class MatrixSensingConfig(Settings):
    """Weight matrices measured along one side by a Gaussian matrix, and recovered column by column
    by approximate message passing (FedRLR, baselines 2 and 3)."""

    name: Literal["matrix_sensing"] = "matrix_sensing"
    rows: int = Field(
        8, ge=1, description="measurements of each column; FedRLR takes 8, and 200 for its Table II"
    )
    side: int | None = Field(
        None,
        ge=2,
        description="length of the side that is measured, of every matrix that has it (the first, "
        "if both have); others travel as they are. If not given, the length that most matrices "
        "have, the larger of several",
    )
    iterations: int = Field(50, ge=1, le=1000, description="of approximate message passing")
    threshold: float = Field(
        1.5, gt=0, le=10, description="soft threshold over the noise that a step estimates"
    )
    matrix_seed: int = Field(
        0, ge=0, lt=2**63, description="seed of the matrices, the same in all trials and rounds"
    )
