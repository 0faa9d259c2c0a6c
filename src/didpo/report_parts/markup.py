"""Text to HTML that no recorded text can break, number formats, and the one-file page around a body."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

# Controls, marks that reorder or break lines, and lone surrogates: shown, never obeyed.
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def visible(text: str) -> str:
    """`text` with every character that is invisible or acts on its surroundings replaced by a visible sign."""
    return HIDDEN.sub(_sign, text)


def _sign(match: re.Match[str]) -> str:
    return "\N{SYMBOL FOR CARRIAGE RETURN}" if match[0] == "\r" else f"\u27e8U+{ord(match[0]):04X}\u27e9"


def esc(value: Any) -> str:
    """Any value as HTML text, fit for element content and for quoted attributes."""
    return html.escape(visible(str(value)), quote=True)


def script_json(value: Any) -> str:
    """JSON that is safe inside a script element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def number(value: float | None, digits: int = 3) -> str:
    """A short number for people; a dash where there is none."""
    if value is None:
        return "–"
    if value == int(value) and abs(value) < 1e6:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"


def signed(value: float) -> str:
    """A number with its sign, two decimals (more where it is small)."""
    text = f"{value:+.2f}" if abs(value) >= 0.01 or value == 0 else f"{value:+.1g}"
    return text.replace("-", "\N{MINUS SIGN}")


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f}%"


def seconds(value: float) -> str:
    if value < 1:
        return f"{1000 * value:.0f} ms"
    if value < 120:
        return f"{value:.1f} s"
    return f"{round(value) // 60} min {round(value) % 60} s"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """A table of ready HTML cells; `head` is plain text."""
    top = "".join(f"<th scope=col>{esc(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class=scroll><table class="{kind}"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def section(name: str, title: str, body: str, lead: str = "") -> str:
    intro = f"<p class=lead>{esc(lead)}</p>" if lead else ""
    return f'<section id="{name}"><h2>{esc(title)}</h2>{intro}{body}</section>'


def page(title: str, body: str, data: Mapping[str, Any]) -> str:
    """The whole document: style and script inside, nothing loaded from anywhere."""
    assets = files("didpo")
    style = (assets / "report.css").read_text(encoding="utf-8")
    script = (assets / "report.js").read_text(encoding="utf-8")
    return (
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width, initial-scale=1'>"
        "<meta name=color-scheme content='light dark'>"
        # the page needs no network: nothing in recorded text could make it load anything
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        "script-src 'unsafe-inline'; img-src data:\">"
        f"<title>{esc(title)}</title><link rel=icon href='data:,'><style>{style}</style></head>\n<body>\n{body}\n"
        "<div id=tip role=tooltip hidden></div>\n"
        f"<script type=application/json id=data>{script_json(data)}</script>\n<script>{script}</script>\n"
        "</body></html>\n"
    )
