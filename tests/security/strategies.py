"""Data for any JSON schema of ours, good and broken, for Hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

HOSTILE = st.sampled_from([
    "", " ", "<img src=x onerror=alert(1)>", "</script><script>alert(1)</script>", "[x](javascript:alert(1))", "../../../../etc/passwd", "/etc/passwd", "file:///etc/passwd",
    "http://169.254.169.254/", "{0.__class__}", "{{7*7}}", "${7*7}", "%s%n", "'; DROP TABLE notes; --", "\x00", "\u202e\u2066", "\U0001f468\u200d\U0001f469", "é" * 50, "NaN",
    "inf", "-0", "1e400", "0x10", "٣", "１２", "__import__('os')", "constructor", "__proto__", "mini-256:", ":", "mini-256:int4-g64:int4-g64", "a" * 10_000, "-1", "1" * 5_000,
])  # fmt: skip
TEXT = HOSTILE | st.text(max_size=30)
SCALARS = st.none() | st.booleans() | st.integers() | st.integers(-2, 300) | st.floats() | TEXT
ANYTHING = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(TEXT, SCALARS, max_size=2)


def good(schema: dict[str, Any], near: dict[str, list[Any]], name: str = "") -> st.SearchStrategy:
    """What the schema allows. near: likely values of fields by name, where a schema knows only that they are text."""
    likely = st.sampled_from(near[name]) if name in near else None
    match schema:
        case {"anyOf": options}:
            found = st.one_of([good(option, near, name) for option in options])
        case {"enum": values}:
            return st.sampled_from(values)
        case {"const": value}:
            return st.just(value)
        case {"type": "integer"}:
            low, high = schema.get("minimum", 0), schema.get("maximum", 2**53)
            found = st.integers(low, high) | st.sampled_from([low, high]) | st.integers(low, min(high, low + 20))
        case {"type": "number"}:
            low, high = schema.get("minimum", schema.get("exclusiveMinimum", 0)), schema.get("maximum", 1e300)
            found = st.floats(low, high, exclude_min="exclusiveMinimum" in schema) | st.floats(low, min(high, low + 2), exclude_min="exclusiveMinimum" in schema)
        case {"type": "boolean"}:
            return st.booleans()
        case {"type": "null"}:
            return st.none()
        case {"type": "array"}:
            least = schema.get("minItems", 0)
            found = st.lists(good(schema.get("items", {}), near, name), min_size=least, max_size=min(schema.get("maxItems", 4), least + 4))
        case {"type": "object"} if "properties" in schema:
            needed = schema.get("required", [])
            parts = {field: good(of, near, field) for field, of in schema["properties"].items()}
            return st.fixed_dictionaries({field: parts[field] for field in needed}, optional={field: parts[field] for field in parts if field not in needed})
        case {"type": "string"}:
            least, most = schema.get("minLength", 0), min(schema.get("maxLength", 60), 60)
            found = HOSTILE.filter(lambda text: least <= len(text) <= schema.get("maxLength", 10**6)) | st.text(min_size=least, max_size=most)
        case _:
            found = ANYTHING
    return likely | found if likely is not None and schema.get("type") != "array" else found


def broken(schema: dict[str, Any], near: dict[str, list[Any]]) -> st.SearchStrategy:
    """Good but for a field or two, which are anything; or with a field that there is not."""
    names = [*schema.get("properties", {}), "no_such_field"]
    return st.builds(lambda whole, wrong: whole | wrong, good(schema, near), st.dictionaries(st.sampled_from(names), ANYTHING, min_size=1, max_size=2))
