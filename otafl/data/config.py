"""Settings of data sets and of their partition over devices."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from otafl.config import Config, CustomConfig


class IidConfig(Config):
    """Samples shuffled and dealt out evenly."""

    name: Literal["iid"] = "iid"


class ShardsConfig(Config):
    """Samples sorted by label, cut into equal shards, shards dealt out at random (McMahan et al.
    2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data", section
    3)."""

    name: Literal["shards"] = "shards"
    shards_per_device: int = Field(2, ge=1, description="shards each device gets")


class DirichletConfig(Config):
    """Each class is split over the devices by proportions from a symmetric Dirichlet (Yurochkin et
    al. 2019, "Bayesian Nonparametric Federated Learning of Neural Networks", section 4)."""

    name: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(0.5, gt=0, description="concentration; small is heterogeneous")
    min_samples: int = Field(1, ge=1, description="a device's smallest share; redrawn until met")


class LabelSkewConfig(Config):
    """Each device holds samples of a fixed number of classes only."""

    name: Literal["label_skew"] = "label_skew"
    classes_per_device: int = Field(2, ge=1, description="classes a device holds")


PartitionConfig = Annotated[
    IidConfig | ShardsConfig | DirichletConfig | LabelSkewConfig, Field(discriminator="name")
]


def _plain_name(value: object) -> object:
    """A partition's name alone, or its keys without a name, as the mapping that they stand for."""
    if isinstance(value, dict) and "name" not in value:
        return {"name": "iid", **value}
    return {"name": value} if isinstance(value, str) else value


class DataConfig(Config):
    """What every data set's section may hold."""

    partition: Annotated[PartitionConfig, BeforeValidator(_plain_name)] = IidConfig()
    validation: float = Field(
        0.0, ge=0, lt=1, description="share of the training samples held out for tuning"
    )
    test: Literal["official", "train_tail"] = Field(
        "official",
        description="official test set, or the last training samples (as many as the official "
        "test set has), the official set then unused",
    )
    train_samples: int | None = Field(
        None, ge=1, description="use only the first so many training samples; all if not given"
    )


class ImageDataConfig(DataConfig):
    """Grey images stored as bytes."""

    pixel_scale: Literal["unit", "raw"] = Field("unit", description="pixels in [0, 1], or raw")
    root: str | None = Field(
        None,
        description="folder that holds the data set's own folder; by default $OTAFL_DATA_DIR, else "
        "the user's cache folder",
    )


class DigitsConfig(DataConfig):
    """scikit-learn's 1,797 digits of 8x8 pixels, which ship with it; the last 360 are the test
    set."""

    input_shape: ClassVar[tuple[int, ...]] = (64,)
    classes: ClassVar[int] = 10

    name: Literal["digits"] = "digits"
    pixel_scale: Literal["unit", "raw"] = Field("unit", description="pixels in [0, 1], or 0 to 16")


class MnistConfig(ImageDataConfig):
    """MNIST, 60,000 + 10,000 digits of 28x28 pixels (LeCun, Cortes, Burges)."""

    input_shape: ClassVar[tuple[int, ...]] = (784,)
    classes: ClassVar[int] = 10

    name: Literal["mnist"] = "mnist"


class FashionMnistConfig(ImageDataConfig):
    """Fashion-MNIST, 60,000 + 10,000 articles of clothing, 28x28 pixels (Xiao, Rasul, Vollgraf
    2017)."""

    input_shape: ClassVar[tuple[int, ...]] = (784,)
    classes: ClassVar[int] = 10

    name: Literal["fashion_mnist"] = "fashion_mnist"


class CustomDataConfig(DataConfig, CustomConfig):
    """A data set of the user's own: `module:callable` returning `otafl.data.DataSet`."""

    model_config = ConfigDict(extra="allow", frozen=True)
