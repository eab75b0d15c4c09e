"""The service described: its functions, their OpenAPI document, and one plain page to read and try them.

The page is written here, because the usual viewers load their code from another host.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from functools import cache
from typing import Any

from compute import functions
from compute.service.schema import EVENT_TYPE, VERSION

JSON_TYPE = "application/json"


@cache
def describe() -> list[dict[str, Any]]:
    """Name, place, summary and parameter schema of each function. The first call imports all of them (seconds)."""
    return [
        {"name": f.name, "where": f.where, "summary": f.summary, "parameters": functions.schema(f.name)}
        for f in functions.TABLE.values()
    ]


# --- OpenAPI -----------------------------------------------------------------------------------------------------

ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "values", "message"],
            "properties": {
                "code": {"type": "string", "description": "names the sentence; see compute/errors.py"},
                "values": {"type": "object", "description": "what fills the sentence"},
                "message": {
                    "type": "object",
                    "properties": {"zh": {"type": "string"}, "en": {"type": "string"}},
                },
            },
        }
    },
}
PROGRESS = {
    "type": "object",
    "required": ["progress"],
    "properties": {
        "progress": {
            "type": "object",
            "required": ["fraction", "note", "seconds", "waiting"],
            "properties": {
                "fraction": {"type": "number", "minimum": 0, "maximum": 1},
                "note": {"type": "string"},
                "seconds": {"type": "number", "description": "since the call was accepted"},
                "waiting": {"type": "integer", "description": "jobs still ahead in the queue"},
            },
        }
    },
}
RESULT = {
    "type": "object",
    "required": ["result", "conditions"],
    "properties": {
        "result": {"type": "object"},
        "conditions": {
            "type": "object",
            "required": ["device", "machine", "python", "torch", "threads", "seed", "seconds", "date"],
            "properties": {
                "device": {"type": "string"},
                "machine": {"type": "string"},
                "python": {"type": "string"},
                "torch": {"type": ["string", "null"]},
                "threads": {"type": ["integer", "null"]},
                "seed": {"type": ["integer", "null"]},
                "seconds": {"type": "number", "description": "of the work alone, without waiting"},
                "date": {"type": "string", "format": "date-time"},
            },
        },
    },
}
ANSWERS = {
    "404": "no function of this name; the closest ones are named",
    "409": "understood and impossible, for instance it does not fit in memory",
    "422": "a parameter that cannot be",
    "429": "too many calls from one client; Retry-After says when",
    "500": "a mistake of ours, with the number under which the log has it",
    "503": "the queue is full or the service is stopping; Retry-After says when",
    "504": "over the time limit",
}


@cache
def openapi() -> dict[str, Any]:
    """OpenAPI 3.1; every function is a path of its own, with its parameters as the request body."""
    schemas = {
        "Progress": PROGRESS,
        "Result": RESULT,
        "Error": ERROR,
        "Event": {"oneOf": [_ref("Progress"), _ref("Result"), _ref("Error")]},
    }
    paths: dict[str, Any] = {}
    for function in describe():
        schema = hoisted(function["parameters"], function["name"], schemas)
        paths[f"/run/{function['name']}"] = {
            "post": {
                "operationId": f"run_{function['name'].replace('.', '_')}",
                "summary": function["summary"],
                "tags": [function["name"].split(".")[0]],
                "requestBody": {"required": bool(schema.get("required")), "content": {JSON_TYPE: {"schema": schema}}},
                "responses": {
                    "200": {
                        "description": "one event a line: any number of Progress, then one Result or one Error",
                        "headers": {"X-Run-Id": {"schema": {"type": "string"}, "description": "for DELETE /run/{id}"}},
                        "content": {EVENT_TYPE: {"schema": _ref("Event")}},
                    },
                    **{code: _failure(words) for code, words in ANSWERS.items()},
                },
            }
        }
    paths["/run/{id}"] = {
        "delete": {
            "operationId": "cancel",
            "summary": "Cancel a run. Leaving its stream does the same.",
            "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
            "responses": {"204": {"description": "cancelled"}, "404": _failure("no such run")},
        }
    }
    for path, name, words in (("/healthz", "healthz", "How the service is."), ("/functions", "list_functions", "All functions.")):
        answer = {"description": words, "content": {JSON_TYPE: {"schema": {}}}}
        paths[path] = {"get": {"operationId": name, "summary": words, "responses": {"200": answer}}}
    paths |= _live(schemas) | _openai(schemas)
    info = {"title": "Inference lab: compute service", "version": VERSION}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _live(schemas: dict[str, Any]) -> dict[str, Any]:
    from compute.service import live

    learner = {"name": "X-Learner", "in": "header", "schema": {"type": "string"}, "description": "whose texts are meant"}
    query = hoisted(live.View.model_json_schema(), "live.view", schemas)["properties"]
    late = "; while torch or a model is loaded blanks come first, and an error then has this status too"
    snapshot = {"description": "a snapshot: policy, blocks, steps, sequences, queue, and this learner's own texts" + late, "content": {JSON_TYPE: {"schema": {"type": "object"}}}}
    paths: dict[str, Any] = {
        "/live": {
            "get": {
                "operationId": "live",
                "summary": "How the engine that everybody shares stands, and what it did since a step.",
                "parameters": [learner, *({"name": name, "in": "query", "schema": field} for name, field in query.items())],
                "responses": {"200": snapshot, "422": _failure(ANSWERS["422"])},
            }
        }
    }
    for name, model, words in (
        ("send", live.Send, "Let the engine continue a text; the answer comes at once, the text in /live."),
        ("cancel", live.Cancel, "End a request of one's own."),
    ):
        body = {"required": True, "content": {JSON_TYPE: {"schema": hoisted(model.model_json_schema(), f"live.{name}", schemas)}}}
        done = {"description": "done" + late, "content": {JSON_TYPE: {"schema": {"type": "object"}}}}
        failures = {code: _failure(ANSWERS[code]) for code in ("404", "422", "429", "503")}
        post = {"operationId": f"live_{name}", "summary": words, "parameters": [learner], "requestBody": body, "responses": {"200": done} | failures}
        paths[f"/live/{name}"] = {"post": post}
    return paths


def _openai(schemas: dict[str, Any]) -> dict[str, Any]:
    from compute.service import openai

    answer = {"description": "as OpenAI describes it; with stream = true as server-sent events", "content": {JSON_TYPE: {"schema": {"type": "object"}}}}
    schemas["OpenAIError"] = openai.ERROR
    failed = {"description": "in OpenAI's shape", "content": {JSON_TYPE: {"schema": _ref("OpenAIError")}}}
    body = {"required": True, "content": {JSON_TYPE: {"schema": hoisted(openai.Completion.model_json_schema(), "openai", schemas)}}}
    failures = {code: failed for code in ("400", "404", "429", "500", "503")}
    one = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    return {
        "/v1/completions": {
            "post": {"operationId": "completions", "summary": "Continue a text, in OpenAI's protocol.", "requestBody": body, "responses": {"200": answer} | failures}
        },
        "/v1/models": {"get": {"operationId": "models", "summary": "The models, in OpenAI's protocol.", "responses": {"200": answer}}},
        "/v1/models/{id}": {
            "get": {"operationId": "model", "summary": "One model.", "parameters": [one], "responses": {"200": answer, "404": failed}}
        },
    }


def hoisted(schema: dict[str, Any], prefix: str, schemas: dict[str, Any]) -> dict[str, Any]:
    """The schema with its own `$defs` moved to the document's components, under the function's name."""

    def moved(node: Any) -> Any:
        if isinstance(node, list):
            return [moved(item) for item in node]
        if not isinstance(node, dict):
            return node
        node = {key: moved(value) for key, value in node.items() if key != "$defs"}
        if isinstance(node.get("$ref"), str):
            node["$ref"] = node["$ref"].replace("#/$defs/", f"#/components/schemas/{prefix}.")
        return node

    for name, definition in schema.get("$defs", {}).items():
        schemas[f"{prefix}.{name}"] = moved(definition)
    return moved(schema)


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _failure(words: str) -> dict[str, Any]:
    return {"description": words, "content": {JSON_TYPE: {"schema": _ref("Error")}}}


# --- the page ----------------------------------------------------------------------------------------------------

STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre, textarea { font: 13px/1.45 ui-monospace, monospace; }
details { border: 1px solid color-mix(in srgb, currentColor 25%, transparent); border-radius: 6px; margin: .6rem 0; }
summary { padding: .5rem .8rem; cursor: pointer; }
details > div { padding: 0 .8rem .8rem; }
textarea { width: 100%; box-sizing: border-box; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .15rem 1rem .15rem 0; vertical-align: top; }
pre { overflow: auto; max-height: 24rem; } .where { opacity: .7; }
"""

