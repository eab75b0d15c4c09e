"""The description of the service: a valid OpenAPI document and a page that needs no other host."""

import re

import httpx
import jsonschema
import pytest

from compute import functions


@pytest.fixture
def document(server):
    return httpx.get(f"{server.url}/openapi.json", trust_env=False, timeout=60).json()  # the first call imports torch


def references(node):
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def test_every_function_is_described_with_its_own_body(document):
    """Catches a function that the document forgets, and a body described as "anything"."""
    assert document["openapi"].startswith("3.1")
    for name in [*functions.TABLE, "toy.add"]:
        operation = document["paths"][f"/run/{name}"]["post"]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object" and schema["additionalProperties"] is False
    ids = [op["operationId"] for path in document["paths"].values() for op in path.values()]
    assert len(ids) == len(set(ids))


def test_every_reference_leads_somewhere(document):
    """Catches `$defs` that were left behind inside a function's schema."""
    found = list(references(document))
    assert "#/components/schemas/toy.nested.Box" in found, "no reference of a function's own schema"
    for reference in found:
        node = document
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]
        assert isinstance(node, dict)


def test_the_described_answers_are_the_real_ones(server, document):
    """Catches a description that has drifted from what is sent."""
    schemas = document["components"]["schemas"]

    def check(name, body):
        jsonschema.validate(body, {"$ref": f"#/components/schemas/{name}", "components": {"schemas": schemas}})

    good, bad = server.post("toy.add", {"a": 1}), server.post("toy.add", {})
    check("Result", good.json())
    check("Error", bad.json())
    check("Event", server.post("toy.quiet", {"seconds": 0.7}).iter_lines().__next__() and good.json())


def test_the_page_loads_nothing_from_elsewhere(server):
    """Catches a page that is blank without the Internet."""
    answer = httpx.get(f"{server.url}/docs", trust_env=False)
    assert answer.status_code == 200 and "toy.add" in answer.text
    assert not re.findall(r"""(?:src|href|url\(|@import)\s*=?\s*["']?(?:https?:)?//""", answer.text)
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "http" not in policy and "unsafe" not in policy


def test_functions_list_names_and_schemas(server):
    """Catches a list without what is needed to call."""
    listed = {f["name"]: f for f in httpx.get(f"{server.url}/functions", trust_env=False).json()}
    assert listed["toy.add"]["parameters"]["required"] == ["a"] and listed["toy.add"]["summary"].startswith("Answers")


def test_health_says_what_runs(server):
    """Catches a health check that cannot tell up from down."""
    health = server.health()
    assert health["up"] and health["pid"] == server.process.pid and health["uptime_seconds"] > 0 and health["machine"]
