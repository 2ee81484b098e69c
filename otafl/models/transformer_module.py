"""A trained transformer as an ordinary `torch.nn.Module`."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional


class TransformerModule(nn.Module):
    """Module of samples [batch, *input] that gives scores [batch, classes] as `Transformer` does.

    Scores of next tokens are [batch, length, classes].

    Parameters
    ----------
    params : mapping of str to Tensor
        Parameters of one model, which are copied.
    input : {"images", "tokens", "vectors"}
        Kind of the samples.
    image : tuple of int
        Channels, height and width of images.
    patch : int
        Side of a patch.
    heads : int
        Number of attention heads.
    """

    def __init__(
        self,
        params: Mapping[str, Tensor],
        input: str,
        image: tuple[int, int, int],
        patch: int,
        heads: int,
    ) -> None:
        super().__init__()
        self.input, self.image, self.patch = input, image, patch
        if self.input == "tokens":
            self.embedding: nn.Module = nn.Embedding.from_pretrained(params["embedding"], False)
        else:
            name = "patch" if self.input == "images" else "input"
            self.embedding = _make_linear(params, name)
        self.positions = nn.Parameter(params["positions"].clone())
        if "class_token" in params:
            self.class_token = nn.Parameter(params["class_token"].clone())
        depth = sum(name.endswith(".up") for name in params)
        names = (f"block{index}" for index in range(depth))
        blocks = (Block(params, name, heads, input == "tokens") for name in names)
        self.blocks = nn.Sequential(*blocks)
        self.norm, self.head = _make_norm(params, "norm"), _make_linear(params, "head")

    def forward(self, x: Tensor) -> Tensor:
        states = self.embedding(self._cut(x))
        if self.input != "tokens":
            token = self.class_token.expand(states.shape[0], 1, -1)
            states = torch.cat([token, states], 1)
        states = self.blocks(states + self.positions)
        if self.input != "tokens":
            states = states[:, 0]
        scores: Tensor = self.head(self.norm(states))
        return scores

    def _cut(self, x: Tensor) -> Tensor:
        """Return the tokens, vectors or patches of samples, [batch, length, features]."""
        if self.input == "tokens":
            return x.long()
        if self.input == "vectors":
            return x if x.dim() == 3 else x[..., None]
        channels, height, width = self.image
        p = self.patch
        x = x.reshape(-1, channels, height // p, p, width // p, p)
        return x.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


class Block(nn.Module):
    """Pre-norm block of attention and a perceptron, as `transformer.run_block`.

    Parameters
    ----------
    params : mapping of str to Tensor
        Parameters of the model.
    name : str
        Name of the block.
    heads : int
        Number of attention heads.
    causal : bool
        Whether a position attends only to itself and those before it.
    """

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    output: nn.Linear
    up: nn.Linear
    down: nn.Linear

    def __init__(self, params: Mapping[str, Tensor], name: str, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = (_make_norm(params, f"{name}.{n}") for n in ("norm1", "norm2"))
        for layer in ("query", "key", "value", "output", "up", "down"):
            setattr(self, layer, _make_linear(params, f"{name}.{layer}"))

    def forward(self, x: Tensor) -> Tensor:
        z = self.norm1(x)
        q, k, v = (
            layer(z).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.output(mixed.transpose(1, 2).flatten(2))
        out: Tensor = x + self.down(functional.gelu(self.up(self.norm2(x))))
        return out


def _make_linear(params: Mapping[str, Tensor], name: str) -> nn.Linear:
    """Make the layer with a weight [inputs, outputs]."""
    weight, bias = params[name], params[f"{name}_bias"]
    inputs, outputs = weight.shape
    layer = nn.Linear(inputs, outputs, device="meta")
    layer.weight = nn.Parameter(weight.mT.contiguous())
    layer.bias = nn.Parameter(bias.clone())
    return layer


def _make_norm(params: Mapping[str, Tensor], name: str) -> nn.LayerNorm:
    """Make the normalisation of this name."""
    scale = params[name]
    layer = nn.LayerNorm(len(scale), dtype=scale.dtype)
    layer.load_state_dict({"weight": scale, "bias": params[f"{name}_bias"]})
    return layer
