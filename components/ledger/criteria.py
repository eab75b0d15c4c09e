"""The acceptance criteria of the project part over the ledger: whole tables, and every scheme, by the stored numbers and by what did not come out again."""

from __future__ import annotations

import html
from collections.abc import Collection

from components.text import Words
from compute import acceptance
from compute.acceptance import Criterion

FIND = {"cache": "lab.cache", "sampling": "sampling.t", "drafting": "t0.identical", "quantization": "loss_change"}  # what the ledger shows of it
STYLE = """
.lab-criteria { border-top: 2px solid var(--lab-ink); margin-bottom: 40px; padding-top: 12px; }
.lab-criteria h2 { font: 650 1rem/1.5 var(--lab-sans); margin: 0 0 4px; padding: 0; }
.lab-criteria p, .lab-criteria summary, .lab-criteria small { color: var(--lab-muted); font-size: 0.9375rem; }
.lab-criteria > p { margin: 0 0 8px; max-width: 46rem; }
.lab-criteria [role=listitem] { display: grid; grid-template-columns: 7.5rem 1fr auto; gap: 2px 16px; border-top: 1px solid var(--lab-hairline); padding: 10px 0; align-items: baseline; }
.lab-criteria b { font-weight: 600; }
.lab-criteria .met { color: var(--lab-accepted); }
.lab-criteria .not_met { color: var(--lab-rejected); }
.lab-criteria a { font-size: 0.875rem; color: var(--lab-accent); }
.lab-criteria details { grid-column: 2 / -1; }
.lab-criteria details div { columns: 19rem; column-gap: 32px; font-size: 13px; padding-top: 8px; }
.lab-criteria details span { display: grid; grid-template-columns: 1.2rem 1fr auto; break-inside: avoid; line-height: 1.9; border-bottom: 1px solid var(--lab-hairline); }
.lab-criteria code { font-family: var(--lab-figures); font-size: 13px; background: none; color: inherit; padding: 0; }
@media (max-width: 640px) { .lab-criteria [role=listitem] { grid-template-columns: 1fr; } .lab-criteria details { grid-column: 1; } }
"""


def section(words: Words, apart: Collection[str]) -> str:
    """apart: keys that were recomputed and did not come out again, or whose entry was edited."""
    kept = acceptance.entries()
    tables = acceptance.doubted((acceptance.cache(kept), acceptance.sampling_table(kept), acceptance.drafting(kept)), apart)
    schemes = acceptance.doubted(acceptance.of_schemes(kept), apart)
    rows = [_row(c.id, c.verdict, c.says[words.lang], _figures(c, words), words) for c in tables]
    if schemes:
        met = sum(c.verdict == "met" for c in schemes)
        listed = "".join(f'<span><b class="{c.verdict}" title="{_e(words(f"criterion.{c.verdict}"))}">{acceptance.MARKS[c.verdict]}</b><code>{_e(c.of)}</code><code>{_e(_signed(c))}</code></span>' for c in schemes)
        told = words("criterion.quantization", met=met, n=len(schemes), floor=schemes[0].threshold)
        rows.append(_row("quantization", "each", schemes[0].says[words.lang], told, words, f'<details><summary>{_e(words("criterion.schemes"))}</summary><div>{listed}</div></details>'))
    return (f'<style>{STYLE}</style><section class="lab-criteria" aria-label="{_e(words("criterion.title"))}"><h2>{_e(words("criterion.title"))}</h2>'
            f'<p>{_e(words("criterion.how"))}</p><div role="list">{"".join(rows)}</div></section>')  # fmt: skip


def _row(id: str, verdict: str, says: str, figures: str, words: Words, more: str = "") -> str:
    mark = acceptance.MARKS.get(verdict, "–")
    find = f'<a href="check?lang={words.lang}&amp;ledger.text={FIND[id]}">{_e(words("criterion.find"))}</a>'
    return (f'<div role="listitem"><b class="{verdict}">{mark} {_e(words(f"criterion.{verdict}"))}</b><span>{_e(says)}<br><small>{_e(figures)}</small></span>{find}{more}</div>')


def _figures(c: Criterion, words: Words) -> str:
    return c.reason[words.lang] if c.reason else words(f"criterion.{c.id}", value=c.value, threshold=c.threshold)


def _signed(c: Criterion) -> str:
    return c.value.replace("-", "−") if c.value.startswith("-") or not c.value else f"+{c.value}"


def _e(text: str) -> str:
    return html.escape(text)
