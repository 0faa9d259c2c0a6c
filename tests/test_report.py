"""The reports: what they say, that nothing recorded can break them, and that they load nothing."""

from __future__ import annotations

import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from didpo.errors import UserError
from didpo.report import write_credit_page, write_report
from didpo.report_parts.charts import Charts, Series, smoothed
from didpo.report_parts.heat import Heat, ranked
from didpo.report_parts.markup import esc, number, script_json, seconds, signed, visible
from didpo.types import GroupCredit, Step, StopReason, Trajectory, TrajectoryGroup
from report_example import HOSTILE, SUMMARY, example_credit, example_group, example_run

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """A page taken apart: elements with their attributes, text, the JSON data; unbalanced elements fail."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == [], self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, (tag, self.open[-3:], self.getpos())
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)

    def with_class(self, name: str) -> list[dict[str, str | None]]:
        return [a for _, a in self.elements if name in (a.get("class") or "").split()]

    @property
    def data(self) -> dict:
        scripts = self.texts["script"]
        return json.loads(next(s for s in scripts if s.startswith("{")))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return example_run(tmp_path_factory.mktemp("runs") / "demo")


@pytest.fixture(scope="module")
def text(run: Path) -> str:
    path = write_report(run)
    assert path == run / "report.html"
    return path.read_text(encoding="utf-8")


def plain(text: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", re.sub(r"(?s)<(script|style).*?</\1>", "", text)))


# ---------------------------------------------------------------- content of a run's report


def test_the_headline_says_what_was_gained(text: str) -> None:
    words = plain(text)
    assert "29%→91%" in words and "+62 points" in words
    assert "before 22% to 37% (n = 150), after 85% to 95% (n = 150)" in words
    assert "namespaced" in words and "4 min 11 s" in words  # all phases: 250.6 s
    assert "60% of the groups gave no signal" in words and "steps 31, 32, 33" in words


def test_sections_charts_and_tables(text: str) -> None:
    page = Page(text)
    ids = [a["id"] for tag, a in page.elements if tag == "section"]
    assert ids == ["learning", "credit", "outcomes", "tracking", "updates", "settings"]
    charts = page.data["charts"]
    success = next(c for c in charts.values() if len(c["series"]) == 3)
    held = next(s for s in success["series"] if "held-out" in s["name"])
    assert held["points"] == [[0, 0.29], [10, 0.58], [20, 0.77], [30, 0.86], [40, 0.91]]
    assert sum(tag == "svg" for tag, _ in page.elements) == len(charts) + 1
    words = plain(text)
    for wanted in ("How rollouts ended", "Time by phase", "Of 40 tasks, 24 are solved only after training", "rl.steps",
                   "Anchors per task, by kind", "Mean groupability (GS)"):  # fmt: skip
        assert wanted in words, wanted


def test_token_colours_are_the_advantages(text: str, run: Path) -> None:
    group = example_group()
    credit = example_credit(group)
    block = text[text.index('id="heat0"') : text.index('id="heat1"')]
    best = block[block.index('data-t="0"') : block.index('data-t="2"')]
    pieces = re.findall(r'<span class="p[^"]*" data-v="([^"]*)"[^>]*?>([^<]*)</span>', best)
    response = group.trajectories[0].steps[0].response
    assert "".join(html.unescape(t) for _, t in pieces) == response
    position = 0
    values = [credit.advantages[0][0], credit.parts["episode"][0][0], credit.parts["diff"][0][0]]
    for shown, piece in pieces:
        for _ in html.unescape(piece):
            token = position // 3  # the example's tokens are three characters long
            assert [float(v) for v in shown.split()] == pytest.approx([float(v[token]) for v in values], rel=1e-3)
            position += 1


def test_anchor_pieces_are_the_members_spans(text: str) -> None:
    group = example_group()
    block = text[text.index('id="heat0"') : text.index('id="heat1"')]
    for g in range(4):
        rollout = re.search(rf'<details class=rollout data-t="{g}".*?</pre>', block, re.DOTALL)
        assert rollout
        for number_, name in enumerate(("area", "mean")):
            marked = re.findall(rf'data-a="{number_}"[^>]*>([^<]*)<', rollout[0])
            member = example_credit(group).anchors[number_].members[g]
            (start, end), response = member.spans[0], group.trajectories[g].steps[0].response
            assert html.unescape("".join(marked)) == response[start:end], name


def test_the_data_explains_every_anchor(text: str) -> None:
    anchor = Page(text).data["heat"]["heat0"]["anchors"][0]
    assert anchor["kind"] == "region" and anchor["label"] == "function area" and anchor["rows"] == 4
    assert anchor["members"] == [[0, 0, 1.0, 0.25], [1, 0, 1.0, 0.25], [2, 0, 0.0, -0.75], [3, 0, 1.0, 0.25]]
    assert anchor["mean"] == 0.75 and anchor["contrast"] == 0.25


def test_best_and_worst_are_open(text: str) -> None:
    block = text[text.index('id="heat0"') : text.index('id="heat1"')]
    assert re.findall(r'data-t="(\d)" open', block) == ["0", "2"]
    assert re.findall(r'data-t="(\d)" >', block) == ["1", "3"]


def test_order_of_rollouts() -> None:
    def rollout(reward: float, reason: StopReason = StopReason.FINISHED) -> Trajectory:
        return Trajectory(steps=[Step(response="", reward=reward)], stop_reason=reason)

    group = TrajectoryGroup(
        task_id="t", trajectories=[rollout(0.2), rollout(9, StopReason.SANDBOX_ERROR), rollout(1), rollout(0.2)]
    )
    assert ranked(group) == [2, 0, 3, 1]


# ---------------------------------------------------------------- nothing breaks the page, nothing is loaded


def test_hostile_text_stays_text(text: str) -> None:
    page = Page(text)  # balanced: no recorded "</script>" closed anything
    assert sum(tag == "script" for tag, _ in page.elements) == 2
    assert not any(tag == "img" for tag, _ in page.elements)
    assert not any(name.startswith("on") for _, attrs in page.elements for name in attrs)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u2028\u2029\u202a-\u202e\ud800-\udfff]", text)
    assert visible(HOSTILE) in plain(text)
    text.encode("utf-8")


def test_nothing_is_loaded(text: str, tmp_path: Path) -> None:
    group = example_group()
    other = write_credit_page(tmp_path / "c.html", [group], {"didpo": [example_credit(group)]}).read_text("utf-8")
    for document in (text, other):
        page = Page(document)
        for tag, attrs in page.elements:
            assert "src" not in attrs, tag
            assert not (tag == "link" and attrs["href"] != "data:,")
            assert tag not in {"iframe", "object", "embed", "base", "form"}
            if "href" in attrs and tag == "a":
                assert (attrs["href"] or "").startswith("#")
        style = "".join(page.texts["style"])
        assert "url(" not in style and "@import" not in style
        script = next(s for s in page.texts["script"] if not s.startswith("{"))
        assert not re.search(r"https?:|fetch|XMLHttp|import\(|innerHTML|insertAdjacent|document\.write|eval", script)
        assert "default-src 'none'" in document


@settings(max_examples=80, deadline=None)
@given(st.text(st.characters(codec=None), max_size=60))
def test_any_text_survives_escaping(recorded: str) -> None:
    page = Page(f'<p title="{esc(recorded)}">{esc(recorded)}</p>')
    assert page.elements == [("p", {"title": visible(recorded)})]
    assert "".join(page.texts.get("p", [])) == visible(recorded)
    json_text = script_json({"x": visible(recorded)})
    assert "<" not in json_text and json.loads(json_text) == {"x": visible(recorded)}
    json_text.encode("utf-8")


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.text(st.characters(codec=None), max_size=30), min_size=1, max_size=3), st.randoms(use_true_random=False)
)
def test_any_response_is_drawn_whole(responses: list[str], random) -> None:
    steps = [Step(response=r, edits=()) for r in responses]
    group = TrajectoryGroup(task_id="t", trajectories=[Trajectory(steps=steps)])
    arrays = [np.array([random.uniform(-2, 2) for _ in r], dtype=np.float32) for r in responses]
    credit = GroupCredit(algorithm="x", advantages=[arrays], parts={"episode": [arrays]}, assigned=[True])
    block = Heat().block(group, credit)
    Page(block)
    codes = re.findall(r"(?s)<pre class=code>(.*?)</pre>", block)
    assert [html.unescape(re.sub(r"<[^>]*>", "", c)) for c in codes] == [visible(r) for r in responses]


def test_a_character_of_several_byte_tokens_shows_its_first_token() -> None:
    step = Step(response="é!", token_offsets=[(0, 1), (0, 1), (1, 2), (2, 2)], edits=())
    values = np.array([0.5, -0.5, 0.25, 9.0], dtype=np.float32)
    group = TrajectoryGroup(task_id="t", trajectories=[Trajectory(steps=[step])])
    credit = GroupCredit(algorithm="x", advantages=[[values]], parts={}, assigned=[True])
    assert re.findall(r'data-v="([^"]*)"[^>]*>(.)<', Heat().block(group, credit)) == [("0.5", "é"), ("0.25", "!")]


def test_long_responses_and_large_groups_are_cut_and_say_so() -> None:
    steps = [Step(response="x" * 50_000, edits=())]
    group = TrajectoryGroup(task_id="t", trajectories=[Trajectory(steps=steps)] * 40)
    values = [np.zeros(50_000, dtype=np.float32)]
    credit = GroupCredit(algorithm="x", advantages=[values] * 40, parts={}, assigned=[True] * 40)
    block = Heat().block(group, credit)
    assert len(block) < 1_000_000
    assert "30000 more characters" in block and "24 rollouts of middling return are not drawn" in block


# ---------------------------------------------------------------- runs in every state


def test_a_run_that_has_just_begun(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('algorithm = "grpo"\n')
    page = Page(write_report(tmp_path).read_text(encoding="utf-8"))
    assert [a["id"] for tag, a in page.elements if tag == "section"] == ["settings"]
    (tmp_path / "metrics.jsonl").write_text('{"phase": "rl", "step": 1, "success": 0.5, "loss": null}\n{"phase": "rl"')
    assert "Success" in plain(write_report(tmp_path).read_text(encoding="utf-8"))


@pytest.mark.parametrize("value", [0.0, 1.0, None])
def test_extreme_numbers(tmp_path: Path, value: float | None) -> None:
    summary = json.loads(json.dumps(SUMMARY))
    for name in ("eval_before", "eval_after"):
        summary[name] |= {"success": value, "low": value, "high": value, "n": 0 if value is None else 3}
    rows = [
        {"phase": "rl", "step": i, "success": value, "loss": x, "grad_norm": 1e-30 * i}
        for i, x in enumerate((1e9, -1e9))
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    document = write_report(tmp_path).read_text(encoding="utf-8")
    Page(document)
    assert "nan" not in re.sub(r"(?s)<(script|style).*?</\1>", "", document).lower().replace("nance", "")


def test_no_run_is_one_line(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(UserError, match="is not a run directory"):
            write_report(path)
    (tmp_path / "config.toml").write_text("a = ")
    with pytest.raises(UserError, match=r"config\.toml"):
        write_report(tmp_path)
    (tmp_path / "config.toml").write_text("a = 1")
    (tmp_path / "summary.json").write_text('{"a": ')
    with pytest.raises(UserError, match=r"summary\.json"):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()
    with pytest.raises(UserError, match="no groups to draw"):
        write_credit_page(tmp_path / "x.html", [], {})
    assert not (tmp_path / "x.html").exists()


def test_methods_side_by_side_share_one_scale(tmp_path: Path) -> None:
    groups = [example_group(), example_group("second")]
    credits = {n: [example_credit(g, n, lam) for g in groups] for n, lam in (("grpo", 0.0), ("didpo", 1.0))}
    page = Page(write_credit_page(tmp_path / "c.html", groups, credits).read_text(encoding="utf-8"))
    assert len(page.with_class("heat")) == 4 and len(page.with_class("side")) == 2
    assert {round(b["scale"], 4) for b in page.data["heat"].values()} == {1.5}
    assert [len(b["anchors"]) for b in page.data["heat"].values()] == [0, 2, 0, 2]


# ---------------------------------------------------------------- numbers and lines


def test_number_formats() -> None:
    assert [number(x) for x in (None, 3.0, 0.12345, 12345.6, 1e-5)] == ["–", "3", "0.123", "12,346", "1e-05"]
    assert [signed(x) for x in (0.5, -0.25, 0.0, -0.001)] == ["+0.50", "−0.25", "+0.00", "−0.001"]
    assert [seconds(x) for x in (0.0123, 5.25, 125.0, 179.8)] == ["12 ms", "5.2 s", "2 min 5 s", "3 min 0 s"]


def test_smoothing_is_centred_and_narrows_at_the_ends() -> None:
    assert smoothed([(i, float(y)) for i, y in enumerate((0, 3, 0, 3, 6))], window=3) == [
        (0, 0.0), (1, 1.0), (2, 2.0), (3, 3.0), (4, 6.0)
    ]  # fmt: skip


def test_a_line_is_drawn_to_scale() -> None:
    svg = Charts().line("t", [Series(name="a", points=[(0, 0.0), (10, 1.0)])], share=True)
    assert re.search(r'points="46\.0,180\.0 446\.0,12\.0"', svg)
    assert Charts().line("t", [Series(name="a", points=[])]) == ""
