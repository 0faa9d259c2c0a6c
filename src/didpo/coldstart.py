"""The cold start: a model that can act at all, before it learns from reward. Made once per settings, then cached.

The tiny model and its tokenizer are trained on trajectories of the scripted agent. A model given by path is taken as it
is, or trained on the same trajectories first where `cold_start.steps` is above 0.
"""

from __future__ import annotations

import dataclasses
import hashlib
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from didpo.agent import RepairAgent
from didpo.model import TinySettings, load_model, save_model, tiny_model
from didpo.progress import Progress
from didpo.rundir import RunDir
from didpo.settings import RunSettings
from didpo.sft import SFTProgress, SFTSettings, cached_cold_start, cold_start_key, sft_row, train_sft
from didpo.tasks.scripted import scripted_trajectory
from didpo.tokens import load_tokenizer, train_tokenizer
from didpo.types import Task

EVERY = 25  # updates between metrics rows
TOKENIZER_ROWS = 3000  # rows that the tokenizer is trained on

Log = Callable[[dict[str, Any]], None]


def cache_folder(settings: RunSettings, run_dir: RunDir) -> Path:
    """Where cold starts are kept: as the settings say, or beside the run directory."""
    chosen = settings.cold_start.cache
    return Path(chosen) if chosen else run_dir.path.resolve().parent / ".cold-starts"


def prepare_cold_start(
    settings: RunSettings, tasks: Sequence[Task], *, cache: Path, progress: Progress, log: Log = lambda row: None
) -> Path:
    """The folder of the cold-started model and tokenizer: from `cache`, or trained now on `tasks`.

    Raises UserError where the tasks have no scripted agent, or the model path is none.
    """
    if settings.model.path and not settings.cold_start.steps:
        return Path(settings.model.path)
    key = cold_start_key(
        dataclasses.replace(settings.cold_start, cache=""),  # where it is kept does not change it
        [],  # what the rows are made from is in the key instead: a cached start need not make them
        tasks=dataclasses.asdict(settings.tasks),
        env=dataclasses.asdict(settings.env),
        model=dataclasses.asdict(settings.model),
        seed=settings.seed,
        threads=settings.threads,
        code=source_hash(),
    )
    began = time.monotonic()
    folder, cached = cached_cold_start(cache, key, lambda partial: _build(settings, tasks, partial, progress, log))
    if cached:
        progress.say("cold start: from the cache")
        log({"phase": "sft", "step": settings.cold_start.steps, "seconds": time.monotonic() - began, "cached": True})
    return folder


def source_hash() -> str:
    """Hash of the code that a cold start comes from: a change in it makes cached results stale."""
    package = Path(__file__).parent
    names = ["actions", "agent", "batch", "coldstart", "model", "sft", "textedit", "tokens"]
    digest = hashlib.sha256()
    for path in [*(package / f"{name}.py" for name in names), *sorted((package / "tasks").glob("*.py"))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def scripted_texts(settings: RunSettings, tasks: Sequence[Task]) -> list[tuple[str, str]]:
    """(prompt, response) of every turn of `cold_start.trajectories` scripted trajectories."""
    agent, cold = RepairAgent(), settings.cold_start
    texts = []
    for i in range(cold.trajectories):
        task, rng = tasks[i % len(tasks)], random.Random(f"{settings.seed}/{i}")
        turns = scripted_trajectory(
            task, rng, cold.skill, max_turns=settings.env.max_turns, feedback=settings.env.feedback == "interactive"
        )
        texts += [(agent.prompt(task, turns[:n], turn.files), turn.response) for n, turn in enumerate(turns)]
    return texts


def _build(
    settings: RunSettings, tasks: Sequence[Task], folder: Path, progress: Progress, log: Log
) -> dict[str, float]:
    """Train and save into `folder`; returns facts of the training."""
    cold, began = settings.cold_start, time.monotonic()
    progress.phase("cold start", cold.steps)
    texts = scripted_texts(settings, tasks)
    if settings.model.path:
        tokenizer = load_tokenizer(settings.model.path)
        model = load_model(settings.model.path, dtype=settings.model.dtype)
    else:
        tokenizer = train_tokenizer(
            ["".join(pair) for pair in texts[:TOKENIZER_ROWS]], vocab_size=settings.model.vocabulary
        )
        shape = settings.model
        model = tiny_model(
            tokenizer,
            TinySettings(
                layers=shape.layers,
                width=shape.width,
                heads=shape.heads,
                mlp_width=round(shape.width * 10 / 3),
                max_context=shape.context,
            ),
            seed=settings.seed,
        )
    rows = [sft_row(tokenizer, prompt, response) for prompt, response in texts]
    logged = time.monotonic()

    def report(state: SFTProgress) -> None:
        nonlocal logged
        progress.advance(loss=state.loss, tokens_per_second=state.tokens / state.seconds)
        if state.update % EVERY == 0 or state.update == state.updates:
            now = time.monotonic()
            log({"phase": "sft", "step": state.update, "seconds": now - logged, "loss": state.loss})
            logged = now

    log({"phase": "sft", "step": 0, "seconds": logged - began, "rows": len(rows)})
    losses = train_sft(
        model,
        rows,
        SFTSettings(
            updates=cold.steps,
            batch_rows=cold.batch_size,
            learning_rate=cold.lr,
            warmup=cold.warmup,
            weight_decay=cold.weight_decay,
            seed=settings.seed,
            token_budget=settings.rl.micro_tokens,
        ),
        progress=report,
    )
    save_model(model, tokenizer, folder)
    return {"rows": len(rows), "loss": losses[-1] if losses else 0.0, "seconds": time.monotonic() - began}
