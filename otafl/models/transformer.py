"""Transformer: pre-norm blocks of attention with learned positions, of image patches or tokens.

Patches of an image (a vision transformer, ViT), tokens or vectors of a sequence become states of
one width. Blocks of attention and a perceptron change them. A linear layer scores the class token
of images and vectors. Of tokens it scores every position, which attends only to itself and those
before it. Weights start uniform with variance 1 / fan_in, the last layer's in +-1/sqrt(fan_in),
positions with standard deviation 0.02, biases at 0. States are [n or 1, B T, width] for T positions
of B samples. Each step broadcasts over rows, so that they stay [1, B T, width] until a parameter of
a row enters.

References
----------
Vaswani et al. 2017, "Attention Is All You Need".
Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words: Transformers for Image Recognition at
    Scale".
Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from otafl.core.contracts import Tensors
from otafl.core.errors import UserError
from otafl.models.base import LOSS, NORMALISING, Draw, Model, ModelSettings
from otafl.models.layer_contract import Part, make_sequence
from otafl.models.linear_layer import (
    add_bias,
    apply,
    find_image_shape,
    find_sequence_shape,
    require_tokens,
)

GELU = 8
"""Operations of a GELU per number, the mean of 5 forward and 11 backward."""

POSITION_SCALE = 0.02
"""Standard deviation of the start of positions and class token, as in ViT."""


class Transformer(Model):
    """Pre-norm transformer.

    The parameters are "patch" [p p C, width] and "patch_bias" of images, "embedding" [tokens,
    width] of tokens, or "input" [features, width] and "input_bias" of vectors; "class_token"
    [width], if there is one, and "positions" [T, width]; of block l "blockl.query", "blockl.key",
    "blockl.value", "blockl.output" [width, width], "blockl.up" [width, inner] and "blockl.down"
    [inner, width], each with a bias as in "blockl.query_bias", and the normalisations
    "blockl.norm1" and "blockl.norm2"; and "norm", "head" [width, classes], with their biases.

    Examples
    --------
    `docs/models.md` has scenarios with `model: transformer`.
    """

    positions_by: ClassVar[str] = "transformer with model.input: tokens"

    class Settings(ModelSettings):
        example: ClassVar[Mapping[str, Any]] = {
            "model.patch": 4,
            "model.depth": 1,
            "model.width": 8,
            "model.heads": 2,
        }

        name: Literal["transformer"] = "transformer"
        input: Literal["images", "tokens", "vectors"] = "images"
        """samples: images, cut into patches; sequences of tokens, whose next ones are predicted;
        or sequences of vectors"""
        patch: int = Field(7, ge=1)
        """side of a patch of an image, in pixels"""
        depth: int = Field(4, ge=1)
        """number of blocks"""
        width: int = Field(64, ge=1)
        """numbers of a position's state"""
        heads: int = Field(4, ge=1)
        """attention heads, which share the width"""
        mlp_ratio: float = Field(2.0, gt=0)
        """width of the layer inside a block's perceptron, in widths of the state"""

        @property
        def scores_positions(self) -> bool:
            """Whether every position of a sequence of tokens is scored."""
            return self.input == "tokens"

        def find_conflicts(self) -> Iterable[str]:
            if self.width % self.heads:
                yield f"width: got {self.width}; must be a multiple of heads, {self.heads}"
            if self.input != "images" and not self.is_default("patch"):
                yield f"patch: only for input: images, and input is {self.input}; leave it out"

    def __init__(self, settings: Settings, input_shape: tuple[int, ...], classes: int) -> None:
        self.settings, self.scores_positions = settings, settings.scores_positions
        self.inner = max(1, round(settings.mlp_ratio * settings.width))
        self.image = self.sequence = (0, 0, 0)
        first = self._declare_input(input_shape, classes)
        width, weights = settings.width, {}
        if not self.scores_positions:
            self.shapes["class_token"] = (width,)
        self.num_positions = self.length + (not self.scores_positions)
        self.shapes["positions"] = (self.num_positions, width)
        norms = ["norm", "norm_bias"]
        for block in self._blocks:
            for name, shape, is_weight in list_block_params(block, width, self.inner):
                self.shapes[name] = shape
                if is_weight:
                    weights[name] = (shape[0], shape[1])
                elif ".norm" in name:
                    norms.append(name)
        self.shapes |= {"norm": (width,), "norm_bias": (width,)}
        self.shapes |= {"head": (width, classes), "head_bias": (classes,)}
        self.norms = tuple(norms)
        self.linear_weights = first | weights | {"head": (width, classes)}
        self.positions = dict.fromkeys(weights, self.num_positions)
        self.positions |= dict.fromkeys(first, self.length)
        self.positions["head"] = self.num_positions if settings.scores_positions else 1
        self._count_costs(first, classes)

    @classmethod
    def find_scores_positions(cls, settings: Any) -> bool:
        return bool(settings.scores_positions)

    @property
    def _blocks(self) -> list[str]:
        return [f"block{index}" for index in range(self.settings.depth)]

    def _declare_input(
        self, input_shape: tuple[int, ...], classes: int
    ) -> dict[str, tuple[int, int]]:
        """Declare the parameters before the blocks; return those that are linear weights."""
        own = self.settings
        if own.input == "tokens":
            self.length = require_tokens(input_shape, own.name)
            self.shapes = {"embedding": (classes, own.width)}
            return {}
        name, (self.length, features) = "input", (0, 0)
        if own.input == "images":
            name, self.image = "patch", find_image_shape(input_shape, own.name)
            self.length, features = count_patches(self.image, own.patch)
        else:
            self.length, features = find_sequence_shape(input_shape, own.name)
        self.shapes = {name: (features, own.width), f"{name}_bias": (own.width,)}
        return {name: (features, own.width)}

    def _count_costs(self, first: Mapping[str, tuple[int, int]], classes: int) -> None:
        """Count the operations and the memory of a sample."""
        own, t, scored = self.settings, self.num_positions, 1
        if own.scores_positions:
            scored = t
        self.first_macs = self.length * sum(rows * columns for rows, columns in first.values())
        pairs = t * (t + 1) // 2 if own.scores_positions else t * t
        linear = t * (4 * own.width**2 + 2 * own.width * self.inner)
        self.macs = self.first_macs + own.depth * (linear + 2 * pairs * own.width)
        self.macs += scored * own.width * classes
        # Of a block: two norms, biases, two sums, GELU; of a head a scale and a softmax.
        states = (2 * NORMALISING + 5 + 2) * own.width + (1 + GELU) * self.inner
        self.elementwise = own.depth * (t * states + LOSS * pairs * own.heads + pairs * own.heads)
        self.elementwise += (len(first) * self.length + t) * own.width
        self.elementwise += scored * (NORMALISING * own.width + (1 + LOSS) * classes)
        # Autograd keeps of a block the inputs of each layer and norm, q, k, v, and of fused
        # attention the logarithm of each softmax's sum.
        kept = t * (9 * own.width + 2 * self.inner + own.heads)
        self.saved_activations = own.depth * kept + 2 * t * own.width + scored * classes

    def init(self, draw: Draw) -> Tensors:
        params = {}
        for name, shape in self.shapes.items():
            uniform = draw(name, shape)
            symmetric = 3.0**0.5 * (2.0 * uniform - 1.0)  # of variance 1
            if name in self.norms:
                params[name] = torch.full_like(uniform, float(not name.endswith("_bias")))
            elif name.endswith("_bias"):
                params[name] = torch.zeros_like(uniform)
            elif name in ("class_token", "positions"):
                params[name] = POSITION_SCALE * symmetric
            elif name == "embedding":
                params[name] = symmetric
            else:
                params[name] = symmetric / ((3.0 if name == "head" else 1.0) * shape[0]) ** 0.5
        return params

    def logits(self, params: Mapping[str, Any], x: Tensor) -> Tensor:
        samples = x.shape[1]
        x = self._embed(params, x)  # [n or 1, B, length, width]
        if not self.scores_positions:
            token = params["class_token"]
            rows = max(len(token), len(x))
            token = token[:, None, None].expand(rows, samples, 1, -1)
            x = torch.cat([token, x.expand(rows, -1, -1, -1)], 2)
        x = (x + params["positions"][:, None]).flatten(1, 2)
        for block in self._blocks:
            x = self._run_block(params, block, x)
        if not self.scores_positions:
            x = x.unflatten(1, (samples, -1))[:, :, 0]
        scores = apply_linear(params, "head", normalise(params, "norm", x))
        return scores.unflatten(1, (samples, -1)) if self.scores_positions else scores

    def _run_block(self, params: Mapping[str, Any], block: str, x: Tensor) -> Tensor:
        r"""Run a block on states [n or 1, B T, width], with parameters [n or 1, *shape].

        With layer normalisations N and attention A it is

        .. math::

            x \leftarrow x + A(N_1(x)), \quad
            x \leftarrow x + \mathrm{GELU}(N_2(x) W_{up} + b) W_{down} + b'
        """
        z = normalise(params, f"{block}.norm1", x)
        q, k, v = (apply_linear(params, f"{block}.{name}", z) for name in ("query", "key", "value"))
        mixed = attend(q, k, v, self.num_positions, self.settings.heads, self.scores_positions)
        x = x + apply_linear(params, f"{block}.output", mixed)
        z = normalise(params, f"{block}.norm2", x)
        inner = functional.gelu(apply_linear(params, f"{block}.up", z))
        return x + apply_linear(params, f"{block}.down", inner)

    def _embed(self, params: Mapping[str, Any], x: Tensor) -> Tensor:
        """Compute the states [n or 1, B, length, width] of samples before positions are added."""
        n, samples = x.shape[:2]
        if self.settings.input == "tokens":
            table = params["embedding"]
            offset = torch.arange(len(table), device=x.device)[:, None, None] * table.shape[1]
            return functional.embedding(x.long() + offset, table.flatten(0, 1))
        name = "input"
        if self.settings.input == "images":
            name, p = "patch", self.settings.patch
            x = x.reshape(n * samples, *self.image).unfold(2, p, p).unfold(3, p, p)
            x = x.permute(0, 2, 3, 1, 4, 5)  # [n B, H', W', C, p, p]
        z = apply_linear(params, name, x.reshape(n, samples * self.length, -1))
        return z.unflatten(1, (samples, self.length))

    def build_module(
        self, params: Mapping[str, Tensor], input_shape: tuple[int, ...]
    ) -> nn.Module | None:
        return TransformerModule(self, params)


