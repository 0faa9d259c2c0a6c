"""Heat-maps: the responses of a group, every character coloured by the advantage of its token.

One block shows one group under one algorithm. Characters that share token values and anchors are drawn as one piece;
what a piece says under the pointer comes from its attributes and from the block's entry in the page's data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from didpo.actions import edit_spans
from didpo.report_parts.markup import esc, number, percent, signed, visible
from didpo.types import Anchor, GroupCredit, Step, Trajectory, TrajectoryGroup

MAX_ROLLOUTS = 16  # drawn per group
MAX_CHARACTERS = 20_000  # drawn per response
MAX_OBSERVATION = 1_500
MAX_ANCHORS = 24  # listed per block
STOP_SIGNS = {"solved": "good", "sandbox_error": "bad", "model_error": "bad"}


@dataclass(kw_only=True)
class Heat:
    """The heat-map blocks of a page; `data` is what its script needs."""

    data: dict[str, Any] = field(default_factory=dict)

    def block(
        self, group: TrajectoryGroup, credit: GroupCredit, *, title: str = "", shown: int = 2, scale: float = 0.0
    ) -> str:
        """One group under one algorithm: the best and the worst rollout open (`shown` in all), the others folded.

        `scale` is the advantage of full colour; 0 takes the largest of this block.
        """
        name = f"heat{len(self.data)}"
        scale = scale or largest(credit)
        numbers = {a.anchor_id: i for i, a in enumerate(credit.anchors)}
        self.data[name] = {
            "parts": list(credit.parts),
            "anchors": [_anchor_data(a) for a in credit.anchors],
            "scale": scale,
        }
        covers = _covers(credit.anchors, numbers)
        order = ranked(group)
        drawn = order if len(order) <= MAX_ROLLOUTS else [*order[: MAX_ROLLOUTS // 2], *order[-(MAX_ROLLOUTS // 2) :]]
        ends = [*drawn[: (shown + 1) // 2], *drawn[max((shown + 1) // 2, len(drawn) - shown // 2) :]]

        def rollouts(which: Sequence[int], *, opened: bool) -> str:
            return "".join(_rollout(group, credit, g, covers, scale, opened=opened) for g in which)

        folded = [g for g in drawn if g not in ends]
        hidden = len(order) - len(drawn)
        left_out = f"<p class=note>{hidden} rollouts of middling return are not drawn.</p>" if hidden else ""
        others = f"<div class=rollouts>{rollouts(folded, opened=False)}</div>" if folded else ""
        # always five children: columns of several methods share their rows
        return (
            f'<div class=heat id="{name}"><div class=heathead>{f"<h4>{esc(title)}</h4>" if title else ""}'
            f"{_switch(name, credit)}{_legend(scale)}</div><div>{_notes(credit)}</div>"
            f"<div class=rollouts>{rollouts(ends, opened=True)}</div><div>{others}{left_out}</div>"
            f"{_anchor_table(credit)}</div>"
        )


def ranked(group: TrajectoryGroup) -> list[int]:
    """Indices of the rollouts: best return first, ties in order; failed rollouts last."""
    totals = [float(t.rewards.sum()) for t in group.trajectories]
    return sorted(range(len(totals)), key=lambda g: (group.trajectories[g].failed, -totals[g], g))


def largest(credit: GroupCredit) -> float:
    """The largest absolute value of any advantage or part."""
    arrays = [a for rows in [credit.advantages, *credit.parts.values()] for t in rows for a in t]
    return max((float(np.abs(a).max()) for a in arrays if len(a)), default=0.0)


def _covers(anchors: Sequence[Anchor], numbers: dict[int, int]) -> dict[tuple[int, int], list[tuple[int, int, int]]]:
    """(trajectory, step) -> [(start, end, number of the anchor)] over all members."""
    covers: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for anchor in anchors:
        for member in anchor.members:
            spans = covers.setdefault((member.trajectory, member.step), [])
            spans += [(a, b, numbers[anchor.anchor_id]) for a, b in member.spans]
    return covers


def _anchor_data(anchor: Anchor) -> dict[str, Any]:
    return {
        "id": anchor.anchor_id,
        "kind": visible(anchor.kind),
        "edit": visible(anchor.edit_kind),
        "label": visible(anchor.label),
        "rows": anchor.n_rows,
        "length": round(anchor.length, 2),
        "gs": round(anchor.groupability, 4),
        "mean": round(anchor.mean_signal, 4),
        "contrast": None if anchor.contrast is None else round(anchor.contrast, 4),
        "members": [[m.trajectory, m.step, round(m.signal, 4), round(m.advantage, 4)] for m in anchor.members],
    }


# ---------------------------------------------------------------- one rollout


def _rollout(
    group: TrajectoryGroup,
    credit: GroupCredit,
    g: int,
    covers: dict[tuple[int, int], list[tuple[int, int, int]]],
    scale: float,
    *,
    opened: bool,
) -> str:
    trajectory = group.trajectories[g]
    to_go = np.cumsum(trajectory.rewards[::-1])[::-1]
    steps = "".join(
        _step(step, s, float(to_go[s]), [credit.advantages[g][s], *(p[g][s] for p in credit.parts.values())],
              covers.get((g, s), []), scale)
        for s, step in enumerate(trajectory.steps)
    )  # fmt: skip
    return (
        f'<details class=rollout data-t="{g}" {"open" if opened else ""}><summary>'
        f"{_headline(trajectory, g, group.task_id)}"
        f"{'' if credit.assigned[g] else '<em>failed: earns no credit</em>'}<span class=hits></span></summary>"
        f"{steps}</details>"
    )


def _headline(trajectory: Trajectory, g: int, task_id: str) -> str:
    reason = str(trajectory.stop_reason)
    outcome = "" if trajectory.outcome is None else f"<span>outcome {esc(number(trajectory.outcome))}</span>"
    turns = len(trajectory.steps)
    own = trajectory.trajectory_id.removeprefix(task_id)
    name = f'<span class=dim title="{esc(trajectory.trajectory_id)}">{esc(_short(own))}</span>'
    error = f"<span class=bad>{esc(_short(trajectory.error, 120))}</span>" if trajectory.error else ""
    return (
        f"<b>Rollout {g}</b><span class='pill {STOP_SIGNS.get(reason, '')}'>{esc(reason.replace('_', ' '))}</span>"
        f"{outcome}<span>return {esc(signed(float(trajectory.rewards.sum())))}</span>"
        f"<span>{turns} turn{'' if turns == 1 else 's'}</span>{name}{error}"
    )


def _short(text: str, most: int = 44) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _step(
    step: Step, s: int, to_go: float, values: list[np.ndarray], covers: list[tuple[int, int, int]], scale: float
) -> str:
    facts = [f"<b>turn {s + 1}</b>"]
    if step.reward is not None:
        facts.append(f"reward {esc(signed(step.reward))}")
    facts.append(f"still to come {esc(signed(to_go))}")
    if step.step_score is not None:
        facts.append(f"tests passed after it {esc(percent(step.step_score))}")
    if step.test_outcomes:
        dots = "".join(
            f'<i class="{"pass" if passed else "fail"}" title="{esc(test)}: {"passed" if passed else "failed"}"></i>'
            for test, passed in list(step.test_outcomes.items())[:60]
        )
        facts.append(f"<span class=tests>{dots}</span>")
    observation = ""
    if step.observation:
        cut = step.observation[:MAX_OBSERVATION]
        more = f"\n… {len(step.observation) - len(cut)} more characters" if len(cut) < len(step.observation) else ""
        observation = f"<details class=seen><summary>what came back</summary><pre>{esc(cut)}{more}</pre></details>"
    telling = covers or len(edit_spans(step)) > 0
    first = next(iter(step.response.strip().split("\n", 1)), "")
    preview = "" if telling else f"<span class=preview>{esc(_short(first, 90))}</span>"
    return (
        f'<details class=step data-s="{s}" data-r="{to_go:.4g}" {"open" if telling else ""}>'
        f"<summary class=facts>{' · '.join(facts)}{preview}</summary>"
        f"<pre class=code>{_pieces(step, values, covers, scale)}</pre>{observation}</details>"
    )


def _pieces(step: Step, values: list[np.ndarray], covers: list[tuple[int, int, int]], scale: float) -> str:
    """The response as coloured pieces. values: advantage and parts, each float32 [T]."""
    text = step.response[:MAX_CHARACTERS]
    n = len(text)
    token = np.full(len(step.response), -1, dtype=np.int64)  # character -> token
    if step.token_offsets is None:
        token = np.arange(len(step.response))
    else:
        for t in range(len(step.token_offsets) - 1, -1, -1):  # of the byte tokens of one character the first is shown
            start, end = step.token_offsets[t]
            token[start:end] = t
    token = token[:n]
    edits = [(e.start, e.end, e.kind == "del") for e in edit_spans(step)]
    # [1 + parts, n]; characters outside all tokens have no value, and stay apart from those with one
    amounts = np.stack([np.append(v, np.float32(np.nan))[token] for v in values])
    cut = np.ones(n + 1, dtype=bool)
    if n:
        same = (amounts[:, 1:] == amounts[:, :-1]) | (np.isnan(amounts[:, 1:]) & np.isnan(amounts[:, :-1]))
        cut[1:n] = ~same.all(axis=0)
    for start, end, _ in [*edits, *covers]:
        cut[min(start, n)] = cut[min(end, n)] = True
    places = np.flatnonzero(cut)
    html = []
    for a, b in zip(places[:-1].tolist(), places[1:].tolist(), strict=True):
        inside = [deleted for start, end, deleted in edits if start <= a and b <= end]
        members = tuple(dict.fromkeys(k for start, end, k in covers if start <= a and b <= end))
        amount = None if token[a] < 0 else tuple(float(v) for v in amounts[:, a])
        html.append(_piece(text[a:b], amount, 0 if not inside else 2 if inside[0] else 1, members, scale))
    if n < len(step.response):
        html.append(f"\n<em>… {len(step.response) - n} more characters</em>")
    return "".join(html)


def _piece(text: str, amount: tuple[float, ...] | None, kind: int, anchors: tuple[int, ...], scale: float) -> str:
    """kind: 0 outside edits, 1 written text, 2 searched text."""
    classes = "p" + ("", " ed", " ed del")[kind] + (" an" if anchors else "")
    if amount is None:
        return f'<span class="{classes}">{esc(text)}</span>'
    shares = [v / scale if scale else 0.0 for v in amount]
    style = ";".join(f"--v{i}:{v:.3g}" for i, v in enumerate(shares) if round(v, 4))
    more = f' data-a="{" ".join(map(str, anchors))}" tabindex=0' if anchors else ""
    values = " ".join(f"{v:.4g}" for v in amount)
    look = f' style="{style}"' if style else ""
    return f'<span class="{classes}" data-v="{values}"{more}{look}>{esc(text)}</span>'


# ---------------------------------------------------------------- around the rollouts


def _switch(name: str, credit: GroupCredit) -> str:
    if len(credit.parts) < 2:
        return ""
    buttons = "".join(
        f'<button type=button data-show="{i}" aria-pressed="{"true" if i == 0 else "false"}">{esc(label)}</button>'
        for i, label in enumerate(["advantage", *(f"{p} part" for p in credit.parts)])
    )
    return f'<div class=switch role=group aria-label="what the colours show" data-for="{name}">{buttons}</div>'


def _legend(scale: float) -> str:
    if not scale:
        return "<div class=legend>no signal: every advantage is 0</div>"
    return (
        f"<div class=legend><span>{esc(signed(-scale))}</span><i class=ramp></i><span>{esc(signed(scale))}</span></div>"
    )


def _notes(credit: GroupCredit) -> str:
    facts = list(credit.notes)
    if (coverage := credit.metrics.get("coverage")) is not None:
        facts.append(f"{percent(coverage)} of the tokens carry local credit")
    return f"<p class=note>{' · '.join(map(esc, facts))}</p>" if facts else ""


def _anchor_table(credit: GroupCredit) -> str:
    if not credit.anchors:
        return "<div class=anchors><p class=note>No anchors: this method contrasts no parts of these edits.</p></div>"

    def weight(i: int) -> float:
        return -sum(abs(m.advantage) for m in credit.anchors[i].members)

    order = sorted(range(len(credit.anchors)), key=lambda i: (weight(i), i))
    rows = "".join(_anchor_row(credit.anchors[i], i) for i in order[:MAX_ANCHORS])
    rest = len(order) - MAX_ANCHORS
    more = f"<p class=note>{rest} more anchors with less local credit are marked in the text.</p>" if rest > 0 else ""
    head = "".join(
        f'<th scope=col class="{kind}">{name}</th>'
        for name, kind in (("anchor", ""), ("text", ""), ("rows", "n"), ("lines", "n"), ("GS", "n"), ("signal", "n"),
                           ("contrast", "n"))
    )  # fmt: skip
    return (
        "<details class=anchors open><summary>Anchors, by the local credit they carry</summary>"
        "<div class=scroll><table>"
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{more}</details>"
    )


def _anchor_row(anchor: Anchor, i: int) -> str:
    text = anchor.label or "\n".join(anchor.lines[:3]) + ("\n…" if len(anchor.lines) > 3 else "")
    contrast = "–" if anchor.contrast is None else signed(anchor.contrast)
    return (
        f'<tr><td><button type=button class=pick data-pick="{i}" aria-pressed=false>'
        f"#{anchor.anchor_id} {esc(anchor.kind)}</button></td><td><code>{esc(_short(text, 160))}</code></td>"
        f"<td class=n>{anchor.n_rows}</td><td class=n>{esc(number(anchor.length))}</td>"
        f"<td class=n>{anchor.groupability:.3f}</td><td class=n>{esc(number(anchor.mean_signal))}</td>"
        f"<td class=n>{esc(contrast)}</td></tr>"
    )
