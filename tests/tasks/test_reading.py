"""Reading files, and the reports of what could not be used."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path

import pytest

from didpo.errors import UserError
from didpo.tasks.benchmarks import BENCHMARKS, load_benchmark
from didpo.tasks.reading import read_records, several_answers, shown_first, stdio_tests

ROWS = [{"a": 1, "b": "x\u2028y"}, {"a": 2, "b": "\r\n"}]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_json_lines(tmp_path: Path, name: str) -> None:
    text = "\n".join(json.dumps(r, ensure_ascii=False) for r in ROWS) + "\n\n"
    assert list(read_records(write(tmp_path / name, text))) == ROWS  # U+2028 ends no line


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a.jsonl"])
def test_json_array(tmp_path: Path, name: str) -> None:
    assert list(read_records(write(tmp_path / name, json.dumps(ROWS, indent=1)))) == ROWS


def test_json_object_of_objects_keeps_the_keys(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", json.dumps({"p1": {"x": 1}, "p2": {"x": 2}}))
    assert list(read_records(path)) == [{"_key": "p1", "x": 1}, {"_key": "p2", "x": 2}]


def test_json_lines_under_the_name_of_json(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", "\n".join(json.dumps(r) for r in ROWS))
    assert list(read_records(path)) == ROWS


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    assert list(read_records(tmp_path / "a.parquet")) == ROWS
    broken = write(tmp_path / "b.parquet", "no parquet")
    with pytest.raises(UserError, match="not a parquet file"):
        list(read_records(broken))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.jsonl", '{"a": 1}\n{"a": \n', r"a\.jsonl:2: not JSON"),
        ("a.json", '[\n{"a": 1},\n]', r"a\.json:3: not JSON"),
        ("a.jsonl", "[1, 2]", "a record is int"),
        ("a.txt", "", "unknown kind of file"),
    ],
)
def test_broken_files(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        list(read_records(write(tmp_path / name, text)))


def test_cut_off_gzip(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl.gz", json.dumps(ROWS[0]) * 50)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UserError, match="download it again"):
        list(read_records(path))


@pytest.mark.parametrize("name", sorted(BENCHMARKS))
def test_missing_set_says_what_to_get_and_where(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError) as error:
        load_benchmark(name, tmp_path)
    assert BENCHMARKS[name].source in str(error.value)
    assert str(tmp_path / BENCHMARKS[name].folder) in str(error.value)


def test_unknown_set(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'humaneval'"):
        load_benchmark("human_eval", tmp_path)


def test_records_without_tests_are_counted_by_reason(tmp_path: Path) -> None:
    case = {"inputs": ["1\n"], "outputs": ["2\n"]}
    rows = [
        {"problem_id": 1, "question": "q1", "input_output": json.dumps(case)},
        {"problem_id": 1, "question": "q1", "input_output": json.dumps(case)},
        {"problem_id": 2, "question": "q2", "input_output": ""},
        {"problem_id": 3, "question": "q3", "input_output": "{broken"},
        {"problem_id": 4, "question": "q4", "input_output": json.dumps({"inputs": ["1"], "outputs": [" \n"]})},
        {"problem_id": 5, "question": "q5", "input_output": json.dumps({"inputs": ["1", "2"], "outputs": ["1"]})},
        {"problem_id": 6, "question": "Print any of them.", "input_output": json.dumps(case)},
        {"problem_id": 7},
    ]
    write(tmp_path / "apps" / "train.jsonl", "\n".join(map(json.dumps, rows)))
    tasks, report = load_benchmark("apps", tmp_path)
    assert [t.task_id for t in tasks] == ["apps/train/1"]
    assert (report.rows, report.tasks) == (8, 1)
    assert report.skipped == {
        "task id seen before": 1,
        "no tests": 1,
        "field 'input_output' is not JSON": 1,
        "no test has an expected output": 1,
        "inputs and outputs differ in number": 1,
        "no field 'question'": 1,
        "accepts several answers and has no checker (several=True keeps it)": 1,
    }
    assert sum(report.skipped.values()) + report.tasks == report.rows


def test_a_set_of_unusable_records_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "apps" / "train.jsonl", json.dumps({"problem_id": 2, "question": "q", "input_output": ""}))
    with pytest.raises(UserError, match="1 left out: no tests"):
        load_benchmark("apps", tmp_path)


def test_pickle_files_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.pkl"
    path.write_bytes(pickle.dumps(ROWS))
    with pytest.raises(UserError, match="unknown kind of file"):
        list(read_records(path))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("If there are multiple answers, print any of them.", True),
        ("If multiple solutions exist, output any.", True),
        ("You may return the answer in any order.", True),
        ("Print any valid permutation.", True),
        ("Print YES if any two of them meet, else NO.", False),
        ("Find the number of ways to choose k items.", False),
    ],
)
def test_several_answers(text: str, expected: bool) -> None:
    assert several_answers(text) is expected


def test_tests_printed_in_the_statement_are_visible() -> None:
    tests = stdio_tests([("3\n1 2 3\n", "6"), ("2\n4 5\n", "9"), ("5\n", "")])
    assert [t.name for t in tests] == ["case/0", "case/1"]  # the third could not tell right from wrong
    shown, hidden = shown_first("Input\n3\n1 2   3\nOutput\n6\n", tests)
    assert ([t.name for t in shown], [t.name for t in hidden]) == (["case/0"], ["case/1"])
    assert shown_first("3 1 2 3 and 2 4 5 !", tests) == ((), tests)  # never all of them
