"""The compute service against its own OpenAPI document: whatever is sent, the answer is one that the document names, in the shape
that it gives, and no mistake of ours.

INFERENCE_LAB_FUZZ=N multiplies the number of tries, with fresh ones each time.
"""

from __future__ import annotations

import json
import os

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings, strategies as st
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance, status_code_conformance

from compute.service.api import create_app
from compute.service.jobs import Limits
from compute.service.machine import Machine
from tests.security.test_functions import APART

DEEPER = int(os.environ.get("INFERENCE_LAB_FUZZ", "0"))


@pytest.fixture(scope="session")
def document():
    app = create_app(Machine("cpu"), Limits(seconds=20, per_minute=10**6), allow_hosts=["*"], preload=False)
    loaded = schemathesis.openapi.from_asgi("/openapi.json", app)
    return loaded.exclude(path=[f"/run/{name}" for name in APART])


@settings(max_examples=2 * max(1, DEEPER), deadline=None, derandomize=not DEEPER, database=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def every(operation, data):
    case = data.draw(operation.as_strategy())
    answer = case.call(timeout=120)
    assert answer.status_code < 500 or (answer.status_code == 503 and "retry-after" in answer.headers), answer.text[:300]
    if answer.headers.get("content-type", [""])[0].startswith("application/x-ndjson"):
        *progress, last = map(json.loads, answer.text.splitlines())
        assert all("progress" in line for line in progress) and ("result" in last or "error" in last)
        assert last.get("error", {}).get("code") != "internal", last
        return
    case.validate_response(answer, checks=[status_code_conformance, content_type_conformance, response_schema_conformance])


def test_every_answer_is_one_of_the_document(document):
    """Catches: a traceback behind a status 500, a status that nobody is told of, an answer in another shape."""
    tried = []
    for found in document.get_all_operations():
        operation = found.ok()
        tried.append(f"{operation.method.upper()} {operation.path}")
        try:
            every(operation)
        except BaseException as wrong:
            wrong.add_note(tried[-1])
            raise
    assert len(tried) > 25 and {"POST /v1/completions", "GET /live", "POST /run/roofline.decode"} <= set(tried), tried
