"""Losses agree with autograd, with torch's own and with sums worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from otafl.core import registry
from otafl.core.contracts import Batch
from otafl.losses.base import Loss
from otafl.losses.cross_entropy import CrossEntropy, NextToken
from otafl.losses.squared import Squared

ROWS, BATCH, LENGTH, OUTPUTS = 3, 4, 5, 6


def draw(loss: Loss, labels: str) -> tuple[Tensor, Tensor]:
    """Scores and labels of a kind."""
    generator = torch.Generator().manual_seed(1)
    inner = (LENGTH,) if loss.scores_positions else ()
    scores = torch.randn(ROWS, BATCH, *inner, OUTPUTS, dtype=torch.float64, generator=generator)
    if labels == "values":
        return scores, torch.randn(scores.shape, dtype=scores.dtype, generator=generator)
    return scores, torch.randint(OUTPUTS, (ROWS, BATCH, *inner), generator=generator)


CASES = [
    (registry.load_component("loss", name)(), labels)
    for name in registry.list_names("loss")
    for labels in registry.load_component("loss", name).labels
]


@pytest.mark.exact
@pytest.mark.parametrize(("loss", "labels"), CASES)
def test_the_gradient_is_that_of_the_mean_loss(loss: Loss, labels: str) -> None:
    scores, y = draw(loss, labels)
    for weight in (None, torch.tensor([[0.5, 0.3, 0.2, 0.0]]).double().expand(ROWS, -1)):
        leaf = scores.clone().requires_grad_()
        mean = loss.compute_mean(leaf, Batch(leaf, y, weight))
        (expected,) = torch.autograd.grad(mean.sum(), leaf)
        value, gradient = loss.compute_gradient_(scores.clone(), Batch(scores, y, weight))
        torch.testing.assert_close(value, mean.detach())
        torch.testing.assert_close(gradient, expected)


@pytest.mark.exact
@pytest.mark.parametrize(("loss", "labels"), CASES)
def test_the_mean_is_over_samples_and_the_test_has_the_same_losses(loss: Loss, labels: str) -> None:
    scores, y = draw(loss, labels)
    each = loss.compute_losses(scores, y)
    assert each.shape == (ROWS, BATCH)
    torch.testing.assert_close(loss.compute_test_losses(scores, y), each)
    torch.testing.assert_close(loss.compute_mean(scores, Batch(scores, y, None)), each.mean(1))
    share = torch.tensor([[0.1, 0.2, 0.3, 0.4]]).double().expand(ROWS, -1)
    weighted = loss.compute_mean(scores, Batch(scores, y, share))
    torch.testing.assert_close(weighted, (each * share).sum(1))


@pytest.mark.exact
def test_losses_as_torch_has_them() -> None:
    scores, y = draw(CrossEntropy(), "classes")
    theirs = functional.cross_entropy(scores.flatten(0, 1), y.flatten(), reduction="none")
    torch.testing.assert_close(CrossEntropy().compute_losses(scores, y).flatten(), theirs)
    scores, y = draw(Squared(), "values")
    theirs = functional.mse_loss(scores, y, reduction="none").sum(-1) / 2
    torch.testing.assert_close(Squared().compute_losses(scores, y), theirs)
    scores, y = draw(NextToken(), "tokens")
    theirs = functional.cross_entropy(scores.flatten(0, 2), y.flatten(), reduction="none")
    torch.testing.assert_close(
        NextToken().compute_losses(scores, y).flatten(), theirs.view(-1, LENGTH).mean(1)
    )


@pytest.mark.exact
def test_classes_are_one_hot_under_the_squared_loss() -> None:
    scores, y = draw(Squared(), "classes")
    one_hot = functional.one_hot(y, OUTPUTS).double()
    torch.testing.assert_close(
        Squared().compute_losses(scores, y), Squared().compute_losses(scores, one_hot)
    )
    right = Squared().find_right(scores, y)
    assert right is not None
    assert torch.equal(right, scores.argmax(-1) == y)
    assert Squared().find_right(scores, one_hot) is None


@pytest.mark.exact
@pytest.mark.parametrize(("loss", "labels"), CASES)
def test_a_mixture_of_equal_models_is_the_model(loss: Loss, labels: str) -> None:
    scores, y = draw(loss, labels)
    log_pi = torch.tensor([0.3, 0.7]).double().log()[:, None, None]
    log_pi = log_pi[(..., *[None] * (scores.dim() - 2))].expand(2, ROWS, *[1] * (scores.dim() - 1))
    mixed = loss.mix_scores(torch.stack([scores, scores]), log_pi)
    torch.testing.assert_close(loss.compute_losses(mixed, y), loss.compute_losses(scores, y))


@pytest.mark.exact
def test_the_likelihood_of_a_sequence_is_the_product_over_its_positions() -> None:
    scores, y = draw(NextToken(), "tokens")
    expected = torch.log_softmax(scores, -1).gather(-1, y[..., None]).sum((2, 3))
    torch.testing.assert_close(NextToken().compute_log_likelihood(scores, y), expected)


@pytest.mark.exact
def test_metrics_follow_from_the_loss() -> None:
    found = Squared().derive_metrics(np.array([1.5, 3.0]), 3, np.array([4.0, 2.0]))
    assert found["mse"].tolist() == [1.0, 2.0]
    assert found["r2"].tolist() == [0.75, 0.0]
    assert set(Squared().derive_metrics(np.array([1.5]), 3, np.zeros(1))) == {"mse"}
    perplexity = NextToken().derive_metrics(np.array([math.log(8)]), 8, np.zeros(1))
    np.testing.assert_allclose(perplexity["perplexity"], 8.0)
    assert CrossEntropy().derive_metrics(np.array([1.0]), 3, np.zeros(1)) == {}
