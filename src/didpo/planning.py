"""What a run will do, before anything is loaded: updates, rollouts, tokens, and an estimate of memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from didpo.algorithms import resolve_algorithm
from didpo.errors import UserError
from didpo.settings import ModelSettings, RunSettings
from didpo.tasks import load_tasks

_INTERPRETER_BYTES = 350 * 2**20  # torch and transformers loaded, nothing computed


def model_shape(model: ModelSettings) -> dict[str, int]:
    """Parameters, vocabulary, layers and KV width per token, from the settings or the model folder's config.json."""
    if not model.path:
        width, mlp = model.width, round(model.width * 10 / 3)
        per_layer = 4 * width * width + 3 * width * mlp + 2 * width
        parameters = model.vocabulary * width + model.layers * per_layer + width
        return {"parameters": parameters, "vocabulary": model.vocabulary, "layers": model.layers, "kv_width": 2 * width}
    path = Path(model.path) / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        width, layers = config["hidden_size"], config["num_hidden_layers"]
        heads, vocabulary, mlp = config["num_attention_heads"], config["vocab_size"], config["intermediate_size"]
    except OSError as error:
        raise UserError(
            f"no model at {model.path}: give a folder in Hugging Face format (config.json and weights)"
        ) from error
    except (KeyError, ValueError) as error:
        raise UserError(f"{path} does not describe a causal language model of a known shape ({error})") from error
    kv = config.get("num_key_value_heads", heads) * config.get("head_dim", width // heads)
    per_layer = 2 * width * width + 2 * width * kv + 3 * width * mlp + 2 * width
    tables = vocabulary * width * (1 if config.get("tie_word_embeddings", False) else 2)
    return {
        "parameters": tables + layers * per_layer + width,
        "vocabulary": vocabulary,
        "layers": layers,
        "kv_width": 2 * kv,
    }


def plan(settings: RunSettings) -> dict[str, Any]:
    """Counts per phase, the most tokens a step can sample, and the estimated peak memory in bytes.

    Memory: weights, gradients and two Adam moments, the reference where the loss has a KL term, and the larger of the
    KV cache of one batch of rollouts and the activations and logits of one micro-batch. An estimate, not a promise.
    """
    loss = resolve_algorithm(settings.algorithm, settings.credit, settings.loss).loss
    load_tasks(settings.tasks.name, split="train", n=1, **settings.tasks.options)  # refuses a family or option by name
    shape, rl, cold = model_shape(settings.model), settings.rl, settings.cold_start
    width = 4 if settings.model.dtype == "float32" else 2
    rollouts = rl.tasks_per_step * rl.group_size
    context = settings.model.context
    cache = rollouts * context * shape["layers"] * shape["kv_width"] * width
    activations = rl.micro_tokens * shape["layers"] * shape["kv_width"] * 17 * width
    logits = min(rl.micro_tokens, 4096) * shape["vocabulary"] * 4 * 3
    states = shape["parameters"] * (3 * 4 + width + (width if loss.get("kl_coef") else 0))
    return {
        "preset": settings.preset,
        "algorithm": settings.algorithm,
        "seed": settings.seed,
        "parameters": shape["parameters"],
        "cold_start": {"updates": cold.steps, "rows": cold.steps * cold.batch_size},
        "rl": {
            "steps": rl.steps,
            "rollouts_per_step": rollouts,
            "turns_at_most": rollouts * settings.env.max_turns,
            "sampled_tokens_at_most": rollouts * settings.env.max_turns * settings.sampling.max_new_tokens,
            "optimiser_steps": rl.steps * rl.minibatches,
        },
        "evaluation": {"tasks": settings.tasks.heldout, "samples": settings.evaluation.samples},
        "memory_bytes": _INTERPRETER_BYTES + states + max(cache, activations + logits),
    }


def plan_text(planned: dict[str, Any]) -> str:
    rl, evaluation = planned["rl"], planned["evaluation"]
    return "\n".join(
        [
            f"{planned['algorithm']}, preset {planned['preset']}, seed {planned['seed']}",
            f"model: {planned['parameters']:,} parameters",
            f"cold start: {planned['cold_start']['updates']} updates, {planned['cold_start']['rows']:,} rows",
            f"training: {rl['steps']} steps of {rl['rollouts_per_step']} rollouts, "
            f"{rl['optimiser_steps']} optimiser steps, at most {rl['sampled_tokens_at_most']:,} sampled tokens a step",
            f"evaluation: {evaluation['tasks']} held-out tasks x {evaluation['samples']}, before and after",
            f"memory: about {planned['memory_bytes'] / 2**30:.1f} GiB at the peak (estimated)",
        ]
    )
