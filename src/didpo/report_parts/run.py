"""The sections of a run's report, from what its directory holds. A section with nothing to show is left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from didpo.report_parts.charts import Charts, Series, bars, before_after, smoothed, stacked
from didpo.report_parts.markup import esc, number, percent, seconds, section, signed, table
from didpo.types import GroupCredit

Rows = Sequence[Mapping[str, Any]]

STOP_COLORS = {
    "solved": 2,
    "finished": 4,
    "turn_limit": 5,
    "length": 1,
    "token_budget": 3,
    "deadline": 6,
    "sandbox_error": 7,
    "model_error": 7,
}
Chart = tuple[str, dict[str, str], bool]  # title, {metric: name in the legend}, share of one?

LEARNING_CHARTS: tuple[Chart, ...] = (
    ("Tests passed at the end of a rollout", {"step_score": "score"}, True),
    (
        "Groups and tokens with a signal",
        {"no_signal_share": "groups without signal", "diff_coverage": "tokens with credit from diffs"},
        True,
    ),
    ("Reward of a rollout", {"reward": "reward"}, False),
    ("Turns per rollout", {"turns": "turns"}, False),
)
UPDATE_CHARTS: tuple[Chart, ...] = (
    ("Loss", {"loss": "loss"}, False),
    ("Entropy of the policy", {"entropy": "entropy"}, False),
    ("Distance of the policy (KL)", {"ref_kl": "from the reference", "old_kl": "from the sampling policy"}, False),
    ("Clipped tokens", {"clip_fraction": "clipped"}, True),
    ("Gradient norm", {"grad_norm": "norm"}, False),
    ("Tokens per second", {"tokens_per_second": "tokens per second"}, False),
)
PHASES = {"sft": "cold start", "rl": "reinforcement learning", "eval": "evaluation"}
KIND_COLORS = {"function": 0, "region": 4, "block": 2, "fragment": 5, "boilerplate": 7}


def headline(summary: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Success before and after with intervals, and the facts of the run."""
    before, after = summary.get("eval_before") or {}, summary.get("eval_after") or {}
    spent = _phases(summary)
    facts = [
        ("algorithm", summary.get("algorithm") or config.get("algorithm")),
        ("preset", summary.get("preset") or config.get("preset")),
        ("seed", summary.get("seed", config.get("seed"))),
        ("held-out tasks", after.get("n")),
        ("time in all", seconds(sum(spent.values())) if spent else None),
        ("sandbox", (summary.get("sandbox") or {}).get("level")),
    ]
    shown = "".join(
        f"<div><b>{esc(value)}</b><span>{esc(name)}</span></div>" for name, value in facts if value is not None
    )
    if before.get("success") is None or after.get("success") is None:
        text = "<p class=lead>This run has not been evaluated before and after yet: it goes on, or was stopped.</p>"
        return f"<div class='panel headline'>{text}<div class=facts2>{shown}</div></div>"
    gain = after["success"] - before["success"]
    text = (
        f"<div><div class=big><span class=from>{percent(before['success'])}</span><span class=arrow>→</span>"
        f"{percent(after['success'])}</div><p>success on held-out tasks, {esc(signed(100 * gain)[:-3])} points</p>"
        f"<p class=note>95 % intervals: before {_interval(before)}, after {_interval(after)}</p></div>"
    )
    return f"<div class='panel headline'>{text}{before_after(before, after)}<div class=facts2>{shown}</div></div>"


def _interval(evaluation: Mapping[str, Any]) -> str:
    return f"{percent(evaluation.get('low'))} to {percent(evaluation.get('high'))} (n = {esc(evaluation.get('n'))})"


def alarms(texts: Mapping[str, list[int]]) -> str:
    """Alarm text -> steps at which it was raised."""
    items = "".join(f"<li>{esc(text)} <span class=dim>({_steps(steps)})</span></li>" for text, steps in texts.items())
    return f"<div class=alarms role=status><b>Worth a look</b><ul>{items}</ul></div>" if items else ""


def _steps(steps: list[int]) -> str:
    if len(steps) > 4:
        return f"{len(steps)} steps, {min(steps)} to {max(steps)}"
    return ("step " if len(steps) == 1 else "steps ") + ", ".join(map(str, steps))


# ---------------------------------------------------------------- learning


