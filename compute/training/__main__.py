"""The steps in order: corpus, tokenizer, train, distil, noise, card. `all` chains train, distil and noise. `moe` goes on from mini-256, and so does its `control`.

For speculative decoding besides: mtp (a head on mini-256 or, after teach, on SmolLM2), teach and draft (a small draft for
SmolLM2)."""

from __future__ import annotations

import argparse
import json
import os

from compute.training import mixture

MINIS = ("mini-256", "mini-128", "mini-64")
MOE = ("mini-moe",)
DRAFTS = ("mini-256-mtp", "smollm2-draft", "smollm2-135m-mtp")
HEADS = ("mini-256-mtp", "smollm2-135m-mtp")


def corpus_step(_: argparse.Namespace) -> None:
    """Fetch the sources and write the stories; commit-sized validation texts go to data/texts."""
    from compute.training import texts

    if uncounted := texts.write(mixture.all_documents()):
        print(f"without counts of tokens in data/texts/{texts.INDEX}, until the step tokenizer: {', '.join(uncounted)}")


def tokenizer_step(_: argparse.Namespace) -> None:
    """Learn the merges, then `tokens`."""
    from compute.training import texts, tokenizer, train

    documents = {name: kept for name, (kept, _) in mixture.all_documents().items()}
    learned = tokenizer.train(tokenizer.sample(documents))
    train.TOKENIZER.parent.mkdir(parents=True, exist_ok=True)
    learned.save(str(train.TOKENIZER))
    write_tokens(learned, documents)
    texts.count(learned)
    texts.check_paragraphs(learned)


def tokens_step(_: argparse.Namespace) -> None:
    """Turn every training document into ids under build/tokens, with the merges as they are."""
    from compute.training import tokenizer, train

    write_tokens(tokenizer.load(train.TOKENIZER.parent), {name: kept for name, (kept, _) in mixture.all_documents().items()})


def write_tokens(learned, documents: dict[str, list[str]]) -> None:
    import numpy as np

    from compute.training import tokenizer

    mixture.TOKENS.mkdir(parents=True, exist_ok=True)
    counts = {}
    for name, kept in documents.items():
        ids = mixture.encode(learned, kept)
        np.save(mixture.TOKENS / f"{name}.npy", ids)
        counts[name] = {"tokens": len(ids), "characters": sum(map(len, kept)), "documents": len(kept)}
        print(f"{name}: {len(ids)} tokens")
    about = {"newline": tokenizer.newline_id(learned), "sources": counts}
    (mixture.TOKENS / "about.json").write_text(json.dumps(about, indent=1), encoding="utf-8")


def train_step(options: argparse.Namespace) -> None:
    """mini-256 from scratch; with the name of a draft, that draft from mini-256."""
    from compute.training import distil, train

    for name in options.models or [train.MINI_256.name]:
        if name == train.MINI_256.name:
            train.train_target(options.compile)
        else:
            distil.distil(name, options.compile)


def distil_step(options: argparse.Namespace) -> None:
    """mini-64 and mini-128 from mini-256."""
    from compute.training import distil

    for name in options.models or distil.RECIPES:
        distil.distil(name, options.compile)


def moe_step(_: argparse.Namespace) -> None:
    """mini-moe: mini-256 with experts, trained on."""
    from compute.training import moe

    moe.run()


def control_step(_: argparse.Namespace) -> None:
    """mini-256 trained on like mini-moe, without experts; its losses are kept beside mini-moe's."""
    from compute.training import moe

    moe.control()


def mtp_step(options: argparse.Namespace) -> None:
    """A multi-token prediction head, with which mini-256 or SmolLM2 then drafts for itself."""
    import torch

    from compute.engine import registry
    from compute.training import mtp, smollm2_mtp

    for name in options.models or [mtp.NAME]:
        if name == mtp.NAME:
            mtp.train(options.compile)
        else:
            torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 0)) or torch.get_num_threads())
            smollm2_mtp.train(registry.shared().get(smollm2_mtp.TARGET))


def teach_step(options: argparse.Namespace) -> None:
    """SmolLM2 answers prompts, and its distributions are kept: what its draft learns from. Needs `run.py models`."""
    import torch

    from compute.engine import registry
    from compute.training import teach

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 0)) or torch.get_num_threads())
    teach.teach(registry.shared().get(teach.TARGET), teach.GROUPS[options.first : options.groups])


def draft_step(options: argparse.Namespace) -> None:
    """smollm2-draft from what `teach` has kept."""
    import torch

    from compute.engine import registry
    from compute.training import draft

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 0)) or torch.get_num_threads())
    draft.train(registry.shared().get(draft.TARGET))


def noise_step(options: argparse.Namespace) -> None:
    """Five short runs that differ in the seed."""
    from compute.training import train

    train.noise_floor(options.compile)


def card_step(options: argparse.Namespace) -> None:
    """Final figures on the whole validation texts or the fixed prompts, and README.md of a checkpoint."""
    from compute.training import card, speculation_card

    if minis := tuple(n for n in options.models or MINIS + MOE if n in MINIS + MOE):
        card.write_all(minis)
    for name in set(options.models or ()) & speculation_card.MADE.keys():
        speculation_card.write(name)


def all_step(options: argparse.Namespace) -> None:
    """train, distil, noise. Started again, it goes on where it stopped."""
    train_step(options)
    distil_step(options)
    noise_step(options)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m compute.training", description=__doc__)
    steps = parser.add_subparsers(required=True)
    for name, step in (
        ("corpus", corpus_step), ("tokenizer", tokenizer_step), ("tokens", tokens_step), ("train", train_step), ("distil", distil_step), ("moe", moe_step), ("control", control_step), ("mtp", mtp_step), ("teach", teach_step), ("draft", draft_step),
        ("noise", noise_step), ("card", card_step), ("all", all_step),
    ):  # fmt: skip
        sub = steps.add_parser(name, help=step.__doc__)
        sub.set_defaults(step=step, models=None)
        if name in ("train", "distil", "mtp", "noise", "all"):
            sub.add_argument("--compile", action="store_true", help="use torch.compile")
        if name == "teach":
            sub.add_argument("--groups", type=int, default=50, help="how many groups of 128 answers, 50 at most")
            sub.add_argument("--first", type=int, default=0, help="leave out so many, which another process writes")
        if name == "train":
            sub.add_argument("models", nargs="*", metavar="model", help="mini-256 (the default), mini-128 or mini-64")
        if name == "distil":
            sub.add_argument("models", nargs="*", metavar="model", help="mini-64 or mini-128; default: both")
        if name == "mtp":
            sub.add_argument("models", nargs="*", metavar="head", help=f"{' or '.join(HEADS)}; default: the first")
        if name == "card":
            sub.add_argument("models", nargs="*", metavar="model", help=f"also {', '.join(DRAFTS)}; default: the minis and mini-moe")
    options = parser.parse_args()
    known = {card_step: MINIS + MOE + DRAFTS, mtp_step: HEADS}.get(options.step, MINIS)
    if unknown := set(options.models or ()) - set(known):
        parser.error(f"no model {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    options.step(options)


if __name__ == "__main__":
    main()
