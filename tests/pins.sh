#!/bin/sh
# pins.sh UV PYTHON FILE [--upgrade]: write the versions of all that pyproject.toml asks for into FILE, each with the
# SHA-256 of its files. Without --upgrade those that FILE names already are kept where nothing is against them.
# No index is named: where packages come from is the machine's business; the hashes say what must arrive. One file serves
# every Python from 3.11 on Linux.
set -eu
uv=$1 python=$2 file=$3
shift 3
found=$(mktemp)
trap 'rm -f "$found"' EXIT
cp "$file" "$found"
echo uv | "$uv" pip compile --quiet --python "$python" --universal --python-version 3.11 --all-extras --generate-hashes \
    --no-header --no-annotate --no-emit-index-url --no-emit-find-links --output-file "$found" "$@" pyproject.toml - >/dev/null
{
    echo "# Versions that were tried together, with the SHA-256 of their files. Written by make pins."
    cat "$found"
} >"$file"
