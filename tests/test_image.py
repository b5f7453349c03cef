"""`make image`: what it says where something is missing, and the image built and tried by buildah
on a Debian made here (no registry is needed)."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest
from support import ROOT, unavailable

#: A Debian with Python, and this machine's certificates and settings of pip.
BASE = """
FROM scratch
ADD base.tar /
COPY certificates.crt /etc/ssl/certs/ca-certificates.crt
ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt PIP_CERT=/etc/ssl/certs/ca-certificates.crt
"""
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def make_image(**variables: str) -> subprocess.CompletedProcess[str]:
    """`make image`, with these variables."""
    return subprocess.run(
        ["make", "--no-print-directory", "image"],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def told(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that it says, without make's own."""
    of_make = re.compile(r"make(\[\d+\])?: \*\*\*")  # with its depth below `make test`
    (line,) = [each for each in done.stderr.splitlines() if not of_make.match(each)]
    return line


def buildah(*words: str, **variables: str) -> str:
    """What buildah prints."""
    done = subprocess.run(
        ["buildah", *words],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_without_a_tool_it_says_so_in_one_line(tmp_path: Path) -> None:
    for name in ("make", "sh", "dirname", "sed", "mktemp", "rm", "tail"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    done = make_image(PATH=str(tmp_path))
    assert done.returncode == 2
    assert told(done) == (
        "make image: no podman, buildah or docker here; on Debian: apt-get install podman"
    )


def test_a_tool_that_is_not_here_is_named() -> None:
    done = make_image(TOOL="no-such-tool")
    assert done.returncode == 2 and "no no-such-tool here" in told(done)


def test_a_base_that_cannot_be_fetched_is_named(storage: dict[str, str]) -> None:
    done = make_image(**storage, BASE="localhost/nobody/has-this")
    assert done.returncode == 2
    assert re.match(
        r"make image: the base image localhost/nobody/has-this is not here and cannot be "
        r"fetched \(.+\); name another: make image BASE=NAME$",
        told(done),
    )


def test_both_recipes_copy_what_building_the_package_needs() -> None:
    docker = (ROOT / "containers/Dockerfile").read_text()
    apptainer = (ROOT / "containers/hpml.def").read_text()
    project = (ROOT / "pyproject.toml").read_text()
    (readme,) = re.findall(r'^readme = "(.+?)"', project, re.MULTILINE)
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for name in ("pyproject.toml", "constraints.txt", "LICENSE", readme, "hpml_plugins"):
        assert re.search(rf"^COPY .*\b{re.escape(name)} ", docker, re.MULTILINE)
        assert f"    {name} /opt/hpml/{name}\n" in apptainer
        assert f"!{name}" in ignored


@pytest.fixture
def storage(tmp_path: Path) -> dict[str, str]:
    """Variables with which buildah keeps its images in a folder of the test, as root or not."""
    if not shutil.which("buildah"):
        unavailable("no buildah: apt-get install buildah")
    settings = tmp_path / "storage.conf"
    settings.write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{tmp_path}/images"\nrunroot = "{tmp_path}/run"\n'
    )
    return {
        "TOOL": "buildah",
        "BUILDAH_ISOLATION": "chroot",
        "CONTAINERS_STORAGE_CONF": str(settings),
    }


def test_a_build_that_fails_is_no_success(tmp_path: Path, storage: dict[str, str]) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "Dockerfile").write_text("FROM scratch\nCOPY Dockerfile /\n")
    buildah("bud", "--quiet", "--tag", "localhost/empty", str(empty), **storage)
    done = make_image(**storage, BASE="localhost/empty", IMAGE="localhost/never")
    assert done.returncode == 2
    assert "make image: the build failed; the reason is above" in done.stderr
    assert "measured a benchmark" not in done.stdout


@pytest.mark.slow
def test_the_image_is_built_and_measures(tmp_path: Path, storage: dict[str, str]) -> None:
    if os.geteuid() or not shutil.which("mmdebstrap"):
        unavailable("a Debian is made by root, with: apt-get install mmdebstrap")
    base, image = (f"localhost/{name}-{uuid.uuid4().hex}" for name in ("base", "hpml"))
    context = tmp_path / "context"
    context.mkdir()
    packages = "--include=python3,python3-pip,ca-certificates"
    tar = context / "base.tar"
    suite = platform.freedesktop_os_release()["VERSION_CODENAME"]
    command = ["mmdebstrap", "--quiet", "--variant=minbase", packages, suite, str(tar)]
    subprocess.run(command, check=True)
    shutil.copy(CERTIFICATES, context / "certificates.crt")
    (context / "Dockerfile").write_text(BASE)
    buildah("bud", "--quiet", "--tag", base, str(context), **storage)
    tar.unlink()
    done = make_image(**storage, BASE=base, IMAGE=image, EXTRAS="publish")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert f"{image} is built with buildah, and measured a benchmark" in done.stdout
