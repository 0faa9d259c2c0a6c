"""Credit: what each token of a group's rollouts earned. Pure numpy, deterministic, no printing.

Every function takes a `TrajectoryGroup` and gives a `GroupCredit`; settings come as `settings=DiDPOSettings(...)`,
`preset="published"`, or by name (`lam=2.0`).
"""

from __future__ import annotations

from collections.abc import Callable

from didpo.credit.didpo import didpo, didpo_published
from didpo.credit.gigpo import gigpo
from didpo.credit.outcome import dr_grpo, grpo, reinforce_pp, reinforce_pp_baseline, rloo, whiten_batch
from didpo.credit.settings import PRESETS, DiDPOSettings
from didpo.types import GroupCredit

CREDIT: dict[str, Callable[..., GroupCredit]] = {
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "rloo": rloo,
    "reinforce_pp": reinforce_pp,  # to be whitened over the batch: whiten_batch
    "reinforce_pp_baseline": reinforce_pp_baseline,  # likewise
    "gigpo": gigpo,
    "didpo": didpo,
    "didpo_published": didpo_published,
}

__all__ = [
    "CREDIT",
    "PRESETS",
    "DiDPOSettings",
    "didpo",
    "didpo_published",
    "dr_grpo",
    "gigpo",
    "grpo",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "rloo",
    "whiten_batch",
]
