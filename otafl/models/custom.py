"""Adapter for a user-defined model, which a callable named `module:callable` returns.

It is called with `input_shape` (of one sample), `classes` and the section's other keys. It returns
a `torch.nn.Module`, or an `otafl.models.Model`, which has a leading row dimension and is faster.
"""

from __future__ import annotations

from typing import Any, ClassVar

from otafl.core.choices import declare_choice
from otafl.core.lazy import torch
from otafl.models.base import Model
from otafl.user_code import error_origin
from otafl.user_code.custom_part import CustomFunction


class CustomModel(CustomFunction):
    """Section of a user-defined function that makes the model."""

    table: ClassVar = "model"
    extra_keys: ClassVar = ("input_shape", "classes")

    start: Any = declare_choice("start", "start of the weights")

    def build(self, input_shape: tuple[int, ...], classes: int) -> Model:
        given = {"input_shape": input_shape, "classes": classes}
        model = self.call(**given)
        if isinstance(model, torch.nn.Module):
            from otafl.models.module_model import ModuleModel

            origin = {"name": self.name, "options": self.options | given}
            with error_origin.attribute_errors(self.name, self.key):
                return ModuleModel(model, input_shape, classes, origin)
        if not isinstance(model, Model):
            self.refuse(
                f"returned a {type(model).__name__}; expected a torch.nn.Module or an "
                "otafl.models.Model"
            )
        return model
