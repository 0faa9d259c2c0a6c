"""The sets of published problems by name, and how each is loaded from local files."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from didpo.errors import UserError, unknown_name
from didpo.tasks import apps, contests, ds1000, function_tests, gsm8k, livecodebench, pools, quixbugs, swebench
from didpo.tasks.reading import LoadReport, Row, Unusable, find_files, read_hub, read_records
from didpo.types import Task


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A set: the folder and file names it is looked for under (the first pattern with a match counts), the function
    that makes a task of a record, where to get it, and its name on the hub where that has the same records."""

    folder: str
    patterns: tuple[str, ...]
    task: Callable[..., Task]
    source: str
    hub: str | None = None
    beside: bool = False  # `task` also takes the folder of the file: cases lie beside it
    split_in_id: bool = False  # numbers are used again in each split: ids become set/split/number
    read: Callable[[Path], Row] | None = None  # for sets with one file per problem


def _named(*stems: str) -> tuple[str, ...]:
    return tuple(f"{stem}.{kind}" for stem in stems for kind in ("jsonl*", "json*", "parquet"))


BENCHMARKS: dict[str, Benchmark] = {
    "humaneval": Benchmark(
        folder="humaneval",
        patterns=_named("HumanEval"),
        task=function_tests.humaneval,
        source="HumanEval.jsonl.gz of the repository openai/human-eval",
        hub="openai/openai_humaneval",
    ),
    "humaneval_plus": Benchmark(
        folder="humaneval",
        patterns=_named("HumanEvalPlus*"),
        task=function_tests.humaneval,
        source="HumanEvalPlus.jsonl.gz of the repository evalplus/humanevalplus_release",
        hub="evalplus/humanevalplus",
    ),
    "mbpp": Benchmark(
        folder="mbpp",
        patterns=_named("mbpp"),
        task=function_tests.mbpp,
        source="mbpp.jsonl of the repository google-research/google-research, folder mbpp",
        hub="google-research-datasets/mbpp",
    ),
    "mbpp_sanitized": Benchmark(
        folder="mbpp",
        patterns=_named("sanitized-mbpp"),
        task=function_tests.mbpp,
        source="sanitized-mbpp.json of the repository google-research/google-research, folder mbpp",
    ),
    "mbpp_plus": Benchmark(
        folder="mbpp",
        patterns=_named("MbppPlus*"),
        task=function_tests.mbpp,
        source="the rows of evalplus/mbppplus, as MbppPlus.jsonl or MbppPlus.parquet",
        hub="evalplus/mbppplus",
    ),
    "leetcode": Benchmark(
        folder="leetcode",
        patterns=_named("LeetCodeDataset-v0.3.1-*"),
        task=function_tests.leetcode,
        source="LeetCodeDataset-v0.3.1-train.jsonl.gz and -test.jsonl.gz of the repository newfacade/LeetCodeDataset",
        hub="newfacade/LeetCodeDataset",
    ),
    "leetcode_older": Benchmark(
        folder="leetcode",
        patterns=_named("LeetCodeDataset-v0.[0-2]*", "LeetCodeDataset-v0.3.0-*"),
        task=function_tests.leetcode,
        source="a file LeetCodeDataset-v0.2.0-*.jsonl.gz of the repository newfacade/LeetCodeDataset",
    ),
    "apps": Benchmark(
        folder="apps",
        patterns=("t[re]*.jsonl*", "*.parquet", "apps_t*.jsonl*"),
        task=apps.apps,
        split_in_id=True,
        source="train.jsonl and test.jsonl of the set codeparrot/apps",
    ),
    "eurus": Benchmark(
        folder="eurus",
        patterns=("*.parquet", "*.jsonl*"),
        task=apps.eurus,
        source="the parquet files of the set PRIME-RL/Eurus-2-RL-Data",
        hub="PRIME-RL/Eurus-2-RL-Data",
    ),
    "coderl_plus": Benchmark(
        folder="coderl_plus",
        patterns=("*.parquet", "*.jsonl*"),
        task=apps.eurus,
        source="the parquet files of the CodeRL+ training set",
    ),
    "livecodebench": Benchmark(
        folder="livecodebench",
        patterns=("test*.jsonl*", "*.parquet", "lcb_[do]*.jsonl*"),
        task=livecodebench.livecodebench,
        source="test.jsonl to test6.jsonl of the set livecodebench/code_generation_lite",
    ),
    "codeforces": Benchmark(
        folder="contests",
        patterns=_named("codeforces*"),
        task=contests.codeforces,
        source="a file codeforces*.jsonl or .parquet, for example of the set open-r1/codeforces",
        hub="open-r1/codeforces",
    ),
    "code_contests": Benchmark(
        folder="contests",
        patterns=_named("code_contests*"),
        task=contests.code_contests,
        source="a file code_contests*.jsonl or .parquet, for example of the set deepmind/code_contests",
        hub="deepmind/code_contests",
    ),
    "usaco": Benchmark(
        folder="usaco",
        patterns=_named("usaco*"),
        task=contests.usaco,
        source="usaco_subset307_dict.json and the folder tests, as linked by the repository princeton-nlp/USACO",
        beside=True,
    ),
    "ojbench": Benchmark(
        folder="ojbench",
        patterns=("prompts/full.jsonl", "full.jsonl"),
        task=contests.ojbench,
        source="the set He-Ren/OJBench_testdata: prompts/full.jsonl and the folders NOI and ICPC",
        beside=True,
    ),
    "icpc_eval": Benchmark(
        folder="icpc_eval",
        patterns=("*.jsonl*", "*.json*", "*.parquet"),
        task=contests.icpc_eval,
        source="the files of the set RUC-AIBOX/ICPC-Eval",
        hub="RUC-AIBOX/ICPC-Eval",
    ),
    "ds1000": Benchmark(
        folder="ds1000",
        patterns=_named("ds1000"),
        task=ds1000.ds1000,
        source="ds1000.jsonl.gz of the repository xlang-ai/DS-1000, folder data",
        hub="xlangai/DS-1000",
    ),
    "gsm8k": Benchmark(
        folder="gsm8k",
        patterns=("t[re]*.jsonl*", "*.parquet"),
        task=gsm8k.gsm8k,
        source="train.jsonl and test.jsonl of the repository openai/grade-school-math",
        hub="openai/gsm8k",
    ),
    "quixbugs": Benchmark(
        folder="quixbugs",
        patterns=("json_testcases/*.json", "*.json"),
        task=quixbugs.quixbugs,
        source="the folders json_testcases, python_programs and correct_python_programs of jkoppel/QuixBugs",
        read=quixbugs.read_quixbugs,
    ),
    "swebench": Benchmark(
        folder="swebench",
        patterns=("swebench*.jsonl*", "*.parquet", "swe*.json*"),
        task=swebench.swebench,
        source="the parquet files of princeton-nlp/SWE-bench_Lite or SWE-bench_Verified",
        hub="princeton-nlp/SWE-bench_Lite",
    ),
}

