"""Decoded tokens per CPU second, next to Hugging Face `generate` on the same model, prompts and lengths.

    python benchmarks/generation_speed.py [--rounds 3] [--json]

Two workloads, fp32, one thread, random weights, no end mark (so that both sides write the same number of tokens):
  embedded  the built-in model (0.43 M parameters), prompts of 35 to 50 tokens, 8 rows per prompt, 60 new tokens
  group     Llama of 1.72 M parameters, vocabulary 512, prompt 32, 64 rows, 8 rows per prompt, 128 new tokens
The two sides take turns; the best round of each counts. `share of matmul rate` is the model's matrix products alone
(2 x parameters x tokens) over the rate that one large product reaches here.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import time
from typing import Any

import numpy as np
import torch

from didpo.model import TinySettings, count_parameters, tiny_model
from didpo.sampling import TorchSampler
from didpo.tokens import Tokenizer, train_tokenizer

NEVER = 1 << 40  # an id that no model writes


def make_tokenizer(vocab_size: int) -> Tokenizer:
    rng = np.random.default_rng(0)
    words = ["".join(chr(97 + c) for c in rng.integers(0, 26, 5)) for _ in range(400)]
    tokenizer = train_tokenizer([" ".join(rng.choice(words, 40)) for _ in range(200)], vocab_size=vocab_size)
    assert tokenizer.vocab_size == vocab_size
    return tokenizer


def cpu_seconds(run: Any) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def matmul_rate() -> float:
    """Floating-point operations per CPU second of one 512 x 512 x 512 product."""
    a, b = torch.randn(512, 512), torch.randn(512, 512)
    return 2 * 512**3 * 30 / min(cpu_seconds(lambda: [a @ b for _ in range(30)]) for _ in range(5))


def measure(name: str, rounds: int) -> dict[str, float | str | int]:
    vocab, shape, rows, new, lengths = {
        "embedded": (450, TinySettings(), 128, 60, (35, 51)),
        "group": (512, TinySettings(layers=4, width=192, heads=4, mlp_width=512), 64, 128, (32, 33)),
    }[name]
    tokenizer = make_tokenizer(vocab)
    model = tiny_model(tokenizer, shape).eval()
    rng = np.random.default_rng(1)
    groups = [rng.integers(2, vocab, int(rng.integers(*lengths))).tolist() for _ in range(rows // 8)]
    prompts = [groups[i // 8] for i in range(rows)]
    tokenizer.eos_ids = (NEVER,)
    sampler = TorchSampler(model, tokenizer)
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])

    def ours() -> None:
        out = sampler.generate(prompts, max_new_tokens=new, seeds=range(rows))
        assert sum(len(s.ids) for s in out) == rows * new

    def theirs() -> None:
        with torch.inference_mode():
            out = model.generate(
                ids, attention_mask=mask, do_sample=True, top_k=0, max_new_tokens=new, min_new_tokens=new,
                pad_token_id=0,
            )  # fmt: skip
        assert out.shape == (rows, width + new)

    pairs = [(cpu_seconds(ours), cpu_seconds(theirs)) for _ in range(rounds + 1)][1:]  # the first round warms up
    mine, other = (rows * new / min(side) for side in zip(*pairs, strict=True))
    return {
        "workload": name,
        "parameters": count_parameters(model),
        "tokens_per_cpu_second": round(mine),
        "generate_tokens_per_cpu_second": round(other),
        "times_faster": round(mine / other, 2),
        "share_of_matmul_rate": round(2 * count_parameters(model) * mine / matmul_rate(), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = [measure(name, options.rounds) for name in ("embedded", "group")]
    if options.json:
        print(json.dumps(results, indent=2))
        return
    for result in results:
        print("  ".join(f"{key} {value}" for key, value in result.items()))


if __name__ == "__main__":
    main()
