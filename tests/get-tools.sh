#!/bin/sh
# get-tools.sh PYTHON [ask|yes|no]: fetch what tests need and Python packages do not provide: Slurm, Open MPI, Fashion-MNIST,
# buildah, mmdebstrap, rsync and Chromium as Debian packages, installed system-wide, and axe-core and TypeScript into
# .tools/. System-wide packages are named first; on a terminal the script asks (`yes` does not ask, `no` installs none).
# The tests of what is missing are skipped, and named here.
set -u
python=$1 wanted=${2:-ask}

have_browser() {
    for name in chromium chromium-browser google-chrome; do command -v "$name" >/dev/null && return 0; done
    "$python" - <<'EOF' 2>/dev/null
import pathlib, sys
from playwright.sync_api import sync_playwright
with sync_playwright() as p:
    sys.exit(not pathlib.Path(p.chromium.executable_path).exists())
EOF
}

have_fashion_mnist() {
    [ -e /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ]
}

have_slurm() {
    for name in munged slurmctld slurmd sbatch scontrol; do
        PATH=$PATH:/usr/sbin:/sbin command -v "$name" >/dev/null || return 1
    done
}

have_mpi() {
    command -v mpirun >/dev/null
}

have_buildah() {
    command -v buildah >/dev/null
}

have_mmdebstrap() {
    command -v mmdebstrap >/dev/null
}

have_rsync() {
    command -v rsync >/dev/null
}

can_install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null
}

packages=""
have_fashion_mnist || packages="$packages dataset-fashion-mnist"
have_slurm || packages="$packages slurm-wlm munge"
have_mpi || packages="$packages openmpi-bin"
have_buildah || packages="$packages buildah"
have_mmdebstrap || packages="$packages mmdebstrap"
have_rsync || packages="$packages rsync"
have_browser || packages="$packages chromium"
if [ -n "$packages" ] && [ "$wanted" != no ] && can_install; then
    echo "Some tests need Debian packages, installed system-wide:$packages (\`make test INSTALL=no\` does without)."
    if [ "$wanted" = ask ] && [ -t 0 ]; then
        printf "Install them with apt-get? [y/N] "
        read -r answer
    else
        answer=y
    fi
    case $answer in
    [yY]*)
        apt-get update -qq >/dev/null 2>&1
        for package in $packages; do # one that is not to be had leaves the others
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null 2>&1
        done
        ;;
    esac
fi
have_fashion_mnist || echo "NO FASHION-MNIST: its test will be skipped. Install it: apt-get install dataset-fashion-mnist"
have_slurm || echo "NO SLURM: the tests on a real Slurm will be skipped. Install it: apt-get install slurm-wlm munge"
have_mpi || echo "NO MPIRUN: the tests of ranks over MPI will be skipped. Install it: apt-get install openmpi-bin"
have_buildah || echo "NO BUILDAH: the tests of the container image will be skipped. Install it: apt-get install buildah"
have_mmdebstrap || echo "NO MMDEBSTRAP: the slow test that builds the container image will be skipped. Install it: apt-get install mmdebstrap"
have_rsync || echo "NO RSYNC: the slow test of the CI component of GitLab will be skipped. Install it: apt-get install rsync"

axe=.tools/axe.min.js
if [ ! -e "$axe" ]; then
    echo "fetching axe-core for the accessibility tests (npm registry)"
    mkdir -p .tools && (cd .tools && npm pack --silent axe-core@4.10.3 >/dev/null 2>&1 &&
        tar -xzf axe-core-*.tgz package/axe.min.js && mv package/axe.min.js . && rmdir package && rm axe-core-*.tgz)
fi
[ -e "$axe" ] || echo "NO AXE-CORE: the accessibility tests will be skipped. They need npm, and its registry, once"

if [ ! -e .tools/typescript/lib/tsc.js ]; then
    echo "fetching TypeScript, which checks the types of the site's scripts (npm registry)"
    mkdir -p .tools/typescript && (cd .tools/typescript && npm pack --silent typescript@5.9.3 >/dev/null 2>&1 &&
        tar -xzf typescript-*.tgz --strip-components=1 package/lib && rm typescript-*.tgz)
fi
[ -e .tools/typescript/lib/tsc.js ] || echo "NO TYPESCRIPT: the types of the site's scripts are not checked. That needs npm, and its registry, once"

have_browser && exit 0
if [ "$wanted" != no ]; then
    echo "fetching Chromium for the page tests (playwright, into its cache in the home directory)"
    "$python" -m playwright install chromium >/dev/null 2>&1 && have_browser && exit 0
fi
echo "NO CHROMIUM: the page tests will be skipped. Install it: apt-get install chromium, or $python -m playwright install chromium"
exit 0