# pool name -> (set, filters) in order; the first of two tasks with the same question stays
POOLS: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "apps_train_coderl": (("apps", {"split": "train"}), ("coderl_plus", {})),
}


def load_benchmark(
    name: str,
    data_dir: str | Path,
    *,
    visible: float | None = None,
    hub_split: str | None = None,
    **filters: Any,
) -> tuple[list[Task], LoadReport]:
    """The tasks of a set (or merged pool) and what became of every record.

    `data_dir` is the folder that has the set's folder, that folder itself, or one file. `filters` are those of
    `pools.select`. `visible` is the share of each task's tests that an agent may see the verdicts of (those that the
    statement shows are visible anyway; at least one stays hidden). `hub_split` reads from the hub instead of
    `data_dir`. Raises UserError for an unknown set, a missing or broken file, or filters that leave nothing; records
    that cannot become tasks are counted in the report.
    """
    if name not in BENCHMARKS and name not in POOLS:
        raise unknown_name("benchmark", name, [*BENCHMARKS, *POOLS])
    known = list(inspect.signature(pools.select).parameters)[1:]
    for given in filters:
        if given not in known:
            raise unknown_name("filter", given, known)
    load = _load_pool if name in POOLS else _load_set
    tasks, report = load(name, Path(data_dir), hub_split, filters)
    return tasks if visible is None else [pools.with_visible(t, visible) for t in tasks], report


