"""Text <-> token ids, with the exact character range of every token.

Token ids come from the sampler and are never made again from text: `offsets_of(ids)` says which characters of
`decode(ids)` each sampled token wrote. Two families are exact by construction: byte-level tokenizers (the built-in one,
GPT-2, Llama 3, Qwen) through their bytes, and all others through the text of every prefix.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from didpo.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

END = "<|end|>"  # end of a response
PAD = "<|pad|>"

Offsets = list[tuple[int, int]]


class Tokenizer:
    """A Hugging Face tokenizer with the few operations that training needs.

    `eos_ids`: every id that ends a response, in the order found (tokenizer first, then generation config).
    `pad_id`: may equal an end id; masks are made from lengths, so that it never matters.
    """

    def __init__(self, hf: PreTrainedTokenizerBase, *, extra_eos: Iterable[int] = ()) -> None:
        self.hf = hf
        own = [] if hf.eos_token_id is None else [int(hf.eos_token_id)]
        self.eos_ids: tuple[int, ...] = tuple(dict.fromkeys([*own, *(int(i) for i in extra_eos)]))
        if not self.eos_ids:
            raise UserError("the tokenizer names no end token; set eos_token in its tokenizer_config.json")
        self.pad_id: int = self.eos_ids[0] if hf.pad_token_id is None else int(hf.pad_token_id)
        self.vocab_size: int = len(hf)
        self._special = frozenset(int(i) for i in hf.all_special_ids) | frozenset(self.eos_ids)
        self._bytes = _token_bytes(hf, self._special)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of `text`; no begin or end mark is added.

        With `special=False` text that looks like a special token stays plain text, so that a file or a tool's output
        cannot end a turn; `special=True` is for the glue of a chat template.
        """
        encoded = self.hf(text, add_special_tokens=False, split_special_tokens=not special)
        return [int(i) for i in encoded["input_ids"]]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids` without special tokens; bytes that are not UTF-8 become U+FFFD."""
        if self._bytes is not None:
            return b"".join(map(self.piece, ids)).decode("utf-8", "replace")
        return _decode_plain(self.hf, [i for i in ids if i not in self._special])

    def offsets_of(self, ids: Sequence[int]) -> Offsets:
        """Character range [start, end) within `decode(ids)` of every id.

        A token that holds a part of a character gets the range of the whole character. End marks and other special
        tokens write nothing: an empty range where they stand (between the bytes of one character, that character's).
        """
        if self._bytes is not None:
            return _byte_offsets([*map(self.piece, ids)])
        return self._prefix_offsets(ids)

    def piece(self, token_id: int) -> bytes:
        """The bytes that one token writes; none for special tokens, nor for ids beyond the vocabulary."""
        if self._bytes is None:
            return self.decode([token_id]).encode()
        return self._bytes[token_id] if token_id < len(self._bytes) else b""

    def save(self, folder: str | Path) -> None:
        """Write the Hugging Face files, and all end ids, so that `load_tokenizer(folder)` finds them again."""
        folder = Path(folder)
        self.hf.save_pretrained(str(folder))
        path = folder / "generation_config.json"
        known = json.loads(path.read_text()) if path.is_file() else {}
        known |= {"eos_token_id": list(self.eos_ids), "pad_token_id": self.pad_id}
        path.write_text(json.dumps(known, indent=2) + "\n")

    def _prefix_offsets(self, ids: Sequence[int]) -> Offsets:
        text = self.decode(ids)
        reach = [0]  # characters of `text` that are settled after i tokens
        for i in range(1, len(ids) + 1):
            done = reach[-1] if ids[i - 1] in self._special else _common_prefix(self.decode(ids[:i]), text)
            reach.append(max(reach[-1], done))
        reach[-1] = len(text)
        offsets: Offsets = []
        for i, token in enumerate(ids):
            start, end = reach[i], reach[i + 1]
            if end == start and token not in self._special:  # a part of a character: take the whole one
                end = min(len(text), start + 1)
            offsets.append((start, end))
        return offsets


def train_tokenizer(texts: Iterable[str], *, vocab_size: int = 450) -> Tokenizer:
    """A byte-level BPE learnt from `texts`; the same texts give the same vocabulary.

    A line is one piece for the merges (its line end belongs to the next line), so that whole idioms become tokens:
    short prompts and responses are what makes a tiny model fast. All 256 bytes are in it, so any text can be written.
    """
    from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
    from tokenizers import Tokenizer as Core
    from transformers import PreTrainedTokenizerFast

    if vocab_size < 258:
        raise UserError(f"a byte-level vocabulary needs at least 258 tokens, not {vocab_size}")
    core = Core(models.BPE())
    lines = pre_tokenizers.Split(Regex("\n"), behavior="merged_with_next")
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [lines, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PAD, END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
        min_frequency=2,
    )
    core.train_from_iterator(list(texts), trainer)
    hf = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token=PAD, eos_token=END, clean_up_tokenization_spaces=False
    )
    return Tokenizer(hf)


def load_tokenizer(path: str | Path) -> Tokenizer:
    """The tokenizer saved at `path` (or a Hugging Face name), with the end ids of its generation config."""
    from transformers import AutoTokenizer

    try:
        hf = AutoTokenizer.from_pretrained(str(path), clean_up_tokenization_spaces=False)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().split("\n")[0]
        raise UserError(f"no tokenizer at {path}: {reason}; give a folder in Hugging Face format") from None
    return Tokenizer(hf, extra_eos=_generation_eos(Path(path)))


def _generation_eos(folder: Path) -> list[int]:
    """All end ids that the files of a model folder name."""
    found: list[int] = []
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        if not path.is_file():
            continue
        eos = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id")
        found += [] if eos is None else [eos] if isinstance(eos, int) else list(eos)
    return found


# ---------------------------------------------------------------- bytes and characters


def _token_bytes(hf: Any, special: frozenset[int]) -> list[bytes] | None:
    """The bytes of every id, [vocab] (b"" for special ones), or None where the tokenizer is not byte-level."""
    backend = getattr(hf, "backend_tokenizer", None)
    if backend is None or not _is_byte_level(json.loads(backend.to_str()).get("decoder")):
        return None
    of_char = {char: byte for byte, char in _byte_alphabet().items()}
    added = {int(i): str(token) for i, token in hf.added_tokens_decoder.items()}
    table = [b""] * (max([len(hf) - 1, *added]) + 1)
    for token, i in hf.get_vocab().items():
        if i in special:
            continue
        plain = i in added or any(c not in of_char for c in token)  # added tokens are kept as text, not as bytes
        table[i] = token.encode() if plain else bytes(of_char[c] for c in token)
    return table


def _is_byte_level(decoder: Mapping[str, Any] | None) -> bool:
    if decoder is None:
        return False
    if decoder["type"] == "Sequence":
        inner = decoder["decoders"]
        return len(inner) == 1 and _is_byte_level(inner[0])
    return decoder["type"] == "ByteLevel"


def _byte_alphabet() -> dict[int, str]:
    """byte -> the printable character that stands for it in byte-level vocabularies (the GPT-2 convention)."""
    kept = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {b: chr(b) for b in kept}
    for n, b in enumerate(b for b in range(256) if b not in table):
        table[b] = chr(256 + n)
    return table


def _byte_offsets(pieces: Sequence[bytes]) -> Offsets:
    """Character ranges of byte pieces in their joined UTF-8 text, replacement characters included."""
    joined = b"".join(pieces)
    offsets: Offsets = []
    if joined.isascii():
        at = 0
        for piece in pieces:
            offsets.append((at, at + len(piece)))
            at += len(piece)
        return offsets
    char_of = _char_of_byte(joined)
    at = 0
    for piece in pieces:
        end = at + len(piece)
        start_char = char_of[at]
        if piece:
            offsets.append((start_char, char_of[end - 1] + 1))
        else:  # between the bytes of one character a token that writes nothing belongs to it too: ranges stay in order
            inside = at > 0 and char_of[at - 1] == start_char
            offsets.append((start_char, start_char + inside))
        at = end
    return offsets


def _char_of_byte(data: bytes) -> list[int]:
    """The index of the character that each byte belongs to, and the number of characters at the end, [bytes + 1]."""
    bad: list[int] = []  # length of each run of bytes that became one U+FFFD

    def note(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeDecodeError)
        bad.append(error.end - error.start)
        return _BAD, error.end

    codecs.register_error("didpo.note", note)
    marked = data.decode("utf-8", "didpo.note")
    runs = iter(bad)
    char_of: list[int] = []
    for index, char in enumerate(marked):
        char_of += [index] * (next(runs) if char == _BAD else len(char.encode()))
    return [*char_of, len(marked)]


_BAD = "\udcff"  # a lone surrogate: never decoded from UTF-8, so it marks replaced bytes


def _decode_plain(hf: Any, ids: list[int]) -> str:
    return hf.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def _common_prefix(a: str, b: str) -> int:
    n = min(len(a), len(b))
    if a[:n] == b[:n]:
        return n
    return next(i for i in range(n) if a[i] != b[i])