SCRIPT = """
for (const form of document.forms) {
  const out = form.querySelector("pre"), stop = form.querySelector("[type=button]");
  let call = null;
  stop.onclick = () => call && call.abort();
  form.onsubmit = async event => {
    event.preventDefault();
    call = new AbortController(); stop.disabled = false; out.textContent = "";
    try {
      const answer = await fetch("/run/" + form.dataset.name, {method: "POST", signal: call.signal,
        headers: {"Content-Type": "application/json"}, body: form.querySelector("textarea").value});
      out.textContent = "HTTP " + answer.status + "\\n";
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let part; !(part = await reader.read()).done;) { out.textContent += part.value; }
    } catch (error) { out.textContent += String(error); }
    stop.disabled = true;
  };
}
"""


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


POLICY = (
    f"default-src 'none'; style-src {_hash(STYLE)}; script-src {_hash(SCRIPT)}; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@cache
def page() -> str:
    """HTML: what the service speaks, then every function with its parameters and a form that calls it."""
    shown = "\n".join(_function(function) for function in describe())
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Inference lab: compute service</title><style>{STYLE}</style>
<h1>Compute service</h1>
<p><code>POST /run/{{function}}</code> with the parameters as a JSON object. The answer is a stream, one JSON object a line:
any number of <code>{{"progress": …}}</code>, then one <code>{{"result": …, "conditions": …}}</code> or
<code>{{"error": …}}</code>. Closing the connection or <code>DELETE /run/{{X-Run-Id}}</code> cancels the work.
See also <a href="/openapi.json">/openapi.json</a>, <a href="/functions">/functions</a>, <a href="/healthz">/healthz</a>.</p>
<p>The engine that everybody shares also speaks OpenAI's protocol, at <code>/v1/completions</code> and <code>/v1/models</code>:
set a client's base URL to this address with <code>/v1</code> behind it, and any key. A model may be named with a scheme of
quantization, <code>mini-256:int4-g64</code>. <code>GET /live</code> tells what the
engine does, <code>POST /live/send</code> and <code>/live/cancel</code> ask it for a text and take that back.</p>
{shown}
<script>{SCRIPT}</script></html>"""


def _function(function: dict[str, Any]) -> str:
    schema = function["parameters"]
    required = schema.get("required", [])
    rows = "".join(
        f"<tr><td><code>{html.escape(name)}</code></td><td>{html.escape(_kind(field))}</td>"
        f"<td>{'required' if name in required else html.escape(json.dumps(field.get('default')))}</td></tr>"
        for name, field in schema.get("properties", {}).items()
    )
    start = {name: _start(field) for name, field in schema.get("properties", {}).items()}
    name, summary = html.escape(function["name"], quote=True), html.escape(function["summary"])
    return f"""<details id="{name}"><summary><code>{name}</code> {summary} <span class="where">({function['where']})</span></summary>
<div><table><tr><th>parameter</th><th>kind</th><th>default</th></tr>{rows}</table>
<form data-name="{name}"><label>Parameters<textarea rows="6">{html.escape(json.dumps(start, indent=1, ensure_ascii=False))}</textarea></label>
<button>Run</button> <button type="button" disabled>Cancel</button><pre aria-live="polite"></pre></form></div></details>"""


def _start(field: dict[str, Any]) -> Any:
    """What the form begins with: the default, else an example or the first choice, else null to be filled in."""
    return field["default"] if "default" in field else [*field.get("examples", ()), *field.get("enum", ()), None][0]


def _kind(field: dict[str, Any]) -> str:
    """One line for a parameter's schema: its type, choices and bounds."""
    if "enum" in field:
        return " | ".join(map(str, field["enum"]))
    if "anyOf" in field:
        return " or ".join(_kind(option) for option in field["anyOf"])
    words = str(field.get("type") or field.get("$ref", "").rsplit("/", 1)[-1] or "any")
    bounds = (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<"), ("maxLength", "length ≤"))
    return " ".join([words, *(f"{sign} {field[key]}" for key, sign in bounds if key in field)])
