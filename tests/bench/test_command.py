"""`python -m compute bench decode`."""

import json

import pytest

from compute.engine import bench


def test_the_command_prints_a_line_or_json(monkeypatch, capsys):
    """Catches: an option that is not passed on, JSON that does not parse."""
    asked = []
    spread = bench.Spread(2.0, 1.0, 3.0)
    record = bench.DecodeSpeed("m", spread, spread, spread, True, 10, 1e9, 0.5, {"threads": 1})
    monkeypatch.setattr(bench.registry, "shared", lambda: type("Models", (), {"get": staticmethod(lambda id: id)}))
    monkeypatch.setattr(bench, "decode_speed", lambda model, **options: asked.append((model, options)) or record)
    assert bench.main(["decode"]) == 0
    assert "ratio 2.00 (1.00–3.00)" in capsys.readouterr().out and [model for model, _ in asked] == ["mini-256", "smollm2-135m"]
    bench.main(["decode", "--model", "m", "--threads", "2", "--rounds", "3", "--json"])
    assert asked[-1] == ("m", {"new_tokens": 48, "rounds": 3, "threads": 2})
    assert json.loads(capsys.readouterr().out)[0]["ratio"]["median"] == 2.0
    with pytest.raises(SystemExit):
        bench.main(["encode"])
