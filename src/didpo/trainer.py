"""A training run from tasks to summary: cold start -> evaluation -> reinforcement learning -> evaluation.

The loop is `train`, read from top to bottom: sample -> credit -> update -> log. Everything random in it derives from
(seed, step, task, rollout), so that a resumed run takes the same steps as one that was never stopped.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from didpo import checkpoint
from didpo.batch import Row, count, micro_batches, unpad
from didpo.coldstart import cache_folder
from didpo.credit.io import write_credit
from didpo.doctor import versions
from didpo.evaluate import Evaluation, evaluate_rows
from didpo.losses import batch_loss, combine_metrics
from didpo.model import reference_copy, save_model, token_logprobs
from didpo.progress import Progress, alarms, open_progress
from didpo.rollout import Seconds, derive_seed
from didpo.rundir import RunDir, read_jsonl, write_json, write_rows
from didpo.session import Session, open_session
from didpo.settings import RunSettings
from didpo.trajectories import write_groups
from didpo.types import GroupCredit, StopReason, Task, TrajectoryGroup


def run(
    settings: RunSettings,
    run_dir: str | Path,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Train one agent as `settings` say and return the summary, which is also written to summary.json.

    `run_dir` is a folder that `rundir.prepare` made. `resume` continues from the newest checkpoint in it; a finished
    run is returned as it is. Raises UserError for settings that cannot work, before anything heavy is loaded.
    """
    folder = RunDir(run_dir)
    if resume and folder.summary.exists():
        return folder.read_summary()
    progress = progress or open_progress("silent" if quiet else "auto")
    started = resume and rewind(folder)
    log = _ignore if started else folder.log
    with progress, open_session(settings, cache=cache_folder(settings, folder), progress=progress, log=log) as session:
        trainer = Trainer(session, folder, progress)
        before = evaluate(trainer, "before", step=0)
        trainer.restore()
        train(trainer)
        after = evaluate(trainer, "after", step=settings.rl.steps)
        save_policy(trainer)
        summary = summarise(trainer, before, after)
    write_json(folder.summary, summary)
    return summary


class Trainer:
    """What changes while training: the policy (in the session), the optimiser, and three counters."""

    def __init__(self, session: Session, run_dir: RunDir, progress: Progress) -> None:
        rl = session.settings.rl
        self.session, self.run_dir, self.progress = session, run_dir, progress
        self.reference = reference_copy(session.model) if session.loss.kl_coef else None
        self.optimiser = torch.optim.AdamW(session.model.parameters(), lr=rl.lr, weight_decay=rl.weight_decay)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimiser, lambda n: min(1.0, (n + 1) / (rl.warmup + 1)))
        self.step = 0  # RL steps done
        self.drawn = 0  # training tasks drawn so far
        self.tokens = 0  # tokens sampled so far

    def next_tasks(self, n: int) -> list[Task]:
        """The next `n` training tasks: every task once per epoch, in an order that depends on (seed, epoch) alone."""
        tasks, seed = self.session.train_tasks, self.session.settings.seed
        picked = []
        for position in range(self.drawn, self.drawn + n):
            epoch, place = divmod(position, len(tasks))
            order = np.random.default_rng(derive_seed(seed, "epoch", epoch)).permutation(len(tasks))
            picked.append(tasks[order[place]])
        self.drawn += n
        return picked

    def save(self) -> None:
        state = {
            "model": self.session.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "schedule": self.schedule.state_dict(),
        }
        counters = {"drawn": self.drawn, "tokens": self.tokens, "algorithm": self.session.algorithm.name}
        checkpoint.save(
            self.run_dir.checkpoints,
            self.step,
            state,
            counters,
            keep=self.session.settings.logging.keep_checkpoints,
        )

    def restore(self) -> None:
        """Go back to the newest checkpoint, if there is one."""
        found = checkpoint.list_checkpoints(self.run_dir.checkpoints)
        if found:
            state, manifest = checkpoint.load(found[-1])
            self.session.model.load_state_dict(state["model"])
            self.optimiser.load_state_dict(state["optimiser"])
            self.schedule.load_state_dict(state["schedule"])
            self.step, self.drawn, self.tokens = (manifest[name] for name in ("step", "drawn", "tokens"))


def rewind(run_dir: RunDir) -> bool:
    """Before a resume: drop the metrics of what will be done again. True where the run had reached its RL phase."""
    found = checkpoint.list_checkpoints(run_dir.checkpoints)
    last = int(found[-1].name.removeprefix("step_")) if found else 0
    started = any(row["name"] == "before" for row in run_dir.rows("eval"))
    run_dir.rewind(
        lambda row: (
            started and (row["phase"] in ("tasks", "sft") or (row["step"] <= last and row.get("name") != "after"))
        )
    )
    return started