def learning(charts: Charts, rows: Rows, summary: Mapping[str, Any]) -> str:
    """Learning curves: success in training and on held-out tasks, and what the credit had to work with."""
    rl = [r for r in rows if r.get("phase") == "rl"]
    body = _success(charts, rl, rows, summary) + _figures(charts, rl, LEARNING_CHARTS)
    lead = "Point at a chart, or focus it and use the arrow keys, for the values of each step."
    return section("learning", "Learning", f"<div class=grid>{body}</div>", lead) if body else ""


def updates(charts: Charts, rows: Rows) -> str:
    """What the optimiser saw: loss, entropy, KL, clipping, gradient, speed, and the cold start's loss."""
    losses = points_of([r for r in rows if r.get("phase") == "sft"], "loss")
    body = charts.line("Cold start: loss", [Series(name="loss", points=losses, color=3)], x_name="update")
    body += _figures(charts, [r for r in rows if r.get("phase") == "rl"], UPDATE_CHARTS, color=3)
    return section("updates", "The updates in numbers", f"<div class='grid small'>{body}</div>") if body else ""


def _figures(charts: Charts, rows: Rows, wanted: Sequence[Chart], color: int = 0) -> str:
    figures = []
    for title, names, share in wanted:
        lines = [
            Series(name=label, points=points_of(rows, metric), color=color + i)
            for i, (metric, label) in enumerate(names.items())
        ]
        figures.append(charts.line(title, lines, share=share))
    return "".join(figures)


def _success(charts: Charts, rl: Rows, rows: Rows, summary: Mapping[str, Any]) -> str:
    train = points_of(rl, "success")
    held: dict[float, tuple[float, float, float]] = {}
    ends = [(0, summary.get("eval_before")), (max((x for x, _ in train), default=1), summary.get("eval_after"))]
    on_the_way = [(r.get("step"), r) for r in rows if r.get("phase") == "eval"]
    for step, e in [*on_the_way, *ends]:
        if e and step is not None and e.get("success") is not None:
            held[step] = (e["success"], e.get("low", e["success"]), e.get("high", e["success"]))
    points = sorted(held)
    series = [
        Series(name="training, each step", points=train, color=7, faint=True),
        Series(name="training, smoothed", points=smoothed(train) if len(train) > 4 else [], color=4),
        Series(
            name="held-out, 95 % interval",
            points=[(x, held[x][0]) for x in points],
            intervals=[held[x][1:] for x in points],
            color=0,
            dots=True,
        ),
    ]
    return charts.line("Success", series, share=True)


def points_of(rows: Rows, metric: str) -> list[tuple[float, float]]:
    """(step, value) of the rows that hold a number under this name."""
    found = ((r.get("step"), r.get(metric)) for r in rows)
    return [(x, float(y)) for x, y in found if isinstance(x, int | float) and isinstance(y, int | float)]


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {k: float(v) for k, v in values.items() if isinstance(v, int | float) and not isinstance(v, bool)}


# ---------------------------------------------------------------- outcomes and time


