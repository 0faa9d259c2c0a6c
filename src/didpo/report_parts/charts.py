"""Small charts as inline SVG. Values for the pointer go into the page's data, keyed by the chart's id."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from didpo.report_parts.markup import esc, number, percent

WIDTH, HEIGHT = 460, 210
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 12, 30


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line: points (x, y), optionally with an interval (low, high) for each point."""

    name: str
    points: Sequence[tuple[float, float]]
    intervals: Sequence[tuple[float, float]] | None = None
    color: int = 0  # index into the page's palette
    faint: bool = False  # raw values behind a smoothed line
    dots: bool = False


@dataclass(kw_only=True)
class Charts:
    """The charts of a page: collects the numbers that its script shows under the pointer."""

    data: dict[str, Any] = field(default_factory=dict)

    def line(
        self, title: str, series: Sequence[Series], *, share: bool = False, x_name: str = "step", keys: bool = False
    ) -> str:
        """A line chart in a figure; `share`: the values are fractions, drawn on 0 to 100 %.

        The names of the lines are given where there are several, or with `keys`.
        """
        series = [s for s in series if s.points]
        if not series:
            return ""
        name = f"chart{len(self.data)}"
        xs = [x for s in series for x, _ in s.points]
        ys = [y for s in series for _, y in s.points] + [v for s in series for i in s.intervals or () for v in i]
        low, high = (0.0, 1.0) if share else _padded(min(ys), max(ys))
        x_low, x_high = min(xs), max(max(xs), min(xs) + 1)

        def place(x: float, y: float) -> tuple[float, float]:
            across = (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)
            up = (y - low) / (high - low) * (HEIGHT - TOP - BOTTOM)
            return LEFT + across, HEIGHT - BOTTOM - up

        parts = [_axes(low, high, x_low, x_high, share, x_name)]
        parts += [_drawn(s, place) for s in series]
        self.data[name] = {
            "x": [x_low, x_high],
            "area": [LEFT, WIDTH - RIGHT, TOP, HEIGHT - BOTTOM, WIDTH],
            "xName": x_name,
            "share": share,
            "series": [{"name": s.name, "color": s.color, "points": [list(p) for p in s.points]} for s in series],
        }
        legend = "".join(
            f'<span class=key><i class="c{s.color}{" faint" if s.faint else ""}"></i>{esc(s.name)}</span>'
            for s in series
            if len(series) > 1 or keys
        )
        return (
            f'<figure class=chart><figcaption><b>{esc(title)}</b>{legend}</figcaption><svg id="{name}" '
            f'viewBox="0 0 {WIDTH} {HEIGHT}" role=img aria-label="{esc(_spoken(title, series, share))}" tabindex=0>'
            f'{"".join(parts)}<line class=cross y1="{TOP}" y2="{HEIGHT - BOTTOM}" hidden /></svg>' + "</figure>"
        )


def _padded(low: float, high: float) -> tuple[float, float]:
    if low == high:
        return low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2
    pad = (high - low) * 0.08
    return (0.0 if 0 <= low < 0.4 * high else low - pad), high + pad


