#!/bin/sh
# get-tools.sh PYTHON: fetch what tests need and Python packages do not bring, where this machine lets us: the browser
# that the page tests drive, axe-core, which they ask about accessibility, Slurm, Open MPI, and Fashion-MNIST. What cannot be
# had is said.
set -u
python=$1

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

can_install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null
}

install() {
    apt-get update -qq >/dev/null 2>&1
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$1" >/dev/null 2>&1
}

if ! have_fashion_mnist && can_install; then
    echo "installing Fashion-MNIST for the tests of data sets (apt-get)"
    install dataset-fashion-mnist
fi
have_fashion_mnist || echo "NO FASHION-MNIST: its test will be skipped. Install it: apt-get install dataset-fashion-mnist"

if ! have_slurm && can_install; then
    echo "installing Slurm for the tests of clusters (apt-get)"
    install slurm-wlm
    install munge
fi
have_slurm || echo "NO SLURM: the tests on a real Slurm will be skipped. Install it: apt-get install slurm-wlm munge"

if ! have_mpi && can_install; then
    echo "installing Open MPI for the tests of ranks that mpirun starts (apt-get)"
    install openmpi-bin
fi
have_mpi || echo "NO MPIRUN: the tests of ranks over MPI will be skipped. Install it: apt-get install openmpi-bin"

axe=.tools/axe.min.js
if [ ! -e "$axe" ]; then
    echo "fetching axe-core for the accessibility tests (npm registry)"
    mkdir -p .tools && (cd .tools && npm pack --silent axe-core@4.10.3 >/dev/null 2>&1 &&
        tar -xzf axe-core-*.tgz package/axe.min.js && mv package/axe.min.js . && rmdir package && rm axe-core-*.tgz)
fi
[ -e "$axe" ] || echo "NO AXE-CORE: the accessibility tests will be skipped. They need npm, and its registry, once"

have_browser && exit 0
if can_install; then
    echo "installing Chromium for the page tests (apt-get)"
    install chromium && have_browser && exit 0
fi
echo "fetching Chromium for the page tests (playwright)"
"$python" -m playwright install chromium >/dev/null 2>&1 && have_browser && exit 0
echo "NO CHROMIUM: the page tests will be skipped. Install it: apt-get install chromium, or $python -m playwright install chromium"
exit 0
