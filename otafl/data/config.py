"""Settings of data sets and of their partition over devices."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from otafl.core.choices import Choice, chosen
from otafl.core.settings import CustomSettings, Settings
from otafl.data.config_partition import (
    ClassWindowConfig,
    DirichletMixConfig,
    LognormalConfig,
    NaturalConfig,
    Partition,
)


class IidConfig(Partition):
    """Samples shuffled and dealt out evenly."""

    shuffled: ClassVar[bool] = True

    name: Literal["iid"] = "iid"


class ShardsConfig(Partition):
    """Samples sorted by label, cut into equal shards, shards dealt out at random (McMahan et al.
    2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data", section
    3)."""

    name: Literal["shards"] = "shards"
    shards_per_device: int = Field(2, ge=1, description="shards each device gets")


class DirichletConfig(Partition):
    """Each class is split over the devices by proportions from a symmetric Dirichlet (Yurochkin et
    al. 2019, "Bayesian Nonparametric Federated Learning of Neural Networks", section 4)."""

    name: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(0.5, gt=0, description="concentration; small is heterogeneous")
    min_samples: int = Field(1, ge=1, description="a device's smallest share; redrawn until met")


class LabelSkewConfig(Partition):
    """Each device holds samples of a fixed number of classes only."""

    name: Literal["label_skew"] = "label_skew"
    classes_per_device: int = Field(2, ge=1, description="classes a device holds")
    size_sigma: float = Field(
        0.0,
        ge=0,
        description="deviation of the logarithm of a device's share of each of its classes; 0 "
        "splits a class evenly",
    )


PartitionConfig = Annotated[
    IidConfig
    | ShardsConfig
    | DirichletConfig
    | LabelSkewConfig
    | LognormalConfig
    | DirichletMixConfig
    | ClassWindowConfig
    | NaturalConfig,
    Field(discriminator="name"),
]


class AugmentConfig(Settings):
    """What is done to the images of training minibatches, with black where nothing is known."""

    crop: int = Field(
        0, ge=0, description="pixels that are put around an image before it is cut at random"
    )
    flip: bool = Field(False, description="flip left to right with probability one half")


class DataConfig(Settings):
    """What every data set's section may hold."""

    partition: Annotated[Any, Choice("partition")] = chosen("partition", "")
    validation: float = Field(
        0.0, ge=0, lt=1, description="share of the training samples held out for tuning"
    )
    test: Literal["official", "train_tail", "per_device"] = Field(
        "official",
        description="official test set; or the last training samples (as many as the official "
        "test set has), the official set then unused; or, per_device, training and official test "
        "samples together are dealt out, and the last `test_share` of each device's samples test",
    )
    test_share: float = Field(
        0.25, gt=0, lt=1, description="share of a device's samples that test, with test: per_device"
    )
    own_test: bool = Field(
        False,
        description="also evaluate on each device's own test samples: those of the classes that it "
        "trains on (with partition natural: of its users); test: per_device always does, on its "
        "own share",
    )
    augment: AugmentConfig | None = Field(
        None, description="random crops and flips of training images; none if not given"
    )
    train_samples: int | None = Field(
        None, ge=1, description="use only the first so many training samples; all if not given"
    )


class FilesDataConfig(DataConfig):
    """Data sets that are files."""

    root: str | None = Field(
        None,
        description="folder that holds the data set's own folder; by default $OTAFL_DATA_DIR, else "
        "the user's cache folder",
    )


class ImageDataConfig(FilesDataConfig):
    """Grey images stored as bytes."""

    pixel_scale: Literal["unit", "raw", "signed", "standardised", "standardised_per_pixel"] = Field(
        "unit",
        description="pixels in [0, 1]; raw, 0 to 255; signed, in [-1, 1]; standardised, minus the "
        "mean of all bytes over their deviation + 0.001; or so for each place in the image",
    )


class CifarConfig(FilesDataConfig):
    """Colour images of 3x32x32 pixels."""

    input_shape: ClassVar[tuple[int, ...]] = (3, 32, 32)
    classes: ClassVar[int]

    pixel_scale: Literal["unit", "raw", "signed", "standardised"] = Field(
        "unit",
        description="pixels in [0, 1]; raw, 0 to 255; signed, in [-1, 1]; or standardised by the "
        "usual means and deviations of the channels",
    )


class UsersDataConfig(FilesDataConfig):
    """Samples of users (LEAF: Caldas et al. 2018)."""

    fraction: float | None = Field(
        None,
        gt=0,
        le=1,
        description="users are drawn at random until they have this share of all samples; by "
        "default all of LEAF's own files, and 0.05 of a file that holds everything",
    )
    min_samples: int = Field(2, ge=2, description="users of fewer samples are left out")
    sample_seed: int = Field(
        0, ge=0, description="seed by which users, and their test samples, are drawn"
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


class Cifar10Config(CifarConfig):
    """CIFAR-10, 50,000 + 10,000 colour images of 32x32 pixels (Krizhevsky 2009)."""

    classes: ClassVar[int] = 10

    name: Literal["cifar10"] = "cifar10"


class Cifar100Config(CifarConfig):
    """CIFAR-100, 50,000 + 10,000 colour images of 32x32 pixels in 100 classes (Krizhevsky 2009)."""

    classes: ClassVar[int] = 100

    name: Literal["cifar100"] = "cifar100"


class FemnistConfig(UsersDataConfig):
    """FEMNIST, handwritten digits and letters by writer, pixels in [0, 1] with a background of 1
    (LEAF: Caldas et al. 2018): LEAF's JSON files in the folder femnist, or the hosted file that
    `otafl data get` downloads."""

    input_shape: ClassVar[tuple[int, ...]] = (784,)
    classes: ClassVar[int] = 62

    name: Literal["femnist"] = "femnist"


class Sent140Config(UsersDataConfig):
    """Sent140, tweets by user, each the GloVe vectors of its words (Go, Bhayani, Huang 2009; LEAF:
    Caldas et al. 2018): LEAF's JSON files in the folder sent140, or the authors' file that `otafl
    data get` downloads; the vectors, glove.6B.50d.txt, beside them."""

    classes: ClassVar[int] = 2

    name: Literal["sent140"] = "sent140"
    min_samples: int = Field(3, ge=2, description="users of fewer samples are left out")
    length: int = Field(25, ge=1, description="words of a tweet; what follows is cut off")

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.length, 50


class CustomDataConfig(DataConfig, CustomSettings):
    """A data set of the user's own: `module:callable` returning `otafl.data.DataSet`."""

    model_config = ConfigDict(extra="allow", frozen=True)
