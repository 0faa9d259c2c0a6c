"""GiGPO: the episode term plus a step-level term over rows that acted in the same state. arXiv 2505.10978.

The state is the one in which the action was chosen: the files before the action, else the prompt.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from rapidfuzz.distance import Indel

from didpo.credit.outcome import grpo, relative
from didpo.credit.settings import DiDPOSettings, resolve
from didpo.credit.signals import StepTable, row_returns
from didpo.types import GroupCredit, Step, TrajectoryGroup


def state_before(step: Step) -> str | None:
    """The state in which the step's action was chosen, as one text; None where it is not recorded."""
    if step.files_before is not None:
        return "\x00".join(f"{path}\x01{text}" for path, text in sorted(step.files_before.items()))
    return step.prompt


def state_groups(states: list[str | None], similarity: float = 1.0) -> np.ndarray:
    """Number of the state group of each row, [N]; -1 where the state is unknown.

    Below 1.0, states join the first representative that is at least so similar (2 * matched characters / both lengths);
    representatives are taken in the order of their texts, so that the order of rows does not matter.
    """
    texts = sorted({s for s in states if s is not None})
    if similarity >= 1.0:
        number = {text: i for i, text in enumerate(texts)}
    else:
        number = {}
        representatives: list[str] = []
        for text in texts:
            near = (
                i
                for i, r in enumerate(representatives)
                # without the library's own cutoff, which is rounded and loses what is exactly so similar
                if Indel.normalized_similarity(r, text) >= similarity - 1e-9
            )
            number[text] = next(near, len(representatives))
            if number[text] == len(representatives):
                representatives.append(text)
    return np.array([-1 if s is None else number[s] for s in states], dtype=np.int64)


def step_values(group: TrajectoryGroup, cfg: DiDPOSettings) -> tuple[list[tuple[int, int]], np.ndarray, np.ndarray]:
    """Rows, their step-level advantage [N] (0 for singletons and unknown states) and their state group [N]."""
    table = StepTable.of(group)
    returns = row_returns(group, cfg.gamma)
    groups = state_groups([state_before(step) for step in table.steps], cfg.state_similarity)
    values = np.zeros(len(returns))
    for number in range(int(groups.max(initial=-1)) + 1):
        rows = np.flatnonzero(groups == number)
        if len(rows) > 1:
            values[rows] = relative(returns[rows], normalize=cfg.normalize, std_kind=cfg.std, epsilon=cfg.epsilon)
    return table.where, values, groups


def gigpo(group: TrajectoryGroup, *, settings: DiDPOSettings | None = None, **overrides: Any) -> GroupCredit:
    """A = A^E + step_weight * A^S on all response tokens, A^S = return-to-go against the rows of the same state.

    `normalize` and `std` hold for both terms. Rows count in a state group, so a rollout that comes back to a state
    counts each time. `state_similarity=0.95` joins similar states. A state met once gives A^S = 0.
    """
    cfg = resolve(settings, overrides)
    base = grpo(group, settings=cfg)
    where, values, groups = step_values(group, cfg)
    part = [[np.zeros(len(a), dtype=np.float32) for a in row] for row in base.advantages]
    for (g, s), value in zip(where, (values * cfg.step_weight + 0.0).tolist(), strict=True):
        part[g][s][:] = value
    sizes = np.bincount(groups[groups >= 0])
    metrics = base.metrics | {
        "state_groups": float(len(sizes)),
        "usable_groups": float((sizes > 1).sum()),
        "singletons": float((sizes == 1).sum() + (groups < 0).sum()),
        "singleton_share": float(((sizes == 1).sum() + (groups < 0).sum()) / max(1, len(groups))),
        "state_group_size": float(sizes.mean()) if len(sizes) else 0.0,
    }
    notes = (
        [f"{int((groups < 0).sum())} rows record no state before the action: no step term"]
        if (groups < 0).any()
        else []
    )
    return replace(
        base,
        algorithm="gigpo",
        advantages=[
            [e + d for e, d in zip(r, p, strict=True)] for r, p in zip(base.parts["episode"], part, strict=True)
        ],
        parts={"episode": base.parts["episode"], "step": part},
        metrics=metrics,
        notes=notes,
    )
