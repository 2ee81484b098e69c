"""Data sets made here with Hugging Face's library, and Flower's partitioners on otafl's."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden.test_docs import run_blocks
from numpy.testing import assert_array_equal
from support.pages import DOCS
from support.refusals import assert_refused

from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.data import DataSet, load
from otafl.data.device_splits import partition_samples
from otafl.data.digits import Digits
from otafl.data.hugging_face import HuggingFace
from otafl.preflight import rehearse, report
from otafl.scenario import ScenarioError

pytestmark = pytest.mark.slow

datasets = pytest.importorskip("datasets")
pytest.importorskip("flwr_datasets")
Image = pytest.importorskip("PIL.Image")


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder and with a cache of its own, and without the network."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)


def pixels(count: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, (count, *shape), dtype=np.uint8)


def images(values: np.ndarray, **columns: Any) -> Any:
    """A split of images, and of labels 0, 1, 2, 0, ... of three classes."""
    kinds = {"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b", "c"])}
    values = [Image.fromarray(one) for one in values]
    given = {"image": values, "label": [i % 3 for i in range(len(values))], **columns}
    more = {name: datasets.Value("string") for name in columns}
    return datasets.Dataset.from_dict(given, features=datasets.Features({**kinds, **more}))


def read(**keys: Any) -> DataSet:
    return load(HuggingFace(**keys))


def test_grey_images_saved_to_disk() -> None:
    train, test = pixels(12, 6, 4), pixels(5, 6, 4)
    datasets.DatasetDict(train=images(train), test=images(test)).save_to_disk("made")
    data = read(dataset="made")
    assert_array_equal(data.x_train, train / np.float32(255))
    assert_array_equal(data.x_test, test / np.float32(255))
    assert_array_equal(data.y_train, np.arange(12) % 3)
    assert data.classes == 3
    assert_array_equal(read(dataset="made", pixel_scale="raw").x_test, test)


def test_a_folder_of_colour_images() -> None:
    """Classes are the folders' names; all images have one size."""
    values = {split: pixels(n, 6, 4, 3) for split, n in (("train", 6), ("test", 3))}
    for split, colours in values.items():
        for i, one in enumerate(colours):
            folder = Path("photos", split, "xyz"[i % 3])
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(one).save(folder / f"{i}.png")
    data = read(dataset="photos", pixel_scale="raw")
    order = np.argsort(np.arange(6) % 3, kind="stable")
    assert_array_equal(data.x_train, values["train"][order].transpose(0, 3, 1, 2))
    assert_array_equal(data.y_train, [0, 0, 1, 1, 2, 2])
    Image.fromarray(values["test"][0][:5]).save("photos/test/x/other.png")
    with pytest.raises(UserError, match=r"^data.image: .* \[6, 4\] and \[5, 4\]"):
        read(dataset="photos")


def test_tables_with_lists_of_numbers_and_texts_for_labels() -> None:
    """The labels of both splits are numbered together; users too."""
    Path("table").mkdir()
    x = np.random.default_rng(0).random((6, 3)).astype(np.float32)
    parts = {"train": (slice(0, 4), ["q", "p", "r", "q"]), "test": (slice(4, 6), ["r", "q"])}
    for split, (rows, labels) in parts.items():
        who = ["ann", "bob", "ann", "cy"][: len(labels)]
        columns = {"x": x[rows].tolist(), "label": labels, "writer": who}
        datasets.Dataset.from_dict(columns).to_parquet(f"table/{split}.parquet")
    data = read(dataset="table", image="x", user="writer")
    assert_array_equal(data.x_train, x[:4])
    assert_array_equal(data.y_train, [1, 0, 2, 1])
    assert_array_equal(data.y_test, [2, 1])
    assert_array_equal(data.owner, [0, 1, 0, 2])
    assert_array_equal(data.owner_test, [0, 1])


def test_blocks_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_blocks(DOCS / "data.md", monkeypatch, tmp_path)
    for file in ("saved_partition.png", "skew_partition.png", "skew.csv", "skew.png"):
        assert (tmp_path / file).stat().st_size > 300, file


