"""GSM8K: word problems as tasks of one turn. The program prints the number; the expected one stands after `####`."""

from __future__ import annotations

import hashlib
import re

from didpo.tasks.reading import Row, Unusable, need
from didpo.types import StdioTest, Task

PATH = "solution.py"
_ANSWER = re.compile(r"####\s*(-?[\d,]*\.?\d+)\s*$")


def final_answer(text: str) -> str:
    """The number after `####`, without thousands separators. Raises Unusable where there is none."""
    found = _ANSWER.search(text.strip())
    if not found:
        raise Unusable("no number after ####")
    return found[1].replace(",", "")


def gsm8k(row: Row) -> Task:
    question, solution = need(row, "question", "answer")
    answer = final_answer(solution)
    return Task(
        task_id=f"gsm8k/{hashlib.sha256(question.encode()).hexdigest()[:16]}",
        prompt=f"{question.strip()}\n\nWrite the program {PATH}: it prints the answer, a single number.\n",
        files={PATH: "raise NotImplementedError\n"},
        hidden_tests=(StdioTest(name="answer", path=PATH, stdin="", expected=answer),),
        reference={PATH: f"print({answer})\n"},
        meta={"benchmark": "gsm8k", "question": question, "answer": answer},
    )