def _ignore(row: dict[str, Any]) -> None:
    pass


def save_policy(trainer: Trainer) -> None:
    """The trained model and its tokenizer in model/, in Hugging Face format, whole or not at all."""
    final = trainer.run_dir.final_model
    partial = final.with_name(f".{final.name}.partial")
    for folder in (partial, final):
        shutil.rmtree(folder, ignore_errors=True)
    save_model(trainer.session.model, trainer.session.tokenizer, partial)
    partial.rename(final)


def train(trainer: Trainer) -> None:
    """The reinforcement learning loop."""
    session, settings = trainer.session, trainer.session.settings
    progress, logging = trainer.progress, settings.logging
    progress.phase("reinforcement learning", settings.rl.steps, trainer.step)
    while trainer.step < settings.rl.steps:
        seconds, began = Seconds(), time.monotonic()
        step = trainer.step + 1

        groups, resampled = collect(trainer, step, seconds)
        with seconds.measure("credit"):
            credits = session.algorithm.credit(groups, settings.sampling.max_new_tokens)
        with seconds.measure("update"):
            learnt = update(trainer, groups, credits, step)
        with seconds.measure("audit"):
            mismatch = session.audit_grades(groups, seed=derive_seed(settings.seed, "audit", step))

        trainer.step = step
        row = measure(groups, credits) | learnt | {"resampled_groups": resampled, "grade_mismatch": mismatch}
        trainer.tokens += int(row["tokens"])
        elapsed = time.monotonic() - began
        row |= {f"seconds_{part}": value for part, value in seconds.items()}
        row |= {"tokens_total": trainer.tokens, "tokens_per_second": row["tokens"] / elapsed}
        if step % logging.trajectories_every == 0:
            store(trainer, "trajectories", "credit", step, groups, credits)
        if logging.tracking_every and (step % logging.tracking_every == 0 or step == settings.rl.steps):
            track(trainer, step)
        trainer.run_dir.log({"phase": "rl", "step": step, "seconds": elapsed, **row})
        if settings.evaluation.every and step % settings.evaluation.every == 0 and step < settings.rl.steps:
            evaluate(trainer, "on the way", step=step)
        if step % logging.checkpoint_every == 0 or step == settings.rl.steps:
            trainer.save()
        progress.advance(success=row["success"], tokens_per_second=row["tokens_per_second"])
        for text in alarms(row):
            progress.alarm(text)


def collect(trainer: Trainer, step: int, seconds: Seconds) -> tuple[list[TrajectoryGroup], int]:
    """The groups of one step, and how many were dropped by the algorithm's filter and drawn again.

    At most `max_resamples` further batches are drawn; if they do not suffice the step goes on with fewer groups, and
    with the dropped ones where none was kept (their credit is then 0, and the step still counts).
    """
    session, settings = trainer.session, trainer.session.settings
    kept: list[TrajectoryGroup] = []
    dropped: list[TrajectoryGroup] = []
    for attempt in range(1 + settings.rl.max_resamples):
        missing = settings.rl.tasks_per_step - len(kept)
        if not missing:
            break
        tasks = trainer.next_tasks(missing)
        seed = derive_seed(settings.seed, "rl", step, attempt)
        groups = session.sample(tasks, settings.rl.group_size, seed=seed, seconds=seconds)
        kept += [group for group in groups if session.algorithm.keeps(group)]
        dropped += [group for group in groups if not session.algorithm.keeps(group)]
    return kept or dropped[: settings.rl.tasks_per_step], len(dropped)


# ---------------------------------------------------------------- the update


def training_rows(groups: Sequence[TrajectoryGroup], credits: Sequence[GroupCredit], truncated: str) -> list[Row]:
    """One row per turn of every rollout that has credit; failed rollouts give none.

    `truncated` "mask" takes all tokens of a cut-off rollout out of the loss and its denominators.
    """
    rows = []
    for group, credit in zip(groups, credits, strict=True):
        for g, trajectory in enumerate(group.trajectories):
            if not credit.assigned[g]:
                continue
            masked = truncated == "mask" and trajectory.stop_reason is StopReason.LENGTH
            for step, advantages in zip(trajectory.steps, credit.advantages[g], strict=True):
                assert step.prompt_ids is not None and step.response_ids is not None
                rows.append(
                    Row(
                        prompt_ids=step.prompt_ids,
                        response_ids=step.response_ids,
                        advantages=advantages,
                        response_mask=np.zeros(len(advantages), dtype=bool) if masked else None,
                        rollout_logprobs=step.rollout_logprobs,
                    )
                )
    return rows


