#!/usr/bin/env bash
# plant.sh FOLDER [SECONDS] [FAULT...]: plant.py with the Python of this node, which is $PYTHON, or that of a .venv in this
# project or beside it, or python3; in the folder of a bundle with the bundle's packages.
set -euo pipefail
here=$(dirname "$(realpath "$0")") root=$(realpath "$(dirname "$0")/../..")
[ ! -r "$root/../activate" ] || . "$root/../activate"
for python in "${PYTHON:-}" "$root/.venv/bin/python" "$root/../.venv/bin/python" python3; do
    ! command -v "$python" >/dev/null || break
done
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
exec "$python" "$here/plant.py" "$@"
