"""The committed validation texts, their notices and the tokenizer that reads them."""

import json
from functools import partial
from pathlib import Path

import pytest

from compute.training import corpus, mixture, texts, tokenizer
from compute.training.__main__ import corpus_step
from compute.training.train import CHECKPOINTS

INDEX = json.loads((mixture.TEXTS / "texts.json").read_text(encoding="utf-8"))["sources"]
NAMES = [row["name"] for row in INDEX]
CLEAN = {"MPL-2.0", "CC-BY-SA-3.0", "MIT", "public domain", "as the project"}


@pytest.fixture(scope="module")
def learned():
    return tokenizer.load(CHECKPOINTS / "mini-256")


def test_every_text_has_a_clean_licence_and_is_small():
    """Catches: a text without notice, a GPL or unclear source, a corpus committed by mistake."""
    files = sorted(p.stem for p in mixture.TEXTS.glob("*.txt"))
    assert files == sorted(NAMES) and len(files) == 12
    readme = (mixture.TEXTS / "README.md").read_text(encoding="utf-8")
    for row in INDEX:
        assert row["licence"] in CLEAN and row["notice"] and row["notice"] in readme, row["name"]
    assert sum(p.stat().st_size for p in mixture.TEXTS.iterdir()) < 1_500_000


@pytest.mark.parametrize("name", NAMES)
def test_tokens_give_the_text_back(name, learned):
    """Catches: a normaliser or pre-tokenizer that loses characters; counts that no longer fit the files."""
    documents = mixture.read_text(name)
    held = next(row for row in INDEX if row["name"] == name)["validation"]
    ids = mixture.encode(learned, documents)
    assert len(documents) == held["documents"] and len(ids) == held["tokens"]
    assert sum(map(len, documents)) == held["characters"]
    for document, encoding in zip(documents, learned.encode_batch(documents), strict=True):
        assert learned.decode(encoding.ids) == document


def test_counts_of_tokens_stay_with_their_text_alone(tmp_path, monkeypatch, capsys):
    """Catches: a step that drops counts which the next commit then lacks, without a word; a count that stays although its text, or the
    archive that the training text came from, is another."""
    rows = [{"name": name, "package": "p", "archive": "a", "sha256": sha, "licence": "MIT", "notice": "n"} for name, sha in (("gnome-zh", "1"), ("tang", "2"), ("primers", "3"))]
    monkeypatch.setattr(corpus, "manifest", lambda: rows)
    monkeypatch.setattr(texts, "write", partial(texts.write, folder=tmp_path))
    documents = {name: (["abc", "de"], ["xyz"]) for name in ("gnome-zh", "tang", "primers", "stories-zh")}
    monkeypatch.setattr(mixture, "all_documents", lambda: documents)
    corpus_step(None)
    assert capsys.readouterr().out.strip().endswith("until the step tokenizer: gnome-zh, tang, primers, stories-zh")
    index = tmp_path / "texts.json"
    counted = json.loads(index.read_text())
    for row in counted["sources"]:
        row["training"] |= {"tokens": 5, "share_percent": 1}
        row["validation"] |= {"tokens": 3, "characters_a_token": 1.0}
    index.write_text(json.dumps(counted))
    corpus_step(None)
    assert capsys.readouterr().out == "" and json.loads(index.read_text()) == counted
    rows[1]["sha256"] = "4"
    documents["primers"] = (["abc", "de"], ["xyzw"])
    documents["stories-zh"] = (["abc", "def"], ["xyz"])
    corpus_step(None)
    assert capsys.readouterr().out.strip().endswith("until the step tokenizer: tang, primers, stories-zh")
    kept = {row["name"]: [half for half in ("training", "validation") if "tokens" in row[half]] for row in json.loads(index.read_text())["sources"]}
    assert kept == {"gnome-zh": ["training", "validation"], "tang": ["validation"], "primers": [], "stories-zh": ["validation"]}


def test_the_running_example_is_five_tokens_and_its_prompt_a_prefix(learned):
    """Catches: merges across 给了 and a name, after which the prompt is cut unlike anything seen in training."""
    pieces = [learned.decode([i]) for i in learned.encode("小明把苹果给了小王").ids]
    assert pieces == ["小明", "把", "苹果", "给了", "小王"]
    for name in ("小王", "小红", "妈妈", "王老师"):
        whole = learned.encode(f"小红把故事书给了{name}。").ids
        prompt = learned.encode("小红把故事书给了").ids
        assert whole[: len(prompt)] == prompt


def test_vocabulary_and_special_tokens(learned):
    """Catches: a vocabulary that does not fit the embedding, or end-of-text under another id."""
    assert learned.get_vocab_size() == tokenizer.VOCABULARY == 2048
    assert [learned.token_to_id(s) for s in tokenizer.SPECIALS] == [0, 1, 2]
    assert learned.encode("a<|endoftext|>").ids[-1] == mixture.END


def test_paragraphs_are_real_and_licensed(learned):
    """Catches: a paragraph whose origin was lost, or counts typed by hand."""
    items = json.loads((mixture.TEXTS / "paragraphs.json").read_text(encoding="utf-8"))
    licences = {s.name: s.licence for s in corpus.SOURCES}
    assert len(items) == 69 and len({i["text"] for i in items}) == 69
    for item in items:
        assert item["licence"] == licences[item["source"]] and item["notice"]
        assert item["chars"] == len(item["text"])
        assert item["tokens"] == len(learned.encode(item["text"]).ids)
        if not item["seen_in_training"]:
            assert item["text"] in (mixture.TEXTS / f"{item['source']}.txt").read_text(encoding="utf-8")


def test_sources_leave_out_copyleft_manuals():
    """Catches: GPL or GFDL text creeping back in."""
    assert {s.licence for s in corpus.SOURCES} <= CLEAN
    assert {s.name for s in corpus.SOURCES} | {"stories-zh", "stories-en"} == set(mixture.SHARES)
    assert {n for names in mixture.DOMAINS.values() for n in names} == set(mixture.SHARES)


def test_cleaning():
    """Catches: spaces left between Han characters by line breaks, English kept as Chinese and the other way round."""
    assert corpus.normalise("打开\n 文件\u200b， 然后  Save as") == "打开文件，然后 Save as"
    assert corpus.is_chinese("如果要打开文件，请点击菜单。") and not corpus.is_chinese(
        "点击 File - Save As to store it"
    )
    assert corpus.is_english_prose("Choose the menu that opens a file.")
    assert not corpus.is_english_prose("点击 the menu that opens a file now.")


def test_split_holds_out_every_nth():
    """Catches: a document in both halves, or lost from both."""
    documents = [f"d{i}" for i in range(100)]
    train, held = mixture.split(documents, 9)
    assert sorted(train + held) == sorted(documents) and held[:2] == ["d8", "d17"] and len(held) == 11


def test_an_empty_line_inside_a_document_is_refused(tmp_path: Path):
    """Catches: documents that come apart when the file is read again."""
    mixture.write_text("x", ["一\n二", "三"], tmp_path)
    assert mixture.read_text("x", tmp_path) == ["一\n二", "三"]
    with pytest.raises(ValueError, match="empty line"):
        mixture.write_text("x", ["一\n\n二"], tmp_path)
