"""Layers that stand in for dropout and batch normalisation in a user-defined module.

PyTorch's own draw from a global generator, and change buffers in a forward pass. Neither is
possible for many rows in one program, nor reproducible. These layers take what they need from a
`ModulePass`, and have the parameters of those that they replace.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from otafl.core.contracts import Tensors
from otafl.core.errors import UserError
from otafl.models.linear_layer import draw_dropout

_OVER_CHANNELS = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
_REPLACED = (nn.Dropout, *_OVER_CHANNELS, nn.modules.batchnorm._BatchNorm)


@dataclass
class ModulePass:
    """A forward pass of one row.

    Parameters
    ----------
    training : bool
        Whether batch normalisation uses the statistics of the samples.
    keys : Tensor, int64 [], optional
        Key of the row; no dropout without it.
    weight : Tensor [B], optional
        Weights of the samples; those of weight 0 are in no statistics.
    statistics : mapping of str to Tensor [C]
        "NAME.mean" and "NAME.variance" of batch normalisations; those of the samples without them.
    found : dict of str to Tensor [C], optional
        Destination of the statistics of the samples.
    """

    training: bool = False
    keys: Tensor | None = None
    weight: Tensor | None = None
    statistics: Mapping[str, Tensor] = field(default_factory=dict)
    found: Tensors | None = None
    num_dropouts: int = 0


class Control:
    """The current pass, which all layers of a module share."""

    current = ModulePass()


class SeededDropout(nn.Module):
    """Dropout of a share of the outputs, or of whole channels."""

    def __init__(self, control: Control, share: float, over_channels: bool) -> None:
        super().__init__()
        self._control, self._share, self._over_channels = control, share, over_channels

    def forward(self, x: Tensor) -> Tensor:
        now = self._control.current
        if now.keys is None:
            return x
        shape = tuple(x.shape)
        if self._over_channels:
            shape = (*shape[:2], *[1] * (x.dim() - 2))
        now.num_dropouts += 1
        return x * draw_dropout(now.keys, now.num_dropouts, shape, self._share, x.dtype)


class StatelessBatchNorm(nn.Module):
    """Batch normalisation without running statistics.

    In training it uses the samples of the minibatch; in a test the statistics of the pass, which
    are estimated before (`otafl.evaluation.scoring`).
    """

    def __init__(self, control: Control, name: str, layer: nn.modules.batchnorm._BatchNorm) -> None:
        super().__init__()
        self._control, self._name, self._eps = control, name, layer.eps
        self._is_tracked = layer.track_running_stats
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, x: Tensor) -> Tensor:
        now, over = self._control.current, [0, *range(2, x.dim())]
        known = f"{self._name}.mean" in now.statistics and not now.training and self._is_tracked
        if now.found is not None and self._is_tracked:
            variance, mean = torch.var_mean(x, over)
            now.found[f"{self._name}.mean"] = mean
            now.found[f"{self._name}.variance"] = variance
        if known:
            mean = now.statistics[f"{self._name}.mean"]
            variance = now.statistics[f"{self._name}.variance"]
        elif now.training:
            mean, variance = self._compute_statistics(x, over, now.weight)
        else:
            variance, mean = torch.var_mean(x, over, correction=0)
        side = (None, ..., *[None] * (x.dim() - 2))
        out = (x - mean[side]) * (variance + self._eps).rsqrt()[side]
        return out if self.weight is None else out * self.weight[side] + self.bias[side]

    def _compute_statistics(
        self, x: Tensor, over: list[int], weight: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute mean and variance [C] of the samples that are not padding."""
        if x.numel() == x.shape[1]:
            raise UserError(
                "training.batch_size: batch normalisation of a single sample with one position "
                "gives 0 for any sample; use at least 2, or another layer, such as GroupNorm"
            )
        if weight is None:
            variance, mean = torch.var_mean(x, over, correction=0)
            return mean, variance
        present = (weight > 0).to(x.dtype)
        if len(x) != len(present):  # positions of a sample lie side by side
            present = present.repeat_interleave(len(x) // len(present))
        share = present / present.sum().clamp_min(1.0)
        share = share.view(-1, *[1] * (x.dim() - 1)) / max(1, x[0, 0].numel())
        mean = (x * share).sum(over)
        side = (None, ..., *[None] * (x.dim() - 2))
        return mean, ((x - mean[side]).square() * share).sum(over)


def replace_layers(module: nn.Module) -> tuple[nn.Module, Control]:
    """Copy a module, with layers that take dropout and statistics from a `ModulePass`.

    Layers in eval mode stay: their dropout does nothing, and their statistics are constants.

    Parameters
    ----------
    module : torch.nn.Module
        Module.

    Returns
    -------
    torch.nn.Module
        Copy with the same names of parameters.
    Control
        The pass that its layers read.
    """
    module, control = copy.deepcopy(module), Control()
    stand_ins: dict[nn.Module, nn.Module] = {}
    for path, layer in list(module.named_modules(remove_duplicate=False)):
        above, _, name = path.rpartition(".")
        if path and layer.training and isinstance(layer, _REPLACED):
            if layer not in stand_ins:
                stand_ins[layer] = _make_stand_in(layer, path, control)
            setattr(module.get_submodule(above), name, stand_ins[layer])
    return module, control


def _make_stand_in(layer: nn.Module, path: str, control: Control) -> nn.Module:
    if isinstance(layer, nn.modules.batchnorm._BatchNorm):
        return StatelessBatchNorm(control, path, layer)
    assert isinstance(layer, nn.modules.dropout._DropoutNd)
    return SeededDropout(control, layer.p, isinstance(layer, _OVER_CHANNELS))


def list_layers(module: nn.Module) -> tuple[bool, bool]:
    """Return whether a module has replaced dropout, and replaced batch normalisation."""
    layers = list(module.modules())
    return (
        any(isinstance(one, SeededDropout) for one in layers),
        any(isinstance(one, StatelessBatchNorm) for one in layers),
    )
