"""What is installed: every file of the three floors that is no Python is package data, so that a wheel holds it."""

import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]
FLOORS = ("flows", "tasks", "models")


def packaged():
    """Package -> patterns of its data, from pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]


def data_files():
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *FLOORS],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [Path(line) for line in listed.stdout.splitlines() if not line.endswith(".py")]


def is_packaged(file, patterns):
    """As setuptools reads a pattern: relative to its package, ``*`` stays within one folder."""
    for package, globs in patterns.items():
        folder = Path(*package.split("."))
        if file.is_relative_to(folder):
            parts = file.relative_to(folder).parts
            if any(len(parts) == len(Path(g).parts) and all(map(fnmatch, parts, Path(g).parts)) for g in globs):
                return True
    return False


def test_package_data_includes_every_file_that_is_not_python():
    files = data_files()
    assert len(files) > 30 and Path("flows/papers/fidelity/fmman.yaml") in files
    patterns = packaged()
    assert [str(file) for file in files if not is_packaged(file, patterns)] == []
    assert not is_packaged(Path("flows/new/thing.yaml"), patterns)


def test_every_pattern_of_package_data_matches_a_file():
    patterns, files = packaged(), data_files()
    idle = [(package, glob) for package in patterns for glob in patterns[package]
            if not any(is_packaged(file, {package: [glob]}) for file in files)]  # fmt: skip
    assert not idle
