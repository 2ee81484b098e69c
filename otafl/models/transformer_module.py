"""A trained transformer as an ordinary `torch.nn.Module`."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from otafl.models.base import Model
from otafl.models.layer_contract import Part, make_sequence


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
