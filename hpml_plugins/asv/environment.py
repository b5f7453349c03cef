"""`environment_type: node`: a commit's package on top of the node's own Python, built and installed
without network access.

If asv's `matrix` names versions of packages, such as torch 2.13.0, uv creates an environment with
these versions instead; all its other packages are the newest compatible ones.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from asv import environment, util
from asv.console import log
from packaging.requirements import Requirement

from hpml_plugins.errors import HpmlError, UsageError
from hpml_plugins.isolation import leftovers
from hpml_plugins.measure import torch_build
from hpml_plugins.model.record import STACK
from hpml_plugins.suite.points import MACHINE_VARIABLE, PACKAGE_VARIABLE, RESULTS_VARIABLE

_BUILD = (
    "python -m pip wheel --no-deps --no-build-isolation --no-index -q -w {build_cache_dir}"
    " {build_dir}"
)
_INSTALL = (
    "in-dir={env_dir} python -m pip install --no-deps --no-index -q --upgrade --target"
    " {env_dir}/site {wheel_file}"
)
_UNINSTALL = "return-code=any in-dir={env_dir} rm -rf {env_dir}/site"
#: The benchmarks of the plugin `harness` publish.
_EXTRAS = ("benchmarks", "publish")
#: asv's modes that list benchmarks; the others run one.
_DECLARING = ("discover", "check")
#: Versions for this run, in place of `matrix` in asv.conf.json: "torch==2.13.0,numba==0.66.0".
STACK_VARIABLE = "HPML_STACK"
#: s for resolving and installing a software stack; torch and CUDA are about 3 GB to download.
INSTALL_TIMEOUT = 1800


def package_digest(site: Path, commit: str) -> str:
    """SHA-256 of the files of the package installed there, from pip's RECORD, which lists each with
    its hash.

    The commit if no package was installed; empty for this package, whose plugins have their own
    digests. Metadata is excluded: a version number that changes with each commit does not affect
    measurements.
    """
    if (site / "hpml_plugins").exists():
        return ""
    lines = [
        line
        for path in site.glob("*.dist-info/RECORD")
        for line in path.read_text("utf-8").splitlines()
    ]
    files = sorted(
        line for line in lines if ".dist-info/" not in line and ".pyc," not in line
    )
    return hashlib.sha256("\n".join(files).encode()).hexdigest() if files else commit


def search_path(own: str, env: Mapping[str, str]) -> dict[str, str]:
    """The variables that put `own` before the caller's search path.

    asv's benchmark.py imports asv_runner before it reads ASV_PYTHONPATH, and unless ASV_PYTHONPATH
    is set it removes the entries of PYTHONPATH from sys.path. If asv itself is found by such a
    variable, both are needed.
    """
    theirs = [env.get("ASV_PYTHONPATH"), env.get("PYTHONPATH")]
    path = os.pathsep.join(dict.fromkeys([own, *filter(None, theirs)]))
    return {"PYTHONPATH": path, "ASV_PYTHONPATH": path}


def stack_matrix(words: str) -> dict[str, dict[str, list[str]]]:
    """asv's `matrix` for "torch==2.13.0,numba==0.66.0". Raises UsageError for anything else."""
    pins = [each.strip().partition("==") for each in words.split(",")]
    if wrong := [name for name, _, version in pins if not (name and version)]:
        raise UsageError(
            f"{STACK_VARIABLE}={words!r}: {wrong[0]!r} has no version; write"
            " NAME==VERSION,NAME==VERSION"
        )
    return {"req": {name: [version] for name, _, version in pins}}


def _requirements(pins: Mapping[str, str]) -> list[str]:
    """The pinned packages, and the other requirements of hpml-plugins and its benchmarks on this
    platform, without their extras."""
    pinned = [f"{name}=={version}" for name, version in pins.items()]
    needed = [each for each in own_requirements(*_EXTRAS) if each.name not in pins]
    return pinned + [f"{each.name}{each.specifier}" for each in needed]


def own_requirements(*extras: str) -> list[Requirement]:
    """The requirements of the installed hpml-plugins on this platform, with these of its extras."""
    needed = []
    for stated in importlib.metadata.requires("hpml-plugins") or ():
        each = Requirement(stated)
        marker = each.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras):
            needed.append(each)
    return needed