def test_a_test_split_is_needed() -> None:
    images(pixels(30, 4, 4)).save_to_disk("one")
    with pytest.raises(UserError, match=r"^data.test_split: no split 'test'; splits: train; name"):
        read(dataset="one")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"dataset": "nowhere"}, "data.dataset: 'nowhere' is neither an existing folder nor"),
        ({"dataset": "owner/name"}, "data.dataset: 'owner/name' cannot be read"),
        ({"train_split": "trian"}, "data.train_split: no split 'trian'; did you mean 'tr"),
        ({"label": "labl"}, "data.label: no column 'labl'; did you mean 'label'"),
        ({"image": "no"}, r"data.image: no column 'no'; columns: image \(Image\), other"),
        ({"image": "words"}, "data.image: the column 'words' contains List; must be images"),
        ({"label": "unlabelled"}, "data.label: the column 'unlabelled' has labels of -1"),
        ({"label": "words"}, "data.label: the column 'words' contains List"),
        ({"dataset": "none"}, r"data.image: no column 'image'; columns: a \(List\)"),
        ({"dataset": "deep"}, r"data.image: .* more than 8 bits per colour \(Pillow's mode I;16\)"),
    ],
)
def test_what_cannot_be_read_is_said(keys: dict[str, Any], message: str) -> None:
    columns = {"other": ["x"] * 6, "words": [["y"]] * 6, "unlabelled": [0, 1, -1] * 2}
    label = {"label": [0, 1] * 3}
    made = datasets.Dataset.from_dict(
        {"image": [Image.fromarray(one) for one in pixels(6, 3, 3)], **columns, **label}
    )
    datasets.DatasetDict(train=made, test=made).save_to_disk("made")
    deep = [Image.fromarray(one.astype(np.uint16)) for one in pixels(6, 3, 3)]
    for name, others in (
        ("none", {"a": [[1.0]] * 6}),
        ("deep", {"image": deep, **label}),
    ):
        one = datasets.Dataset.from_dict(others)
        datasets.DatasetDict(train=one, test=one).save_to_disk(name)
    with pytest.raises(UserError, match=f"^{message}"):
        read(**{"dataset": "made", **keys})


class Evil:
    """A pickle that leaves a file where it is read."""

    def __reduce__(self) -> Any:
        return open, ("was_run", "w")


def test_nothing_of_a_data_set_is_run() -> None:
    """Neither a script that lies in the folder nor pickles, also of a folder that is called as one
    of the library's readers is."""
    Path("pandas").mkdir()
    Path("pandas/pandas.py").write_text("open('was_run', 'w')\n")
    Path("pandas/train.pkl").write_bytes(pickle.dumps(Evil()))
    Path("train.pkl").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(UserError, match=r"^data.dataset: 'pandas' cannot be read"):
        read(dataset="pandas")
    assert not Path("was_run").exists()


def parts(trials: list[int], count: int = 10, **keys: Any) -> list[list[np.ndarray]]:
    source = Digits(partition={"name": "flower", **keys})
    streams = Streams([7] * len(trials), trials)
    return [list(one.train) for one in partition_samples(source, load(source), count, streams)]


def test_samples_are_dealt_out_the_same_each_time() -> None:
    keys = {"partitioner": "DirichletPartitioner", "alpha": 0.3}
    first, second = parts([0, 1], **keys)
    (again,) = parts([1], **keys)
    assert all(np.array_equal(a, b) for a, b in zip(second, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    held = np.concatenate(first)
    assert len(np.unique(held)) == len(held)
    assert min(map(len, first)) > 0


ON = "^data.partition"


def test_a_check_says_what_is_wrong_with_a_partitioner() -> None:
    cases = [
        (("DirichletPartioner", {}), ".partitioner: Flower has no 'DirichletPartioner'; did you m"),
        (("DirichletPartitioner", {"alhpa": 1.0}), ": DirichletPartitioner: "),
        (("IidPartitioner", {"num_partitions": 3}), ": IidPartitioner: .* got multiple values "),
    ]

    def look(case: Any) -> None:
        partition = {"name": "flower", "partitioner": case[0], **case[1]}
        report({"name": "x", "data": {"name": "digits", "partition": partition}}, (), rehearse)

    assert_refused(look, [(case, ON + said) for case, said in cases], ScenarioError)


def test_what_cannot_be_dealt_out_is_said() -> None:
    cases: list[tuple[Any, str]] = [
        (("Size", {"partition_sizes": [20] * 4}), ": SizePartitioner makes 4 partitions for 10 "),
        (("NaturalId", {"partition_by": "user"}), ": NaturalIdPartitioner: .*user"),
        (("VerticalEven", {}), ": VerticalEvenPartitioner: "),
        (
            ("Dirichlet", {"alpha": 0.001, "min_partition_size": 0}),
            r": DirichletPartitioner leaves device \d+ without a sample",
        ),
    ]

    def deal(case: Any) -> None:
        parts([0], partitioner=f"{case[0]}Partitioner", **case[1])

    assert_refused(deal, [(case, ON + said) for case, said in cases])