def outcomes(rows: Rows, summary: Mapping[str, Any], tasks: Mapping[str, Rows]) -> str:
    """Pass rates before and after, how rollouts ended, where the time went."""
    before, after = summary.get("eval_before") or {}, summary.get("eval_after") or {}
    parts = [_pass_table(before, after, tasks)]
    ends = {
        n: _numbers(e["stop_reasons"])
        for n, e in (("held-out, before", before), ("held-out, after", after))
        if e.get("stop_reasons")
    }
    rl = [r for r in rows if r.get("phase") == "rl"]
    for name, part in (
        ("training, first steps", rl[: max(1, len(rl) // 4)]),
        ("training, last steps", rl[-max(1, len(rl) // 4) :]),
    ):
        shares: dict[str, float] = defaultdict(float)
        for row in part:
            for reason in STOP_COLORS:
                shares[reason] += float(row.get(f"stop_{reason}") or 0.0)
        if any(shares.values()):
            ends[name] = dict(shares)
    used = {r: c for r, c in STOP_COLORS.items() if any(e.get(r) for e in ends.values())}
    if used:
        parts.append(stacked("How rollouts ended", ends, used))
    if spent := _phases(summary):
        parts.append(bars("Time by phase", spent, seconds, color=6))
    inside = _numbers(summary.get("seconds_rl_parts") or {})
    if any(inside.values()):
        parts.append(bars("Time inside reinforcement learning", inside, seconds, color=4))
    body = "".join(parts)
    return section("outcomes", "Outcomes and time", f"<div class=grid>{body}</div>") if body else ""


def _phases(summary: Mapping[str, Any]) -> dict[str, float]:
    """Seconds of each phase, without their sum."""
    spent = _numbers(summary.get("seconds") or {})
    return {PHASES.get(name, name.replace("_", " ")): value for name, value in spent.items() if name != "total"}


def _pass_table(before: Mapping[str, Any], after: Mapping[str, Any], tasks: Mapping[str, Rows]) -> str:
    def both(name: str, key: str, show: Any) -> list[str] | None:
        values = (before.get(key), after.get(key))
        return None if values == (None, None) else [esc(name), *(esc(show(v)) for v in values)]

    rows = [
        both("success", "success", percent),
        both("solved in the first turn", "first_turn", percent),
        both("tests passed by the last code", "step_score", percent),
        both("turns per rollout", "mean_turns", number),
    ]
    ks = {**(before.get("pass_at_k") or {}), **(after.get("pass_at_k") or {})}
    for k in sorted((k for k in ks if k != "1"), key=int):
        rows.append([f"pass@{esc(k)}", *(esc(percent((e.get("pass_at_k") or {}).get(k))) for e in (before, after))])
    errors = [sum((e.get("errors") or {}).values()) for e in (before, after)]
    if any(errors):
        rows.append(["rollouts that failed outside the policy", *map(esc, errors)])
    shown = [r for r in rows if r]
    if not shown:
        return ""
    moved = _moved(tasks)
    return (
        "<figure class=chart><figcaption><b>Held-out tasks</b></figcaption>"
        f"{table(['', 'before', 'after'], shown)}{moved}</figure>"
    )


def _moved(tasks: Mapping[str, Rows]) -> str:
    """How many held-out tasks were won and lost."""
    solved = {n: {r["task_id"]: bool(r.get("solved")) for r in rows} for n, rows in tasks.items()}
    common = solved.get("before", {}).keys() & solved.get("after", {}).keys()
    if not common:
        return ""
    won = sum(solved["after"][t] and not solved["before"][t] for t in common)
    lost = sum(solved["before"][t] and not solved["after"][t] for t in common)
    return f"<p class=note>Of {len(common)} tasks, {won} are solved only after training and {lost} only before it.</p>"


# ---------------------------------------------------------------- tracking


def tracking(charts: Charts, credits: Mapping[int, Sequence[GroupCredit]]) -> str:
    """Anchors of the followed tasks over training: number, size, groupability, kinds. Step -> credit of its groups."""
    kinds = sorted(
        {a.kind for c in credits.values() for g in c for a in g.anchors}, key=lambda k: (k not in KIND_COLORS, k)
    )
    if not kinds:
        return ""
    counts: dict[str, list[tuple[float, float]]] = {k: [] for k in kinds}
    sizes, scores, members = [], [], []
    for step in sorted(credits):
        groups = credits[step]
        anchors = [a for g in groups for a in g.anchors]
        for kind in kinds:
            counts[kind].append((step, sum(a.kind == kind for a in anchors) / len(groups)))
        if anchors:
            sizes.append((step, sum(a.length for a in anchors) / len(anchors)))
            scores.append((step, sum(a.groupability for a in anchors) / len(anchors)))
            members.append((step, sum(a.n_rows for a in anchors) / len(anchors)))
    by_kind = [Series(name=k, points=p, color=KIND_COLORS.get(k, 3 + i % 4)) for i, (k, p) in enumerate(counts.items())]
    body = (
        charts.line("Anchors per task, by kind", by_kind, keys=True)
        + charts.line("Mean size of an anchor, in lines", [Series(name="lines", points=sizes, color=0)])
        + charts.line("Mean groupability (GS)", [Series(name="GS", points=scores, color=2)])
        + charts.line("Mean number of rows of an anchor", [Series(name="rows", points=members, color=5)])
    )
    lead = "The same training tasks, sampled again as the policy changes: what their rollouts share."
    return section("tracking", "Anchors over training", f"<div class=grid>{body}</div>", lead)


# ---------------------------------------------------------------- settings


def settings(config: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    rows = [[f"<code>{esc(name)}</code>", f"<code>{esc(value)}</code>"] for name, value in _flat(config)]
    rows += [[f"<code>{esc(n)}</code>", esc(v)] for n, v in (summary.get("versions") or {}).items()]
    if not rows:
        return ""
    body = (
        f"<details open><summary class=note>{len(rows)} settings and versions</summary>"
        f"<div class=cols>{table(['name', 'value'], rows, 'settings')}</div></details>"
    )
    return section("settings", "Settings", body)


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    flat = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat += _flat(value, f"{prefix}{name}.")
        else:
            flat.append((prefix + name, value))
    return flat
