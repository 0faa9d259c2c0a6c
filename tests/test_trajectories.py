"""Trajectory files: the round trip is exact, and nothing broken is read as something else."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from didpo.errors import UserError
from didpo.trajectories import VERSION_KEY, read_groups, write_groups
from didpo.types import EditSpan, Step, StopReason, Trajectory, TrajectoryGroup


def full_step() -> Step:
    response = "é<edit a.py>\n<code>\nx = 1\r\n\u2028\ud800</code></edit>"
    text = "x = 1\r\n\u2028\ud800"
    start = response.index(text)
    return Step(
        response=response,
        reward=0.1 + 0.2,
        files_before={"a.py": "x = 0\r\n", "ü/b.txt": "\x00\x1b[31m"},
        files_after={"a.py": text},
        token_offsets=[(0, 1), (0, 1), (1, 5), (len(response), len(response))],
        step_score=1 / 3,
        test_outcomes={"f/0": True, "f/1": False},
        edits=(EditSpan(path="a.py", kind="overwrite", text=text, start=start, end=start + len(text), line=2),),
        prompt="p",
        observation="",
        action="edit",
        prompt_ids=[5, 0, 7],
        response_ids=[1, 2, 3, 0],
        rollout_logprobs=[-0.1, -1e-300, -33.333333333333336, 0.0],
        finish_reason="length",
    )


def full_group() -> TrajectoryGroup:
    bare = Step(response="")
    no_edit = Step(response="hm", edits=(), files_before={}, test_outcomes={}, reward=0.0, token_offsets=[])
    return TrajectoryGroup(
        task_id="t/1",
        group_id="g",
        trajectories=[
            Trajectory(steps=[full_step(), no_edit], outcome=0.0, seed=7, trajectory_id="a", meta={"k": [1, None]}),
            Trajectory(steps=[bare], stop_reason=StopReason.SANDBOX_ERROR, error="no sandbox"),
            Trajectory(steps=[], outcome=1.0, stop_reason=StopReason.SOLVED),
        ],
    )


@pytest.mark.parametrize("name", ["groups.jsonl", "groups.jsonl.gz"])
def test_round_trip_is_exact(tmp_path: Path, name: str) -> None:
    groups = [full_group(), TrajectoryGroup(task_id="", trajectories=[])]
    write_groups(tmp_path / name, groups)
    assert list(read_groups(tmp_path / name)) == groups
    assert [p.name for p in tmp_path.iterdir()] == [name]
    first = (tmp_path / name).read_bytes()
    write_groups(tmp_path / name, groups)
    assert (tmp_path / name).read_bytes() == first  # no time stamp, no order of hashes


def test_none_and_empty_stay_apart(tmp_path: Path) -> None:
    write_groups(tmp_path / "g.jsonl", [full_group()])
    steps = next(read_groups(tmp_path / "g.jsonl")).trajectories[0].steps
    assert steps[1].edits == () and steps[1].files_before == {} and steps[1].reward == 0.0
    bare = next(read_groups(tmp_path / "g.jsonl")).trajectories[1].steps[0]
    assert bare.edits is None and bare.files_before is None and bare.reward is None


texts = st.text(st.characters(codec=None), max_size=12)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(texts, st.floats(allow_nan=False, allow_infinity=False) | st.none(), st.dictionaries(texts, texts))
    ),
    texts,
)
def test_any_text_and_number_survives(tmp_path_factory: pytest.TempPathFactory, rows: list, task: str) -> None:
    steps = [Step(response=r, reward=x, files_before=f, token_offsets=[(0, len(r))]) for r, x, f in rows]
    group = TrajectoryGroup(task_id=task, trajectories=[Trajectory(steps=steps)])
    path = tmp_path_factory.mktemp("t") / "g.jsonl"
    write_groups(path, [group])
    assert list(read_groups(path)) == [group]


def test_numpy_values_are_written_as_plain_numbers(tmp_path: Path) -> None:
    import numpy as np

    step = Step(
        response="ab",
        reward=np.float32(0.5),
        response_ids=np.array([3, 4]),
        rollout_logprobs=np.array([-0.5, -0.25], dtype=np.float32),
        token_offsets=np.array([[0, 1], [1, 2]]),
    )
    write_groups(tmp_path / "g.jsonl", [TrajectoryGroup(task_id="t", trajectories=[Trajectory(steps=[step])])])
    back = next(read_groups(tmp_path / "g.jsonl")).trajectories[0].steps[0]
    assert (back.response_ids, back.rollout_logprobs, back.token_offsets) == ([3, 4], [-0.5, -0.25], [(0, 1), (1, 2)])


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "g.jsonl"
    write_groups(path, [full_group()])
    before = path.read_bytes()
    broken = TrajectoryGroup(task_id="t", trajectories=[Trajectory(steps=[Step(response="", reward=float("nan"))])])
    with pytest.raises(ValueError):
        write_groups(path, [full_group(), broken])
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["g.jsonl"]


# ---------------------------------------------------------------- what is refused


def written(tmp_path: Path, change: object = None) -> Path:
    """A file of two groups; the second line is cut, replaced or changed."""
    path = tmp_path / "g.jsonl"
    write_groups(path, [full_group(), full_group()])
    lines = path.read_text().split("\n")
    if callable(change):
        row = json.loads(lines[1])
        change(row)
        lines[1] = json.dumps(row)
    elif isinstance(change, int):
        lines[1:] = [lines[1][:change]]
    elif isinstance(change, str):
        lines[1] = change
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("cut", [1, 40, 300, -1])
def test_a_cut_line_is_named(tmp_path: Path, cut: int) -> None:
    path = written(tmp_path, cut)
    groups = read_groups(path)
    assert next(groups) == full_group()  # what stands before it can be used
    with pytest.raises(UserError, match=r"g\.jsonl, line 2: not valid JSON"):
        next(groups)


def step_of(row: dict) -> dict:
    return row["trajectories"][0]["steps"][0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("[1, 2]", "line 2: expected a JSON object, found list"),
        ('{"a": NaN}', "line 2: not valid JSON"),
        ("[" * 100_000, "line 2: not valid JSON"),
        (lambda r: r.update({VERSION_KEY: 2}), "line 2: version 2 of the format"),
        (lambda r: r.pop(VERSION_KEY), "line 2: not a didpo trajectory file"),
        (lambda r: r.update(taskid="x"), "unknown field 'taskid'"),
        (lambda r: r["trajectories"][1].update(rewards=[1]), "trajectory 1 .*unknown field 'rewards'"),
        (lambda r: step_of(r).update(offset=[]), "trajectory 0 .*step 0: unknown field 'offset'"),
        (lambda r: step_of(r)["edits"][0].update(colour="red"), "edit 0: unknown field 'colour'"),
        (lambda r: step_of(r).pop("response"), "field 'response' is missing"),
        (lambda r: step_of(r).update(reward=True), "field 'reward' must be a number"),
        (lambda r: step_of(r).update(token_offsets=[[2, 1]] * 4), "token_offsets"),
        (lambda r: step_of(r).update(token_offsets=[[0, 9999]] * 4), "beyond the end of the response"),
        (lambda r: step_of(r).update(response_ids=[1]), "unequal length: token_offsets 4, response_ids 1"),
        (lambda r: step_of(r)["edits"][0].update(start=0), "edit 0: the text is not what stands at 0:"),
        (lambda r: step_of(r).update(test_outcomes={"a": 1}), "'test_outcomes' must be an object of true and false"),
        (lambda r: r["trajectories"][0].update(stop_reason="tired"), "'stop_reason' must be one of solved"),
        (lambda r: r.update(trajectories={}), "'trajectories' must be a list"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(tmp_path: Path, change: object, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        list(read_groups(written(tmp_path, change)))
    assert "\n" not in str(caught.value) and "g.jsonl" in str(caught.value)


def test_damaged_gzip(tmp_path: Path) -> None:
    path = tmp_path / "g.jsonl.gz"
    write_groups(path, [full_group()] * 50)
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:5], b"plain text\n"):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"g\.jsonl\.gz"):
            list(read_groups(path))


def test_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "g.jsonl"
    path.write_bytes(b'{"didpo_trajectories": 1, "task_id": "\xff", "trajectories": []}\n')
    with pytest.raises(UserError, match="line 1"):
        list(read_groups(path))


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read"):
        list(read_groups(tmp_path / "none.jsonl"))


def test_files_can_be_joined(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        write_groups(tmp_path / name, [full_group()])
    joined = tmp_path / "c.jsonl"
    joined.write_bytes((tmp_path / "a.jsonl").read_bytes() + b"\n" + (tmp_path / "b.jsonl").read_bytes())
    assert list(read_groups(joined)) == [full_group()] * 2
    packed = tmp_path / "d.jsonl.gz"
    packed.write_bytes(gzip.compress((tmp_path / "a.jsonl").read_bytes()))
    assert list(read_groups(packed)) == [full_group()]
