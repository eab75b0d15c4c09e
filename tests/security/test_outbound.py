"""Nothing leaves this machine: both servers and the browser, from the first page to a text that a model writes. tests/security/guard
refuses and writes down whatever the servers try; at the end of the session `lab` looks at it once more, after all other tests."""

from __future__ import annotations

import httpx

from tests.browser.conftest import assert_clean, outbound, visit
from tests.security.test_doors import opened


def test_nothing_leaves_this_machine(chromium, lab):
    """Catches: a statistic, a font, an update, a look-up of a name, or a check of an address that asks another host."""
    for path in ("/", "/live"):  # the page with every instrument is loaded in test_planted.py
        page = visit(chromium, lab.url, path, lang="en")
        assert_clean(page)
        assert len(page.requests) > 10 and not outbound(page)
        page.context.close()
    assert opened(lab.url, Origin="http://evil.example") == 403
    asked = {"model": "mini-64", "prompt": "春", "max_tokens": 2}
    assert httpx.post(f"{lab.compute}/v1/completions", json=asked, trust_env=False, timeout=60).status_code == 200
    assert httpx.post(f"{lab.compute}/run/meter.endpoints", json={}, trust_env=False, timeout=60).status_code == 200
    assert lab.outbound() == []
