"""All settings of a run, by section, with their meaning. Frozen; ranges are checked when they are made.

`None` in a field of `CreditSettings` or `LossSettings` means: as the algorithm's entry in `didpo.algorithms` says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from didpo.env import EnvSettings


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """Which tasks are trained on, and which are held out."""

    name: str = "repair"  # family of tasks, see `didpo.tasks`
    train: int = 2000  # training tasks
    heldout: int = 150  # tasks for evaluation; never trained on
    tracking: int = 2  # training tasks whose rollouts are followed over training
    options: dict[str, Any] = field(default_factory=dict)  # of the family: functions, design, ...

    def __post_init__(self) -> None:
        _require(self.train >= 1 and self.heldout >= 0 and self.tracking >= 0, "numbers of tasks cannot be negative")
        _require(self.tracking <= self.train, "tracking tasks are taken from the training tasks: not more than those")


@dataclass(frozen=True, kw_only=True)
class SandboxSettings:
    """How untrusted programs are run."""

    require: Literal["namespaced", "filtered", "process"] = "filtered"  # least isolation that is accepted
    workers: int = 2
    cpu_s: float = 2.0  # CPU seconds per program
    memory_mb: int = 512

    def __post_init__(self) -> None:
        _require(self.workers >= 1, "workers is at least 1")
        _require(self.cpu_s > 0 and self.memory_mb > 0, "limits are above 0")


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """The policy: the built-in tiny model, or any Hugging Face causal language model by path."""

    path: str = ""  # folder or name of a Hugging Face model; empty: the tiny model, started from noise
    width: int = 96
    layers: int = 3
    heads: int = 4
    vocabulary: int = 450  # of the tokenizer trained on the task texts (tiny model only)
    context: int = 512  # longest prompt plus response, in tokens
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: str = "auto"  # "auto", "cpu", "cuda", "cuda:1"


@dataclass(frozen=True, kw_only=True)
class ColdStartSettings:
    """Supervised start on scripted trajectories of an imperfect agent. Its result is cached."""

    steps: int = 500  # updates; 0: none
    batch_size: int = 40  # rows (turns) per update
    lr: float = 3e-3
    warmup: int = 50
    weight_decay: float = 0.01
    trajectories: int = 4000  # scripted trajectories to make the rows from
    skill: float = 0.5  # of the scripted agent: 1 makes no mistakes
    cache: str = ""  # folder of cached cold starts; empty: .cold-starts beside the run directory


@dataclass(frozen=True, kw_only=True)
class SamplingSettings:
    """How responses are drawn."""

    temperature: float = 1.0
    max_new_tokens: int = 120  # per response; a longer one is cut off and ends its rollout
    token_budget: int | None = None  # sampled tokens per rollout; none: no limit
    deadline_s: float | None = None  # wall seconds per batch of rollouts; none: no limit

    def __post_init__(self) -> None:
        _require(self.temperature > 0, "temperature is above 0 (evaluation.temperature may be 0)")
        _require(self.max_new_tokens >= 1, "max_new_tokens is at least 1")


@dataclass(frozen=True, kw_only=True)
class RLSettings:
    """The reinforcement learning loop."""

    steps: int = 30  # updates of the policy's data (each with its minibatches)
    tasks_per_step: int = 8
    group_size: int = 8  # rollouts per task
    minibatches: int = 2  # optimiser steps per RL step
    micro_tokens: int = 2048  # padded tokens per forward pass; changes memory and speed, not the result (CPU: small)
    lr: float = 3e-4
    warmup: int = 0  # optimiser steps of linear warm-up
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    old_logprobs: Literal["recompute", "sampler"] = "recompute"  # which log-probs the ratio starts from
    max_resamples: int = 2  # batches drawn again to fill groups that a filter dropped, per step
    truncated: Literal["penalise", "mask"] = "penalise"  # cut-off rollouts: keep them with their reward, or mask them

    def __post_init__(self) -> None:
        _require(self.steps >= 0, "steps cannot be negative")
        _require(self.tasks_per_step >= 1 and self.minibatches >= 1, "tasks_per_step and minibatches are at least 1")
        _require(self.group_size >= 2, "group_size is at least 2: a rollout is compared with others of its task")


@dataclass(frozen=True, kw_only=True)
class LossOverrides:
    """Overrides of the algorithm's loss; none: as the algorithm has it."""

    clip_low: float | None = None
    clip_high: float | None = None
    kl_coef: float | None = None  # of the k3 estimate to the reference; 0: no reference model is kept
    entropy_coef: float | None = None
    aggregation: (
        Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"] | None
    ) = None


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """Held-out evaluation, before and after, and on the way."""

    samples: int = 1  # rollouts per held-out task
    temperature: float = 1.0  # 0: greedy
    every: int = 10  # RL steps between evaluations on the way; 0: none
    tasks_on_the_way: int = 100  # held-out tasks of those
    ks: tuple[int, ...] = (1,)  # pass@k

    def __post_init__(self) -> None:
        _require(self.samples >= 1, "samples is at least 1")
        _require(max(self.ks, default=1) <= self.samples, "pass@k needs at least k samples: raise evaluation.samples")


