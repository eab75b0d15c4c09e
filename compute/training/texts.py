"""data/texts: the validation texts of the course with their origin, licence and counts."""

from __future__ import annotations

import json
from pathlib import Path

from compute.training import corpus, mixture

INDEX = "texts.json"


def write(documents: dict[str, tuple[list[str], list[str]]], folder: Path = mixture.TEXTS) -> None:
    """One file a source, and the index with notices. `count` adds the tokens once there is a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    origin = {row["name"]: row for row in corpus.manifest()}
    sources = []
    for name, (train, held) in documents.items():
        mixture.write_text(name, held, folder)
        domain = next(d for d, names in mixture.DOMAINS.items() if name in names)
        row = origin.get(name) or {"package": "none, own grammar", "licence": "as the project", "notice": mixture.STORY_NOTICE}
        sources.append(
            {
                "name": name,
                "domain": domain,
                **{key: row[key] for key in ("package", "archive", "sha256", "licence", "notice") if key in row},
                "training": {"documents": len(train), "characters": sum(map(len, train))},
                "validation": {
                    "file": f"{name}.txt",
                    "documents": len(held),
                    "characters": sum(map(len, held)),
                    "bytes": sum(len(d.encode()) for d in held),
                },
            }
        )
    _store(sources, folder)


def count(tokenizer, folder: Path = mixture.TEXTS) -> None:
    """Add token counts: of training from build/tokens, of validation from the committed text."""
    sources = json.loads((folder / INDEX).read_text(encoding="utf-8"))["sources"]
    about = json.loads((mixture.TOKENS / "about.json").read_text(encoding="utf-8"))["sources"]
    for row in sources:
        ids = mixture.encode(tokenizer, mixture.read_text(row["name"], folder))
        held = row["validation"]
        held["tokens"] = len(ids)
        held["characters_a_token"] = round(held["characters"] / len(ids), 3)
        row["training"]["tokens"] = about[row["name"]]["tokens"]
        row["training"]["share_percent"] = mixture.SHARES[row["name"]]
    _store(sources, folder)


def _store(sources: list[dict], folder: Path) -> None:
    content = {"format": "UTF-8, documents separated by an empty line; tokens include one <|endoftext|> a document"}
    (folder / INDEX).write_text(
        json.dumps(content | {"sources": sources}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
