"""Transformer: pre-norm blocks of attention with learned positions, of image patches or tokens.

Patches of an image (a vision transformer, ViT), tokens or vectors of a sequence become states of
one width. Blocks of attention and a perceptron change them. A linear layer scores the class token,
the last position or the mean of all positions; of sequences with next tokens it scores every
position. Weights start uniform with variance 1 / fan_in, the last layer's in +-1/sqrt(fan_in),
positions with standard deviation 0.02, biases at 0. Dropout, if any, is that of Vaswani et al.,
section 5.4: of the sums of states and positions, and of what attention and perceptron add.

References
----------
Vaswani et al. 2017, "Attention Is All You Need".
Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words: Transformers for Image Recognition at
    Scale".
Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from otafl.core.contracts import Batch, Tensors
from otafl.core.errors import UserError
from otafl.models.attention import apply_linear, list_block_params, normalise, run_block
from otafl.models.base import LOSS, NORMALISING, Draw, Model, ModelSettings
from otafl.models.dropout import draw_dropout
from otafl.models.geometry import find_image_shape, find_sequence_shape, require_tokens

GELU = 8
"""Operations of a GELU per number, the mean of 5 forward and 11 backward."""

POSITION_SCALE = 0.02
"""Standard deviation of the start of positions and class token, as in ViT."""

Pooling = Literal["class_token", "mean", "last"]


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
        """samples: images, cut into patches; sequences of tokens; or sequences of vectors"""
        patch: int = Field(7, ge=1)
        """side of a patch of an image, in pixels"""
        vocabulary: int | None = Field(None, ge=2)
        """number of tokens of sequences with one label each; if not given, labels are the next
        tokens, and every position is scored"""
        depth: int = Field(4, ge=1)
        """number of blocks"""
        width: int = Field(64, ge=1)
        """numbers of a position's state"""
        heads: int = Field(4, ge=1)
        """attention heads, which share the width"""
        mlp_ratio: float = Field(2.0, gt=0)
        """width of the layer inside a block's perceptron, in widths of the state"""
        causal: bool | None = None
        """whether a position attends only to itself and those before it; if not given, true where
        every position is scored and false otherwise"""
        pooling: Pooling | None = None
        """state that is scored: of a class token before all positions, of the last position, or the
        mean of all; if not given, the last one of a causal model and a class token otherwise"""
        dropout: float = Field(0.0, ge=0, lt=1)
        """probability with which a training step sets a number of the first states, or of what an
        attention or a perceptron adds, to 0; no dropout if 0"""

        @property
        def scores_positions(self) -> bool:
            """Whether every position of a sequence of tokens is scored."""
            return self.input == "tokens" and self.vocabulary is None

        @property
        def is_causal(self) -> bool:
            """Whether a position attends only to itself and those before it."""
            return self.scores_positions if self.causal is None else self.causal

        @property
        def pools(self) -> Pooling | None:
            """The state that is scored; None where every position is."""
            if self.scores_positions or self.pooling is not None:
                return self.pooling
            return "last" if self.is_causal else "class_token"

        def find_conflicts(self) -> Iterable[str]:
            if self.width % self.heads:
                yield f"width: got {self.width}; must be a multiple of heads, {self.heads}"
            if self.input != "tokens" and self.vocabulary is not None:
                yield f"vocabulary: only for input: tokens, and input is {self.input}; leave it out"
            if self.input != "images" and not self.is_default("patch"):
                yield f"patch: only for input: images, and input is {self.input}; leave it out"
            if self.scores_positions and self.causal is False:
                yield "causal: got false, but a position would see its next token; leave it out"
            if self.scores_positions and self.pooling is not None:
                yield (
                    f"pooling: got {self.pooling}, but every position is scored; leave it out, or "
                    "give vocabulary for one label a sequence"
                )
            if self.is_causal and self.pooling == "class_token":
                yield "pooling: a causal class token sees no position; use last or mean"

    def __init__(self, settings: Settings, input_shape: tuple[int, ...], classes: int) -> None:
        self.settings, self.scores_positions = settings, settings.scores_positions
        self.inner = max(1, round(settings.mlp_ratio * settings.width))
        self.image = self.sequence = (0, 0, 0)
        self.uses_dropout = settings.dropout > 0
        first = self._declare_input(input_shape, classes)
        width, weights = settings.width, {}
        if settings.pools == "class_token":
            self.shapes["class_token"] = (width,)
        self.num_positions = self.length + (settings.pools == "class_token")
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
            self.shapes = {"embedding": (own.vocabulary or classes, own.width)}
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
        pairs = t * (t + 1) // 2 if own.is_causal else t * t
        linear = t * (4 * own.width**2 + 2 * own.width * self.inner)
        self.macs = self.first_macs + own.depth * (linear + 2 * pairs * own.width)
        self.macs += scored * own.width * classes
        # Of a block: two norms, biases, two sums, GELU; of a head a scale and a softmax.
        states = (2 * NORMALISING + 5 + 2) * own.width + (1 + GELU) * self.inner
        self.elementwise = own.depth * (t * states + LOSS * pairs * own.heads + pairs * own.heads)
        self.elementwise += (len(first) * self.length + t) * own.width
        normalised = t if own.pools == "mean" else scored
        self.elementwise += NORMALISING * normalised * own.width + (1 + LOSS) * scored * classes
        self.elementwise += t * own.width if own.pools == "mean" else 0
        self.elementwise += (1 + 2 * own.depth) * t * own.width if self.uses_dropout else 0
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
        return self._run(params, x, None)

    def score_batch(self, params: Mapping[str, Any], batch: Batch) -> Tensor:
        return self._run(params, batch.x, batch.keys if self.uses_dropout else None)

    def _run(self, params: Mapping[str, Any], x: Tensor, keys: Tensor | None) -> Tensor:
        """Compute the scores of samples x [n or 1, B, *input], with dropout if there are keys."""
        samples, own = x.shape[1], self.settings
        drop = _Dropout(keys, own.dropout)
        x = self._embed(params, x)  # [n or 1, B, length, width]
        if own.pools == "class_token":
            token = params["class_token"]
            rows = max(len(token), len(x))
            token = token[:, None, None].expand(rows, samples, 1, -1)
            x = torch.cat([token, x.expand(rows, -1, -1, -1)], 2)
        x = drop((x + params["positions"][:, None]).flatten(1, 2))
        for block in self._blocks:
            x = run_block(params, block, x, self.num_positions, own.heads, own.is_causal, drop)
        if own.pools in ("class_token", "last"):
            x = x.unflatten(1, (samples, -1))[:, :, 0 if own.pools == "class_token" else -1]
        x = normalise(params, "norm", x)
        if own.pools == "mean":
            x = x.unflatten(1, (samples, -1)).mean(2)
        scores = apply_linear(params, "head", x)
        return scores.unflatten(1, (samples, -1)) if own.scores_positions else scores

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

    def describe(self) -> dict[str, Any] | None:
        own = self.settings
        return {
            "kind": "transformer",
            "input": own.input,
            "image": list(self.image),
            "patch": own.patch,
            "depth": own.depth,
            "heads": own.heads,
            "causal": own.is_causal,
            "pooling": own.pools,
        }


class _Dropout:
    """Dropout of states [n or 1, M, width] in one forward pass; none without keys [n]."""

    def __init__(self, keys: Tensor | None, share: float) -> None:
        self._keys, self._share, self._layers = keys, share, 0

    def __call__(self, x: Tensor) -> Tensor:
        if self._keys is None:
            return x
        self._layers += 1
        return x * draw_dropout(self._keys, self._layers, tuple(x.shape[1:]), self._share, x.dtype)


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
