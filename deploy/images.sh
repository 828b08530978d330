#!/usr/bin/env bash
# Builds both images: muster-server:VERSION and muster-client:VERSION, VERSION being pyproject's.
#
#   deploy/images.sh [server] [client]
#
# From the environment, as build arguments (deploy/Dockerfile says what they are):
# BASE, PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_FLAGS, EXTRA_PACKAGES.
# Without PIP_FLAGS all packages come from deploy/wheels where `make wheels` has filled it.
# Without BASE it is python:3.11-slim, or muster-base:bookworm where only that is here.
# TAG_SUFFIX is appended to the tag (-cuda), BUILD_FLAGS are further options of docker build.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "images: $*" >&2; exit 1; }
command -v docker >/dev/null || fail "there is no docker on this machine"
said=$(docker info 2>&1) || fail "docker does not answer: $(tail -n 1 <<<"$said")"

present() { docker image inspect "$1" >/dev/null 2>&1; }
if [ -z "${BASE:-}" ]; then
    BASE=python:3.11-slim
    if ! present "$BASE" && present muster-base:bookworm; then
        BASE=muster-base:bookworm
    elif ! present "$BASE" && { echo "images: pulling $BASE"; ! timeout 300 docker pull --quiet "$BASE"; }; then
        fail "$BASE cannot be pulled; sudo deploy/base-image.sh makes a base that is used instead"
    fi
fi
echo "images: from $BASE"

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
# With it, muster finds out whether an image has other code than the command that starts it.
code=$("${PYTHON:-python3}" -I emulator/muster/emulator/launch/docker/image_code.py ./*/muster)
if [ -z "${PIP_FLAGS+given}" ] && ls deploy/wheels/.made-* >/dev/null 2>&1; then
    PIP_FLAGS=--no-index
    echo "images: packages from deploy/wheels alone; PIP_FLAGS= takes them from an index"
fi
if [[ " ${PIP_FLAGS:-} " == *" --no-index "* ]] && ! ls deploy/wheels/*.whl >/dev/null 2>&1; then
    fail "--no-index, and deploy/wheels holds no wheels: make wheels"
fi

arguments=(--build-arg "VERSION=$version" --build-arg "REVISION=$revision" --build-arg "CODE=$code")
for name in BASE PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_FLAGS EXTRA_PACKAGES; do
    [ -z "${!name:-}" ] || arguments+=(--build-arg "$name=${!name}")
done

[ $# -gt 0 ] || set -- server client
built=0
for target in "$@"; do
    began=$SECONDS built=$((built + 1))
    echo "images: building muster-$target, $built of $#; the first time takes minutes"
    name="muster-$target:$version${TAG_SUFFIX:-}"
    # shellcheck disable=SC2086
    docker build ${BUILD_FLAGS:-} "${arguments[@]}" \
        --file deploy/Dockerfile --target "$target" --tag "$name" .
    bytes=$(docker image inspect --format '{{.Size}}' "$name")
    echo "images: $name, $((bytes / 1000000)) MB, $((SECONDS - began)) s"
done
