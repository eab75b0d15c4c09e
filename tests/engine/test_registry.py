"""Which models there are, and which is meant."""

import re
import threading
import time

import pytest
import torch

from compute.engine import registry
from compute.engine.errors import DoesNotFit, ModelMissing, SettingWrong
from compute.errors import UnknownName
from compute.service.machine import Machine


@pytest.fixture
def root(tmp_path, monkeypatch):
    """An empty checkout, without the operator's environment."""
    monkeypatch.delenv(registry.SETTINGS_VARIABLE, raising=False)
    return tmp_path


def write(root, text):
    file = root / "models.toml"
    file.write_text(text, "utf-8")
    return file


def test_what_is_listed_before_anything_is_there(root):
    """Catches: a list that fails, or hides a model, because its files are missing."""
    lines = registry.discover(root).listing()
    assert [line.id for line in lines] == ["mini-256", "mini-128", "mini-64", "mini-moe", "smollm2-draft", "smollm2-135m"]
    assert [line.id for line in lines if line.is_default] == ["mini-256"]
    assert all("cannot be loaded" in line.trouble["en"] and line.parameters is None for line in lines)


def test_the_operators_model_is_found_listed_and_loaded_once(root, made, monkeypatch):
    """Catches: parameters or bytes guessed instead of read; a model loaded for each request; a relative path taken from the
    working directory."""
    theirs, _, path = made("llama, untied, head_dim 24 ≠ 64 / 4")
    (root / "mine").symlink_to(path)
    write(root, '[mine]\npath = "mine"\nname = "我的"\ndevice = "cpu"\ndefault = true\n')
    models = registry.discover(root)
    line = models.listing()[-1]
    assert (line.id, line.name, line.source, line.is_default, line.loaded) == ("mine", "我的", "operator", True, False)
    assert line.parameters == theirs.num_parameters() and line.trouble is None
    assert line.bytes == (path / "model.safetensors").stat().st_size
    loads = []

    def slow_load(path, **options):
        loads.append(options)
        time.sleep(0.05)
        return object()

    monkeypatch.setattr(registry, "load", slow_load)
    threads = [threading.Thread(target=models.get) for _ in range(8)]
    [thread.start() for thread in threads], [thread.join() for thread in threads]
    assert loads == [{"device": "cpu", "dtype": "auto", "name": "mine"}]
    assert models.get("mine") is models.get() and models.listing()[-1].loaded


def test_the_environment_names_the_file(root, made, monkeypatch):
    """Catches: the variable ignored when a models.toml lies in the checkout too."""
    write(root, '[near]\npath = "x"\n')
    far = root / "far"
    far.mkdir()
    monkeypatch.setenv(registry.SETTINGS_VARIABLE, str(write(far, f'[far]\npath = "{made("qwen2, biases on q, k, v")[2]}"\n')))
    models = registry.discover(root)
    assert "far" in models.entries and "near" not in models.entries and models.get("far").config.qkv_bias
    monkeypatch.setenv(registry.SETTINGS_VARIABLE, str(root / "lost.toml"))
    with pytest.raises(ModelMissing, match="lost.toml.*INFERENCE_LAB_MODELS"):
        registry.discover(root)


@pytest.mark.parametrize(
    "text, words",
    [
        ("[a]\npath = ", "not TOML"),
        ("[a]\nname = 'b'\n", r"\[a\] has no path"),
        ("a = 1\n", r"\[a\] has no path"),
        ("[a]\npath = 'x'\ndevise = 'cuda'\n", r"devise = 'cuda'.*device"),
        ("[a]\npath = 3\n", "path = 3"),
        ("[a]\npath = 'x'\ndefault = true\n[b]\npath = 'y'\ndefault = true\n", "a and b are both default"),
    ],
)
def test_mistakes_in_the_file_are_named(root, text, words):
    """Catches: a misspelt key ignored in silence, so that a model runs on the wrong device."""
    write(root, text)
    with pytest.raises(SettingWrong, match=words):
        registry.discover(root)


def test_an_unknown_id_lists_the_known(root):
    """Catches: a KeyError for a mistyped id."""
    with pytest.raises(UnknownName, match="mini-265.*mini-128, mini-256, mini-64"):
        registry.discover(root).get("mini-265")


def test_a_model_with_a_wrong_path_says_so(root):
    """Catches: the way out of another source offered."""
    write(root, "[a]\npath = 'nowhere'\n")
    with pytest.raises(ModelMissing, match="nowhere is not there; correct path in models.toml"):
        registry.discover(root).get("a")


def test_a_model_larger_than_the_free_memory_is_refused(root, made, monkeypatch):
    """Catches: a machine that stops answering because 32 GB were asked of 16; bytes counted for another dtype."""
    theirs, _, path = made("qwen2, biases on q, k, v")
    write(root, f'[a]\npath = "{path}"\ndevice = "cpu"\ndtype = "bfloat16"\n')
    monkeypatch.setattr(registry, "free_memory", lambda device: 2 * theirs.num_parameters() - 1)
    with pytest.raises(DoesNotFit, match="in bfloat16 need .* GB are free on cpu"):
        registry.discover(root).get("a")
    monkeypatch.setattr(registry, "free_memory", lambda device: 2 * theirs.num_parameters())
    assert registry.discover(root).get("a").weights.dtype == torch.bfloat16


def test_a_file_of_ours_is_named_as_the_repository_has_it():
    """Catches: where the repository lies on the server, told to every reader of a page; a file elsewhere left unfindable."""
    ours = registry.ROOT / "data" / "checkpoints" / "mini-1"
    with pytest.raises(ModelMissing) as missing:
        registry.require(registry.Entry("mini-1", "Mini 1", ours, "checkpoint"))
    with pytest.raises(ModelMissing) as empty:
        registry.directory.read(ours)
    for error in (missing.value, empty.value):
        for lang in ("zh", "en"):
            assert "data/checkpoints/mini-1" in error.message(lang) and str(registry.ROOT) not in error.message(lang)
    with pytest.raises(ModelMissing, match="/srv/none is not there"):
        registry.require(registry.Entry("a", "A", registry.Path("/srv/none"), "operator"))


@pytest.mark.parametrize("name", ["smollm2-draft", "mini-64", "mini-moe"])
def test_the_way_out_is_a_command_that_exists(name, root, monkeypatch, capsys):
    """Catches: a hint that names a command which is not there."""
    from compute.training import __main__ as training

    with pytest.raises(ModelMissing) as missing:
        registry.discover(root).get(name)
    step = re.search(r"python -m compute\.training (\w+)", missing.value.message("en"))[1]
    monkeypatch.setattr("sys.argv", ["compute.training", step, "--help"])
    with pytest.raises(SystemExit) as left:
        training.main()
    assert left.value.code == 0 and step in capsys.readouterr().out


def test_what_only_drafts_is_no_model_to_talk_to(root):
    """Catches: the MTP head, which is no model, or a draft, which writes nonsense alone, offered on the pages."""
    machine = Machine()
    before = machine.models_known()
    machine.registry = registry.discover()
    after = machine.models_known()
    assert before == ("mini-256", "mini-128", "mini-64") and set(before) <= set(after)
    assert not {id for id in after if "draft" in id or "mtp" in id}
