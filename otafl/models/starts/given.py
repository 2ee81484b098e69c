"""Starts with given weights: drawn ones, those of a file, and those of a user's own module."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.core import safetensors
from otafl.core.errors import UserError
from otafl.core.files import open_regular
from otafl.core.problems import Problem, make_problem
from otafl.models.base import Model
from otafl.models.starts.base import ServerSamples, Start, check_weights

SUFFIXES = (".safetensors", ".pt", ".pth", ".bin")


class Drawn(Start):
    """Draw the weights at random, for each trial from the scenario's seed.

    The page of a model says from which law.

    Examples
    --------
    `docs/starts.md` compares it with the other starts.
    """

    gives_weights: ClassVar[bool] = False

    name: Literal["drawn"] = "drawn"

    def load(
        self, section: Any, model: Model, samples: ServerSamples | None
    ) -> Mapping[str, Tensor]:
        return {}


class File(Start):
    """Start from the weights in a file, safetensors or one that `torch.load` reads.

    Names, shapes and dtypes must be those of the model. Nothing in the file is executed, because
    `weights_only` is set. Every trial starts from the same weights. The result holds a hash of the
    file.

    Examples
    --------
    `docs/starts.md` writes such a file and starts from it.
    """

    example: ClassVar[Mapping[str, Any]] = {"model.start.path": "start.safetensors"}

    name: Literal["file"] = "file"
    path: str = Field(min_length=1)
    """file of weights by the model's names: .safetensors; or .pt, .pth or .bin, a mapping that
    torch.save wrote"""

    def find_conflicts(self) -> Iterable[str]:
        if Path(self.path).suffix not in SUFFIXES:
            yield f"path: got {self.path!r}; must end in {', '.join(SUFFIXES)}"

    def load(
        self, section: Any, model: Model, samples: ServerSamples | None
    ) -> Mapping[str, Tensor]:
        return check_weights(read_weights(Path(self.path)), model, self.path)


class Own(Start):
    """Start from the weights that a user-defined module comes with.

    The callable makes the module once for each stack, with torch's generator in a fixed state.
    Every trial starts from the same weights.

    Examples
    --------
    `docs/starts.md` has a module that reads its own weights.
    """

    example: ClassVar[Mapping[str, Any]] = {"model.name": "my_module:build_model"}

    name: Literal["own"] = "own"

    def check(self, scenario: Any) -> Iterable[Problem]:
        if ":" not in scenario.model.name:
            text = (
                f"model '{scenario.model.name}' comes with no weights; use drawn, file or "
                "pretrained_here, or a module of your own"
            )
            yield make_problem(text, "model.start", "model")

    def load(
        self, section: Any, model: Model, samples: ServerSamples | None
    ) -> Mapping[str, Tensor]:
        if model.own_weights is None:
            raise UserError(
                f"model.start: '{section.name}' returns an otafl model, which comes with no "
                "weights; return a torch.nn.Module, or use start: file"
            )
        return check_weights(model.own_weights, model, section.name)


def read_weights(path: Path) -> Mapping[str, Any]:
    """Read named weights of a file without executing anything in it.

    Parameters
    ----------
    path : Path
        File of one of `SUFFIXES`.

    Returns
    -------
    mapping of str to any
        Weights by name.

    Raises
    ------
    UserError
        If it cannot be read, or holds no named weights.
    """
    try:
        if path.suffix == ".safetensors":
            return safetensors.read(path)
        found = _load_archive(path)
    except OSError as error:
        raise UserError(
            f"model.start.path: {path} cannot be read: {error.strerror}; give a file of weights"
        ) from error
    except ValueError as error:
        raise UserError(f"model.start.path: {path} is damaged: {error}; write it again") from error
    if not isinstance(found, Mapping) or not all(isinstance(name, str) for name in found):
        raise UserError(
            f"model.start.path: {path} holds a {type(found).__name__}; expected a mapping of names "
            "to tensors, as of module.state_dict()"
        )
    return found


def _load_archive(path: Path) -> Any:
    """Load what torch.save wrote. Raises OSError, or ValueError for anything but weights."""
    with open_regular(path, safetensors.MAX_BYTES) as file:
        try:
            return torch.load(file, "cpu", weights_only=True)
        except Exception as error:  # whatever unpickling of damaged bytes may raise
            raise ValueError("it holds more than weights, which alone are loaded") from error
