"""Policy losses, aggregations, KL estimators: pure functions on [B, T] tensors.

A policy loss gives a loss per token; `aggregate` sums it into a scalar whose denominators are counts over the whole
update (`Totals`), so that the sum over micro-batches does not depend on how the rows were split. Whatever stands at
masked places, inf and NaN included, changes neither a loss nor a gradient: it is replaced before any arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from didpo.batch import Batch, Totals
from didpo.errors import UserError, unknown_name

Aggregation = Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"]
KLEstimator = Literal["k1", "k2", "k3"]

MAX_LOG_RATIO = 20.0  # exp of more than this is no weight any update survives; it also keeps gradients finite


@dataclass(frozen=True, kw_only=True)
class LossSettings:
    """What an update minimises. `clip_low`, `clip_high` bound the ratio to [1 - clip_low, 1 + clip_high]."""

    policy: str = "ppo_clip"  # a key of POLICY_LOSSES
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None  # ppo_clip: bound of the loss at negative advantages, in ratios (3 where used)
    tau_pos: float = 1.0  # sapo
    tau_neg: float = 1.05  # sapo
    aggregation: Aggregation = "token-mean"
    norm_length: float | None = None  # seq-mean-token-sum-norm: the constant that divides each row's sum
    kl_coef: float = 0.0
    kl_estimator: KLEstimator = "k3"
    entropy_coef: float = 0.0
    rollout_cap: float | None = None  # truncated importance weight min(old / rollout, cap) on each token's loss

    def __post_init__(self) -> None:
        if self.policy not in POLICY_LOSSES:
            raise unknown_name("policy loss", self.policy, POLICY_LOSSES)
        if self.aggregation not in _AGGREGATIONS:
            raise unknown_name("aggregation", self.aggregation, _AGGREGATIONS)
        if self.kl_estimator not in _KL:
            raise unknown_name("KL estimator", self.kl_estimator, _KL)
        if self.aggregation == "seq-mean-token-sum-norm" and not self.norm_length:
            raise UserError("seq-mean-token-sum-norm needs norm_length, a constant such as the response limit")
        if self.dual_clip is not None and self.dual_clip <= 1:
            raise UserError("dual_clip is a bound on the ratio above 1, usually 3")


@dataclass(frozen=True, kw_only=True)
class LossResult:
    """`loss` is this micro-batch's share: the shares of an update add up to its loss, their gradients to its gradient.

    `metrics` are shares too (they add up), but for those that end in "_max", of which the largest counts.
    """

    loss: torch.Tensor  # scalar
    metrics: dict[str, float]


def batch_loss(
    logprobs: torch.Tensor, batch: Batch, settings: LossSettings, *, entropy: torch.Tensor | None = None
) -> LossResult:
    """Policy loss + KL to the reference - entropy bonus of a micro-batch.

    `logprobs` [B, T]: of the policy being trained, with gradient. `entropy` [B, T]: needed for a bonus, otherwise a
    metric only. `batch.old_logprobs` None means that this is the first update on these rows: the ratio is 1.
    """
    mask, totals = batch.response_mask, batch.totals
    assert batch.advantages is not None, "rows need advantages"
    logprobs = clean(logprobs, mask)
    old = logprobs.detach() if batch.old_logprobs is None else clean(batch.old_logprobs, mask)
    advantages = clean(batch.advantages, mask)
    per_token, metrics = POLICY_LOSSES[settings.policy](logprobs, old, advantages, mask, settings)
    shares = {name: aggregate(v.float(), mask, "token-mean", totals) for name, v in metrics.items()}
    if settings.rollout_cap is not None:
        assert batch.rollout_logprobs is not None, "rollout_cap needs the sampler's log-probs"
        per_token = per_token * importance_weights(old, clean(batch.rollout_logprobs, mask), settings.rollout_cap)

    def total(values: torch.Tensor) -> torch.Tensor:
        return aggregate(values, mask, settings.aggregation, totals, norm_length=settings.norm_length)

    loss = total(per_token)
    shares["policy_loss"] = loss
    if batch.ref_logprobs is not None:
        kl = kl_estimate(logprobs, clean(batch.ref_logprobs, mask), settings.kl_estimator)
        shares["ref_kl"] = aggregate(kl, mask, "token-mean", totals)
        if settings.kl_coef:
            loss = loss + settings.kl_coef * total(kl)
    elif settings.kl_coef:
        raise UserError("a KL term needs the log-probs of a reference model")
    if entropy is not None:
        entropy = clean(entropy, mask)
        shares["entropy"] = aggregate(entropy, mask, "token-mean", totals)
        if settings.entropy_coef:
            loss = loss - settings.entropy_coef * total(entropy)
    shares["loss"] = loss
    numbers = {name: float(value.detach()) for name, value in shares.items()}
    with torch.no_grad():
        ratio = (logprobs - old).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
        numbers["ratio_max"] = float(torch.where(mask, ratio, 0).max())
        numbers["ratio_gap_max"] = float(torch.where(mask, (ratio - 1).abs(), 0).max())
        if batch.rollout_logprobs is not None:
            numbers["rollout_gap_max"] = float((old - clean(batch.rollout_logprobs, mask)).abs().max())
    return LossResult(loss=loss, metrics=numbers)


def combine_metrics(parts: list[Mapping[str, float]]) -> dict[str, float]:
    """The metrics of an update from those of its micro-batches."""
    out: dict[str, float] = {}
    for part in parts:
        for name, value in part.items():
            if name.endswith("_max"):
                out[name] = max(out.get(name, value), value)
            else:
                out[name] = out.get(name, 0.0) + value
    return out


def clean(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """`values` with 0 at masked places; no gradient passes there, whatever stands in them."""
    return torch.where(mask, values, torch.zeros((), dtype=values.dtype, device=values.device))


# ---------------------------------------------------------------- policy losses

# each: (logprobs, old_logprobs, advantages, mask, settings) -> (loss per token [B, T], metrics per token [B, T])
PerToken = tuple[torch.Tensor, dict[str, torch.Tensor]]


def ppo_clip(
    logprobs: torch.Tensor, old: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor, s: LossSettings
) -> PerToken:
    """max(-r A, -clip(r) A), r = exp(logp - old) (arXiv 1707.06347).

    With `dual_clip` c the loss at negative advantages is at most -c A (arXiv 1912.09729).
    """
    return _clipped(_log_ratio(logprobs, old, mask), advantages, s)


def gspo(
    logprobs: torch.Tensor, old: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor, s: LossSettings
) -> PerToken:
    """Clipping of the sequence ratio exp(mean over the row's tokens of logp - old) (arXiv 2507.18071), token form.

    Every token carries the row's ratio as its value, but only its own log-prob in the gradient, so that advantages
    that differ from token to token stay where they belong. With equal advantages and seq-mean-token-mean its gradient
    is that of `gspo_sequence`.
    """
    log_ratio = _log_ratio(logprobs, old, mask)
    return _clipped(_row_mean(log_ratio, mask).detach() + logprobs - logprobs.detach(), advantages, s)


def gspo_sequence(
    logprobs: torch.Tensor, old: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor, s: LossSettings
) -> PerToken:
    """GSPO as first published: the sequence ratio itself is differentiated. It smears token advantages over the row."""
    log_ratio = _log_ratio(logprobs, old, mask)
    return _clipped(_row_mean(log_ratio, mask).expand_as(logprobs), advantages, s)


def cispo(
    logprobs: torch.Tensor, old: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor, s: LossSettings
) -> PerToken:
    """-sg[clip(r)] A logp: no token loses its gradient, its weight is bounded (arXiv 2506.13585)."""
    ratio = _log_ratio(logprobs, old, mask).exp().detach()
    weight = ratio.clamp(1 - s.clip_low, 1 + s.clip_high)
    return -weight * advantages * logprobs, _metrics(ratio, weight != ratio)


def sapo(
    logprobs: torch.Tensor, old: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor, s: LossSettings
) -> PerToken:
    """-(4 / tau) sigmoid(tau (r - 1)) A, tau = tau_pos where A > 0, else tau_neg (arXiv 2511.20347)."""
    ratio = _log_ratio(logprobs, old, mask).exp()
    tau = torch.where(advantages > 0, s.tau_pos, s.tau_neg)
    gate = torch.sigmoid(tau * (ratio - 1)) * (4 / tau)
    return -gate * advantages, _metrics(ratio, torch.zeros_like(mask))


def reinforce(
    logprobs: torch.Tensor, old: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor, s: LossSettings
) -> PerToken:
    """-A logp, on-policy."""
    ratio = _log_ratio(logprobs, old, mask).exp()
    return -advantages * logprobs, _metrics(ratio, torch.zeros_like(mask))


PolicyLoss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, LossSettings], PerToken]
POLICY_LOSSES: dict[str, PolicyLoss] = {
    "ppo_clip": ppo_clip,
    "gspo": gspo,
    "gspo_sequence": gspo_sequence,
    "cispo": cispo,
    "sapo": sapo,
    "reinforce": reinforce,
}


def _log_ratio(logprobs: torch.Tensor, old: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (clean(logprobs, mask) - clean(old, mask)).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def _row_mean(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean over the trained tokens of each row, [B, 1]; 0 for a row without any."""
    return clean(values, mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)


def _clipped(log_ratio: torch.Tensor, advantages: torch.Tensor, s: LossSettings) -> PerToken:
    ratio = log_ratio.exp()
    free = -ratio * advantages
    bounded = -ratio.clamp(1 - s.clip_low, 1 + s.clip_high) * advantages
    loss = torch.maximum(free, bounded)
    clipped = bounded > free
    if s.dual_clip is not None:
        cap = torch.where(advantages < 0, -s.dual_clip * advantages, float("inf"))
        clipped = clipped | (loss > cap)
        loss = torch.minimum(loss, cap)
    return loss, _metrics(ratio, clipped)


def _metrics(ratio: torch.Tensor, clipped: torch.Tensor) -> dict[str, torch.Tensor]:
    """Per token: ratio, whether it was clipped, and the k3 estimate of KL(old || new), r - 1 - log r."""
    ratio = ratio.detach()
    return {"ratio": ratio, "clip_fraction": clipped, "old_kl": ratio - 1 - ratio.log()}


# ---------------------------------------------------------------- aggregation, KL, importance


def aggregate(
    per_token: torch.Tensor,
    mask: torch.Tensor,
    how: Aggregation,
    totals: Totals,
    *,
    norm_length: float | None = None,
) -> torch.Tensor:
    """[B, T] -> this micro-batch's share of the update's scalar. Rows without a trained token count nowhere.

    token-mean: sum / all tokens. seq-mean-token-mean: mean over rows of each row's mean. seq-mean-token-sum: mean over
    rows of each row's sum. seq-mean-token-sum-norm: the same divided by `norm_length` (Dr. GRPO, arXiv 2503.20783).
    An update without any trained token gives 0.
    """
    values = clean(per_token, mask)
    if how == "token-mean":
        return values.sum() / max(1, totals.tokens)
    sums = values.sum(-1)  # [B]
    if how == "seq-mean-token-mean":
        sums = sums / mask.sum(-1).clamp(min=1)
    elif how == "seq-mean-token-sum-norm":
        assert norm_length, "seq-mean-token-sum-norm needs norm_length"
        sums = sums / norm_length
    return sums.sum() / max(1, totals.rows)


_AGGREGATIONS = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm")


def kl_estimate(logprobs: torch.Tensor, ref: torch.Tensor, estimator: KLEstimator) -> torch.Tensor:
    """Estimate of KL(policy || reference) at each sampled token, [B, T] (J. Schulman, "Approximating KL divergence").

    With d = logp - ref: k1 = d, k2 = d^2 / 2, k3 = exp(-d) - 1 + d. Their values estimate the KL; as losses only k2's
    gradient does (k1's has mean zero).
    """
    return _KL[estimator](logprobs - ref)


_KL: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "k1": lambda d: d,
    "k2": lambda d: d.square() / 2,
    "k3": lambda d: (-d).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp() - 1 + d,
}


def importance_weights(old: torch.Tensor, rollout: torch.Tensor, cap: float) -> torch.Tensor:
    """min(exp(old - rollout), cap) without gradient, [B, T]: corrects for a sampler that is not quite the policy."""
    return (old - rollout).detach().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp().clamp(max=cap)
