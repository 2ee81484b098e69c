"""Adapter for a user-defined model, which a callable named `module:callable` returns.

    model(input_shape, classes, **options)

The shape is that of one sample, and the options are the section's other keys. It returns a
`torch.nn.Module`, or an `otafl.models.Model`, which has a leading row dimension and is faster.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar

import torch

from otafl.core.choices import declare_choice
from otafl.models.base import Model
from otafl.user_code import loading
from otafl.user_code.custom_part import CustomFunction


class CustomModel(CustomFunction):
    """Section of a user-defined function that makes the model."""

    table: ClassVar = "model"
    positional_names: ClassVar = ("input_shape", "classes")

    start: Any = declare_choice("start", "start of the weights")

    def build(self, input_shape: tuple[int, ...], classes: int) -> Model:
        with isolate_torch():
            model = self.call(input_shape, classes)
        if isinstance(model, torch.nn.Module):
            from otafl.models.module_model import ModuleModel, has_same_values

            with loading.attribute_errors(self.name, self.key):
                made = ModuleModel(model, input_shape, classes)
            with isolate_torch():
                again = self.call(input_shape, classes)
            if not has_same_values(model, again):
                self.refuse(
                    "returned other weights when it was called again; expected the same, as from "
                    "NumPy's default_rng(0); torch's generator has the same state in each call"
                )
            return made
        if not isinstance(model, Model):
            self.refuse(
                f"returned a {type(model).__name__}; expected a torch.nn.Module or an "
                "otafl.models.Model"
            )
        for name, shape in model.shapes.items():
            if not shape:
                self.refuse(f"has the parameter '{name}' of shape (); expected (1,) for one number")
        return model


@contextlib.contextmanager
def isolate_torch() -> Iterator[None]:
    """Call a user-defined function with torch's random generator and modes in a fixed state.

    So a module has the same frozen parameters, buffers and own weights whenever it is made. The
    generator of the caller is restored.
    """
    fresh = torch.Generator().get_state()
    with torch.inference_mode(False), torch.enable_grad(), torch.random.fork_rng(devices=[]):
        torch.default_generator.set_state(fresh)
        yield
