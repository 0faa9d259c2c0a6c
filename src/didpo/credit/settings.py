"""All settings of the credit functions, in one frozen dataclass, each with the place its value comes from.

Sources: [P] the paper, arXiv 2608.07147; [C] the settings its authors publish with their code; [GRPO] 2402.03300;
[GiGPO] 2505.10978; [here] measured or decided in this project (see docs on credit).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Literal, get_args, get_type_hints

from didpo.errors import UserError, unknown_name

Normalize = Literal["mean_std", "mean"]
StdKind = Literal["sample", "population"]
Scorer = Literal["auto", "tests", "region", "between", "within", "step"]
Signal = Literal["auto", "step_score", "return_to_go", "outcome"]


@dataclass(frozen=True, kw_only=True)
class DiDPOSettings:
    """Settings of every credit function; a function reads those that its formula names.

    The defaults are the project's own: test attribution where tests are known, otherwise the step score (else the
    return-to-go) of an anchor against the rows that edited the same region without it. `published()` gives the form of
    the paper.
    """

    # -- the episode term A^E
    gamma: float = 0.95  # discount of the return-to-go, per step [P, C]; the episode's return is not discounted
    normalize: Normalize = "mean_std"  # (R - mean) / (std + epsilon) [GRPO], or R - mean (Dr.GRPO; [C])
    std: StdKind = "sample"  # divisor n - 1 ("sample": GRPO as commonly implemented) or n, where std is used
    epsilon: float = 1e-6  # added to the std [GRPO]
    episode_baseline: Literal["rollouts", "rows"] = "rollouts"  # each rollout once [here], or once per step [C]
    group_of_one: Literal["zero", "raw"] = "zero"  # a lone rollout: advantage 0 [here], or its raw return (verl)
    episode_weight: float = 1.0  # factor of A^E; 0 is the paper's ablation without the episode term [P]
    token_gamma: float = 1.0  # REINFORCE++ alone: discount per model token (2501.03262)

    # -- the local term A^D
    lam: float | None = None  # lambda; None: 2 for region/between, else 1 [here]; 1 [C], best 1.2 [P]; 0 is GRPO
    scorer: Scorer = "auto"  # auto: tests, else region [here]; within [P]; step is the control without any diff
    signal: Signal = "auto"  # auto: step_score where every row has one, else return_to_go [here]; return_to_go [P]
    unit: Literal["anchor", "region", "diff"] = "anchor"  # sub-diffs of all scales [P]; whole functions [here]; the
    #                                                       whole diff, the paper's ablation [P]
    local_normalize: Normalize = "mean"  # within alone: y - mean [C], or divided by (std + epsilon)
    local_std: StdKind = "population"  # convention of that std [C]
    kappa: float = 1.0  # between, region: shrinkage n / (n + kappa) [here]
    gate: Literal["lines", "payload"] = "lines"  # what an overwrite merely writes again earns nothing: by line [here],
    #                                              or only where the whole payload is byte-equal [C]

    # -- anchors
    equality: Literal["exact", "renamed", "similar"] = "renamed"  # after normalisation; up to local names [here];
    #                                                               similarity >= eta [P]
    eta: float = 0.8  # similarity threshold [P, C]
    form: Literal["exp", "log", "linear"] = "exp"  # shape of phi and psi [P, C]
    combine: Literal["product", "sum"] = "product"  # GS = phi * psi, or phi + psi, the paper's ablation [P]
    s0: float = 8.0  # scale of the length, in lines [P, C]
    g0: float = 8.0  # scale of the number of rows [P, C]
    fallback: Literal["structure", "none"] = "structure"  # functions and statements by likeness, where a task has no
    #                                                       anchor at all [P, C]
    max_anchors: int = 64  # K, per task [P, C]

    # -- GiGPO
    step_weight: float = 1.0  # weight of the step-level term [GiGPO]
    state_similarity: float = 1.0  # 1: equal states; below: similar ones, 0.95 usual [GiGPO, published code]

    def __post_init__(self) -> None:
        for name, choices in _choices().items():
            value = getattr(self, name)
            if choices:
                if value not in choices:
                    raise unknown_name(f"value of {name}", str(value), choices)
            elif isinstance(value, bool) or not (isinstance(value, (int, float)) or (name == "lam" and value is None)):
                raise UserError(f"{name} must be a number, not {value!r}")
            elif value is not None and not math.isfinite(value):
                raise UserError(f"{name} must be finite, not {value!r}")
        for name in ("gamma", "token_gamma", "eta", "state_similarity"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name} must lie between 0 and 1, not {getattr(self, name)}")
        for name in ("s0", "g0", "epsilon"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} must be above 0, not {getattr(self, name)}")
        for name in ("kappa", "max_anchors"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} must be at least 0, not {getattr(self, name)}")

    @classmethod
    def published(cls, **overrides: Any) -> DiDPOSettings:
        """The authors' settings: similar anchors, return-to-go within an anchor, lambda 1, means over rows, no std."""
        return PRESETS["published"].override(**overrides)

    def override(self, **overrides: Any) -> DiDPOSettings:
        """A copy with some settings changed. `UserError` for an unknown name, with the nearest one."""
        known = [f.name for f in fields(self)]
        for name in overrides:
            if name not in known:
                raise unknown_name("credit setting", name, [*known, "preset"])
        return replace(self, **overrides) if overrides else self


@cache
def _choices() -> dict[str, tuple[str, ...]]:
    """The names that each setting may hold; () for numbers."""
    hints = {name: get_args(hint) for name, hint in get_type_hints(DiDPOSettings).items()}
    return {name: args if args and isinstance(args[0], str) else () for name, args in hints.items()}


PRESETS: dict[str, DiDPOSettings] = {
    "default": DiDPOSettings(),
    "published": DiDPOSettings(
        normalize="mean",
        episode_baseline="rows",
        lam=1.0,
        scorer="within",
        signal="return_to_go",
        gate="payload",
        equality="similar",
    ),
}


def resolve(settings: DiDPOSettings | None, overrides: dict[str, Any]) -> DiDPOSettings:
    """The settings a credit function runs with: `settings` or the preset named in the overrides, then the overrides."""
    overrides = dict(overrides)
    preset = overrides.pop("preset", None)
    if preset is not None and settings is not None:
        raise UserError("give either settings= or preset=, not both")
    if preset is not None and preset not in PRESETS:
        raise unknown_name("preset", str(preset), PRESETS)
    return (settings or PRESETS[preset or "default"]).override(**overrides)
