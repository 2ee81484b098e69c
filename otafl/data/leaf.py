"""Read data sets whose samples have users, in the JSON files of LEAF.

The files are {"users": [...], "user_data": {user: {"x": [...], "y": [...]}}}, in the folders that
LEAF's `preprocess.sh` leaves behind (Caldas et al. 2018, "LEAF: A Benchmark for Federated
Settings", arXiv:1812.01097).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from otafl.core.errors import UserError
from otafl.core.inputs import read_bytes
from otafl.data.dataset import DataSet, Indices
from otafl.data.files import MAX_BYTES, wrap_read_errors

Fraction = Annotated[
    float | None,
    Field(
        gt=0,
        le=1,
        description="users are drawn at random until they have this share of all samples; by "
        "default all of LEAF's own files, and 0.05 of a file that holds everything",
    ),
]
MinSamples = Annotated[int, Field(ge=2, description="users of fewer samples are left out")]
SampleSeed = Annotated[
    int, Field(ge=0, description="seed by which users, and their test samples, are drawn")
]
"""The fields `fraction`, `min_samples` and `sample_seed` of such a set."""

WHOLE = 0.05
"""The fraction by default of a file that holds everything; LEAF's files are sampled already."""

Samples = NDArray[Any]
"""[n, ...]: of a user, in whatever form the data set keeps them until they are put together."""
Convert = Callable[[list[Any]], Samples]
"""Make samples of a user's "x". Raises ValueError with what was wanted if it is anything else."""

Opened = tuple[Sequence[int], Callable[[int], "User"]]
"""How many samples each user has, and the user at each place."""
Whole = Callable[[Path, np.random.Generator], AbstractContextManager[Opened]]
"""Open the file in a set's folder that holds everything."""

_UNSPLIT = ("rem_user_data", "sampled_data", "all_data")  # LEAF's later steps first
_TRAIN_SHARE = 0.9


@dataclass(frozen=True)
class User:
    """Hold training and test samples of one user."""

    x_train: Samples
    y_train: Indices
    x_test: Samples
    y_test: Indices

    @property
    def num_samples(self) -> int:
        return len(self.y_train) + len(self.y_test)


def find_folder(folder: Path) -> Path | None:
    """Return where LEAF's folders are: the set's folder, or its `data` inside LEAF's own tree; None
    where there are none with files."""
    for place in (folder, folder / "data"):
        split = all(_list_files(place / part) for part in ("train", "test"))
        if split or any(_list_files(place / part) for part in _UNSPLIT):
            return place
    return None


def load_sampled_users(source: Any, convert: Convert, open_whole: Whole) -> list[User]:
    """Return the users of a set that its settings draw: of LEAF's folders, if they are there, else
    of the file that holds everything. source: has the fields of such a set."""
    folder = source.files.locate(source.name, source.root)
    generator = np.random.default_rng(source.sample_seed)
    made_here = find_folder(folder)
    if made_here is None:
        with open_whole(folder, generator) as (sizes, user_of):
            chosen = draw_users(sizes, source.fraction or WHOLE, source.min_samples, generator)
            return [user_of(i) for i in chosen]
    users = read(made_here, convert, generator)
    sizes = [user.num_samples for user in users]
    return [
        users[i] for i in draw_users(sizes, source.fraction or 1.0, source.min_samples, generator)
    ]


def read(folder: Path, convert: Convert, generator: np.random.Generator) -> list[User]:
    """Return the users, in LEAF's order, each with training and test samples: LEAF's own split, or
    one drawn here where LEAF has not made any. Raises UserError if a file is anything else."""
    if _list_files(folder / "train") and _list_files(folder / "test"):
        train, test = (_read(folder / part, convert) for part in ("train", "test"))
        alone = next((name for name in (*train, *test) if name not in train.keys() & test), None)
        if alone is not None:
            raise UserError(
                f"{folder}: user {alone!r} is in one of the folders train and test alone; "
                "`preprocess.sh -t sample` splits the samples of each user"
            )
        return [User(*train[name], *test[name]) for name in train]
    whole = next(folder / part for part in _UNSPLIT if _list_files(folder / part))
    users = _read(whole, convert).values()
    return [split(x, y, generator) for x, y in users if len(y) > 1]


def split(x: Samples, y: Indices, generator: np.random.Generator) -> User:
    """Return a user of two samples or more; nine tenths train, at least one trains and one tests,
    as in LEAF's `split_data.py`. Each part keeps the order."""
    kept = min(max(1, int(_TRAIN_SHARE * len(y))), len(y) - 1)
    train = np.zeros(len(y), bool)
    train[generator.permutation(len(y))[:kept]] = True
    return User(x[train], y[train], x[~train], y[~train])


def draw_users(
    sample_counts: Sequence[int], fraction: float, min_samples: int, generator: np.random.Generator
) -> Indices:
    """Draw users at random until they have the fraction of all samples, as LEAF's non-iid sampling
    does, and return those that have `min_samples` samples, in order."""
    counts = np.asarray(sample_counts, np.int64)
    order = generator.permutation(len(counts))
    needed = fraction * counts.sum()
    drawn = order[: np.searchsorted(np.cumsum(counts[order]), needed - 0.5) + 1]
    chosen = np.sort(drawn[counts[drawn] >= min_samples])
    if not len(chosen):
        raise UserError(
            f"data.min_samples: none of the {len(drawn)} users drawn has {min_samples} samples; a "
            "smaller number or a larger data.fraction would do"
        )
    return chosen


def build_dataset(users: Sequence[User], classes: int) -> DataSet:
    """Return all samples, user by user, and whose they are."""
    owner, owner_test = (
        np.repeat(np.arange(len(users)), [len(getattr(user, part)) for user in users])
        for part in ("y_train", "y_test")
    )
    x_train, y_train, x_test, y_test = (
        np.concatenate([getattr(user, part) for user in users])
        for part in ("x_train", "y_train", "x_test", "y_test")
    )
    return DataSet(x_train, y_train, x_test, y_test, classes, owner=owner, owner_test=owner_test)


def _list_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def _read(folder: Path, convert: Convert) -> dict[str, tuple[Samples, Indices]]:
    users: dict[str, tuple[Samples, Indices]] = {}
    for path in _list_files(folder):
        for name, samples in _read_content(path).items():
            where = f"{path}: user {name!r}"
            if name in users:
                raise UserError(f"{where} is in another file of the folder too")
            try:
                users[name] = convert(samples["x"]), _parse_labels(samples["y"])
            except (KeyError, TypeError, ValueError) as error:
                raise UserError(f"{where}: {_format_reason(error)}") from error
            if len(users[name][0]) != len(users[name][1]):
                x, y = users[name]
                raise UserError(f"{where} has {len(x)} samples but {len(y)} labels")
    return users


def _read_content(path: Path) -> dict[str, Any]:
    """Return user -> samples of a file, in the order of its users."""
    with wrap_read_errors(path, "not a JSON file", ValueError):  # no JSON, or no text
        content = json.loads(read_bytes(path, MAX_BYTES))
    try:
        return {name: content["user_data"][name] for name in content["users"]}
    except (KeyError, TypeError) as error:
        raise UserError(
            f"{path}: not a file of LEAF, which holds 'users' and their 'user_data': "
            f"{_format_reason(error)}"
        ) from error


def _parse_labels(y: Any) -> Indices:
    if not isinstance(y, list) or not all(type(one) is int for one in y):
        raise ValueError("its 'y' are not a list of whole numbers")
    return np.array(y, np.int64)


def _format_reason(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)
