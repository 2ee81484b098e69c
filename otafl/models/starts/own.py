"""Start from the weights that a user-defined module comes with.

The callable makes the module once for each stack, with torch's generator in a fixed state.
Every trial starts from the same weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

from torch import Tensor

from otafl.core.errors import UserError
from otafl.core.problems import Problem, make_problem
from otafl.models.base import Model
from otafl.models.starts.base import ServerSamples, Start, check_weights


class Own(Start):
    """Weights of a user-defined module.

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
