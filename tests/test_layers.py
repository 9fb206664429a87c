"""Imports point downward only, and the core is pure; read from the source, so that imports in functions count too."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import autolrs

SOURCE = Path(autolrs.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
LAYERS = {
    "core": 0,
    "run": 1,
    "testing": 2,
    "pytorch": 2,
    "progress": 2,
    "rivals": 2,
    "bench": 3,
    "report": 3,
    "cli": 4,
}
NEEDS = {"numpy", "scipy"}  # all that core and run may import from outside

# The one exception: a schedule can be exported to a framework, which is imported only when that is asked for.
EXPORTS = {"autolrs.pytorch.schedulers", "jax.numpy", "keras"}

# What a pure function has no use for.
EFFECTS = {
    *("asyncio", "datetime", "glob", "io", "logging", "multiprocessing", "os", "pathlib", "pickle", "random", "select"),
    *("shutil", "signal", "socket", "subprocess", "tempfile", "threading", "time", "uuid"),
}


def layer(module):
    """Height of an autolrs module; adapters are single modules whose names end in an underscore."""
    parts = module.split(".")
    if len(parts) == 1:
        return 2  # the package itself offers the PyTorch adapter
    return LAYERS.get(parts[1], 2 if parts[1].endswith("_") else None)


def module_of(path):
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path):
    """Every module that a file imports, at any depth; `from package import module` counts as both."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module
            if node.module in ("autolrs", "autolrs.core", "autolrs.run"):
                for alias in node.names:
                    name = f"{node.module}.{alias.name}"
                    if (SOURCE.parent / name.replace(".", "/")).is_dir() or layer(name) is not None:
                        yield name


def in_layer(*names):
    return [path for path in FILES if path.relative_to(SOURCE).parts[0] in names]


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_imports_point_downward(path):
    own = layer(module_of(path))
    assert own is not None, f"{path} belongs to no known layer"
    for name in imports(path):
        if name.split(".")[0] == "autolrs" and not (path.name == "schedule.py" and name in EXPORTS):
            # `autolrs` itself re-exports core at its top; below the adapters nobody may lean on it.
            assert layer(name) <= own, f"{module_of(path)} imports {name}"


@pytest.mark.parametrize("path", in_layer("core", "run"), ids=module_of)
def test_core_and_run_need_numpy_and_scipy_alone(path):
    for name in imports(path):
        root = name.split(".")[0]
        if not (path.name == "schedule.py" and name in EXPORTS):
            assert root in NEEDS | {"autolrs"} | set(sys.stdlib_module_names), f"{module_of(path)} imports {name}"


@pytest.mark.parametrize("path", in_layer("core"), ids=module_of)
def test_core_has_no_clock_no_files_and_no_global_randomness(path):
    tree = ast.parse(path.read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for call in calls:
        name = ast.unparse(call.func)
        assert name not in ("print", "input", "exec", "eval", "__import__"), f"{path}:{call.lineno} calls {name}"
        if name in ("np.random.default_rng", "numpy.random.default_rng"):
            assert call.args, f"{path}:{call.lineno} draws without a seed"
        elif name.startswith(("np.random.", "numpy.random.")):
            assert "default_rng(" in name, f"{path}:{call.lineno} draws from global state"
    if path.name != "schedule.py":  # it saves and loads itself: the format belongs to the type
        assert not {name.split(".")[0] for name in imports(path)} & EFFECTS
        assert not [call for call in calls if ast.unparse(call.func) == "open"]


def test_importing_autolrs_loads_no_framework():
    code = (
        "import sys, autolrs, autolrs.core.engine, autolrs.core.strategies, autolrs.run.session, autolrs.run.journal;"
        "print(sorted({'torch', 'jax', 'keras', 'sklearn', 'typer', 'plotly'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
