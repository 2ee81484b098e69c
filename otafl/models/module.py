"""A user's own `torch.nn.Module` as a model: vmap over rows, gradients by autograd."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from otafl.core.contracts import Blocks
from otafl.core.errors import UserError
from otafl.models.base import Draw, Model

_NORM_LAYERS = (
    torch.nn.GroupNorm,
    torch.nn.LayerNorm,
    torch.nn.RMSNorm,
    torch.nn.modules.batchnorm._NormBase,  # batch and instance norm
)


class ModuleModel(Model):
    """Wraps a module that maps x [B, *input] to scores [B, classes]. The module's own random start
    is not used, since it comes from torch's global generator. Every trial starts from uniform
    weights in +-1/sqrt(fan_in) for parameters of two or more dimensions (fan_in: elements of one
    output); smaller ones keep a constant start, as of norm layers, and are zero otherwise.

    Raises UserError if the module has buffers (batch-norm statistics cannot be averaged as
    parameters are) or gives scores of another shape.
    """

    def __init__(self, module: torch.nn.Module, input_shape: tuple[int, ...], classes: int) -> None:
        buffers = [name for name, _ in module.named_buffers()]
        if buffers:
            raise UserError(
                f"model: the module has the buffer '{buffers[0]}', whose running statistics have "
                "no place in federated averaging; use a layer without buffers, such as GroupNorm"
            )
        self._module = module
        self._start = {name: p.detach().clone() for name, p in module.named_parameters()}
        self.shapes = {name: tuple(p.shape) for name, p in self._start.items()}
        self.norms = tuple(
            f"{path}.{name}" if path else name
            for path, layer in module.named_modules()
            if isinstance(layer, _NORM_LAYERS)
            for name, _ in layer.named_parameters(recurse=False)
        )
        probe = torch.zeros(1, *input_shape, dtype=next(module.parameters()).dtype)
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            scores = module(probe)
        if tuple(scores.shape) != (1, classes):
            raise UserError(
                f"model: the module gives scores of shape {list(scores.shape)} for one sample; "
                f"[1, {classes}] would do"
            )
        self.macs = counter.get_total_flops() // 2

    def init(self, draw: Draw) -> Blocks:
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
        def row(values: Blocks, samples: Tensor) -> Tensor:
            return torch.func.functional_call(self._module, values, (samples,))

        if x.shape[0] == 1:
            return torch.vmap(row, in_dims=(0, None))(dict(params), x[0])
        return torch.vmap(row)(dict(params), x)
