"""Draws docs/images/credit.svg from the numbers that the package computes for examples/own_rollouts.py."""

from __future__ import annotations

import runpy
from html import escape
from pathlib import Path

HERE = Path(__file__).resolve().parent
WIDTH, ROW, TOP = 860, 104, 74


def colour(value: float, limit: float = 1.25) -> str:
    """Blue for positive, orange for negative, white for 0."""
    strength = min(1.0, abs(value) / limit)
    full = (55, 138, 202) if value > 0 else (222, 126, 51)
    return "rgb({},{},{})".format(*(round(255 + (c - 255) * strength) for c in full))


def main() -> None:
    space = runpy.run_path(str(HERE.parents[1] / "examples" / "own_rollouts.py"))
    group = space["group"]
    credits = [space["grpo"](group, normalize="mean"), space["didpo"](group, normalize="mean")]
    height = TOP + ROW * len(group.trajectories) + 10
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="14">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        '<text x="20" y="28" font-weight="bold">four rollouts of one task</text>',
        '<text x="20" y="50" fill="#555">one edit writes two functions</text>',
        '<text x="250" y="28" font-weight="bold">GRPO</text>',
        '<text x="250" y="50" fill="#555">one number per rollout</text>',
        '<text x="560" y="28" font-weight="bold">DiDPO</text>',
        '<text x="560" y="50" fill="#555">+ what each region decided</text>',
    ]
    for g, trajectory in enumerate(group.trajectories):
        y = TOP + ROW * g
        step = trajectory.steps[0]
        solved = (
            "both right: solved"
            if trajectory.outcome
            else ", ".join(f"{name} {'right' if ok else 'wrong'}" for name, ok in step.test_outcomes.items())
        )
        out.append(f'<text x="20" y="{y + 34}">rollout {g + 1}</text>')
        out.append(f'<text x="20" y="{y + 56}" fill="#555">{solved}</text>')
        code = step.response[step.response.index("def add") : step.response.index("</code>")]
        start = step.response.index("def add")
        for column, credit in enumerate(credits):
            x, line_y, at = 250 + 310 * column, y + 14, start
            for line in code.rstrip("\n").split("\n"):
                value = float(credit.advantages[g][0][at + len(line) // 2]) if line else 0.0
                at += len(line) + 1
                if not line:
                    continue
                out.append(f'<rect x="{x}" y="{line_y - 14}" width="220" height="19" fill="{colour(value)}"/>')
                out.append(
                    f'<text x="{x + 6}" y="{line_y}" font-family="monospace" font-size="12" xml:space="preserve">'
                    f"{escape(line)}</text>"
                )
                out.append(f'<text x="{x + 230}" y="{line_y}" font-size="12" fill="#333">{value:+.2f}</text>')
                line_y += 21
    out.append("</svg>")
    (HERE / "credit.svg").write_text("\n".join(out) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
