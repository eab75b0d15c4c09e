"""The requests of the prefix-tree instrument, in our model's tokens: the web process has no tokenizer.

A text is cut into parts where a chat template would put its marks, and each part is tokenised by itself, so that a part has
the same tokens wherever it stands.
"""

from __future__ import annotations

from compute import facts
from compute.measures.job import Job, Report, Value, nobody

MODEL = "mini-256"
LANGUAGES = ("zh", "en")


def stories() -> dict:
    """Written for this course: data/prefix-stories.toml."""
    return facts.read_toml(facts.DATA / "prefix-stories.toml")


def parts(language: str) -> list[str]:
    """Every different part of a language's story."""
    told = stories()[language]
    asked = [text for visit in told["visits"] for text in (visit["clock"], visit["question"], visit["answer"])]
    return list(dict.fromkeys([told["system"], told["examples"], *asked]))


def story(*, language: str, texts: list[str], report: Report = nobody) -> dict[str, Value]:
    """The tokens of each part; the value is how many they are in all."""
    from compute.engine.registry import shared
    from compute.engine.tokens import Stream

    tokenizer, trace = shared().get(MODEL).tokenizer, []
    for text in texts:
        ids, stream = tokenizer.encode(text), Stream()
        trace.append({"text": text, "ids": ids, "pieces": [stream.push(tokenizer.bytes_of(token)) for token in ids]})
    says = {"zh": f"前缀树的{'中文' if language == 'zh' else '英文'}故事里各段的 token", "en": f"tokens of all parts of the prefix tree's {'Chinese' if language == 'zh' else 'English'} story"}
    around = {"model": MODEL, "tokenizer": "byte-level BPE", "parts": len(texts)}
    return {f"prefix.{language}.tokens": Value(sum(len(part["ids"]) for part in trace), "token", {"exact": True}, around, says=says, trace=trace)}


MEASURES = {"prefix.story": story}


def jobs() -> list[Job]:
    return [Job("prefix.story", {"language": language, "texts": parts(language)}, (f"prefix.{language}.tokens",), (MODEL,)) for language in LANGUAGES]
