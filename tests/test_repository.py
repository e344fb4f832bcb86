"""The repository itself: every module ships, the plain folder names stay free, imports go one way, files stay small."""

import ast
import os
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = PROJECT["tool"]["setuptools"]["package-dir"]
PACKAGES = PROJECT["tool"]["setuptools"]["packages"]
DATA = (".j2", ".json", ".md", ".toml", ".yml")


def sources(suffixes=(".py",)):
    """(import name of the folder, path) of every file below the mapped folders."""
    for name, folder in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in suffixes and "__pycache__" not in path.parts:
                parts = path.parent.relative_to(ROOT / folder).parts
                yield ".".join((name, *parts)), path


def test_every_folder_with_modules_is_packaged():
    found = {name for name, _ in sources()}
    assert found - set(PACKAGES) == set(), "add them to [tool.setuptools] packages in pyproject.toml"


def test_mapped_folders_have_no_init():
    for name, folder in FOLDERS.items():
        if name != "maxcode":
            assert not (ROOT / folder / "__init__.py").exists(), f"{folder} would shadow other distributions"


def test_console_scripts_exist():
    for target in PROJECT["project"]["scripts"].values():
        module, _, function = target.partition(":")
        name = next(n for n in sorted(FOLDERS, key=len, reverse=True) if module.startswith(n + "."))
        path = ROOT / FOLDERS[name] / (module.removeprefix(name + ".").replace(".", "/") + ".py")
        assert function in {n.name for n in ast.parse(path.read_text()).body if isinstance(n, ast.FunctionDef)}


def test_constraints_fit_the_ranges():
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    pins = {canonicalize_name(name): version for name, version in pins.items()}
    extras = [item for items in PROJECT["project"]["optional-dependencies"].values() for item in items]
    for text in (*PROJECT["project"]["dependencies"], *extras):
        requirement = Requirement(text)
        if canonicalize_name(requirement.name) == "maxcode":
            continue
        pin = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(pin), f"{requirement} does not hold the pinned {pin}"


def forbidden_imports():
    """(folder, names that it may not import): what import-linter checks too, here without a build."""
    models = ("langgraph", "google.genai", "openai")
    return [
        ("converter", ("torch", "transformers", "maxcode.evaluator", "maxcode.agents", "maxcode.api", *models)),
        ("evaluator", ("maxcode.converter", "maxcode.checkpoint_convert", "maxcode.agents", "maxcode.api", *models)),
        (
            "checkpoint_convert",
            ("torch", "transformers", "maxcode.evaluator", "maxcode.agents", "maxcode.api", *models),
        ),
    ]


@pytest.mark.parametrize(
    ("folder", "names"), forbidden_imports(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_import_direction(folder, names):
    wrong = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            imported = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            imported += [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            hits = [i for i in imported if any(i == n or i.startswith(n + ".") for n in names)]
            wrong += [f"{path.relative_to(ROOT)}:{node.lineno} imports {hit}" for hit in hits]
    assert wrong == []


def test_only_the_oracle_and_the_measuring_of_rules_import_torch():
    wrong = []
    for _, path in sources():
        if "oracle" in path.parts or path.parent == ROOT / "maxcode" / "coverage":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            wrong += [
                f"{path.relative_to(ROOT)}:{node.lineno}" for n in names if n.split(".")[0] in ("torch", "transformers")
            ]
    assert wrong == []


def test_no_file_is_long():
    long = {str(p.relative_to(ROOT)): n for _, p in sources() if (n := len(p.read_text().splitlines())) > 400}
    assert long == {}, "split by family or stage"


def copy_of_the_tree(destination):
    """The files that a fresh clone has (tracked, and new ones not ignored)."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (destination / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, destination / name)
    return destination


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel built from a copy of the tree."""
    pytest.importorskip("setuptools")
    tree = copy_of_the_tree(tmp_path_factory.mktemp("tree"))
    code = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
    place = tmp_path_factory.mktemp("wheel")
    done = subprocess.run([sys.executable, "-c", code, place], cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return next(place.glob("*.whl"))


def test_wheel_holds_every_module_and_data_file_and_no_tests(wheel):
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    for name, path in sources((".py", *DATA)):
        assert f"{name.replace('.', '/')}/{path.name}" in inside
    assert all(name.startswith("maxcode/") for name in inside)
    assert not any("test" in Path(name).parts[1] for name in inside)


IMPORTS = """
import importlib.util, sys
import maxcode, maxcode.cli, maxcode.targets, maxcode.evaluator.verdict, maxcode.converter.rule
for name in ("converter", "evaluator", "kernels", "agents"):
    assert importlib.util.find_spec(name) is None, name
print(maxcode.__file__)
"""


def install(folder, lines):
    """A bare environment that sees the test run's libraries and the given paths."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "paths.pth").write_text("".join(f"{line}\n" for line in lines))
    return folder / "bin" / "python"


def test_wheel_imports_outside_the_checkout(wheel, tmp_path):
    unpacked = tmp_path / "unpacked"
    zipfile.ZipFile(wheel).extractall(unpacked)
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    python = install(tmp_path / "env", [unpacked, *libraries])
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run([python, "-c", IMPORTS], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(unpacked))


def test_plain_checkout_imports_without_installation(tmp_path):
    tree = copy_of_the_tree(tmp_path / "tree")
    code = (
        "import maxcode, maxcode.evaluator.verdict, maxcode.converter.rule; print(maxcode.evaluator.verdict.__file__)"
    )
    env = os.environ | {"PYTHONPATH": str(tree)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tree))


def test_ci_script_is_executable():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "make test" in script.read_text()
