#!/bin/sh
# hpml-plugins for a node without a network: this script, and behind it a tar archive.
usage="usage: sh $0 [--python PYTHON] [FOLDER]
  FOLDER: where to (hpml); nothing outside it is changed.  PYTHON: the one that has torch (python3)"
set -eu
fail() { echo "hpml-bundle: $1" >&2; exit 2; }
folder=hpml python=python3
while [ $# -gt 0 ]; do
    case $1 in
        --python) [ $# -gt 1 ] || fail "--python needs a path"; python=$2; shift ;;
        -h | --help) echo "$usage"; exit 0 ;;
        -*) fail "no option $1; sh $0 --help" ;;
        *) folder=$1 ;;
    esac
    shift
done
for tool in git tar gzip "$python"; do
    command -v "$tool" >/dev/null 2>&1 || fail "$tool is missing; load its module or install it (--python PATH names a Python)"
done
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 8))' || fail "$python is too old; name another with --python PATH"
[ ! -e "$folder" ] || fail "$folder is there already; name another folder, or bring its results home and remove it"
mkdir -p "$folder" || fail "no folder can be made at $folder"
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
tail -n +@PAYLOAD_LINE@ "$0" | tar xzf - -C "$folder" || fail "the archive does not unpack: a damaged copy, or a full disk"
"$python" "$folder/install/ask_node.py" >"$folder/install/node.json"
"$python" "$folder/install/install.py" "$folder" || exit 2
trap - EXIT
exit 0
