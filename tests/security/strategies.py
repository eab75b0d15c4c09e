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


def likely(schema: dict[str, Any], near: dict[str, list[Any]], name: str = "", length: int = 1) -> st.SearchStrategy:
    """What a learner may set: names that there are, numbers of the size of the default, lists of one length. Mostly answered, where `good` is
    mostly refused."""
    optional = any(option.get("type") == "null" for option in schema.get("anyOf", ()))
    options = [option for option in schema.get("anyOf", (schema,)) if option.get("type") != "null"]
    match options[0]:
        case {"enum": _} | {"const": _} | {"type": "boolean"}:
            found = good(options[0], near, name)
        case {"type": "array", "items": items}:
            found = st.lists(likely(items, near, name), min_size=length, max_size=length)
        case _ if name in near:
            found = st.sampled_from(near[name])
        case {"type": "integer" | "number" as kind}:
            low = options[0].get("minimum", options[0].get("exclusiveMinimum", 0))
            high = min(options[0].get("maximum", 1e9), 4 * (schema.get("default") or low + 5))
            found = st.integers(low, int(high)) if kind == "integer" else st.floats(low, high, exclude_min="exclusiveMinimum" in options[0])
        case {"type": "object", "properties": properties}:
            needed = options[0].get("required", [])

            def whole(length: int) -> st.SearchStrategy:
                parts = {field: likely(of, near, field, length) for field, of in properties.items()}
                return st.fixed_dictionaries({field: parts[field] for field in needed}, optional={field: parts[field] for field in parts if field not in needed})

            return st.integers(1, 3).flatmap(whole)
        case _:
            raise ValueError(f"no likely value of {name} is known")
    return found | st.none() if optional else found


def broken(schema: dict[str, Any], near: dict[str, list[Any]]) -> st.SearchStrategy:
    """Good but for a field or two, which are anything; or with a field that there is not."""
    names = [*schema.get("properties", {}), "no_such_field"]
    return st.builds(lambda whole, wrong: whole | wrong, good(schema, near), st.dictionaries(st.sampled_from(names), ANYTHING, min_size=1, max_size=2))
