#!/bin/sh
# image.sh: build the image of containers/Dockerfile from this checkout, and try it: in a new repository the container
# writes a benchmark, lists and measures it. Variables:
#   TOOL     podman, buildah or docker; by default the first that is installed
#   IMAGE    the image's name; default hpml
#   BASE, EXTRAS   what the Dockerfile says
#   IMAGE_OPTIONS  further options of the build, such as --network host
# Exit status: 0 built and tried, 1 the trial failed, 2 something is missing or the build failed.
set -eu
cd "$(dirname "$0")/.."
image=${IMAGE:-hpml}

fail() { # STATUS TEXT
    echo "make image: $2" >&2
    exit "$1"
}

tool=${TOOL:-}
for each in podman buildah docker; do
    [ -n "$tool" ] || ! command -v "$each" >/dev/null || tool=$each
done
[ -n "$tool" ] || fail 2 "no podman, buildah or docker here; on Debian: apt-get install podman"
command -v "$tool" >/dev/null || fail 2 "no $tool here, which TOOL names; on Debian: apt-get install $tool"

base=${BASE:-$(sed -n 's/^ARG BASE=//p' containers/Dockerfile)}
have_base() {
    case $tool in
    buildah) buildah inspect --type image "$base" ;;
    *) "$tool" image inspect "$base" ;;
    esac >/dev/null 2>&1
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! have_base && ! "$tool" pull "$base" >"$log" 2>&1; then
    fail 2 "the base image $base is not here and cannot be fetched ($(tail -n 1 "$log")); name another: make image BASE=NAME"
fi

# shellcheck disable=SC2086  # options are words
"$tool" build ${IMAGE_OPTIONS:-} ${BASE:+--build-arg "BASE=$BASE"} ${EXTRAS:+--build-arg "EXTRAS=$EXTRAS"} \
    -f containers/Dockerfile -t "$image" . || fail 2 "the build failed; the reason is above"

in_container() {
    case $tool in
    buildah)
        container=$(buildah from "$image") status=0
        buildah run "$container" -- "$@" || status=$?
        buildah rm "$container" >/dev/null
        return "$status"
        ;;
    *) "$tool" run --rm "$image" "$@" ;;
    esac
}
# a skipped point ends with 0: its Record tells
trial='mkdir /tmp/trial && cd /tmp/trial && git init -q && git config user.name You && git config user.email you@example.org &&
echo Trial >README && git add README && git commit -qm Trial && hpml init && hpml list &&
hpml run export_time --rounds 1 --json | grep "\"status\": *\"ok\""'
in_container sh -c "$trial" || fail 1 "$image is built, but its trial failed; the reason is above"
echo "make image: $image is built with $tool, and measured a benchmark"
