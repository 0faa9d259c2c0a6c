"""Losses by hand, against finite differences, and under masks, splits and padding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from didpo.batch import Row, Totals, make_batch, micro_batches
from didpo.errors import UserError
from didpo.losses import (
    POLICY_LOSSES,
    LossSettings,
    aggregate,
    batch_loss,
    combine_metrics,
    importance_weights,
    kl_estimate,
)

AGGREGATIONS = ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"]


def settings_for(**given: Any) -> LossSettings:
    if given.get("aggregation") == "seq-mean-token-sum-norm":
        given.setdefault("norm_length", 5.0)
    return LossSettings(**given)


def ragged(seed: int, n_rows: int = 5, spread: float = 0.3) -> list[Row]:
    """Random rows of different lengths, some tokens masked, the last row dropped."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n_rows):
        t = int(rng.integers(1, 7))
        old = -rng.random(t) - 0.1
        rows.append(
            Row(
                prompt_ids=[1] * int(rng.integers(1, 5)),
                response_ids=list(range(t)),
                advantages=rng.normal(size=t),
                response_mask=np.zeros(t, dtype=bool) if i == n_rows - 1 else rng.random(t) < 0.8,
                old_logprobs=old,
                ref_logprobs=old + rng.normal(size=t) * spread,
                rollout_logprobs=old + rng.normal(size=t) * 0.05,
            )
        )
    rows[0].response_mask = np.ones(len(rows[0].response_ids), dtype=bool)
    return rows


def new_logprobs(rows: list[Row], seed: int, spread: float = 0.3) -> list[torch.Tensor]:
    rng = np.random.default_rng(seed + 1000)
    return [
        torch.tensor(np.asarray(r.old_logprobs) + rng.normal(size=len(r.response_ids)) * spread, requires_grad=True)
        for r in rows
    ]


def padded(values: list[torch.Tensor], index: list[int], width: int) -> torch.Tensor:
    return torch.stack([torch.nn.functional.pad(values[i], (0, width - len(values[i]))) for i in index])


def update(rows: list[Row], values: list[torch.Tensor], s: LossSettings, budget: int) -> tuple[float, list[np.ndarray]]:
    """Loss and gradients of an update made of micro-batches of `budget` tokens."""
    total = 0.0
    for batch in micro_batches(rows, token_budget=budget):
        logprobs = padded(values, batch.rows, batch.response_ids.shape[1])
        result = batch_loss(logprobs, batch, s, entropy=-logprobs)
        result.loss.backward()
        total += float(result.loss.detach())
    grads = [np.zeros(len(v)) if v.grad is None else v.grad.numpy().copy() for v in values]
    for v in values:
        v.grad = None
    return total, grads


# ---------------------------------------------------------------- by hand

OLD = torch.log(torch.tensor([[0.5, 0.5, 0.5, 0.5]]))
NEW = torch.log(torch.tensor([[0.75, 0.75, 0.25, 0.25]]))  # ratios 1.5, 1.5, 0.5, 0.5
ADV = torch.tensor([[1.0, -1.0, 1.0, -1.0]])
ON = torch.ones(1, 4, dtype=torch.bool)


def per_token(name: str, **given: Any) -> list[float]:
    loss, _ = POLICY_LOSSES[name](NEW, OLD, ADV, ON, LossSettings(policy=name, **given))
    return loss[0].tolist()


def test_ppo_clip_by_hand() -> None:
    assert per_token("ppo_clip") == pytest.approx([-1.2, 1.5, -0.5, 0.8])
    assert per_token("ppo_clip", clip_low=0.2, clip_high=0.28) == pytest.approx([-1.28, 1.5, -0.5, 0.8])
    assert per_token("ppo_clip", dual_clip=1.25) == pytest.approx([-1.2, 1.25, -0.5, 0.8])
    _, metrics = POLICY_LOSSES["ppo_clip"](NEW, OLD, ADV, ON, LossSettings())
    assert metrics["clip_fraction"].tolist() == [[True, False, False, True]]
    assert metrics["ratio"][0].tolist() == pytest.approx([1.5, 1.5, 0.5, 0.5])
    assert metrics["old_kl"][0, 0].item() == pytest.approx(0.5 - math.log(1.5), abs=1e-6)


def test_gspo_by_hand() -> None:
    """The row's ratio is the geometric mean: (1.5^2 * 0.5^2)^(1/4) = 0.75^(1/2)."""
    ratio = 0.75**0.5
    for name in ("gspo", "gspo_sequence"):
        assert per_token(name, clip_low=0.2) == pytest.approx([-ratio, ratio, -ratio, ratio])
        assert per_token(name, clip_low=0.1) == pytest.approx([-ratio, 0.9, -ratio, 0.9])


def test_cispo_by_hand() -> None:
    want = [-1.2 * math.log(0.75), 1.2 * math.log(0.75), -0.8 * math.log(0.25), 0.8 * math.log(0.25)]
    assert per_token("cispo") == pytest.approx(want)


