"""Model of a user-defined `torch.nn.Module`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from otafl.core.contracts import Batch, Tensors
from otafl.core.errors import UserError
from otafl.models.base import Draw, Model
from otafl.models.module_layers import Pass, list_layers, replace_layers
from otafl.user_code import error_origin

_NORM_LAYERS = (
    torch.nn.GroupNorm,
    torch.nn.LayerNorm,
    torch.nn.RMSNorm,
    torch.nn.modules.batchnorm._NormBase,  # batch and instance norm
)


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
        If a forward pass changes a buffer or draws random numbers otherwise than by dropout layers,
        or if the module gives scores of another shape.

    Notes
    -----
    A module that maps tokens [B, length] to [B, length, classes] scores every position. Dropout and
    batch normalisation in training mode are replaced (`otafl.models.module_layers`). Constant
    buffers are used as they are.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        input_shape: tuple[int, ...],
        classes: int,
        origin: Mapping[str, Any] | None = None,
    ) -> None:
        self.norms = tuple(
            f"{path}.{name}" if path else name
            for path, layer in module.named_modules()
            if isinstance(layer, _NORM_LAYERS)
            for name, _ in layer.named_parameters(recurse=False)
        )
        self._origin = origin
        self._module, self._control = replace_layers(module)
        self.uses_dropout, self.batch_norms = list_layers(self._module)
        self._start = {name: p.detach().clone() for name, p in self._module.named_parameters()}
        self._constants = dict(self._module.named_buffers())
        self.own_weights = self._start
        self.shapes = {name: tuple(p.shape) for name, p in self._start.items()}
        if not self.shapes:
            raise UserError("model: expected a module with parameters, got one without any")
        probe = torch.zeros(1, *input_shape, dtype=next(iter(self._start.values())).dtype)
        leaves = {name: p.clone().requires_grad_() for name, p in self._start.items()}
        buffers = {name: one.clone() for name, one in self._constants.items()}
        with torch.enable_grad(), FlopCounterMode(display=False) as forward:
            scores = torch.func.functional_call(self._module, leaves | buffers, (probe,))
        self._check_constant(buffers)
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

    def _check_constant(self, buffers: Tensors) -> None:
        """Raise UserError if a forward pass has changed a buffer."""
        for name, value in buffers.items():
            if not torch.equal(value, self._constants[name]):
                raise UserError(
                    f"model: a forward pass changes the buffer '{name}', and such state is not "
                    "averaged; use another layer, such as GroupNorm, or return the module in eval "
                    "mode (module.eval())"
                )

    def _check_deterministic(self, probe: Tensor) -> None:
        """Raise UserError if the module draws random numbers, which vmap refuses."""
        params = {name: start[None] for name, start in self._start.items()}
        try:
            self.logits(params, probe[None])
        except RuntimeError as error:
            if "called random operation" not in str(error):
                raise
            place = error_origin.format_place(error).removeprefix(" at ") or "the module"
            raise UserError(
                f"model: {place} draws random numbers from no stream of a trial; use layers "
                "torch.nn.Dropout, or return the module in eval mode (module.eval())"
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
        return self._run(params, x)

    def score_batch(self, params: Mapping[str, Any], batch: Batch) -> Tensor:
        if not (self.batch_norms or self.uses_dropout):
            return self._run(params, batch.x)
        return self._run(params, batch.x, batch.weight, batch.keys, training=True)

    def moments(self, params: Mapping[str, Any], x: Tensor) -> Tensors:
        def compute_row(values: Tensors, samples: Tensor) -> Tensors:
            found: Tensors = {}
            self._call(values, samples, Pass(found=found))
            return found

        own = {name: params[name] for name in self.shapes}
        if x.shape[0] == 1:
            return torch.vmap(compute_row, in_dims=(0, None))(own, x[0])
        return torch.vmap(compute_row)(own, x)

    def _run(
        self,
        params: Mapping[str, Any],
        x: Tensor,
        weight: Tensor | None = None,
        keys: Tensor | None = None,
        training: bool = False,
    ) -> Tensor:
        """Compute the scores [n, B, classes] of samples x [n or 1, B, *input]."""

        def compute_row(
            values: Tensors, samples: Tensor, of_row: tuple[Tensor | None, Tensor | None]
        ) -> Tensor:
            own = {name: block for name, block in values.items() if name in self.shapes}
            statistics = {name: block for name, block in values.items() if name not in own}
            own_weight, key = of_row
            return self._call(own, samples, Pass(training, key, own_weight, statistics))

        samples_axis = None if x.shape[0] == 1 else 0
        axes = (None if weight is None else 0, None if keys is None else 0)
        return torch.vmap(compute_row, in_dims=(0, samples_axis, axes))(
            dict(params), x[0] if samples_axis is None else x, (weight, keys)
        )

    def _call(self, params: Tensors, samples: Tensor, now: Pass) -> Any:
        """Run the module of one row."""
        like = next(iter(params.values()))
        constants = {
            name: one.to(like) if one.is_floating_point() else one.to(like.device)
            for name, one in self._constants.items()
        }
        self._control.current = now
        try:
            return torch.func.functional_call(self._module, params | constants, (samples,))
        finally:
            self._control.current = Pass()

    def describe(self) -> dict[str, Any] | None:
        return None if self._origin is None else {"kind": "module"} | dict(self._origin)
