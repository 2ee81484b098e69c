"""A policy of the user's own, and what is said of a wrong one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from support.power_links import make_link, perturb, solve
from support.refusals import assert_refused

from otafl.core.contracts import Coefficients, Link
from otafl.power.custom import CustomPolicy

pytestmark = pytest.mark.exact

MODULE = '''
import torch

def share(link, part=1.0, factor=1.0):
    """A part of full power, and the noise-free scaling of the first device."""
    bound = (link.budget[:, None] / link.symbol_power).sqrt() * part**0.5
    p = factor * bound * torch.conj(torch.sgn(link.h))
    return p, (p * link.h).real.square().mean(-1)

def amplitudes(link):
    return (link.budget[:, None] / link.symbol_power).sqrt(), torch.ones(link.h.shape[:2])

def long_term(link):
    return 2.0 * amplitudes(link)[0], amplitudes(link)[1]

long_term.constraint = "average"

def uses_variation(link):
    return amplitudes(link)[0] * link.variation[..., None].clamp_max(1.0), amplitudes(link)[1]

uses_variation.needs_variation = True

def odd(link): return amplitudes(link)
odd.constraint = "sometimes"

def one_tensor(link): return link.h
def swapped(link): return amplitudes(link)[::-1]
def not_a_number(link): return amplitudes(link)[0] * float("nan"), amplitudes(link)[1]
def nothing_received(link): return amplitudes(link)[0], 0.0 * amplitudes(link)[1]
'''


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_policies.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)


def own(function: str, **options: object) -> CustomPolicy:
    return CustomPolicy(CustomPolicy.Settings(name=f"my_own_policies:{function}", **options))


def run(function: str, link: Link | None = None, **options: object) -> Coefficients:
    return solve(own(function, **options), make_link(1) if link is None else link)


def test_it_is_called_with_the_link_and_its_options() -> None:
    link = make_link(1)
    got = run("share", link, part=0.25)
    used = got.p.abs().square() * link.symbol_power / link.budget[:, None]
    there = link.transmit_mask[:, None].expand_as(used)
    torch.testing.assert_close(used, 0.25 * there.double())
    assert torch.equal(got.active_mask, there)
    assert own("share").power_constraint == "peak"
    assert own("share").may_be_silent
    assert not own("share").needs_variation
    assert got.eta.shape == link.h.shape[:2]


def test_attributes_of_the_function() -> None:
    got = run("long_term")  # four times the budget
    assert own("long_term").power_constraint == "average"
    assert got.p.abs().max() > 0
    link = perturb(make_link(1), variation=torch.tensor([[0.5, 2.0]]).expand(3, 2))
    policy = own("uses_variation")
    assert policy.needs_variation
    used = solve(policy, link).p.abs().square() * link.symbol_power / link.budget[:, None]
    assert used[:, 0].max() == pytest.approx(0.25)
    assert used[:, 1].max() == pytest.approx(1.0)


def test_what_is_wrong_is_said() -> None:
    cases = [
        ("share", {"factor": 1.1}, "at trial 0, segment 0, device 0 of the stack, a power |p|^2 m"
         " of 1.21 times the budget; scale p by (link.budget[:, None] / link.symbol_power).sqrt()"),
        ("one_tensor", {}, "returned a Tensor; expected the tensors (p, eta) of shapes (3, 2, 6) "
         "and (3, 2)"),
        ("swapped", {}, "returned tensors of shapes (3, 2), (3, 2, 6); expected the tensors"),
        ("not_a_number", {}, "at trial 0, segment 0, device 0 of the stack, a p that is not fini"),
        ("nothing_received", {}, "at trial 0, segment 0 of the stack, an eta that is not a posit"),
        ("odd", {}, "'my_own_policies:odd' has the attribute constraint = 'sometimes'; expected "),
        ("share", {"factr": 1}, "power.factr: unknown key of 'my_own_policies:share'; did"),
        ("absent", {}, "'absent' does not exist in module 'my_own_policies'"),
    ]  # fmt: skip
    assert_refused(run, [({"function": f, **keys}, re.escape(said)) for f, keys, said in cases])