def test_sapo_by_hand() -> None:
    def gate(ratio: float, tau: float) -> float:
        return 4 / tau / (1 + math.exp(-tau * (ratio - 1)))

    want = [-gate(1.5, 1.0), gate(1.5, 1.05), -gate(0.5, 1.0), gate(0.5, 1.05)]
    assert per_token("sapo") == pytest.approx(want, rel=1e-5)


def test_sapo_starts_with_the_gradient_of_the_policy_gradient() -> None:
    """At ratio 1 the gate's slope is 1 for every tau."""
    x = OLD.clone().requires_grad_()
    POLICY_LOSSES["sapo"](x, OLD, ADV, ON, LossSettings(policy="sapo"))[0].sum().backward()
    assert x.grad is not None
    assert x.grad[0].tolist() == pytest.approx((-ADV[0]).tolist())


def test_reinforce_by_hand() -> None:
    assert per_token("reinforce") == pytest.approx((-ADV * NEW)[0].tolist())


def test_kl_estimators_by_hand() -> None:
    logp, ref = torch.tensor([math.log(0.5)]), torch.tensor([math.log(0.25)])
    d = math.log(2)
    assert kl_estimate(logp, ref, "k1").item() == pytest.approx(d)
    assert kl_estimate(logp, ref, "k2").item() == pytest.approx(d * d / 2)
    assert kl_estimate(logp, ref, "k3").item() == pytest.approx(0.5 - 1 + d)


def test_importance_weights_by_hand() -> None:
    old, rollout = torch.log(torch.tensor([0.5, 0.5])), torch.log(torch.tensor([0.1, 1.0]))
    assert importance_weights(old, rollout, 2.0).tolist() == pytest.approx([2.0, 0.5])


def test_aggregations_by_hand() -> None:
    losses = torch.tensor([[4.0, 9.0, 9.0], [1.0, 1.0, 1.0], [7.0, 7.0, 7.0]])
    mask = torch.tensor([[True, False, False], [True, True, True], [False, False, False]])
    totals = Totals(tokens=4, rows=2)
    assert aggregate(losses, mask, "token-mean", totals).item() == 1.75
    assert aggregate(losses, mask, "seq-mean-token-mean", totals).item() == 2.5
    assert aggregate(losses, mask, "seq-mean-token-sum", totals).item() == 3.5
    assert aggregate(losses, mask, "seq-mean-token-sum-norm", totals, norm_length=5).item() == pytest.approx(0.7)


# ---------------------------------------------------------------- micro-batches (token mean must not depend on them)


def token_losses(rows: list[Row], budget: int) -> float:
    """reinforce with log-prob -1 everywhere: the loss of a token is its advantage."""
    total = 0.0
    for batch in micro_batches(rows, token_budget=budget):
        logprobs = torch.full(batch.response_mask.shape, -1.0)
        total += float(batch_loss(logprobs, batch, LossSettings(policy="reinforce")).loss)
    return total


def test_token_mean_is_global() -> None:
    a = Row(prompt_ids=[1], response_ids=[5], advantages=[4.0])
    b = Row(prompt_ids=[1], response_ids=[5, 6, 7], advantages=[1.0, 1.0, 1.0])
    assert token_losses([a, b], 100) == 1.75
    assert token_losses([a, b], 1) == 1.75
    b.response_mask = [False] * 3
    assert token_losses([a, b], 100) == 4.0
    a.response_mask = [False]
    assert token_losses([a, b], 100) == 0.0


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("policy", sorted(POLICY_LOSSES))
@given(seed=st.integers(0, 10_000))
@settings(max_examples=8, deadline=None)
def test_the_split_changes_neither_loss_nor_gradient(policy: str, aggregation: str, seed: int) -> None:
    rows = ragged(seed)
    values = new_logprobs(rows, seed)
    s = settings_for(policy=policy, aggregation=aggregation, kl_coef=0.1, entropy_coef=0.01, rollout_cap=2.0)
    whole, grads = update(rows, values, s, 10_000)
    for budget in (1, 12):
        loss, again = update(rows, values, s, budget)
        assert loss == pytest.approx(whole, abs=1e-6)
        for x, y in zip(grads, again, strict=True):
            np.testing.assert_allclose(x, y, atol=1e-7)


@pytest.mark.parametrize("policy", sorted(POLICY_LOSSES))
@pytest.mark.parametrize("trash", [math.inf, -math.inf, math.nan, 1e30])
def test_masked_places_change_nothing(policy: str, trash: float) -> None:
    rows = ragged(3)
    values = new_logprobs(rows, 3)
    s = settings_for(policy=policy, kl_coef=0.1, entropy_coef=0.01, rollout_cap=2.0)
    clean_loss, clean_grads = update(rows, values, s, 10_000)
    dirty = [v.detach().clone() for v in values]
    for row, value in zip(rows, dirty, strict=True):
        off = ~np.asarray(row.response_mask, dtype=bool)
        value[torch.from_numpy(off)] = trash
        for name in ("advantages", "old_logprobs", "ref_logprobs", "rollout_logprobs"):
            array = np.array(getattr(row, name))
            array[off] = trash
            setattr(row, name, array)
    loss, grads = update(rows, [v.requires_grad_() for v in dirty], s, 10_000)
    assert loss == clean_loss
    for x, y in zip(clean_grads, grads, strict=True):
        np.testing.assert_array_equal(x, y)


