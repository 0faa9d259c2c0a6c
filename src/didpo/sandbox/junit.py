"""Reads the JUnit report of a pytest run. Trusted; the report is data of the run and is believed as far as it goes."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from didpo.sandbox.judge import shorten
from didpo.sandbox.results import Verdict


def judge_report(node: str, xml: str, exit_code: int) -> tuple[Verdict, str]:
    """The node must be in the report and all of its cases passed, none skipped; a run without any failed case must
    have ended with exit code 0."""
    try:
        cases = list(ElementTree.fromstring(xml).iter("testcase"))
    except ElementTree.ParseError:
        return Verdict.RUNTIME_ERROR, "the test run left no report"
    if exit_code != 0 and all(_problem(case) is None for case in cases):
        return Verdict.RUNTIME_ERROR, f"the test run ended with exit code {exit_code}"
    mine = [case for case in cases if _belongs(case, node)]
    if not mine:
        return Verdict.RUNTIME_ERROR, f"{node} was not run"
    for case in mine:
        problem = _problem(case)
        if problem is not None:
            kind = Verdict.RUNTIME_ERROR if problem.tag == "error" else Verdict.WRONG_ANSWER
            return kind, shorten(f"{problem.tag}: {problem.get('message') or ''}")
    return Verdict.PASSED, ""


def _problem(case: ElementTree.Element) -> ElementTree.Element | None:
    return next((child for child in case if child.tag in ("failure", "error", "skipped")), None)


def _belongs(case: ElementTree.Element, node: str) -> bool:
    """pytest writes `a/test_b.py::C::test_d[1]` as class name `a.test_b.C`, name `test_d[1]`."""
    path, *inner = node.split("::")
    module = path.removesuffix(".py").replace("/", ".")
    class_name, name = case.get("classname") or "", case.get("name") or ""
    if not inner:
        return class_name == module or class_name.startswith(module + ".")
    if class_name == ".".join([module, *inner[:-1]]):
        return name == inner[-1] or name.startswith(inner[-1] + "[")
    whole = ".".join([module, *inner])  # the node is a class
    return class_name == whole or class_name.startswith(whole + ".")
