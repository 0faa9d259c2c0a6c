"""Reports: one self-contained HTML file each, for a run directory or for recorded trajectories.

A report loads nothing from anywhere and obeys nothing that a model wrote: all recorded text is escaped, invisible
characters are shown, and the page's own policy forbids it to load anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from didpo.config import read_toml
from didpo.credit.io import read_credit
from didpo.errors import UserError
from didpo.progress import alarms
from didpo.report_parts import run as parts
from didpo.report_parts.charts import Charts
from didpo.report_parts.heat import Heat, largest
from didpo.report_parts.markup import esc, number, page, section, table
from didpo.rundir import RunDir, read_jsonl, write_atomic
from didpo.trajectories import parse_object, read_groups
from didpo.types import GroupCredit, TrajectoryGroup

MAX_RUN_GROUPS = 4  # groups drawn in a run's report
MAX_PAGE_GROUPS = 40  # groups drawn in a page of recorded trajectories


def write_report(run_dir: str | Path) -> Path:
    """Write report.html into a run directory, from what it holds so far; returns its path.

    Raises UserError where the folder holds no run.
    """
    run = RunDir(run_dir)
    if not run.path.is_dir() or not (run.metrics.is_file() or run.holds_run):
        raise UserError(f"{run_dir} is not a run directory (no config.toml, no metrics.jsonl)")
    config = read_toml(run.config) if run.holds_run else {}
    summary = parse_object(run.summary.read_bytes(), str(run.summary)) if run.summary.is_file() else {}
    rows = run.rows()
    charts, heat = Charts(), Heat()
    tasks = {n: read_jsonl(run.eval_file(n)) for n in ("before", "after") if run.eval_file(n).is_file()}
    sections = [
        parts.learning(charts, rows, summary),
        _credit_section(heat, run),
        parts.outcomes(rows, summary, tasks),
        parts.tracking(charts, _credits(run.path / "tracking" / "credit")),
        parts.updates(charts, rows),
        parts.settings(config, summary),
    ]
    algorithm = summary.get("algorithm") or config.get("algorithm") or "run"
    top = _top(f"didpo run: {run.path.resolve().name}", sections)
    body = f"{top}<main>{parts.headline(summary, config)}{parts.alarms(_alarms(rows))}{''.join(sections)}</main>" + (
        f"<footer>{esc(algorithm)} · {len(rows)} rows of metrics · this file holds everything it shows.</footer>"
    )
    write_atomic(
        run.report, page(f"didpo: {run.path.resolve().name}", body, {"charts": charts.data, "heat": heat.data})
    )
    return run.report


def write_credit_page(
    path: str | Path, groups: Sequence[TrajectoryGroup], credits: Mapping[str, Sequence[GroupCredit]]
) -> Path:
    """Write the heat-map page of recorded groups: `credits` holds, per algorithm, the credit of each group in order.

    Several algorithms stand side by side. Raises UserError where there is nothing to draw.
    """
    if not groups or not credits:
        raise UserError("no groups to draw: give at least one group and one algorithm")
    for name, computed in credits.items():
        assert len(computed) == len(groups), f"{name}: one GroupCredit per group"
    heat = Heat()
    order = _by_weight(groups, credits)[:MAX_PAGE_GROUPS]
    sections = [_page_group(heat, groups[i], {n: c[i] for n, c in credits.items()}, first=i == order[0]) for i in order]
    rest = len(groups) - len(order)
    lead = (
        "Groups with the most local credit first; those without signal are folded. Colour: the advantage of each "
        "token, blue for more of it and orange for less. Dotted text belongs to an anchor or region: point at it for "
        "its numbers, click it to see all its members."
    )
    if rest:
        lead += f" {rest} more groups, those with the least local credit, are left out."
    steps = sum(len(t.steps) for g in groups for t in g.trajectories)
    rollouts = sum(len(g.trajectories) for g in groups)
    facts = f"{len(groups)} group{'' if len(groups) == 1 else 's'}, {rollouts} rollouts, {steps} steps"
    body = (
        f"<div class={'wide' if len(credits) > 1 else 'one'}><header class=top><h1>Where credit goes</h1>"
        f"<p class=lead>{esc(facts)}; {esc(', '.join(credits))}</p></header><main>"
        f"{section('methods', 'Methods', _method_table(credits))}"
        f"{section('credit', 'Groups', ''.join(sections), lead)}</main>"
        "<footer>didpo · this file holds everything it shows.</footer></div>"
    )
    write_atomic(Path(path), page("didpo: where credit goes", body, {"charts": {}, "heat": heat.data}))
    return Path(path)


def _page_group(heat: Heat, group: TrajectoryGroup, credits: Mapping[str, GroupCredit], *, first: bool) -> str:
    """One group of a page: a block per method, on one colour scale, so that columns compare."""
    scale = max(largest(credit) for credit in credits.values())
    several = len(credits) > 1
    blocks = "".join(heat.block(group, c, title=name if several else "", scale=scale) for name, c in credits.items())
    n = len(group.trajectories)
    facts = f"{n} rollout{'' if n == 1 else 's'}" + ("" if scale else ", no signal: all returns are equal")
    if all(t.outcome is None for t in group.trajectories):
        facts += ", no outcomes recorded"
    return (
        f"<details class=group {'open' if scale or first else ''}><summary><h3>{esc(group.task_id)}</h3>"
        f"<span class=note>{esc(facts)}</span></summary><div class=side>{blocks}</div></details>"
    )


def _top(title: str, sections: Sequence[str]) -> str:
    links = (("learning", "Learning"), ("credit", "Where credit goes"), ("outcomes", "Outcomes and time"),
             ("tracking", "Anchors over training"), ("updates", "Updates"), ("settings", "Settings"))  # fmt: skip
    there = "".join(f'<a href="#{i}">{t}</a>' for i, t in links if any(f'id="{i}"' in s[:40] for s in sections))
    return f"<header class=top><h1>{esc(title)}</h1><nav>{there}</nav></header>"


def _alarms(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[int]]:
    """Alarm -> steps that raised it; numbers in the text vary, so the first words tell alarms apart."""
    found: dict[str, tuple[str, list[int]]] = {}
    for row in rows:
        for text in alarms(row):
            key = "".join(c for c in text if not c.isdigit())
            found.setdefault(key, (text, []))[1].append(int(row.get("step") or 0))
    return dict(found.values())


def _credits(folder: Path) -> dict[int, list[GroupCredit]]:
    """Step -> credit of its groups, from step_NNNNN.jsonl files."""
    files = sorted(folder.glob("step_*.jsonl"))
    return {int(f.name.removeprefix("step_").removesuffix(".jsonl")): list(read_credit(f)) for f in files}


def _credit_section(heat: Heat, run: RunDir) -> str:
    """Groups of the last stored step that carry the most local credit."""
    files = sorted((run.path / "credit").glob("step_*.jsonl"))
    if not files:
        return ""
    groups = list(read_groups(run.path / "trajectories" / files[-1].name))
    credits = list(read_credit(files[-1]))
    step = int(files[-1].name.removeprefix("step_").removesuffix(".jsonl"))
    order = _by_weight(groups, {"": credits})[:MAX_RUN_GROUPS]
    blocks = "".join(f"<h3>{esc(groups[i].task_id)}</h3>{heat.block(groups[i], credits[i])}" for i in order)
    lead = (
        f"Step {step}: {len(order)} of {len(groups)} groups, those with the most local credit; the best and the worst "
        "rollout of each are open. Colour: the advantage of each token, blue for more of it and orange for less. "
        "Dotted text belongs to an anchor or region: point at it for its numbers, click it to see all its members."
    )
    return section("credit", "Where credit goes", blocks, lead)


def _by_weight(groups: Sequence[TrajectoryGroup], credits: Mapping[str, Sequence[GroupCredit]]) -> list[int]:
    """Indices of the groups, those that show most first: by local credit and spread of returns, anchors, rollouts."""

    def weight(i: int) -> tuple[float, int, int, int]:
        anchors = [a for computed in credits.values() for a in computed[i].anchors]
        local = sum(abs(m.advantage) for a in anchors for m in a.members)
        returns = [float(t.rewards.sum()) for t in groups[i].trajectories if not t.failed]
        spread = max(returns) - min(returns) if returns else 0.0
        return -(local + spread), -len(anchors), -len(groups[i].trajectories), i

    return sorted(range(len(groups)), key=weight)


def _method_table(credits: Mapping[str, Sequence[GroupCredit]]) -> str:
    rows = []
    for name, computed in credits.items():
        silent = sum(1 for c in computed if not any(a.any() for t in c.advantages for a in t))
        coverage = [c.metrics["coverage"] for c in computed if "coverage" in c.metrics]
        notes = Counter(n for c in computed for n in c.notes)
        rows.append(
            [
                f"<b>{esc(name)}</b>",
                esc(sum(len(c.anchors) for c in computed)),
                esc(number(100 * sum(coverage) / len(coverage)) + " %") if coverage else "–",
                esc(silent),
                "<br>".join(esc(f"{n} (in {k} of {len(computed)} groups)") for n, k in notes.most_common(6)),
            ]
        )
    return table(["method", "anchors", "tokens with local credit", "groups without signal", "notes"], rows)
