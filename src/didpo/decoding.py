"""One token for many rows at a time, with a KV cache: the inner loop of sampling.

Two decoders share one protocol. `LlamaDecoder` runs the weights of a Hugging Face Llama in as few operations as they
need, because for small models the cost is Python and kernel launches, not arithmetic. `HFDecoder` runs any causal LM
through its own cache. Both compute a prompt once however many rows start from it, and keep padding out of attention:
prompts stand on the left-padded side, so that all rows write the same cache column.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
import torch.nn.functional as F

ROOM = 16  # free columns of a cache when it is made anew


class Decoder(Protocol):
    def prefill(self, prompts: Sequence[Sequence[int]], row_prompt: Sequence[int], max_new: int) -> torch.Tensor:
        """Run the distinct `prompts`; row i continues prompts[row_prompt[i]]. Logits of the next token, [B, V]."""

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """Append `tokens` [B] to the rows; logits of the next token, [B, V]."""

    def keep(self, rows: torch.Tensor) -> None:
        """Go on with these rows only: positions [B'] among the current ones, ascending."""


def make_decoder(model: Any) -> Decoder:
    """The fastest decoder that is exact for `model`."""
    return LlamaDecoder(model) if is_plain_llama(model) else HFDecoder(model)


def is_plain_llama(model: Any) -> bool:
    """True for fp32 Llama models without biases and with unscaled rotary positions."""
    config = model.config
    if config.model_type != "llama" or model.dtype != torch.float32 or not hasattr(model, "lm_head"):
        return False
    rotary = model.model.rotary_emb
    return (
        config.hidden_act == "silu"
        and not config.attention_bias
        and not config.mlp_bias
        and getattr(rotary, "rope_type", "") == "default"
        and rotary.attention_scaling == 1.0
        and type(model.lm_head) is torch.nn.Linear
        and type(model.model.layers[0].self_attn.q_proj) is torch.nn.Linear
    )


class LlamaDecoder:
    """Decoding with the weights of a `LlamaForCausalLM`, copied and fused when it is made.

    Norm weights and the attention scale are folded into the matrices that follow them; query, key and value are one
    product; the two halves that a rotary embedding pairs are laid next to each other, so that it is one complex
    product. Logits equal the model's to about 1e-6.
    """

    bias: torch.Tensor  # float32 [B * KV, 1, capacity], -inf at padding and at free columns
    pads: torch.Tensor  # int64 [B], columns before a row's first token

    def __init__(self, model: Any) -> None:
        config, core = model.config, model.model
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = config.num_key_value_heads
        self.eps: float = config.rms_norm_eps
        with torch.no_grad():
            self.embed = core.embed_tokens.weight.detach()  # [V, W]
            self.inv_freq = core.rotary_emb.inv_freq.detach().float()  # [D / 2]
            self.head = (model.lm_head.weight * core.norm.weight).t()  # [W, V]
            self.layers = [self._fuse(layer) for layer in core.layers]
        self.head_dim = 2 * self.inv_freq.numel()

    def _fuse(self, layer: Any) -> tuple[torch.Tensor, ...]:
        attention, mlp = layer.self_attn, layer.mlp
        before, after = layer.input_layernorm.weight, layer.post_attention_layernorm.weight
        dim = 2 * self.inv_freq.numel()
        query = _interleave(attention.q_proj.weight * dim**-0.5, self.heads)
        key = _interleave(attention.k_proj.weight, self.kv_heads)
        qkv = torch.cat([query, key, attention.v_proj.weight]) * before
        gate_up = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]) * after
        return qkv.t(), attention.o_proj.weight.t(), gate_up.t(), mlp.down_proj.weight.detach().t()

    def prefill(self, prompts: Sequence[Sequence[int]], row_prompt: Sequence[int], max_new: int) -> torch.Tensor:
        device = self.embed.device
        lengths = torch.tensor([len(p) for p in prompts], device=device)
        n_prompts, width = len(prompts), int(lengths.max())
        ids = torch.zeros(n_prompts, width, dtype=torch.long, device=device)
        for i, prompt in enumerate(prompts):
            ids[i, : len(prompt)] = torch.tensor(prompt, device=device)
        self._turns = self._rotations(width + max_new)  # complex [P + max_new, D / 2]
        turns = self._turns[:width].repeat(n_prompts, 1)[:, None]  # [U * P, 1, D / 2]
        rows = torch.tensor(row_prompt, device=device)
        self.pads = (width - lengths)[rows]  # [B], places before a row's first token
        source = (torch.arange(width, device=device) - self.pads[:, None]).clamp(min=0)  # [B, P], pads repeat place 0
        self.cache: list[torch.Tensor] = []  # keys and values of each layer in turn, [B, KV, capacity, D]
        self.memory: list[torch.Tensor] = []  # what the cache stands in, and one spare
        self.longest = width + max_new

        x = self.embed[ids.view(-1)]  # [U * P, W]
        for weights in self.layers:
            q, k, v = self._project(x, weights[0], turns)
            k, v = k.view(n_prompts, width, *k.shape[1:]), v.view(n_prompts, width, *v.shape[1:])
            self.cache += [k[rows[:, None], source].transpose(1, 2), v[rows[:, None], source].transpose(1, 2)]
            repeat = self.heads // self.kv_heads
            mixed = F.scaled_dot_product_attention(
                q.view(n_prompts, width, self.heads, self.head_dim).transpose(1, 2),
                k.transpose(1, 2).repeat_interleave(repeat, 1),
                v.transpose(1, 2).repeat_interleave(repeat, 1),
                is_causal=True,
                scale=1.0,
            )  # [U, H, P, D]
            x = self._finish(x, mixed.transpose(1, 2).reshape(n_prompts * width, -1), weights)
        last = torch.arange(n_prompts, device=device) * width + lengths - 1
        self.column = width
        self._make_room()
        return self._logits(x[last])[rows]

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        n_rows, column = len(tokens), self.column
        if column == self.cache[0].shape[2]:
            self._make_room()
            column = self.column
        turns = self._turns[column - self.pads][:, None]  # [B, 1, D / 2]
        x = self.embed[tokens]  # [B, W]
        for weights, keys, values in zip(self.layers, self.cache[::2], self.cache[1::2], strict=True):
            q, k, v = self._project(x, weights[0], turns)
            keys[:, :, column] = k
            values[:, :, column] = v
            query = q.reshape(n_rows * self.kv_heads, -1, self.head_dim)  # [B * KV, H / KV, D]
            scores = torch.baddbmm(self.bias, query, keys.flatten(0, 1).transpose(1, 2))  # [B * KV, H / KV, capacity]
            mixed = torch.bmm(scores.softmax(-1), values.flatten(0, 1))
            x = self._finish(x, mixed.view(n_rows, -1), weights)
        self.column = column + 1
        self.bias[:, :, column + 1 : column + 2] = 0
        return self._logits(x)

    def keep(self, rows: torch.Tensor) -> None:
        n_rows = len(self.pads)
        self._move(
            lambda old, new: torch.index_select(old.view(n_rows, -1), 0, rows, out=new.view(len(rows), -1)),
            (len(rows), *self.cache[0].shape[1:]),
        )
        self.bias = self.bias.view(n_rows, self.kv_heads, -1)[rows].flatten(0, 1)[:, None]
        self.pads = self.pads[rows]

    def _make_room(self) -> None:
        """Copy the cache so that up to `ROOM` columns are free.

        The products run over the whole capacity, with free columns masked: reading a tensor from end to end is
        several times faster than reading a part of every row, which costs far more than this copy now and then.
        """
        first = int(self.pads.min())  # columns that are padding for every row
        self.pads = self.pads - first
        filled, n_rows, device = self.column - first, len(self.pads), self.embed.device
        capacity = min(filled + ROOM, self.longest)

        def copy(old: torch.Tensor, new: torch.Tensor) -> None:
            new[:, :, :filled] = old[:, :, first : first + filled]
            new[:, :, filled:] = 0  # a masked place may hold anything but NaN

        self._move(copy, (n_rows, self.kv_heads, capacity, self.head_dim))
        self.column = filled
        columns = torch.arange(capacity, device=device)
        hidden = (columns < self.pads[:, None]) | (columns > filled)  # [B, capacity]; the next token's place is open
        bias = torch.zeros(hidden.shape, device=device).masked_fill_(hidden, float("-inf"))
        self.bias = bias.repeat_interleave(self.kv_heads, 0)[:, None]  # [B * KV, 1, capacity]

    def _move(self, copy: Callable[[torch.Tensor, torch.Tensor], Any], shape: tuple[int, ...]) -> None:
        """Copy each tensor of the cache into the spare memory; the place it leaves is the spare of the next one.

        Memory is taken once, for the longest that a run can get: touching fresh pages costs more than the copy.
        """
        if not self.memory:
            size = len(self.pads) * self.kv_heads * self.longest * self.head_dim
            self.memory = [torch.empty(size, device=self.embed.device) for _ in range(len(self.cache) + 1)]
        for i, old in enumerate(self.cache):
            new = self.memory[-1][: math.prod(shape)].view(shape)
            copy(old, new)
            self.cache[i] = new
            self.memory[i], self.memory[-1] = self.memory[-1], self.memory[i]

    def _rotations(self, n: int) -> torch.Tensor:
        angles = torch.arange(n, device=self.inv_freq.device).float()[:, None] * self.inv_freq
        return torch.complex(angles.cos(), angles.sin())

    def _project(self, x: torch.Tensor, qkv: torch.Tensor, turns: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Rotated query [N, H, D] and key [N, KV, D], and value [N, KV, D] of the rows x [N, W]."""
        n, rotated = x.shape[0], self.heads + self.kv_heads
        out = torch.mm(F.rms_norm(x, (x.shape[1],), None, self.eps), qkv)
        out = out.view(n, rotated + self.kv_heads, self.head_dim)
        pairs = torch.view_as_complex(out[:, :rotated].view(n, rotated, -1, 2))
        pairs.mul_(turns)
        return out[:, : self.heads], out[:, self.heads : rotated], out[:, rotated:]

    def _finish(self, x: torch.Tensor, mixed: torch.Tensor, weights: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """The rest of a layer after attention: both residual branches, [N, W]."""
        _, out, gate_up, down = weights
        x = torch.addmm(x, mixed, out)
        gates = torch.mm(F.rms_norm(x, (x.shape[1],), None, self.eps), gate_up)
        half = gates.shape[1] // 2
        return torch.addmm(x, F.silu(gates[:, :half]).mul_(gates[:, half:]), down)

    def _logits(self, x: torch.Tensor) -> torch.Tensor:
        return torch.mm(F.rms_norm(x, (x.shape[1],), None, self.eps), self.head)


def _interleave(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows (i, i + D/2) of each head, which the rotary embedding pairs, become neighbours. [heads * D, W]"""
    width = weight.shape[1]
    return weight.view(heads, 2, -1, width).transpose(1, 2).reshape(-1, width)


class HFDecoder:
    """Decoding of any Hugging Face causal LM through the cache it makes itself."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.device = next(model.parameters()).device
        # transformers renames the argument; models that take both warn about the old one
        new = "cache" in inspect.signature(model.forward).parameters
        self.cache_name = "cache" if new else "past_key_values"

    def prefill(self, prompts: Sequence[Sequence[int]], row_prompt: Sequence[int], max_new: int) -> torch.Tensor:
        width = max(len(p) for p in prompts)
        ids = torch.zeros(len(prompts), width, dtype=torch.long)
        mask = torch.zeros(len(prompts), width, dtype=torch.long)
        for i, prompt in enumerate(prompts):
            ids[i, width - len(prompt) :] = torch.tensor(prompt)
            mask[i, width - len(prompt) :] = 1
        mask = mask.to(self.device)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        logits = self._forward(ids.to(self.device), mask, positions, None)
        rows = torch.tensor(row_prompt, device=self.device)
        self.cache.batch_select_indices(rows)
        self.mask, self.next_position = mask[rows], mask.sum(-1)[rows]
        return logits[rows]

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        self.mask = F.pad(self.mask, (0, 1), value=1)
        logits = self._forward(tokens[:, None], self.mask, self.next_position[:, None], self.cache)
        self.next_position = self.next_position + 1
        return logits

    def keep(self, rows: torch.Tensor) -> None:
        self.cache.batch_select_indices(rows)
        self.mask, self.next_position = self.mask[rows], self.next_position[rows]

    def _forward(self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: Any) -> torch.Tensor:
        full = None if bool(mask.all()) else mask  # without padding the model may use its causal fast path
        out = self.model(
            input_ids=ids,
            attention_mask=full,
            position_ids=positions,
            use_cache=True,
            logits_to_keep=1,
            **{self.cache_name: cache},
        )
        self.cache = getattr(out, self.cache_name)
        return out.logits[:, -1].float()
