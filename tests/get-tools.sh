#!/bin/sh
# get-tools.sh PYTHON: fetch the browser that the page tests drive, where this machine lets us.
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

have_browser && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing Chromium for the page tests (apt-get)"
    apt-get update -qq >/dev/null 2>&1
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1 && have_browser && exit 0
fi
echo "fetching Chromium for the page tests (playwright)"
"$python" -m playwright install chromium >/dev/null 2>&1 && have_browser && exit 0
echo "NO CHROMIUM: the page tests will be skipped. Install it: apt-get install chromium, or $python -m playwright install chromium"
exit 0
