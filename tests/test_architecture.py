"""Who may import whom. Read from the source text, so that a lazy import counts too."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[1] / "src" / "didpo"
MODULES = {".".join(("didpo", *p.relative_to(SRC).with_suffix("").parts)): p for p in SRC.rglob("*.py")}
HEAVY = ("torch", "transformers", "tokenizers", "safetensors", "peft", "vllm", "verl", "trl", "ray")


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return found


def reaches(found: set[str], *prefixes: str) -> set[str]:
    return {name for name in found for p in prefixes if name == p or name.startswith(p + ".")}


def under(*prefixes: str) -> list[str]:
    return [m for m in MODULES if any(m == p or m.startswith(p + ".") for p in prefixes)]


@pytest.mark.parametrize("module", under("didpo.types", "didpo.errors"))
def test_types_and_errors_stand_alone(module: str) -> None:
    allowed = {*sys.stdlib_module_names, "numpy", "didpo"}
    found = imports(MODULES[module])
    assert {name.split(".")[0] for name in found} <= allowed
    assert not {n for n in reaches(found, "didpo") if not n.startswith(("didpo.types", "didpo.errors"))}


@pytest.mark.parametrize("module", under("didpo.credit"))
def test_credit_is_pure(module: str) -> None:
    found = imports(MODULES[module])
    own = ("didpo.types", "didpo.errors", "didpo.actions", "didpo.credit")
    assert {n for n in reaches(found, "didpo") if not n.startswith(own) and n != "didpo"} == set()
    third = {n.split(".")[0] for n in found} - set(sys.stdlib_module_names) - {"didpo"}
    assert {name for name in third if not name.startswith("tree_sitter")} <= {"numpy", "rapidfuzz"}


@pytest.mark.parametrize("module", under("didpo.tasks", "didpo.sandbox", "didpo.actions", "didpo.env", "didpo.agent"))
def test_the_environment_knows_neither_torch_nor_credit(module: str) -> None:
    assert not reaches(imports(MODULES[module]), *HEAVY, "didpo.credit", "didpo.trainer")


def test_rollout_does_not_know_the_algorithm() -> None:
    assert not reaches(imports(MODULES["didpo.rollout"]), "didpo.algorithms", "didpo.credit", "didpo.losses")


def test_the_trainer_does_not_branch_on_the_algorithm() -> None:
    for node in ast.walk(ast.parse(MODULES["didpo.trainer"].read_text())):
        if isinstance(node, (ast.If, ast.IfExp, ast.Match)):
            test = node.subject if isinstance(node, ast.Match) else node.test
            for compare in (n for n in ast.walk(test) if isinstance(n, ast.Compare)):
                assert "algorithm" not in ast.unparse(compare.left), ast.unparse(compare)


@pytest.mark.parametrize("module", under("didpo.report", "didpo.report_parts"))
def test_the_report_reads_run_directories_only(module: str) -> None:
    assert not reaches(imports(MODULES[module]), *HEAVY, "didpo.trainer", "didpo.rollout", "didpo.env", "didpo.sandbox")


def test_model_libraries_stay_in_their_files() -> None:
    for module, path in MODULES.items():
        if reaches(imports(path), "transformers", "peft", "vllm", "tokenizers"):
            assert module in {"didpo.model", "didpo.sampling", "didpo.tokens"} or module.startswith("didpo.engines"), (
                module
            )


def test_nothing_imports_the_engines() -> None:
    for module, path in MODULES.items():
        if not module.startswith("didpo.engines"):
            assert not reaches(imports(path), "didpo.engines"), module


def test_import_is_light() -> None:
    code = "import didpo, sys; print(sorted({'torch', 'numpy', 'transformers'} & set(sys.modules)))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
