"""Adapter for a user-defined model, which a callable named `module:callable` returns.

It is called with the section's other keys, and with `input_shape` (of one sample) and `classes` if
it declares such arguments or takes any. It returns a `torch.nn.Module`, or an `otafl.models.Model`,
which has a leading row dimension and is faster.
"""

from __future__ import annotations

import contextlib
import inspect
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

    start: Any = declare_choice("start", "start of the weights")

    def find_function(self) -> Any:
        declared = self._select_declared((), 0)
        return loading.load_checked(self.name, self.key, self.options | declared)

    def _select_declared(self, input_shape: tuple[int, ...], classes: int) -> dict[str, Any]:
        """Return the shape and the number of classes if the callable declares or takes them."""
        given = {"input_shape": input_shape, "classes": classes}
        try:
            declared = inspect.signature(loading.load(self.name, self.key)).parameters
        except ValueError:  # it does not state its parameters, which `load_checked` refuses
            return {}
        if any(one.kind is one.VAR_KEYWORD for one in declared.values()):
            return given
        return {name: value for name, value in given.items() if name in declared}

    def build(self, input_shape: tuple[int, ...], classes: int) -> Model:
        given = self._select_declared(input_shape, classes)
        with isolate_torch():
            model = self.call(**given)
        if isinstance(model, torch.nn.Module):
            from otafl.models.module_model import ModuleModel, has_same_values

            with loading.attribute_errors(self.name, self.key):
                made = ModuleModel(model, input_shape, classes)
            with isolate_torch():
                again = self.call(**given)
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
