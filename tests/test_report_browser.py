"""The reports in headless Chromium: no console error, and what pointer, keyboard and click do."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from didpo.report import write_credit_page, write_report
from report_example import HOSTILE, example_credit, example_group, example_run

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--v=0",
    "--virtual-time-budget=3000",
]

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (Debian: apt-get install chromium)"),
]


def opened(path: Path, tmp_path: Path, script: str = "", *more: str) -> tuple[str, str]:
    """DOM and console of a page after it ran, with `script` added at its end; window errors go to a marker."""
    document = path.read_text(encoding="utf-8")
    watch = "<script>window.onerror = (m) => { document.documentElement.dataset.error = m; };</script>"
    at, end = document.index("<title>"), document.rindex("</body>")
    probe = f"<script>{script}</script>" if script else ""
    page = tmp_path / "probe.html"
    page.write_text(document[:at] + watch + document[at:end] + probe + document[end:], encoding="utf-8")
    assert CHROMIUM is not None
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", *more, "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    shutil.rmtree(tmp_path / "profile", ignore_errors=True)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
    console = [line for line in done.stderr.decode(errors="replace").splitlines() if "CONSOLE" in line]
    return done.stdout.decode("utf-8"), "\n".join(console)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(example_run(tmp_path_factory.mktemp("runs") / "demo"))


def answer(dom: str) -> dict:
    found = re.search(r'data-answer="([^"]*)"', dom)
    assert found, "the probe gave no answer"
    return json.loads(found[1].replace("&quot;", '"').replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">"))


def test_a_report_opens_without_errors(report: Path, tmp_path: Path) -> None:
    dom, console = opened(report, tmp_path)
    assert console == ""
    assert 'data-ready="yes"' in dom and "data-error" not in dom
    assert "window.broken" in dom and "<img" not in dom  # the hostile text is there, as text


def test_hostile_text_runs_nothing(report: Path, tmp_path: Path) -> None:
    probe = """
      document.documentElement.dataset.answer = JSON.stringify({
        broken: window.broken === undefined, scripts: document.querySelectorAll('script').length,
        heading: [...document.querySelectorAll('h3')].at(-1).textContent });"""
    dom, console = opened(report, tmp_path, probe)
    found = answer(dom)
    assert found["broken"] is True and found["scripts"] == 4  # the page's two, and the two of this test
    assert HOSTILE[:60] in found["heading"] and console == ""


def test_pointer_click_switch_and_keyboard(report: Path, tmp_path: Path) -> None:
    probe = """
      const heat = document.querySelector('.heat'), tip = document.getElementById('tip');
      const piece = heat.querySelector('.p[data-a="1"]'), out = {};
      piece.dispatchEvent(new PointerEvent('pointerover', { bubbles: true, clientX: 40, clientY: 40 }));
      out.tip = tip.textContent; out.shown = !tip.hidden;
      piece.click();
      out.lit = heat.querySelectorAll('.p.hl').length;
      out.rollouts = new Set([...heat.querySelectorAll('.p.hl')].map((p) => p.closest('.rollout').dataset.t)).size;
      out.hits = heat.querySelector('.rollout .hits').textContent;
      out.pressed = heat.querySelector('[data-pick="1"]').getAttribute('aria-pressed');
      piece.click();
      out.off = heat.querySelectorAll('.p.hl').length;
      piece.focus();
      piece.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true, cancelable: true }));
      out.byKey = heat.querySelectorAll('.p.hl').length;
      const before = getComputedStyle(piece).backgroundImage;
      heat.querySelector('[data-show="1"]').click();
      out.switched = before !== getComputedStyle(piece).backgroundImage && heat.classList.contains('by1');
      const svg = document.querySelector('svg[id]');
      svg.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true, cancelable: true }));
      out.chart = tip.textContent;
      document.documentElement.dataset.answer = JSON.stringify(out);"""
    dom, console = opened(report, tmp_path, probe)
    found = answer(dom)
    assert console == "" and "data-error" not in dom
    assert found["shown"] and "#1 region function mean" in found["tip"]
    assert "advantage of these tokens+1.50" in found["tip"] and "episode part+0.75" in found["tip"]
    assert "baseline: mean of the anchor0.25" in found["tip"] and "return to go of this turn+1.15" in found["tip"]
    assert "R0.1 +0.75" in found["tip"] and "R2.1 \u22120.25" in found["tip"]
    assert found["rollouts"] == 4 and found["lit"] >= 4 and found["off"] == 0 and found["byKey"] == found["lit"]
    assert "anchor #1 in 1 turn" in found["hits"] and found["pressed"] == "true"
    assert found["switched"] and "step 0" in found["chart"] and "29.0 %" in found["chart"]


@pytest.mark.parametrize("flags", [(), ("--blink-settings=preferredColorScheme=0",)])
def test_text_is_readable_on_its_colour(report: Path, tmp_path: Path, flags: tuple[str, ...]) -> None:
    """Contrast of the full-colour pieces, light and dark: at least 4.5 to 1 (WCAG AA)."""
    probe = """
      const part = (x) => x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4;
      const light = (c) => c.map((x) => part(x / 255)).reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
      const nums = (t) => t.match(/[\\d.]+/g).map(Number);
      const root = getComputedStyle(document.documentElement), deep = +root.getPropertyValue('--deep');
      const ground = nums(getComputedStyle(document.querySelector('pre.code')).backgroundColor);
      const inks = ['.p.ed', '.p:not(.ed)'].map((q) => nums(getComputedStyle(document.querySelector(q)).color));
      const contrast = (name, ink) => {
        const mix = nums(root.getPropertyValue(name)).map((x, i) => deep * x + (1 - deep) * ground[i]);
        const [a, b] = [light(mix), light(ink)].sort((x, y) => y - x);
        return (a + .05) / (b + .05); };
      document.documentElement.dataset.answer =
        JSON.stringify(['--pos', '--neg'].flatMap((name) => inks.map((ink) => contrast(name, ink))));"""
    dom, _ = opened(report, tmp_path, probe, *flags)
    assert min(answer(dom)) >= 4.5, answer(dom)


def test_side_by_side_page(tmp_path: Path) -> None:
    group = example_group("repair/" + HOSTILE, HOSTILE)
    credits = {n: [example_credit(group, n, lam)] for n, lam in (("grpo", 0.0), ("gigpo", 0.5), ("didpo", 1.0))}
    dom, console = opened(write_credit_page(tmp_path / "c.html", [group], credits), tmp_path)
    assert console == "" and 'data-ready="yes"' in dom and "data-error" not in dom