class NodeEnvironment(environment.Environment):  # type: ignore[misc]
    """Uses the node's torch, CUDA and NCCL; the commit's package is added in a separate folder."""

    tool_name = "node"

    def __init__(
        self, conf: Any, python: str, requirements: dict[str, str], tagged_env_vars: Any
    ) -> None:
        if not self.matches(python):
            own = f"{sys.version_info[0]}.{sys.version_info[1]}"
            raise environment.EnvironmentUnavailable(
                f"environment_type 'node' runs the Python that runs asv ({own}); it cannot give"
                f" Python {python}"
            )
        torch, cuda = ("", "") if requirements else torch_build()
        self._stack = (f"-torch{torch}" if torch else "") + (f"-cuda{cuda}" if cuda else "")
        self._root = Path(conf.benchmark_dir).resolve().parent
        self._results = Path(conf.results_dir).resolve()
        self._requirements = requirements
        try:
            super().__init__(conf, python, requirements, tagged_env_vars)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:  # asv names no file
            raise UsageError(
                f"not valid TOML: {error}; correct it", "pyproject.toml"
            ) from error
        # an empty list means running nothing: a repository without a package
        self._build_command = [_BUILD] if conf.build_command is None else conf.build_command
        self._install_command = (
            [_INSTALL] if conf.install_command is None else conf.install_command
        )
        self._uninstall_command = (
            [_UNINSTALL] if conf.uninstall_command is None else conf.uninstall_command
        )

    @classmethod
    def matches(cls, python: str) -> bool:
        """Whether this Python is the one that runs asv."""
        return python in (
            "same",
            "python",
            sys.executable,
            f"{sys.version_info[0]}.{sys.version_info[1]}",
        )

    @property
    def name(self) -> str:
        """Python, torch and CUDA versions without a path, so that results of one node type share a
        name."""
        if self._requirements:
            return str(super().name).replace(f"{self.tool_name}-", STACK, 1)
        return str(super().name) + self._stack

    @property
    def dir_name(self) -> str:
        """A separate folder for each machine, because nodes of one type that share env/ would
        overwrite each other's builds."""
        own = f"{super().dir_name} {os.environ.get(MACHINE_VARIABLE, '')}"
        return hashlib.sha256(own.encode()).hexdigest()[:32]

    @property
    def python_executable(self) -> str:
        """The node's own Python, or that of the stack."""
        if self._requirements:
            return str(Path(self._path, "stack", "bin", "python"))
        return sys.executable

    def check_presence(self) -> bool:
        """Whether its folder exists and was created with the same settings."""
        return (
            Path(self._path, "asv-env-info.json").is_file()
            and Path(self.python_executable).exists()
        )

    def _setup(self) -> None:
        Path(self._path).mkdir(parents=True, exist_ok=True)
        if self._requirements:
            log.info(f"Installing {self.name}")
            self._install_stack()
        else:
            log.info(f"Using this node's Python for {self.name}")

    def _install_stack(self) -> None:
        """Create a virtual environment with the requested versions and the other requirements of
        hpml-plugins and its benchmarks.

        Raises HpmlError with the end of uv's output, for example without a network or for an
        unknown version.
        """
        uv = shutil.which(
            "uv",
            path=os.pathsep.join(
                [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
            ),
        )
        if uv is None:
            raise HpmlError(
                f"{self.name} needs uv, which is not installed: python -m pip install uv"
            )
        stack = Path(self._path, "stack")
        pins = {
            name.removeprefix("pip+"): version
            for name, version in self._requirements.items()
        }
        self._uv(
            [uv, "venv", "-q", "--clear", "--seed", "--python", sys.executable, str(stack)]
        )
        self._uv(
            [
                uv,
                "pip",
                "install",
                "-q",
                "--python",
                str(stack / "bin/python"),
                *_requirements(pins),
            ]
        )
        package = Path(__file__).parents[1]
        # a commit with its own package takes precedence
        site = next(stack.glob("lib/python*/site-packages"))
        (site / "hpml_plugins").symlink_to(package)

    def _uv(self, command: Sequence[str]) -> None:
        try:
            subprocess.run(
                command, check=True, capture_output=True, text=True, timeout=INSTALL_TIMEOUT
            )
        except subprocess.CalledProcessError as error:
            raise HpmlError(
                f"{self.name} cannot be installed: {' '.join(error.stderr.split())[-500:]}"
            ) from None
        except subprocess.TimeoutExpired:
            raise HpmlError(
                f"{self.name} cannot be installed within {INSTALL_TIMEOUT} s"
            ) from None

    def find_executable(self, executable: str) -> str:
        """This environment's Python; any other executable from the PATH."""
        if executable == "python":
            return self.python_executable
        return str(util.which(executable))

    def run(self, args: list[str], **kwargs: Any) -> Any:
        """Run this environment's Python with the commit's package first on its path.

        asv passes the mode second. Benchmarks are always listed with the working tree's package, so
        that benchmarks.json is the same on every node and an old commit does not remove entries.
        """
        site = Path(self._path, "site")
        env = {**kwargs.pop("env", os.environ), **self._global_env_vars}
        declares = any(mode in _DECLARING for mode in args[1:2])
        env |= search_path(str(self._root if declares else site), env)
        env[PACKAGE_VARIABLE] = package_digest(site, env.get("ASV_COMMIT", ""))
        env[RESULTS_VARIABLE] = str(self._results)
        # Kernels that plugins compile with cache=True are then compiled once per commit rather
        # than once per process.
        env.setdefault("NUMBA_CACHE_DIR", str(Path(self._path, "numba-cache")))
        log.debug(f"Running '{' '.join(args)}' in {self.name}")
        # -P keeps the launcher's folder off the path; without the launcher, a killed asv would
        # leave its fork server behind
        launcher = [self.python_executable, "-P", leftovers.__file__, str(os.getpid())]
        return util.check_output([*launcher, *args], env=env, **kwargs)
