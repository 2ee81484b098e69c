"""Start from the weights in a file, safetensors or one that torch.load reads with weights_only.

Names, shapes and dtypes must be those of the model. Nothing in the file is executed. Every trial
starts from the same weights. The result holds a hash of the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.core import safetensors
from otafl.core.errors import UserError
from otafl.core.inputs import open_regular
from otafl.models.base import Model
from otafl.models.starts.base import ServerSamples, Start, check_weights

SUFFIXES = (".safetensors", ".pt", ".pth", ".bin")


class File(Start):
    """Weights of a file.

    Examples
    --------
    `docs/starts.md` writes such a file and starts from it.
    """

    example: ClassVar[Mapping[str, Any]] = {"model.start.path": "start.safetensors"}
    begins_again: ClassVar = True

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