def _load_set(
    name: str, data_dir: Path, hub_split: str | None, filters: dict[str, Any]
) -> tuple[list[Task], LoadReport]:
    benchmark = BENCHMARKS[name]
    report = LoadReport(benchmark=name)
    tasks = list(_tasks(name, benchmark, _rows(name, benchmark, data_dir, report, hub_split), report))
    report.tasks = len(tasks)
    if not tasks:
        raise UserError(f"{report}; {_advice(name, benchmark, data_dir)}")
    return _choose(tasks, report, filters), report


def _choose(tasks: list[Task], report: LoadReport, filters: dict[str, Any]) -> list[Task]:
    """The tasks that fit the filters, what they leave out counted by reason."""
    several = bool(filters.get("several"))
    clear = tasks if several else [t for t in tasks if not pools.ambiguous(t)]
    chosen = pools.select(clear, **{**filters, "several": True})
    for reason, count in (
        ("accepts several answers and has no checker (several=True keeps it)", len(tasks) - len(clear)),
        ("not chosen by the filters", len(clear) - len(chosen)),
    ):
        if count:
            report.skipped[reason] = count
    report.tasks = len(chosen)
    if not chosen:
        raise UserError(f"{report.benchmark}: none of its {len(clear)} tasks fits the filters {filters}; widen them")
    return chosen


def _load_pool(
    name: str, data_dir: Path, hub_split: str | None, filters: dict[str, Any]
) -> tuple[list[Task], LoadReport]:
    if hub_split is not None:
        raise UserError(f"{name} is made of several sets; put their files into {data_dir}")
    parts = [load_benchmark(part, data_dir, several=True, **options) for part, options in POOLS[name]]
    merged, skipped = pools.merge(*(tasks for tasks, _ in parts))
    report = LoadReport(
        benchmark=name, rows=sum(r.rows for _, r in parts), files=[f for _, r in parts for f in r.files]
    )
    for reasons in (*(r.skipped for _, r in parts), skipped):
        for reason, count in reasons.items():
            report.skipped[reason] = report.skipped.get(reason, 0) + count
    return _choose(merged, report, filters), report


def _advice(name: str, benchmark: Benchmark, data_dir: Path) -> str:
    return f"get {benchmark.source} and put it into {data_dir / benchmark.folder}, or give the file itself"


def _rows(
    name: str, benchmark: Benchmark, data_dir: Path, report: LoadReport, hub_split: str | None
) -> Iterator[tuple[Row, Path]]:
    if hub_split is not None:
        if benchmark.hub is None:
            raise UserError(f"{name} cannot be read from the hub; {_advice(name, benchmark, data_dir)}")
        report.files.append(f"hub:{benchmark.hub}[{hub_split}]")
        yield from ((row, Path(hub_split)) for row in read_hub(benchmark.hub, hub_split))
        return
    missing = f"no files of {name} in {data_dir}; {_advice(name, benchmark, data_dir)}"
    for path in find_files(data_dir, benchmark.folder, benchmark.patterns, missing=missing):
        report.files.append(str(path))
        records: Iterable[Row] = [benchmark.read(path)] if benchmark.read else read_records(path)
        yield from ((row, path) for row in records)


def _tasks(name: str, benchmark: Benchmark, rows: Iterable[tuple[Row, Path]], report: LoadReport) -> Iterator[Task]:
    seen: set[str] = set()
    for row, path in rows:
        report.rows += 1
        try:
            task = benchmark.task(row, path.parent) if benchmark.beside else benchmark.task(row)
            if not task.tests:
                raise Unusable("no tests")
        except Unusable as reason:
            report.skip(str(reason))
            continue
        split = task.meta.get("split") or ("" if benchmark.read else _split_of(path))
        task_id = task.task_id.replace("/", f"/{split}/", 1) if benchmark.split_in_id and split else task.task_id
        if task_id in seen:
            report.skip("task id seen before")
            continue
        seen.add(task_id)
        yield replace(task, task_id=task_id, meta={**task.meta, "benchmark": name, "split": split})


def _split_of(path: Path) -> str:
    """train, validation or test, as the file's name says; else nothing."""
    found = re.search(r"(?<![a-z])(train|validation|valid|dev|test)(?![a-z])", path.name.lower())
    return {"valid": "validation", "dev": "validation"}.get(found[1], found[1]) if found else ""
