"""Draw the weights at random, for each trial from the scenario's seed.

The page of a model says from which law.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from torch import Tensor

from otafl.models.base import Model
from otafl.models.starts.base import ServerSamples, Start


class Drawn(Start):
    """Random weights.

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
