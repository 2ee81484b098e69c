"""Model of a user-defined `torch.nn.Module`."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from otafl.core.contracts import Batch, Tensors
from otafl.core.errors import UserError
from otafl.models.base import Draw, Model
from otafl.models.module_layers import ModulePass, list_layers, replace_layers
from otafl.user_code import loading

_NORM_LAYERS = (
    torch.nn.GroupNorm,
    torch.nn.LayerNorm,
    torch.nn.RMSNorm,
    torch.nn.modules.batchnorm._NormBase,  # batch and instance norm
)

_IN_PLACE = (
    "writes into a tensor in place",
    "make a new tensor, such as x - 1 instead of x.sub_(1)",
)
_VALUES = (
    "decides by the values of a tensor",
    "compute with tensors of fixed shapes, such as torch.where instead of if",
)
_CELLS = "write its steps with torch.nn.Linear, or use model: lstm"
_LIMITS = {
    "called random operation": (
        "draws random numbers outside of dropout layers",
        "use layers torch.nn.Dropout, or return the module in eval mode (module.eval())",
    ),
    "calling .item()": _VALUES,
    "data-dependent control flow": _VALUES,
    "dynamic shape": _VALUES,
    "inplace arithmetic": _IN_PLACE,
    "doesn't match the broadcast shape": _IN_PLACE,
    "used in an in-place operation": _IN_PLACE,
    "torch.utils.checkpoint": (
        "computes layers again in the backward pass",
        "call them without torch.utils.checkpoint",
    ),
    "autograd.Function": (
        "uses an autograd.Function or torch.utils.checkpoint",
        "give the function setup_context and generate_vmap_rule = True, or call layers directly",
    ),
    "aten::lstm": ("has a torch.nn.LSTM or LSTMCell", _CELLS),
    "aten::gru": ("has a torch.nn.GRU", _CELLS),
    "aten::rnn": ("has a torch.nn.RNN", _CELLS),
}
"""Part of a message of torch.vmap -> the fault, and the way out."""


def list_trained(module: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """List the parameters that are trained: those that require gradients and are not empty."""
    every = module.named_parameters()
    return {name: one for name, one in every if one.requires_grad and one.numel()}


def has_same_values(one: torch.nn.Module, other: Any) -> bool:
    """Return whether two modules have the same parameters and buffers; NaN equals NaN."""
    if one is other:
        return True
    if not isinstance(other, torch.nn.Module):
        return False
    first, second = one.state_dict(), other.state_dict()
    return first.keys() == second.keys() and all(
        not isinstance(first[name], Tensor)
        or (
            first[name].shape == second[name].shape
            and torch.allclose(first[name], second[name], 0.0, 0.0, equal_nan=True)
        )
        for name in first
    )


class ModuleModel(Model):
    """Model of a module that maps x [B, *input] to scores [B, classes].

    Rows are batched by vmap, and gradients come from autograd. The module's own random start is
    used only with `start: own`, because it comes from torch's global generator. Otherwise every
    trial starts from uniform weights in +-1/sqrt(fan_in) for parameters of two or more dimensions
    (fan_in: elements of one output). Smaller parameters keep a constant start, as of normalisation
    layers, and are zero otherwise.

    Parameters with `requires_grad=False` are constants, as buffers are: every trial and device has
    the module's values, and no method trains, sends or counts them. A parameter of shape () is one
    coordinate, of shape (1,) here.

    Parameters
    ----------
    module : torch.nn.Module
        Module.
    input_shape : tuple of int
        Shape of one sample.
    classes : int
        Number of classes.

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
    ) -> None:
        self._original, self._name = module, type(module).__name__
        _check_parameters(module)
        with torch.inference_mode(False):  # autograd saves no inference tensors
            self._module, self._control = replace_layers(module)
            trained = {name: one.detach() for name, one in list_trained(self._module).items()}
            is_double = any(one.dtype == torch.float64 for one in trained.values())
            dtype = torch.float64 if is_double else torch.float32
            self._scalars = {name for name, one in trained.items() if not one.dim()}
            self._start = {
                name: one.to(dtype, copy=True).view(one.shape or (1,))
                for name, one in trained.items()
            }
            every = [*self._module.named_buffers(), *self._module.named_parameters()]
            self.constants = {name: one.detach() for name, one in every if name not in trained}
        self._placed: dict[tuple[torch.device, torch.dtype], Tensors] = {}
        self.norms = tuple(
            name
            for path, layer in module.named_modules()
            if isinstance(layer, _NORM_LAYERS)
            for name, _ in layer.named_parameters(path, recurse=False)
            if name in trained
        )
        self.uses_dropout, self.batch_norms = list_layers(self._module)
        self.own_weights = self._start
        self.shapes = {name: tuple(one.shape) for name, one in self._start.items()}
        with torch.inference_mode(False), torch.enable_grad():
            self._probe(torch.zeros(1, *input_shape, dtype=dtype), classes)

    def _probe(self, x: Tensor, classes: int) -> None:
        """Run the module for one sample [1, *input]: check its scores, and count operations."""
        leaves = {name: one.clone().requires_grad_() for name, one in self._start.items()}
        constants = self._place_constants(x)
        before = {name: one.clone() for name, one in constants.items()}
        with FlopCounterMode(display=False) as forward:
            scores = self._call(leaves, x, ModulePass())
        for name, value in before.items():
            if not torch.equal(value, constants[name]):
                raise UserError(
                    f"model: a forward pass changes the buffer '{name}', and such state is not "
                    "averaged; use another layer, such as GroupNorm, or return the module in eval "
                    "mode (module.eval())"
                )
        if not isinstance(scores, Tensor):
            raise UserError(
                f"model: {self._name} returns a {type(scores).__name__}; expected one tensor of "
                "scores [batch, classes]; return the scores only"
            )
        self.scores_positions = tuple(scores.shape) == (*x.shape, classes)
        if tuple(scores.shape) != (1, classes) and not self.scores_positions:
            raise UserError(
                f"model: the module gives scores of shape {list(scores.shape)} for one sample; "
                f"expected [1, {classes}]"
            )
        if scores.is_complex() or not scores.requires_grad:
            raise UserError(
                f"model: the {_format_dtype(scores)} scores of {self._name} have no real gradient; "
                "compute them from its parameters without torch.no_grad() or detach()"
            )
        self._check_rows(x)
        with FlopCounterMode(display=False) as backward:
            torch.autograd.grad(scores.sum(), list(leaves.values()), allow_unused=True)
        self.macs = forward.get_total_flops() // 2
        self.first_macs = 2 * self.macs - backward.get_total_flops() // 2

    def _check_rows(self, x: Tensor) -> None:
        """Raise UserError if vmap refuses the module, for samples that rows share or own."""
        for rows in (1, 2):
            leaves = {
                name: torch.stack([one] * rows).requires_grad_()
                for name, one in self._start.items()
            }
            samples = torch.stack([x] * rows).requires_grad_()  # a leaf, not to change in place
            try:
                scores = self.logits(leaves, samples)
                torch.autograd.grad(scores.sum(), list(leaves.values()), allow_unused=True)
            except RuntimeError as error:
                place, said = loading.format_place(error), " ".join(str(error).split())
                known = [limit for text, limit in _LIMITS.items() if text in said]
                unknown = f"meets a limit of torch.vmap ({said[:200]})"
                fault, way = (*known, (unknown, "write it with other operations"))[0]
                raise UserError(
                    f"model: {self._name}{place} {fault}, which is not possible for many devices "
                    f"at once; {way}"
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
            self._call(values, samples, ModulePass(found=found))
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
            return self._call(own, samples, ModulePass(training, key, own_weight, statistics))

        samples_axis = None if x.shape[0] == 1 else 0
        axes = (None if weight is None else 0, None if keys is None else 0)
        return torch.vmap(compute_row, in_dims=(0, samples_axis, axes))(
            dict(params), x[0] if samples_axis is None else x, (weight, keys)
        )

    def _call(self, params: Tensors, samples: Tensor, now: ModulePass) -> Any:
        """Run the module of one row."""
        constants = self._place_constants(next(iter(params.values())))
        own = {n: one.squeeze(0) if n in self._scalars else one for n, one in params.items()}
        self._control.current = now
        try:
            return torch.func.functional_call(self._module, own | constants, (samples,))
        finally:
            self._control.current = ModulePass()

    def _place_constants(self, like: Tensor) -> Tensors:
        """Return the constants on the device of a tensor, real ones in its dtype."""
        key = like.device, like.dtype
        if key not in self._placed:
            with torch.inference_mode(False):  # autograd saves no inference tensors
                self._placed[key] = {
                    name: one.to(like.device, like.dtype if one.is_floating_point() else one.dtype)
                    for name, one in self.constants.items()
                }
        return self._placed[key]

    def build_module(
        self, params: Mapping[str, Tensor], input_shape: tuple[int, ...]
    ) -> torch.nn.Module | None:
        module = copy.deepcopy(self._original)
        is_double = any(block.dtype == torch.float64 for block in params.values())
        module = module.double() if is_double else module.float()
        own = {_find_state_name(name, module): block for name, block in params.items()}
        lacking = self.shapes.keys() - params.keys()
        fault = f"{', '.join(sorted(lacking))} was not trained" if lacking else ""
        try:
            module.load_state_dict(module.state_dict() | own)
        except RuntimeError as error:
            fault = " ".join(str(error).split())
        if fault:
            raise UserError(
                f"model.name: {self._name} has other parameters than the trained ones ({fault}); "
                "use the module of the run"
            )
        return module


def _find_state_name(name: str, module: torch.nn.Module) -> str:
    """Return PyTorch's name of a parameter, or of a statistic of batch normalisation."""
    path, _, last = name.rpartition(".")
    running = {"mean": "running_mean", "variance": "running_var"}.get(last)
    known = dict(module.named_buffers())
    return f"{path}.{running}" if running and f"{path}.{running}" in known else name


def _format_dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _check_parameters(module: torch.nn.Module) -> None:
    """Raise UserError if a module has no parameter that can be trained, or one that cannot."""
    kind = type(module).__name__
    for name, one in module.named_parameters():
        if isinstance(one, torch.nn.parameter.UninitializedParameter):
            raise UserError(
                f"model: the parameter '{name}' of {kind} has no shape yet; call the module on a "
                "sample in the function that returns it"
            )
        if one.requires_grad and one.is_complex():
            raise UserError(
                f"model: the parameter '{name}' of {kind} is {_format_dtype(one)}; expected real "
                "numbers; keep real and imaginary parts in a last dimension of 2, and use "
                "torch.view_as_complex"
            )
    if not list_trained(module):
        raise UserError(
            f"model: expected a module with parameters to train, got {kind} without any; set "
            "requires_grad=True on those that are to be trained"
        )
