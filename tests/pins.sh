#!/bin/sh
# pins.sh UV PYTHON FILE [--upgrade]: write the versions of all that pyproject.toml asks for into FILE. Without --upgrade those
# that FILE names already are kept where nothing is against them.
# Names and versions only: where packages come from is the machine's business. What torch brings for CUDA is left out:
# torch names those versions itself, and a node's torch others.
set -eu
uv=$1 python=$2 file=$3
shift 3
found=$(mktemp)
trap 'rm -f "$found"' EXIT
cp "$file" "$found"
echo uv | "$uv" pip compile --quiet --python "$python" --all-extras --no-header --no-annotate --no-emit-index-url \
    --no-emit-find-links --output-file "$found" "$@" pyproject.toml - >/dev/null
{
    echo "# Versions that were tried together. Names and versions only: where packages come from is the machine's business."
    grep -E '^[A-Za-z0-9._-]+==' "$found" | grep -vE '^(cuda-|nvidia-[^m])' | LC_ALL=C sort
} >"$file"