def update(
    trainer: Trainer, groups: Sequence[TrajectoryGroup], credits: Sequence[GroupCredit], step: int
) -> dict[str, float]:
    """One pass over the rows in minibatches; each is one optimiser step, whatever its micro-batches."""
    session, settings = trainer.session, trainer.session.settings
    rl, model, device = settings.rl, session.model, session.device
    rows = training_rows(groups, credits, rl.truncated)
    metrics = {"rows": float(len(rows)), "loss": 0.0, **fill_logprobs(trainer, rows)}
    order = np.random.default_rng(derive_seed(settings.seed, "minibatches", step)).permutation(len(rows))
    collected: list[dict[str, float]] = []
    regularised = bool(session.loss.kl_coef or session.loss.entropy_coef)
    with_entropy = bool(session.loss.entropy_coef)
    model.train()
    for part in np.array_split(order, rl.minibatches):
        minibatch = [rows[i] for i in part]
        totals = count(minibatch)
        if not (totals.tokens and (regularised or any(np.any(row.advantages) for row in minibatch))):
            continue  # nothing to learn from: no optimiser step, so neither momentum nor decay moves the policy
        shares: list[Mapping[str, float]] = []
        for batch in micro_batches(
            minibatch, token_budget=rl.micro_tokens, pad_id=session.tokenizer.pad_id, totals=totals
        ):
            batch = batch.to(device)
            logprobs, entropy = token_logprobs(
                model, batch, temperature=settings.sampling.temperature, with_entropy=with_entropy
            )
            result = batch_loss(logprobs, batch, session.loss, entropy=entropy)
            result.loss.backward()
            shares.append(result.metrics)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), rl.max_grad_norm)
        trainer.optimiser.step()
        trainer.optimiser.zero_grad(set_to_none=True)
        trainer.schedule.step()
        collected.append({**combine_metrics(shares), "grad_norm": float(norm)})
    for name in collected[0] if collected else ():
        values = [share[name] for share in collected]
        metrics[name] = max(values) if name.endswith("_max") else float(np.mean(values))
    return metrics


@torch.no_grad()
def fill_logprobs(trainer: Trainer, rows: Sequence[Row]) -> dict[str, float]:
    """Set `old_logprobs` (and `ref_logprobs`) of every row; returns the policy's mean entropy
    and the gap between sampler and trainer.

    Old log-probs are recomputed with the trainer's own forward pass, so that the first ratio is 1; the sampler's own
    are used where the settings say so.
    """
    session, settings = trainer.session, trainer.session.settings
    session.model.eval()
    gaps, entropies = [], []
    temperature = settings.sampling.temperature
    for batch in micro_batches(rows, token_budget=settings.rl.micro_tokens, pad_id=session.tokenizer.pad_id):
        batch = batch.to(session.device)
        own, entropy = token_logprobs(session.model, batch, temperature=temperature)
        assert entropy is not None
        entropies += unpad(entropy, batch)
        for index, values in zip(batch.rows, unpad(own, batch), strict=True):
            sampled = np.asarray(rows[index].rollout_logprobs, dtype=np.float32)
            gaps.append(np.abs(values - sampled))
            rows[index].old_logprobs = values if settings.rl.old_logprobs == "recompute" else sampled
        if trainer.reference is not None:
            theirs, _ = token_logprobs(trainer.reference, batch, temperature=temperature, with_entropy=False)
            for index, values in zip(batch.rows, unpad(theirs, batch), strict=True):
                rows[index].ref_logprobs = values
    gap = np.concatenate(gaps) if gaps else np.zeros(1)
    entropy_mean = float(np.concatenate(entropies).mean()) if entropies else 0.0
    return {"logprob_gap": float(gap.mean()), "logprob_gap_max": float(gap.max()), "entropy": entropy_mean}


# ---------------------------------------------------------------- what is measured and kept