# ---------------------------------------------------------------- gradients

FROZEN = {"gspo", "cispo"}  # parts of these are held constant in the gradient


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("policy", sorted(set(POLICY_LOSSES) - FROZEN))
def test_gradient_equals_finite_differences(policy: str, aggregation: str) -> None:
    rows = ragged(11)
    values = new_logprobs(rows, 11)
    for kl in ("k1", "k2", "k3"):
        s = settings_for(policy=policy, aggregation=aggregation, kl_coef=0.3, kl_estimator=kl, dual_clip=3.0)
        _, grads = update(rows, values, s, 10_000)
        step = 1e-4
        for row, value in enumerate(values):
            for t in range(len(value)):
                sides = []
                for sign in (1, -1):
                    moved = [v.detach().clone() for v in values]
                    moved[row][t] += sign * step
                    sides.append(update(rows, [m.requires_grad_() for m in moved], s, 10_000)[0])
                assert grads[row][t] == pytest.approx((sides[0] - sides[1]) / (2 * step), abs=2e-4)


def gradient(name: str, advantages: torch.Tensor, logprobs: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    x = logprobs.double().requires_grad_()
    mask = torch.ones_like(old, dtype=torch.bool)
    s = LossSettings(policy=name, clip_low=0.4, clip_high=0.4)
    loss, _ = POLICY_LOSSES[name](x, old.double(), advantages.double(), mask, s)
    aggregate(loss, mask, "seq-mean-token-mean", Totals(tokens=4, rows=1)).backward()
    assert x.grad is not None
    return x.grad


def test_cispo_gradient_is_the_clipped_ratio_times_the_advantage() -> None:
    want = -torch.tensor([[1.4, 1.4, 0.6, 0.6]]) * ADV / 4
    torch.testing.assert_close(gradient("cispo", ADV, NEW, OLD).float(), want)


def test_gspo_keeps_token_credit_apart_and_the_sequence_form_smears_it() -> None:
    ratio = 0.75**0.5
    token = gradient("gspo", ADV, NEW, OLD)
    torch.testing.assert_close(token.float(), -ratio * ADV / 4)
    smeared = gradient("gspo_sequence", ADV, NEW, OLD)
    torch.testing.assert_close(smeared, torch.full_like(smeared, float(smeared[0, 0])))
    torch.testing.assert_close(smeared.sum(), token.sum())
    same = torch.full_like(ADV, 0.7)
    torch.testing.assert_close(gradient("gspo", same, NEW, OLD), gradient("gspo_sequence", same, NEW, OLD))


def test_zero_advantages_give_exactly_zero() -> None:
    rows = ragged(5)
    for row in rows:
        row.advantages = np.zeros(len(row.response_ids))
    values = new_logprobs(rows, 5)
    for policy in POLICY_LOSSES:
        loss, grads = update(rows, values, LossSettings(policy=policy), 10_000)
        assert loss == 0.0
        assert all((g == 0).all() for g in grads)


# ---------------------------------------------------------------- the whole loss


def test_first_update_has_ratio_one_and_the_policy_gradient() -> None:
    rows = [Row(prompt_ids=[1], response_ids=[1, 2], advantages=[1.0, -2.0])]
    batch = make_batch(rows)
    logprobs = torch.tensor([[-0.5, -0.7]], requires_grad=True)
    result = batch_loss(logprobs, batch, LossSettings())
    result.loss.backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [[-0.5, 1.0]]
    assert result.metrics["ratio"] == 1.0 and result.metrics["ratio_gap_max"] == 0.0


def test_metrics_of_micro_batches_combine() -> None:
    rows = ragged(8)
    values = new_logprobs(rows, 8)

    def metrics(budget: int) -> dict[str, float]:
        parts = []
        for batch in micro_batches(rows, token_budget=budget):
            logprobs = padded(values, batch.rows, batch.response_ids.shape[1])
            parts.append(batch_loss(logprobs, batch, LossSettings(), entropy=-logprobs).metrics)
        return combine_metrics(parts)

    whole, apart = metrics(10_000), metrics(1)
    assert set(whole) >= {"loss", "policy_loss", "ratio", "clip_fraction", "old_kl", "entropy", "ref_kl", "ratio_max"}
    assert apart == pytest.approx(whole, abs=1e-6)


def test_mistakes_get_one_line() -> None:
    with pytest.raises(UserError, match="did you mean 'ppo_clip'"):
        LossSettings(policy="ppo_clp")
    with pytest.raises(UserError, match="norm_length"):
        LossSettings(aggregation="seq-mean-token-sum-norm")
    with pytest.raises(UserError, match="reference model"):
        batch = make_batch([Row(prompt_ids=[1], response_ids=[1], advantages=[1.0])])
        batch_loss(torch.zeros(1, 1), batch, LossSettings(kl_coef=0.1))
