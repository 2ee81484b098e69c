"""Reader of LEAF's JSON files, whose samples have users.

The files are {"users": [...], "user_data": {user: {"x": [...], "y": [...]}}}, in the folders that
LEAF's `preprocess.sh` makes.

References
----------
Caldas et al. 2018, "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097.
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
        description="share of all samples, for which users are drawn at random; if not given, all "
        "of LEAF's own files, and 0.05 of a file that contains everything",
    ),
]
MinSamples = Annotated[int, Field(ge=2, description="smallest number of samples of a user")]
SampleSeed = Annotated[
    int, Field(ge=0, description="seed of the draws of users and of their test samples")
]
"""Types of the fields `fraction`, `min_samples` and `sample_seed` of such a data set."""

WHOLE = 0.05
"""Default fraction of a file that contains everything; LEAF's files are sampled already."""

Samples = NDArray[Any]
"""[n, ...]: samples of a user, in the form that the data set uses until they are joined."""
Convert = Callable[[list[Any]], Samples]
"""Function that converts a user's "x". It raises ValueError with the expected form otherwise."""

Opened = tuple[Sequence[int], Callable[[int], "User"]]
"""Number of samples of each user, and a function that returns the user of an index."""
Whole = Callable[[Path, np.random.Generator], AbstractContextManager[Opened]]
"""Function that opens the file in a data set's folder that contains everything."""

_UNSPLIT = ("rem_user_data", "sampled_data", "all_data")  # LEAF's later steps first
_TRAIN_SHARE = 0.9


@dataclass(frozen=True)
class User:
    """Training and test samples of one user."""

    x_train: Samples
    y_train: Indices
    x_test: Samples
    y_test: Indices

    @property
    def num_samples(self) -> int:
        """Number of samples in both parts."""
        return len(self.y_train) + len(self.y_test)


def find_folder(folder: Path) -> Path | None:
    """Return the folder that contains LEAF's folders, or None if there are none with files.

    It is the data set's folder, or `data` inside LEAF's own tree.
    """
    for place in (folder, folder / "data"):
        split = all(_list_files(place / part) for part in ("train", "test"))
        if split or any(_list_files(place / part) for part in _UNSPLIT):
            return place
    return None


def load_sampled_users(source: Any, convert: Convert, open_whole: Whole) -> list[User]:
    """Load the users that the settings draw.

    They are from LEAF's folders, if these exist, or else from the file that contains everything.

    Parameters
    ----------
    source : DataSource
        Settings with the fields `fraction`, `min_samples` and `sample_seed`.
    convert : Convert
        Conversion of LEAF's samples.
    open_whole : Whole
        Function that opens the file with everything.

    Returns
    -------
    list of User
        Users in the order of the files.
    """
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
    """Read the users of LEAF's folders, in LEAF's order.

    Each has training and test samples: those of LEAF's own split, or of one drawn here if LEAF has
    made none.

    Parameters
    ----------
    folder : Path
        Folder with LEAF's folders.
    convert : Convert
        Conversion of LEAF's samples.
    generator : numpy.random.Generator
        Random generator of the split.

    Returns
    -------
    list of User
        The users.

    Raises
    ------
    UserError
        If a file is not one of LEAF.
    """
    if _list_files(folder / "train") and _list_files(folder / "test"):
        train, test = (_read(folder / part, convert) for part in ("train", "test"))
        alone = next((name for name in (*train, *test) if name not in train.keys() & test), None)
        if alone is not None:
            raise UserError(
                f"{folder}: user {alone!r} is in only one of the folders train and test; run "
                "`preprocess.sh -t sample`, which splits the samples of each user"
            )
        return [User(*train[name], *test[name]) for name in train]
    whole = next(folder / part for part in _UNSPLIT if _list_files(folder / part))
    users = _read(whole, convert).values()
    return [split(x, y, generator) for x, y in users if len(y) > 1]


def split(x: Samples, y: Indices, generator: np.random.Generator) -> User:
    """Split the samples of a user, as in LEAF's `split_data.py`.

    Parameters
    ----------
    x : ndarray, [n, ...]
        Two samples or more.
    y : ndarray, int64 [n]
        Their labels.
    generator : numpy.random.Generator
        Random generator of the split.

    Returns
    -------
    User
        Nine tenths of the samples for training and the others for testing, at least one each. Both
        parts keep the order.
    """
    kept = min(max(1, int(_TRAIN_SHARE * len(y))), len(y) - 1)
    train = np.zeros(len(y), bool)
    train[generator.permutation(len(y))[:kept]] = True
    return User(x[train], y[train], x[~train], y[~train])


def draw_users(
    sample_counts: Sequence[int], fraction: float, min_samples: int, generator: np.random.Generator
) -> Indices:
    """Draw users at random until they have a fraction of all samples, as in LEAF's non-IID draw.

    Parameters
    ----------
    sample_counts : Sequence of int
        Number of samples of each user.
    fraction : float
        Fraction of all samples.
    min_samples : int
        Smallest number of samples of a user.
    generator : numpy.random.Generator
        Random generator of the draw.

    Returns
    -------
    ndarray, int64 [n]
        Drawn users with at least `min_samples` samples, in ascending order.

    Raises
    ------
    UserError
        If no drawn user has so many samples.
    """
    counts = np.asarray(sample_counts, np.int64)
    order = generator.permutation(len(counts))
    needed = fraction * counts.sum()
    drawn = order[: np.searchsorted(np.cumsum(counts[order]), needed - 0.5) + 1]
    chosen = np.sort(drawn[counts[drawn] >= min_samples])
    if not len(chosen):
        raise UserError(
            f"data.min_samples: none of the {len(drawn)} drawn users has {min_samples} samples; "
            "use a smaller number or a larger data.fraction"
        )
    return chosen


def build_dataset(users: Sequence[User], classes: int) -> DataSet:
    """Return the samples of all users, user by user, with their owners."""
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
    """Return the JSON files of a folder."""
    return sorted(folder.glob("*.json"))


def _read(folder: Path, convert: Convert) -> dict[str, tuple[Samples, Indices]]:
    """Return user -> samples and labels of a folder."""
    users: dict[str, tuple[Samples, Indices]] = {}
    for path in _list_files(folder):
        for name, samples in _read_content(path).items():
            where = f"{path}: user {name!r}"
            if name in users:
                raise UserError(f"{where} is also in another file of the folder")
            try:
                users[name] = convert(samples["x"]), _parse_labels(samples["y"])
            except (KeyError, TypeError, ValueError, OverflowError, UserError) as error:
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
            f"{path}: not a file of LEAF, which has 'users' and their 'user_data': "
            f"{_format_reason(error)}"
        ) from error


def _parse_labels(y: Any) -> Indices:
    """Return labels [n] from a JSON list."""
    if not isinstance(y, list) or not all(type(one) is int for one in y):
        raise ValueError("'y' must be a list of whole numbers")
    return np.array(y, np.int64)


def _format_reason(error: Exception) -> str:
    """Return the text of an error, which for a KeyError is only the key."""
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)
