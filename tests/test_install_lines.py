"""The lines by which documents install hpml-plugins, followed as they stand: from git, from a
wheel, and the extras that others add. The address of the repository leads to this checkout; all
else comes from the package index that this machine's pip is configured for.

Then a stranger's first commands, in a new repository, by docs/your-repository.md alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from repositories import commit_all, git, make_repository
from support import ROOT, unavailable

#: Documents that a reader meets first: each says how to install from nothing.
FIRST = ("README.md", "docs/package.md", "docs/your-repository.md")
ADDRESS = "https://example.org/REPOSITORY_ADDRESS"
LINE = re.compile(
    r"^ {4}(pip install [^#\n]*?hpml[-_]plugins[^#\n]*?)(?: +#.*)?$", re.MULTILINE
)
#: The kinds of line, in the order in which they are followed.
KINDS = {
    "git": re.compile(r"'hpml-plugins\[\w+\] @ git\+https://\S+'$"),
    "wheel": re.compile(r"'dist/hpml_plugins-\S+\.whl\[\w+\]'$"),
    "extra": re.compile(r"'hpml-plugins\[[\w,]+\]'$"),
}


def install_lines(path: Path) -> list[str]:
    """The installing lines of a document, without what is said behind them."""
    return LINE.findall(path.read_text(encoding="utf-8"))


def kind(line: str) -> str:
    """How a line installs; fails for one that is not followed here."""
    (found,) = [name for name, pattern in KINDS.items() if pattern.search(line)]
    return found


DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINES = {line: kind(line) for path in DOCUMENTS for line in install_lines(path)}


@pytest.mark.parametrize("name", FIRST)
def test_a_first_document_installs_from_git_and_from_a_wheel(name: str) -> None:
    lines = [kind(line) for line in install_lines(ROOT / name)]
    assert lines == ["git", "wheel"], "the package is on no index"


def test_every_other_line_adds_to_what_is_installed_and_says_so() -> None:
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        for line in install_lines(path):
            if kind(line) == "extra":
                assert f"{line}     # adds to the hpml-plugins that is installed" in text


@dataclass(frozen=True)
class Stranger:
    """Somebody with a new virtual environment, a clone and a folder of his own."""

    folder: Path
    clone: Path
    environment: dict[str, str]

    def types(self, line: str, where: Path | None = None) -> str:
        """What a line prints in bash, which must succeed."""
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=where or self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def installed_from(self) -> str:
        """The address that pip noted of hpml-plugins."""
        noted = self.folder.glob("env/lib/*/site-packages/hpml_plugins-*/direct_url.json")
        return next(noted).read_text()


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Stranger:
    folder = tmp_path_factory.mktemp("stranger")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "env")], check=True)
    clone = folder / "clone"
    git(ROOT, "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone))
    plain = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "HPML_", "VIRTUAL_ENV", "GIT_"))
    }
    environment = {
        **plain,
        "PATH": f"{folder / 'env/bin'}:{os.environ['PATH']}",
        "HOME": str(folder),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{clone}.insteadOf",
        "GIT_CONFIG_VALUE_0": ADDRESS,
    }
    found = Stranger(folder, clone, environment)
    asked = "pip download --quiet --no-deps --dest asked pluggy"
    done = subprocess.run(
        ["bash", "-c", asked], cwd=folder, env=environment, capture_output=True, check=False
    )
    if done.returncode:
        unavailable("the package index of pip's configuration does not answer")
    return found


def first_numbers() -> list[str]:
    """The commands of *First numbers* and of a benchmark of one's own, without the installation."""
    text = (ROOT / "docs" / "your-repository.md").read_text(encoding="utf-8")
    part = text.partition("## First numbers")[2].partition("**Other nodes**")[0]
    lines = re.findall(r"^ {4}((?:cd|hpml|asv) .*?)(?: +#.*)?$", part, re.MULTILINE)
    assert lines == [
        *("cd my-repository", "hpml init", "hpml run import_time", "asv run"),
        *("asv run ALL", "asv publish && asv preview"),
        "hpml new attention --single-file --register",
    ]
    return lines


@pytest.mark.slow
def test_the_lines_are_followed_from_nothing_to_a_number(stranger: Stranger) -> None:
    by_kind: dict[str, list[str]] = {name: [] for name in KINDS}
    for line, how in LINES.items():
        by_kind[how].append(line)
    (from_git,) = by_kind["git"]
    stranger.types(from_git)
    assert ADDRESS in stranger.installed_from()

    mine = stranger.folder / "my-repository"
    (mine / "mine").mkdir(parents=True)
    (mine / "mine/__init__.py").write_text("import json\n")
    (mine / "pyproject.toml").write_text('[project]\nname = "mine"\nversion = "1"\n')
    make_repository(mine, "Mine")
    (_, *lines) = first_numbers()
    for line in lines:
        if line == "asv run":  # "Commit these files, and then"
            commit_all(mine, "Benchmarks")
        stranger.types(line.removesuffix(" && asv preview"), mine)
    assert "attention" in stranger.types("hpml run attention --rounds 1", mine)
    assert (mine / ".asv/html/index.html").exists() or (mine / "html/index.html").exists()

    subprocess.run(
        [sys.executable, str(stranger.clone / ".ci/dist.py"), str(stranger.clone / "dist")],
        check=True,
        capture_output=True,
    )
    (wheel,) = by_kind["wheel"]
    stranger.types("pip uninstall --yes hpml-plugins")  # which has the wheel's version
    stranger.types(wheel, stranger.clone)
    assert "dist/hpml_plugins-" in stranger.installed_from()
    for line in by_kind["extra"]:
        stranger.types(line)
    stranger.types("hpml mcp --help && hpml list", mine)
    loaded = (
        "import hpml_plugins as h; print(len(h.load('benchmarks/results').to_pandas()))"
    )
    assert int(stranger.types(f'python -c "{loaded}"', mine)) >= 2
