"""Credit for your own rollouts, without a model: four attempts at one task, each writing two functions.

Run it: python examples/own_rollouts.py
"""

from didpo import Step, Trajectory, TrajectoryGroup
from didpo.credit import didpo, grpo

STUB = "def add(a, b):\n    pass\n\n\ndef neg(a):\n    pass\n"


def attempt(add: str, neg: str) -> Trajectory:
    """One rollout of one step: what the agent wrote, and which tests passed afterwards."""
    code = f"def add(a, b):\n    return {add}\n\n\ndef neg(a):\n    return {neg}\n"
    passed = {"add": add == "a + b", "neg": neg == "-a"}
    step = Step(
        response=f"<edit math.py>\n<code>\n{code}</code>\n</edit>",
        files_before={"math.py": STUB},
        test_outcomes=passed,
        step_score=sum(passed.values()) / len(passed),
    )
    return Trajectory(steps=[step], outcome=float(all(passed.values())))


group = TrajectoryGroup(
    task_id="example",
    trajectories=[attempt("a + b", "-a"), attempt("a + b", "a"), attempt("a - b", "-a"), attempt("a - b", "a")],
)

for credit in (grpo(group, normalize="mean"), didpo(group, normalize="mean")):
    print(credit.algorithm)
    for trajectory, advantages in zip(group.trajectories, credit.advantages, strict=True):
        response, values = trajectory.steps[0].response, advantages[0]
        for line in ("return a + b", "return a - b", "return -a", "return a\n"):
            at = response.find(line)
            if at >= 0:
                print(f"  {line.strip():14} {values[at]:+.2f}", end="")
        print()
