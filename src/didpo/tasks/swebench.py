"""Repository tasks: SWE-bench (Lite, Verified), SWE-Gym and R2E-Gym rows.

A row becomes a task whose tests are nodes of the repository's own runner. The repository itself comes with a container
image, named in `meta["image"]`; without one, the tests cannot be run.
"""

from __future__ import annotations

from typing import Any

from didpo.tasks.reading import Row, Unusable, json_field, need
from didpo.types import PytestTest, Task


def swebench(row: Row) -> Task:
    """A row with `instance_id`; FAIL_TO_PASS and PASS_TO_PASS are lists, or JSON texts of lists."""
    if "expected_output_json" in row:
        return r2egym(row)
    instance, repo, commit, statement = need(row, "instance_id", "repo", "base_commit", "problem_statement")
    failing, passing = (_names(row, field) for field in ("FAIL_TO_PASS", "PASS_TO_PASS"))
    if not failing:
        raise Unusable("no test that must change from failing to passing")
    return _task(
        instance,
        statement,
        failing,
        passing,
        {
            "repo": repo,
            "base_commit": commit,
            "patch": row.get("patch") or "",
            "test_patch": row.get("test_patch") or "",
            "version": str(row.get("version") or ""),
            "image": row.get("image_name") or row.get("docker_image") or image_name(instance),
        },
    )


def r2egym(row: Row) -> Task:
    """An R2E-Gym row: the image is named in the row, the expected outcomes of the tests are one JSON object."""
    repo, commit, statement, image = need(row, "repo_name", "commit_hash", "problem_statement", "docker_image")
    outcomes = json_field(row, "expected_output_json", {})
    passing = [name for name, status in outcomes.items() if status == "PASSED"]
    if not passing:
        raise Unusable("no test that must pass")
    meta = {"repo": repo, "base_commit": commit, "patch": "", "test_patch": "", "version": "", "image": image}
    return _task(f"{repo}__{str(commit)[:12]}", statement, passing, [], meta)


def image_name(instance: str) -> str:
    """The image of an instance by the naming of the SWE-bench harness; "__" is not allowed in an image name."""
    return f"swebench/sweb.eval.x86_64.{instance.lower().replace('__', '_1776_')}:latest"


def _names(row: Row, field: str) -> list[str]:
    names = json_field(row, field, [])
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise Unusable(f"{field} is not a list of test names")
    return names


def _task(instance: str, statement: str, failing: list[str], passing: list[str], meta: dict[str, Any]) -> Task:
    return Task(
        task_id=f"swebench/{instance}",
        prompt=f"{statement.strip()}\n",
        files={},
        hidden_tests=tuple(PytestTest(name=n, node=n) for n in dict.fromkeys([*failing, *passing])),
        meta={
            "benchmark": "swebench",
            "question": statement,
            "fail_to_pass": tuple(failing),
            "pass_to_pass": tuple(passing),
            **meta,
        },
    )
