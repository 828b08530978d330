#!/usr/bin/env bash
# Makes a base image where none can be pulled: Debian with Python, by debootstrap. As root.
#
#   deploy/base-image.sh [NAME] [SUITE]    default: muster-base:bookworm bookworm (Python 3.11)
#
# MIRROR is the package archive; without it debootstrap's own.
set -euo pipefail

name=${1:-muster-base:bookworm}
suite=${2:-bookworm}

fail() { echo "base-image: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "debootstrap needs root: run it with sudo, or pull an image and pass BASE=..."
command -v debootstrap >/dev/null || fail "there is no debootstrap here: apt install debootstrap, or pass BASE=..."
command -v docker >/dev/null || fail "there is no docker on this machine"
said=$(docker info 2>&1) || fail "docker does not answer: $(tail -n 1 <<<"$said")"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
echo "base-image: debootstrap $suite, about a minute"
# shellcheck disable=SC2086
debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates \
    "$suite" "$folder/root" ${MIRROR:-} >"$folder/log" 2>&1 \
    || { tail -n 20 "$folder/log" >&2; fail "debootstrap failed; above is what it said last"; }
# Half of it is what apt and readers of manuals need.
rm -rf "$folder"/root/var/lib/apt/lists/* "$folder"/root/var/cache/apt/* \
    "$folder"/root/usr/share/{doc,man,info,locale}/* "$folder"/root/var/log/*
tar --directory "$folder/root" --create --one-file-system --numeric-owner . \
    | docker import --change 'CMD ["python3"]' - "$name" >/dev/null
docker run --rm --network none "$name" python3 -c 'import sys, venv; print("base-image:", sys.version)' \
    || fail "$name was made, and its Python does not run"
