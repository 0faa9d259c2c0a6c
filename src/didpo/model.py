"""Language models: the built-in tiny Llama or any Hugging Face causal LM, and the log-probs of response tokens."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch.utils.checkpoint import checkpoint
from transformers.utils import logging as hf_logging

from didpo.batch import Batch
from didpo.errors import UserError
from didpo.tokens import Tokenizer

hf_logging.disable_progress_bar()  # a bar of its own for each load and save would break up ours

DType = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True, kw_only=True)
class TinySettings:
    """Shape of the built-in Llama: 0.43 M parameters with a vocabulary of 450."""

    layers: int = 3
    width: int = 96
    heads: int = 4
    mlp_width: int = 320
    max_context: int = 2048


def tiny_model(tokenizer: Tokenizer, settings: TinySettings = TinySettings(), *, seed: int = 0) -> Any:
    """A `LlamaForCausalLM` with random weights that depend on `seed` alone; the global random state stays as it is."""
    from transformers import LlamaConfig, LlamaForCausalLM

    if settings.width % (2 * settings.heads):
        raise UserError(f"width {settings.width} must be a multiple of twice the {settings.heads} heads")
    config = LlamaConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=settings.width,
        intermediate_size=settings.mlp_width,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.heads,
        max_position_embeddings=settings.max_context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=list(tokenizer.eos_ids),
        pad_token_id=tokenizer.pad_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM._from_config(config, attn_implementation="sdpa")


def load_model(path: str | Path, *, dtype: DType = "float32", device: str = "cpu") -> Any:
    """The causal LM in the folder `path`; raises UserError where there is none."""
    from transformers import AutoModelForCausalLM

    folder = Path(path)
    if not (folder / "config.json").is_file():
        raise UserError(f"no model at {path}: give a folder in Hugging Face format (config.json and weights)")
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(
            str(folder), dtype=getattr(torch, dtype), attn_implementation="sdpa", local_files_only=True
        )
    except (OSError, ValueError, KeyError, json.JSONDecodeError) as error:
        reason = str(error).strip().split("\n")[0]
        raise UserError(f"no causal language model at {path}: {reason}") from None
    return model.to(device)


def save_model(model: Any, tokenizer: Tokenizer, folder: str | Path) -> None:
    """Weights (safetensors), configuration and tokenizer in Hugging Face format; not atomic: write to a new folder."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(str(folder))
    tokenizer.save(folder)


def reference_copy(model: Any) -> Any:
    """A frozen copy in evaluation mode."""
    reference = copy.deepcopy(model).eval()
    return reference.requires_grad_(False)


def set_gradient_checkpointing(model: Any, on: bool) -> None:
    """Recompute activations in the backward pass: less memory, about a third more time."""
    # transformers 5 calls it activation checkpointing and warns about the old name
    kind = "activation" if hasattr(model, "activation_checkpointing_enable") else "gradient"
    if on:
        getattr(model, f"{kind}_checkpointing_enable")({"use_reentrant": False})
    else:
        getattr(model, f"{kind}_checkpointing_disable")()


def token_logprobs(
    model: Any, batch: Batch, *, temperature: float = 1.0, chunk: int = 4096, with_entropy: bool = True
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Log-prob of every trained token, and the entropy of its distribution: float32 [B, T] each, 0 where masked.

    The head runs only where `batch.response_mask` is True, `chunk` places at a time, with the log-softmax in float32;
    where there are several, logits are not kept for the backward pass. `temperature` must be the sampler's.
    """
    hidden, head = hidden_states(model, batch), model.get_output_embeddings()
    states = hidden[_response_places(batch)]  # [N, W], N trained tokens
    tokens = batch.response_ids[batch.response_mask]  # [N]

    def part(states: torch.Tensor, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = head(states).float()
        if temperature != 1:
            logits = logits / temperature
        logp = logits.log_softmax(-1)
        chosen = logp.gather(-1, tokens[:, None])[:, 0]
        # exp(-inf) * -inf is NaN: a model may rule tokens out
        entropy = -(logp.exp() * logp.clamp(min=-1e30)).sum(-1) if with_entropy else chosen.detach()
        return chosen, entropy

    ranges = list(_ranges(len(tokens), chunk))
    recompute = len(ranges) > 1 and torch.is_grad_enabled()
    chosen, entropies = [], []
    for start, end in ranges:
        piece = states[start:end], tokens[start:end]
        a, b = checkpoint(part, *piece, use_reentrant=False) if recompute else part(*piece)
        chosen.append(a)
        entropies.append(b)
    return _spread(chosen, batch), _spread(entropies, batch) if with_entropy else None


def hidden_states(model: Any, batch: Batch) -> torch.Tensor:
    """Last hidden states, [B, L, W]. Rows are padded on the right, so the causal mask alone keeps padding out."""
    return model.get_decoder()(input_ids=batch.input_ids, use_cache=False).last_hidden_state


def _response_places(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """(row, column) of the position that predicts each trained token, [N] each, in the order of the mask."""
    rows, steps = batch.response_mask.nonzero(as_tuple=True)
    return rows, batch.prompt_lengths[rows] + steps - 1


def _spread(pieces: list[torch.Tensor], batch: Batch) -> torch.Tensor:
    mask = batch.response_mask
    flat = torch.cat(pieces) if pieces else torch.zeros(0, device=mask.device)
    return torch.zeros(mask.shape, dtype=flat.dtype, device=flat.device).masked_scatter(mask, flat)


def _ranges(n: int, size: int) -> Iterator[tuple[int, int]]:
    for start in range(0, n, size):
        yield start, min(n, start + size)


def count_parameters(model: Any) -> int:
    """Trainable parameters, tied ones once."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)
