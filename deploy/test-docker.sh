#!/usr/bin/env bash
# `make test-docker`: a daemon, a base image, the images from deploy/wheels alone, and tests/docker.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "test-docker: $*" >&2; exit 1; }
present() { docker image inspect "$1" >/dev/null 2>&1; }

command -v docker >/dev/null || fail "there is no docker on this machine: install docker"
if ! said=$(docker info 2>&1); then
    [ "$(id -u)" = 0 ] || fail "docker does not answer, and only root can start it: $(tail -n 1 <<<"$said")"
    command -v dockerd >/dev/null || fail "docker does not answer, and there is no dockerd to start: $(tail -n 1 <<<"$said")"
    log=$(mktemp)
    echo "test-docker: starting dockerd; it is ended with the tests"
    dockerd >"$log" 2>&1 &
    daemon=$!
    trap 'kill "$daemon" 2>/dev/null && wait "$daemon" || true; rm -f "$log"' EXIT
    for _ in $(seq 60); do
        ! docker info >/dev/null 2>&1 || break
        kill -0 "$daemon" 2>/dev/null || break
        sleep 1
    done
    docker info >/dev/null 2>&1 || { tail -n 20 "$log" >&2; fail "dockerd did not start; above is what it said last"; }
fi

if [ -z "${BASE:-}" ] && ! present python:3.11-slim && ! present muster-base:bookworm; then
    timeout 120 docker pull --quiet python:3.11-slim || deploy/base-image.sh
fi
PIP_FLAGS=--no-index BUILD_FLAGS="--quiet --network none" deploy/images.sh
MUSTER_TEST_DOCKER=1 .venv/bin/python -m pytest "${@:-tests/docker}"
