"""The frame of the repository: what stands at the top, who owns the four package names, what no file may contain."""

import importlib
import importlib.machinery
import importlib.metadata
import json
import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("flows", "tasks", "sandboxes", "lakehouse")
FIXED = {*PACKAGES, "notebooks", "tests", "prefect.yaml", "pyproject.toml", "README.md"}
ALSO = {"Makefile", "LICENSE", "docs", "benchmarks", "deploy"}
LONGEST_FILE = 450  # lines

# Put together here so that this file does not match itself.
INDEX_HOSTS = [".".join(parts) for parts in (
    ("pypi", "org"), ("pythonhosted", "org"), ("download", "pytorch", "org"), ("registry", "npmjs", "org"),
    ("deb", "debian", "org"), ("registry", "yarnpkg", "com"),
)]  # fmt: skip
MACHINE_PATHS = ["/" + name + "/" for name in ("work", "root", "Users")]
FORBIDDEN_TEXT = re.compile(
    "|".join([re.escape(host) for host in INDEX_HOSTS] + [r"(?<![\w.}$/~-])" + path for path in MACHINE_PATHS])
)


def tracked() -> list[Path]:
    """Every file that git tracks and the work tree holds."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listing.returncode != 0:
        pytest.skip("not a git checkout, so nothing says which files belong to the project")
    paths = [ROOT / name for name in listing.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


def flow_files() -> list[str]:
    return [path.stem for path in (ROOT / "flows").glob("*.py") if not path.stem.startswith("__")]


def test_the_top_level_is_the_fixed_list() -> None:
    names = {path.relative_to(ROOT).parts[0] for path in tracked()}
    visible = {name for name in names if not name.startswith(".")}
    assert visible - ALSO == FIXED


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_name_resolves_inside_the_repository(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__file__ is not None, f"{name}/ has no __init__.py, so any other {name} on the path wins"
    assert Path(module.__file__).resolve() == ROOT / name / "__init__.py"


@pytest.mark.parametrize("name", PACKAGES)
def test_no_other_distribution_claims_a_package_name(name: str) -> None:
    owners = set(importlib.metadata.packages_distributions().get(name, []))
    assert owners <= {"lakeloop"}


def test_no_flow_file_shadows_another_module() -> None:
    # A path entrypoint or a script run leaves flows/ at the head of sys.path, where its files win over all others.
    site = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    taken = {*sys.stdlib_module_names, *PACKAGES}
    shadows = {
        stem
        for stem in flow_files()
        if stem in taken or importlib.machinery.PathFinder.find_spec(stem, site) is not None
    }
    assert shadows == set()


def test_tests_are_no_package() -> None:
    # With one, `tests` would be a fifth top-level name that any dependency may claim.
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_every_source_folder_is_a_package() -> None:
    folders = {
        path.parent for path in tracked() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in PACKAGES
    }
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_no_source_file_is_too_long() -> None:
    sources = [path for path in tracked() if path.suffix in {".py", ".sql", ".sh"}]
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sources}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FILE} == {}


def test_no_file_names_an_index_host_or_a_place_on_one_machine() -> None:
    found = []
    for path in tracked():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue  # weights, pictures, archives
        found += [f"{path.relative_to(ROOT)}: {match.group()}" for match in FORBIDDEN_TEXT.finditer(text)]
    assert found == []


@pytest.mark.parametrize("text", ["--index-url https://" + INDEX_HOSTS[0] + "/simple", "cd " + MACHINE_PATHS[0] + "x"])
def test_the_search_for_hosts_and_machine_paths_finds_them(text: str) -> None:
    assert FORBIDDEN_TEXT.search(text)


def test_every_configuration_file_parses() -> None:
    readers = {".toml": tomllib.loads, ".json": json.loads, ".yaml": yaml.safe_load, ".yml": yaml.safe_load}
    broken, read = [], set()
    for path in tracked():
        if path.suffix in readers:
            read.add(path.suffix)
            try:
                readers[path.suffix](path.read_text())
            except (ValueError, yaml.YAMLError) as error:
                broken.append(f"{path.relative_to(ROOT)}: {error}")
    assert broken == []
    assert read >= {".toml", ".json", ".yaml"}


def test_every_deployment_names_a_flow_that_exists() -> None:
    deployments = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    assert deployments
    for deployment in deployments:
        entrypoint = deployment["entrypoint"]
        assert ":" not in entrypoint, f"{entrypoint}: a path entrypoint puts flows/ at the head of sys.path"
        module, _, function = entrypoint.rpartition(".")
        assert hasattr(importlib.import_module(module), function), entrypoint
