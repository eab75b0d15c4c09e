"""The direction of imports, walked file by file."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LEFT_OF = {"compute": set(), "components": {"compute"}, "app": {"components", "compute"}}
TORCH_MAY = ("compute/engine", "compute/quantize", "compute/training")


def files(folder: str) -> list[Path]:
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found, f"no files in {folder}"
    return found


def imported(path: Path) -> set[str]:
    """Top-level names of every import in a file, inside functions too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("folder", LEFT_OF)
def test_imports_run_one_way(folder):
    """Catches compute that knows about pages, and a component that reaches into the app."""
    for path in files(folder):
        ours = imported(path) & {"compute", "components", "app", "tests"} - {folder}
        assert ours <= LEFT_OF[folder], f"{path.relative_to(ROOT)} imports {ours - LEFT_OF[folder]}"


def test_streamlit_stays_out_of_compute():
    """Catches a formula that can only run inside a page."""
    guilty = [str(p.relative_to(ROOT)) for p in files("compute") if "streamlit" in imported(p)]
    assert not guilty


@pytest.mark.parametrize("package", ["torch", "transformers"])
def test_torch_stays_in_the_engine(package):
    """Catches torch in the web process, which slows every rerun, and transformers anywhere but in tests and benchmarks."""
    may = TORCH_MAY if package == "torch" else ("compute/engine/bench.py", "compute/engine/bench_peers.py")
    for folder in LEFT_OF:
        for path in files(folder):
            where = path.relative_to(ROOT).as_posix()
            assert package not in imported(path) or where.startswith(may), where


def test_ray_stays_where_the_cluster_is():
    """Catches a service, a page or a formula that needs the optional package."""
    may = {"compute/service/cluster.py", "compute/precompute.py"}
    found = {path.relative_to(ROOT).as_posix() for folder in LEFT_OF for path in files(folder) if "ray" in imported(path)}
    assert found == may


def test_the_web_process_never_loads_torch():
    """Catches an import that reaches torch in a roundabout way: the whole app is imported and looked at."""
    code = "import app.asgi, sys; sys.exit(' '.join(m for m in ('torch', 'transformers', 'gguf', 'ray') if m in sys.modules) or None)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-400:]


def test_no_colour_is_typed_outside_the_theme():
    """Catches a hex colour in a widget, which would not follow the concept table or the dark theme."""
    import re

    for path in [*files("components"), *sorted((ROOT / "components").rglob("*.js")), *sorted((ROOT / "components").rglob("*.css"))]:
        if path.name != "theme.py":
            found = re.findall(r"#(?:[0-9a-fA-F]{6}|[0-9a-fA-F]{3})\b(?![\w-])", path.read_text(encoding="utf-8"))
            assert not [c for c in found if re.search(r"[a-fA-F]", c) or len(c) == 6], f"{path.relative_to(ROOT)}: {found}"
