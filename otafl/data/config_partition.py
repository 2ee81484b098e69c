"""Settings of the partitions that follow a paper's own recipe, or the data's own users."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from otafl.core.settings import Settings

Seed = Annotated[int, Field(ge=0, lt=2**32)]


class Partition(Settings):
    """What every partition's section has. shuffled: a device's samples come in an order that may be
    cut into training and test samples as it is."""

    shuffled: ClassVar[bool] = False


class LognormalConfig(Partition):
    """Samples shuffled and dealt out in parts whose sizes are in proportion to log-normal numbers
    (Li et al. 2020, "Federated Optimization in Heterogeneous Networks", section 5.1)."""

    shuffled: ClassVar[bool] = True

    name: Literal["lognormal"] = "lognormal"
    sigma: float = Field(1.0, ge=0, description="deviation of the logarithm of a device's size")
    min_samples: int = Field(1, ge=1, description="what every device gets first")


class DirichletMixConfig(Partition):
    """All devices hold equally many samples; each draws its class mix from a symmetric Dirichlet,
    and from the classes that are left once one is used up (Hsu, Qi, Brown 2019, "Measuring the
    Effects of Non-Identical Data Distribution for Federated Visual Classification", section 3.1).
    """

    shuffled: ClassVar[bool] = True

    name: Literal["dirichlet_mix"] = "dirichlet_mix"
    alpha: float = Field(0.5, gt=0, description="concentration; small is heterogeneous")
    samples_per_device: int | None = Field(
        None, ge=1, description="samples a device holds; by default all, dealt out evenly"
    )


class ClassWindowConfig(Partition):
    """Device u holds classes u, u + 1, ... modulo the number of classes, a few samples of each and
    a log-normal share: the split of pFedMe and pFedBreD (Dinh, Tran, Nguyen 2020; Shi et al. 2023,
    section 6.1), the same samples as in their code under the same seeds of NumPy and Python. The
    defaults are those of Fashion-MNIST, whose published split was not seeded throughout; split_seed
    [0, 1] completes it. MNIST: classes_per_device 3, split_seed [1, 1], and mislabel_first as
    published. CIFAR-10: 20 devices, classes_per_device 3, reserve 20, extra [300, 600], multiple
    [1, 1], times 2, test_first, split_seed [1, 1]. All with data.test: per_device."""

    shuffled: ClassVar[bool] = True

    name: Literal["class_window"] = "class_window"
    classes_per_device: int = Field(2, ge=1, description="classes a device holds, in a row")
    first_samples: int = Field(
        10, ge=1, description="samples that a device gets of each of its classes in any case"
    )
    sigma: float = Field(2.0, ge=0, description="deviation of the logarithm of the shares")
    reserve: int = Field(
        1000, ge=0, description="what the log-normal shares of a class leave of its samples"
    )
    multiple: tuple[int, int] = Field(
        (1, 10), description="lowest and highest factor of a log-normal share, drawn uniformly"
    )
    extra: tuple[int, int] = Field(
        (10, 200), description="lowest and highest number that is added, drawn uniformly"
    )
    times: int = Field(1, ge=1, description="factor of share and addition together")
    test_first: bool = Field(
        False, description="test samples are cut from the front of a device's shuffled ones"
    )
    mislabel_first: bool = Field(
        False,
        description="the first samples of a device's classes bear the labels 0, 1, ..., a fault of "
        "the published MNIST split",
    )
    split_seed: tuple[Seed, Seed] | None = Field(
        None,
        description="seeds of NumPy's and of Python's generator, the same split in all trials then;"
        " by default each trial draws its own",
    )

    @model_validator(mode="after")
    def _ranges(self) -> ClassWindowConfig:
        for key in ("multiple", "extra"):
            low, high = getattr(self, key)
            if not 0 <= low <= high:
                raise ValueError(f"{key}: got [{low}, {high}]; [low, high] with 0 <= low <= high")
        return self


class NaturalConfig(Partition):
    """A device is a user (a writer) of the data set, drawn at random where there are more users
    than devices; or, with regroup, a group of users whose size is drawn from a Dirichlet (Shi et
    al. 2023, appendix C). A device's training samples come before its test samples."""

    shuffled: ClassVar[bool] = True

    name: Literal["natural"] = "natural"
    regroup: float | None = Field(
        None,
        gt=0,
        description="concentration of the Dirichlet by which all users are grouped into devices; "
        "one user a device if not given",
    )
    min_users: int = Field(1, ge=1, description="users that every group gets, with regroup")
