"""Byte-level byte-pair encoding with 2,048 tokens, shared by all mini models.

Chinese has no spaces, so plain byte-level BPE glues whatever often stands together, 给了小 for instance: a prompt that
ends in 给了 would then be cut unlike anything seen in training. The names and things of the stories are therefore set
apart before merging (`LEXICON`), which keeps 小明·把·苹果·给了·小王 five pieces wherever it occurs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from compute.training import words_zh
from compute.training.mixture import END

VOCABULARY = 2048
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
SAMPLE = {  # characters of each source the merges are learned from
    "libreoffice-zh": 2 * 550_000, "gnome-zh": 2 * 29_000, "electron-zh": 2 * 93_000, "stories-zh": 1_500_000,
    "sanguo": 500_000, "songci": 300_000, "tang": 250_000, "primers": 150_000,
    "libreoffice-en": 450_000, "gnome-en": 150_000, "electron-en": 150_000, "stories-en": 250_000,
}  # fmt: skip


def lexicon() -> list[str]:
    """Names, kin and things of two characters or more, longest first so that 故事书 is not cut at 书."""
    people = words_zh.CHILDREN + words_zh.FAMILY + words_zh.TEACHERS + words_zh.NEIGHBOURS + words_zh.ANIMALS
    words = {p.name for p in people} | {t.name for t in words_zh.THINGS}
    return sorted((w for w in words if len(w) > 1), key=lambda w: (-len(w), w))


def sample(documents: dict[str, list[str]]) -> Iterator[str]:
    """Documents until each source has given its characters; a small source starts over."""
    for name, wanted in SAMPLE.items():
        given = 0
        while given < wanted:
            for document in documents[name]:
                if given >= wanted:
                    break
                given += len(document)
                yield document


def train(texts: Iterable[str], vocabulary: int = VOCABULARY) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex("|".join(lexicon())), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[AddedToken(s, special=True) for s in SPECIALS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.token_to_id(SPECIALS[0]) != END:
        raise ValueError(f"{SPECIALS[0]} must be token {END}")
    return tokenizer


def load(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def newline_id(tokenizer: Tokenizer) -> int:
    return tokenizer.encode("\n").ids[0]