def measure(groups: Sequence[TrajectoryGroup], credits: Sequence[GroupCredit]) -> dict[str, float]:
    """Numbers of a batch of rollouts. Shares are over valid rollouts; failed ones are counted by kind."""
    everyone = [t for group in groups for t in group.trajectories]
    valid = [t for t in everyone if not t.failed]
    steps = [step for t in valid for step in t.steps]
    row: dict[str, float] = {
        "success": _mean([t.outcome == 1.0 for t in valid]),
        "reward": _mean([float(t.rewards.sum()) for t in valid]),
        "turns": _mean([len(t.steps) for t in valid]),
        "step_score": _mean([t.steps[-1].step_score or 0.0 for t in valid if t.steps]),
        "invalid_share": _mean([step.action == "invalid" for step in steps]),
        "response_tokens": _mean([step.n_tokens for step in steps]),
        "tokens": float(sum(step.n_tokens for t in everyone for step in t.steps)),
        "groups": float(len(groups)),
        "failed_rollouts": float(len(everyone) - len(valid)),
        "no_signal_share": _mean([credit.metrics["no_signal"] for credit in credits]),
    }
    coverage = [credit.metrics["coverage"] for credit in credits if "coverage" in credit.metrics]
    if coverage:
        row["diff_coverage"] = _mean(coverage)
        row["anchors"] = _mean([len(credit.anchors) for credit in credits])
    for reason, n in Counter(t.stop_reason for t in everyone).items():
        row[f"stop_{reason}"] = float(n)
    graded = max(1, len(steps))
    row["sandbox_timeout_share"] = sum(t.meta.get("timeouts", 0) for t in valid) / graded
    row["stop_length_share"] = _mean([t.stop_reason is StopReason.LENGTH for t in valid])
    return row


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else 0.0


def store(
    trainer: Trainer,
    kind: str,
    credit_kind: str,
    step: int,
    groups: Sequence[TrajectoryGroup],
    credits: Sequence[GroupCredit],
) -> None:
    """Write groups and their credit to <kind>/ and <credit_kind>/ of the run directory."""
    for name in (kind, credit_kind):
        trainer.run_dir.step_file(name, step).parent.mkdir(parents=True, exist_ok=True)
    write_groups(trainer.run_dir.step_file(kind, step), groups)
    write_credit(trainer.run_dir.step_file(credit_kind, step), credits)


def track(trainer: Trainer, step: int) -> None:
    """Sample the tracking tasks with the same seeds as ever and keep the groups: how anchors change over training."""
    session, settings = trainer.session, trainer.session.settings
    groups = session.sample(session.tracking_tasks, settings.rl.group_size, seed=derive_seed(settings.seed, "tracking"))
    credits = session.algorithm.credit(groups, settings.sampling.max_new_tokens)
    store(trainer, "tracking", "tracking/credit", step, groups, credits)


def evaluate(trainer: Trainer, name: str, *, step: int) -> Evaluation:
    """Evaluate on held-out tasks and log it. "before" and "after" take all of them, "on the way" the first few."""
    session, run_dir = trainer.session, trainer.run_dir
    settings = session.settings.evaluation
    tasks = session.heldout_tasks[: settings.tasks_on_the_way] if name == "on the way" else session.heldout_tasks
    began = time.monotonic()
    if name == "before" and any(row["name"] == name for row in run_dir.rows("eval")):  # a resumed run has done this
        return evaluate_rows(read_jsonl(run_dir.eval_file(name)), ks=settings.ks, seed=session.settings.seed)
    rows = session.evaluate(tasks, mode="batch" if name == "on the way" else "fork")
    found = evaluate_rows(rows, ks=settings.ks, seed=session.settings.seed)
    if name != "on the way":
        write_rows(run_dir.eval_file(name), rows)
    numbers = {key: value for key, value in found.summary().items() if not isinstance(value, dict)}
    run_dir.log({"phase": "eval", "name": name, "step": step, "seconds": time.monotonic() - began, **numbers})
    trainer.progress.say(f"held-out {name}: {found.line()}")
    return found


def summarise(trainer: Trainer, before: Evaluation, after: Evaluation) -> dict[str, Any]:
    """The content of summary.json."""
    session = trainer.session
    rows = trainer.run_dir.rows()
    seconds = {
        phase: sum(row["seconds"] for row in rows if row["phase"] == phase) for phase in ("tasks", "sft", "rl", "eval")
    }
    rl = [row for row in rows if row["phase"] == "rl"]
    return {
        "algorithm": session.algorithm.name,
        "seed": session.settings.seed,
        "preset": session.settings.preset,
        "rl_steps": session.settings.rl.steps,
        "eval_before": before.summary(),
        "eval_after": after.summary(),
        "seconds": {**seconds, "total": sum(seconds.values())},
        "seconds_rl_parts": {
            part: sum(row.get(f"seconds_{part}", 0.0) for row in rl) for part in ("sample", "grade", "credit", "update")
        },
        "tokens_sampled": rl[-1]["tokens_total"] if rl else 0,
        "sandbox": {"level": session.sandbox.level},
        "versions": versions(),
    }