def _ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers between low and high: steps of 1, 2 or 5 times a power of ten."""
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _axes(low: float, high: float, x_low: float, x_high: float, share: bool, x_name: str) -> str:
    parts = []
    for y in [0, 0.25, 0.5, 0.75, 1] if share else _ticks(low, high):
        at = HEIGHT - BOTTOM - (y - low) / (high - low) * (HEIGHT - TOP - BOTTOM)
        label = percent(y) if share else number(round(y, 10))
        parts.append(f'<line class=grid x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" />')
        parts.append(f'<text class=tick x="{LEFT - 7}" y="{at + 3.5:.1f}" text-anchor=end>{esc(label)}</text>')
    for x in _ticks(x_low, x_high, 6):
        if x == int(x):
            at = LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)
            parts.append(f'<text class=tick x="{at:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor=middle>{int(x)}</text>')
    parts.append(f'<text class="tick name" x="{WIDTH - RIGHT}" y="{HEIGHT - 2}" text-anchor=end>{esc(x_name)}</text>')
    return "".join(parts)


def _drawn(series: Series, place: Any) -> str:
    points = [place(x, y) for x, y in series.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    faint = " faint" if series.faint else ""
    parts = [f'<polyline class="line c{series.color}{faint}" points="{path}" />']
    for (x, _), (low, high) in zip(series.points, series.intervals or (), strict=False):
        (at, y1), (_, y2) = place(x, low), place(x, high)
        parts.append(f'<line class="bar c{series.color}" x1="{at:.1f}" x2="{at:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" />')
    if series.dots or len(points) == 1:
        parts += [f'<circle class="dot c{series.color}" cx="{x:.1f}" cy="{y:.1f}" r=3.5 />' for x, y in points]
    return "".join(parts)


def _spoken(title: str, series: Sequence[Series], share: bool) -> str:
    show = percent if share else number
    ends = (f"{s.name} from {show(s.points[0][1])} to {show(s.points[-1][1])}" for s in series)
    return f"{title}: " + ", ".join(ends)


def smoothed(points: Sequence[tuple[float, float]], window: int = 5) -> list[tuple[float, float]]:
    """Centred moving average, narrower at the ends."""
    half = window // 2
    result = []
    for i, (x, _) in enumerate(points):
        reach = min(half, i, len(points) - 1 - i)
        near = [y for _, y in points[i - reach : i + reach + 1]]
        result.append((x, sum(near) / len(near)))
    return result


def bars(title: str, values: Mapping[str, float], show: Any = number, *, color: int = 0) -> str:
    """Horizontal bars with their values, longest scale = the largest value."""
    if not values:
        return ""
    top = max(max(values.values()), 1e-12)
    rows = "".join(
        f'<div class=hbar><span class=what>{esc(name)}</span><span class=track><i class="c{color}" '
        f'style="width:{100 * max(value, 0) / top:.2f}%"></i></span><span class=num>{esc(show(value))}</span></div>'
        for name, value in values.items()
    )
    return f"<figure class=chart><figcaption><b>{esc(title)}</b></figcaption>{rows}</figure>"


def stacked(title: str, rows: Mapping[str, Mapping[str, float]], colors: Mapping[str, int]) -> str:
    """One full-width bar per row, divided by share; `colors` gives the order and colour of the parts."""
    drawn = []
    for name, shares in rows.items():
        total = sum(shares.values()) or 1
        pieces = "".join(
            f'<i class="c{colors[part]}" style="width:{100 * shares[part] / total:.2f}%" tabindex=0 '
            f'data-tip="{esc(name)}: {esc(part.replace("_", " "))} {percent(shares[part] / total)}"></i>'
            for part in colors
            if shares.get(part)
        )
        drawn.append(
            f"<div class=hbar><span class=what>{esc(name)}</span><span class='track whole'>{pieces}</span></div>"
        )
    keys = "".join(f"<span class=key><i class=c{c}></i>{esc(n.replace('_', ' '))}</span>" for n, c in colors.items())
    return f"<figure class=chart><figcaption><b>{esc(title)}</b>{keys}</figcaption>{''.join(drawn)}</figure>"


def before_after(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Two success shares with their intervals on one 0 to 100 % scale."""
    rows = []
    for i, (name, e, color) in enumerate((("before", before, 7), ("after", after, 0))):
        y = 24 + 34 * i
        x, low, high = (92 + 340 * float(e.get(k) or 0.0) for k in ("success", "low", "high"))
        rows.append(
            f'<text class=tick x=82 y="{y + 4}" text-anchor=end>{name}</text>'
            f'<line class=rail x1=92 x2=432 y1="{y}" y2="{y}" />'
            f'<line class="bar wide c{color}" x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}" />'
            f'<circle class="dot c{color}" cx="{x:.1f}" cy="{y}" r=6 />'
        )
    scale = "".join(
        f'<text class=tick x="{92 + 340 * t}" y=86 text-anchor=middle>{percent(t)}</text>'
        for t in (0, 0.25, 0.5, 0.75, 1)
    )
    label = f"success before {percent(before.get('success'))}, after {percent(after.get('success'))}"
    return f'<svg class=hero viewBox="0 0 460 92" role=img aria-label="{esc(label)}">{"".join(rows)}{scale}</svg>'
