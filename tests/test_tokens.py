"""Token ids, exact character ranges, end marks."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from didpo.errors import UserError
from didpo.tokens import END, Tokenizer, load_tokenizer, train_tokenizer

TEXTS = [
    "def pick(xs):\n    ys = [x for x in xs if x > 0]\n    return sum(ys) + 1\n",
    "def pick(xs):\n    ys = [x for x in xs if x >= 0]\n    return len(ys) - 1\n",
] * 8


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(TEXTS, vocab_size=300)


def check_offsets(tokenizer: Tokenizer, ids: list[int]) -> None:
    """Laws of offsets: in order, inside the text, covering it, each character held by the tokens that wrote it."""
    text, offsets = tokenizer.decode(ids), tokenizer.offsets_of(ids)
    assert len(offsets) == len(ids)
    covered = set()
    last_start = last_end = 0
    for token, (start, end) in zip(ids, offsets, strict=True):
        assert 0 <= start <= end <= len(text)
        assert start >= last_start and end >= last_end
        if token not in tokenizer.eos_ids and token != tokenizer.pad_id:
            assert end > start
        covered |= set(range(start, end))
        last_start, last_end = start, end
    assert covered == set(range(len(text)))


def test_a_special_token_between_the_bytes_of_a_character(tokenizer: Tokenizer) -> None:
    first, second = (tokenizer.encode("é")[i] for i in (0, -1))
    assert first != second and tokenizer.piece(first) + tokenizer.piece(second) == "é".encode()
    ids = [first, tokenizer.pad_id, second]
    check_offsets(tokenizer, ids)
    assert tokenizer.offsets_of([tokenizer.pad_id, first, second]) == [(0, 0), (0, 1), (0, 1)]


@given(st.text(max_size=60))
@settings(max_examples=150, deadline=None)
def test_any_text_survives_and_is_covered(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    check_offsets(tokenizer, ids)


@given(st.lists(st.integers(0, 299), max_size=30))
@settings(max_examples=150, deadline=None)
def test_any_ids_have_offsets_in_the_decoded_text(tokenizer: Tokenizer, ids: list[int]) -> None:
    assert tokenizer.decode(ids) == tokenizer.hf.decode(ids, skip_special_tokens=True)
    check_offsets(tokenizer, ids)


def test_bytes_of_one_character_share_its_range(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("aé漢z")
    assert len(ids) == 7  # a, two bytes, three bytes, z
    assert tokenizer.offsets_of(ids) == [(0, 1), (1, 2), (1, 2), (2, 3), (2, 3), (2, 3), (3, 4)]


def test_a_cut_off_character_is_one_replacement(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a漢b")
    cut = [ids[0], ids[1], ids[2], ids[4]]  # the last of three bytes is missing
    assert tokenizer.decode(cut) == "a\ufffdb"
    assert tokenizer.offsets_of(cut) == [(0, 1), (1, 2), (1, 2), (2, 3)]


def test_end_mark_has_an_empty_range_at_the_end(tokenizer: Tokenizer) -> None:
    ids = [*tokenizer.encode("ab"), tokenizer.eos_ids[0]]
    assert tokenizer.decode(ids) == "ab"
    assert tokenizer.offsets_of(ids) == [(0, 1), (1, 2), (2, 2)]


def test_text_that_looks_like_an_end_mark_is_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(f"x{END}")
    assert tokenizer.eos_ids[0] not in ids
    assert tokenizer.decode(ids) == f"x{END}"
    assert tokenizer.encode(f"x{END}", special=True)[-1] == tokenizer.eos_ids[0]


def test_a_line_is_never_one_piece_with_the_next(tokenizer: Tokenizer) -> None:
    for i in range(tokenizer.vocab_size):
        assert b"\n" not in tokenizer.piece(i)[1:]


def test_saved_and_loaded_it_is_the_same_with_all_end_ids(tokenizer: Tokenizer, tmp_path) -> None:
    tokenizer.save(tmp_path)
    config = json.loads((tmp_path / "generation_config.json").read_text())
    config["eos_token_id"] = [tokenizer.eos_ids[0], 7]
    (tmp_path / "generation_config.json").write_text(json.dumps(config))
    loaded = load_tokenizer(tmp_path)
    assert loaded.eos_ids == (tokenizer.eos_ids[0], 7)
    assert loaded.pad_id == tokenizer.pad_id
    ids = loaded.encode(TEXTS[0])
    assert ids == tokenizer.encode(TEXTS[0])
    assert loaded.offsets_of(ids) == tokenizer.offsets_of(ids)
    again = tmp_path / "again"
    loaded.save(again)
    assert load_tokenizer(again).eos_ids == loaded.eos_ids


def test_training_is_the_same_in_another_process(tokenizer: Tokenizer) -> None:
    code = (
        "import sys, json; from didpo.tokens import train_tokenizer;"
        "t = train_tokenizer(json.load(sys.stdin), vocab_size=300); print(json.dumps(t.hf.get_vocab(), sort_keys=True))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(TEXTS), capture_output=True, text=True, timeout=120, check=True
    )
    assert json.loads(done.stdout) == tokenizer.hf.get_vocab()


@pytest.fixture(scope="module")
def metaspace() -> Tokenizer:
    """A tokenizer that is not byte-level: word pieces with "▁" for spaces and byte tokens for the rest."""
    from tokenizers import Tokenizer as Core
    from tokenizers import decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pieces = ["<unk>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), "▁", "a", "b", "▁a", "ab"]
    core = Core(
        models.BPE(
            vocab={p: i for i, p in enumerate(pieces)},
            merges=[("▁", "a"), ("a", "b")],
            byte_fallback=True,
            unk_token="<unk>",
        )
    )
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    core.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=core, eos_token="</s>", unk_token="<unk>"))


def test_offsets_of_a_tokenizer_that_is_not_byte_level(metaspace: Tokenizer) -> None:
    ids = [*metaspace.encode("ab aé漢b"), metaspace.eos_ids[0]]
    assert metaspace.decode(ids) == "ab aé漢b"
    offsets = metaspace.offsets_of(ids)
    assert offsets == [(0, 2), (2, 4), (4, 5), (4, 5), (5, 6), (5, 6), (5, 6), (6, 7), (7, 7)]


def test_pad_id_may_be_the_end_id(metaspace: Tokenizer) -> None:
    assert metaspace.pad_id == metaspace.eos_ids[0]


def test_mistakes_get_one_line(tmp_path) -> None:
    with pytest.raises(UserError, match="no tokenizer at"):
        load_tokenizer(tmp_path)
    with pytest.raises(UserError, match="at least 258"):
        train_tokenizer(TEXTS, vocab_size=100)