class TransformerModule(nn.Module):
    """Module of samples [batch, *input] that gives scores [batch, classes], by a model's own pass.

    Scores of next tokens are [batch, length, classes]. Weights [inputs, outputs] are `nn.Linear` in
    `layers`, with their biases, and act as a `linear_layer.LinearMap`. All other parameters are in
    `others`. Names have "_" for each ".".

    Parameters
    ----------
    model : Model
        Transformer.
    params : mapping of str to Tensor [*shape]
        Parameters of one model, which are copied.
    """

    def __init__(self, model: Model, params: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._model = model
        self._names = {name: name.replace(".", "_") for name in model.shapes}
        biases = {f"{name}_bias" for name in model.linear_weights}
        self.others = nn.ParameterDict(
            {
                self._names[name]: params[name].clone()
                for name in model.shapes
                if name not in biases and name not in model.linear_weights
            }
        )
        self.layers = nn.ModuleDict(
            {
                self._names[name]: make_sequence([Part(params[name].mT)], params[f"{name}_bias"])
                for name in model.linear_weights
            }
        )

    def forward(self, x: Tensor) -> Tensor:
        linear = {name: self.layers[self._names[name]] for name in self._model.linear_weights}
        others = {n: self.others[key][None] for n, key in self._names.items() if key in self.others}
        scores: Tensor = self._model.logits(linear | others, x[None])[0]
        return scores


def count_patches(image: tuple[int, int, int], side: int) -> tuple[int, int]:
    """Return the number of patches of an image, and the numbers in one.

    Parameters
    ----------
    image : tuple of int
        Channels, height and width.
    side : int
        Side of a patch.

    Returns
    -------
    tuple of int
        Number of patches, and of numbers in a patch.

    Raises
    ------
    UserError
        If patches of this side do not cover the image.
    """
    channels, height, width = image
    if height % side or width % side:
        fitting = [str(one) for one in range(1, height + 1) if not (height % one or width % one)]
        raise UserError(
            f"model.patch: got {side}, but images of {height}x{width} pixels have no such patches; "
            f"use {' or '.join([', '.join(fitting[:-1]), fitting[-1]] if fitting[1:] else fitting)}"
        )
    return (height // side) * (width // side), channels * side**2


def list_block_params(
    block: str, width: int, inner: int
) -> Iterator[tuple[str, tuple[int, ...], bool]]:
    """Yield name, shape and whether it is a linear weight, of each parameter of a block.

    Parameters
    ----------
    block : str
        Name of the block.
    width, inner : int
        Width of the states, and of the layer between "up" and "down".
    """
    sides = {"up": (width, inner), "down": (inner, width)}
    for norm, layers in (("norm1", "query key value output"), ("norm2", "up down")):
        yield f"{block}.{norm}", (width,), False
        yield f"{block}.{norm}_bias", (width,), False
        for layer in layers.split():
            side = sides.get(layer, (width, width))
            yield f"{block}.{layer}", side, True
            yield f"{block}.{layer}_bias", side[1:], False


def apply_linear(params: Mapping[str, Any], name: str, x: Tensor) -> Tensor:
    """Compute x W + b of the layer with the parameters `name` and, if it has one, `name_bias`."""
    z, bias = apply(params[name], x), params.get(f"{name}_bias")
    return z if bias is None else add_bias(z, bias)


def normalise(params: Mapping[str, Any], name: str, x: Tensor) -> Tensor:
    """Normalise states [n or 1, M, width], with the scale `name` and the shift `name_bias`."""
    scale, shift = params[name], params[f"{name}_bias"]
    if len(scale) == len(shift) == 1:
        return functional.layer_norm(x, x.shape[-1:], scale[0], shift[0])
    unit = functional.layer_norm(x, x.shape[-1:])
    return torch.addcmul(shift[:, None], unit, scale[:, None])


def attend(q: Tensor, k: Tensor, v: Tensor, positions: int, heads: int, causal: bool) -> Tensor:
    r"""Compute the attention of several heads.

    Parameters
    ----------
    q, k, v : Tensor [n or 1, B T, width]
        Queries, keys and values.
    positions : int
        Number of positions T of a sample.
    heads : int
        Number of heads, which share the width.
    causal : bool
        Whether a position attends only to itself and those before it.

    Returns
    -------
    Tensor [n or 1, B T, width]
        The values' mixtures.

    Notes
    -----
    In each head of width d,

    .. math:: \mathrm{softmax}(q k^T / \sqrt{d}) v
    """
    rows, total = max(len(q), len(k), len(v)), q.shape[1]
    q, k, v = (
        one.expand(rows, -1, -1)
        .reshape(-1, positions, heads, one.shape[2] // heads)
        .transpose(1, 2)
        for one in (q, k, v)
    )
    mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return mixed.transpose(1, 2).reshape(rows, total, -1)