@dataclass(frozen=True, kw_only=True)
class LoggingSettings:
    """What is kept of a run."""

    checkpoint_every: int = 1  # RL steps; a kill loses at most the steps since the last one
    keep_checkpoints: int = 2
    trajectories_every: int = 10  # RL steps between stored groups (and their credit)
    tracking_every: int = 5  # RL steps between samples of the tracking tasks; 0: none

    def __post_init__(self) -> None:
        _require(self.checkpoint_every >= 1 and self.keep_checkpoints >= 1, "checkpoint settings are at least 1")


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """One training run."""

    preset: str = "embedded"  # name of the preset these settings started from
    algorithm: str = "didpo"  # see `didpo.algorithms`
    seed: int = 0  # of everything random
    threads: int = 1  # CPU threads of the model; for the tiny one a second thread costs more than it brings
    tasks: TaskSettings = TaskSettings()
    env: EnvSettings = field(default_factory=EnvSettings)  # what the agent sees and is paid for
    agent: Literal["auto", "compact", "chat"] = "auto"  # prompts; auto: compact for the tiny model, else chat
    sandbox: SandboxSettings = SandboxSettings()
    model: ModelSettings = ModelSettings()
    cold_start: ColdStartSettings = ColdStartSettings()
    sampling: SamplingSettings = SamplingSettings()
    rl: RLSettings = RLSettings()
    credit: dict[str, Any] = field(default_factory=dict)  # overrides of the credit function's own settings
    loss: LossOverrides = LossOverrides()
    evaluation: EvaluationSettings = EvaluationSettings()
    logging: LoggingSettings = LoggingSettings()

    def __post_init__(self) -> None:
        _require(0 <= self.seed < 2**63, "seed is at least 0 and below 2**63")
        _require(self.threads >= 1, "threads is at least 1")


def smoke() -> RunSettings:
    """Every phase in seconds: for tests, not for learning. The policy writes code that runs, and is mostly wrong."""
    return RunSettings(
        preset="smoke",
        tasks=TaskSettings(train=40, heldout=4, tracking=1, options={"functions": 2}),
        model=ModelSettings(width=48, layers=2, heads=2, vocabulary=600, context=256),
        cold_start=ColdStartSettings(steps=100, batch_size=16, lr=6e-3, warmup=10, trajectories=200),
        sampling=SamplingSettings(max_new_tokens=48),
        rl=RLSettings(steps=2, tasks_per_step=2, group_size=4),
        evaluation=EvaluationSettings(every=1, tasks_on_the_way=2),
        logging=LoggingSettings(trajectories_every=1, tracking_every=1),
    )


PRESETS: dict[str, RunSettings] = {"embedded": RunSettings(), "smoke": smoke()}
