"""Adapter for a user-defined model, which a callable named `module:callable` returns.

It is called with `input_shape` (of one sample), `classes` and the section's other keys. It returns
a `torch.nn.Module`, or an `otafl.models.Model`, which has a leading row dimension and is faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from otafl.core.choices import declare_choice
from otafl.core.contracts import Tensors
from otafl.core.errors import UserError
from otafl.models.base import Draw, Model
from otafl.user_code import error_origin
from otafl.user_code.custom_part import CustomFunction

_NORM_LAYERS = (
    torch.nn.GroupNorm,
    torch.nn.LayerNorm,
    torch.nn.RMSNorm,
    torch.nn.modules.batchnorm._NormBase,  # batch and instance norm
)


class CustomModel(CustomFunction):
    """Section of a user-defined function that makes the model."""

    table: ClassVar = "model"
    extra_keys: ClassVar = ("input_shape", "classes")

    start: Any = declare_choice("start", "start of the weights")

    def build(self, input_shape: tuple[int, ...], classes: int) -> Model:
        given = {"input_shape": input_shape, "classes": classes}
        model = self.call(**given)
        if isinstance(model, torch.nn.Module):
            origin = {"name": self.name, "options": self.options | given}
            with error_origin.attribute_errors(self.name, self.key):
                return ModuleModel(model, input_shape, classes, origin)
        if not isinstance(model, Model):
            self.refuse(
                f"returned a {type(model).__name__}; expected a torch.nn.Module or an "
                "otafl.models.Model"
            )
        return model


class ModuleModel(Model):
    """Model of a module that maps x [B, *input] to scores [B, classes].

    Rows are batched by vmap, and gradients come from autograd. The module's own random start is
    used only with `start: own`, because it comes from torch's global generator. Otherwise every
    trial starts from uniform weights in +-1/sqrt(fan_in) for parameters of two or more dimensions
    (fan_in: elements of one output). Smaller parameters keep a constant start, as of normalisation
    layers, and are zero otherwise.

    Parameters
    ----------
    module : torch.nn.Module
        Module.
    input_shape : tuple of int
        Shape of one sample.
    classes : int
        Number of classes.
    origin : mapping of str to any, optional
        The "name" and the "options" of the user's callable, which can make it again.

    Raises
    ------
    UserError
        If the module has buffers (batch-norm statistics cannot be averaged like parameters), draws
        random numbers, as dropout does, or gives scores of another shape.

    Notes
    -----
    A module that maps tokens [B, length] to [B, length, classes] scores every position.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        input_shape: tuple[int, ...],
        classes: int,
        origin: Mapping[str, Any] | None = None,
    ) -> None:
        buffers = [name for name, _ in module.named_buffers()]
        if buffers:
            raise UserError(
                f"model: expected a module without buffers, got the buffer '{buffers[0]}', whose "
                "running statistics cannot be averaged; use another layer, such as GroupNorm"
            )
        self._module, self._origin = module, origin
        self._start = {name: p.detach().clone() for name, p in module.named_parameters()}
        self.own_weights = self._start
        self.shapes = {name: tuple(p.shape) for name, p in self._start.items()}
        self.norms = tuple(
            f"{path}.{name}" if path else name
            for path, layer in module.named_modules()
            if isinstance(layer, _NORM_LAYERS)
            for name, _ in layer.named_parameters(recurse=False)
        )
        probe = torch.zeros(1, *input_shape, dtype=next(module.parameters()).dtype)
        leaves = {name: p.clone().requires_grad_() for name, p in self._start.items()}
        with torch.enable_grad(), FlopCounterMode(display=False) as forward:
            scores = torch.func.functional_call(module, leaves, (probe,))
        self.scores_positions = tuple(scores.shape) == (1, *input_shape, classes)
        if tuple(scores.shape) != (1, classes) and not self.scores_positions:
            raise UserError(
                f"model: the module gives scores of shape {list(scores.shape)} for one sample; "
                f"expected [1, {classes}]"
            )
        self._check_deterministic(probe)
        with FlopCounterMode(display=False) as backward:
            torch.autograd.grad(scores.sum(), list(leaves.values()), allow_unused=True)
        self.macs = forward.get_total_flops() // 2
        self.first_macs = 2 * self.macs - backward.get_total_flops() // 2

    def _check_deterministic(self, probe: Tensor) -> None:
        """Raise UserError if the module draws random numbers, which vmap refuses."""
        try:
            self.logits({name: start[None] for name, start in self._start.items()}, probe[None])
        except RuntimeError as error:
            if "called random operation" not in str(error):
                raise
            layers = (
                name
                for name, layer in self._module.named_modules()
                if isinstance(layer, torch.nn.modules.dropout._DropoutNd)
            )
            raise UserError(
                f"model: {error_origin.format_place(error).removeprefix(' at ') or 'the module'} "
                f"draws random numbers{''.join(f' (dropout {name!r})' for name in layers)}, which "
                "come from no stream of a trial and are not reproducible; leave dropout out, or "
                "return the module in eval mode (module.eval())"
            ) from error

    def init(self, draw: Draw) -> Tensors:
        params = {}
        for name, start in self._start.items():
            uniform = draw(name, tuple(start.shape))
            if start.dim() >= 2:
                params[name] = (2.0 * uniform - 1.0) / start[0].numel() ** 0.5
            else:
                constant = start.flatten()[0] if (start == start.flatten()[0]).all() else 0.0
                params[name] = torch.full_like(uniform, float(constant))
        return params

    def logits(self, params: Mapping[str, Any], x: Tensor) -> Tensor:
        def compute_row(values: Tensors, samples: Tensor) -> Tensor:
            return torch.func.functional_call(self._module, values, (samples,))

        if x.shape[0] == 1:
            return torch.vmap(compute_row, in_dims=(0, None))(dict(params), x[0])
        return torch.vmap(compute_row)(dict(params), x)

    def describe(self) -> dict[str, Any] | None:
        return None if self._origin is None else {"kind": "module"} | dict(self._origin)
