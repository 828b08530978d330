"""The lists of components, and the audit of the packages in them; no Docker, and no network."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.model.bom import Bom

DEPLOY = Path(__file__).parents[2] / "deploy"


def deploy(script: str, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(DEPLOY / script), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env={**os.environ, **environment},
    )


def test_the_environment_is_listed_with_what_needs_what(tmp_path: Path) -> None:
    done = deploy("components.py", "--out", str(tmp_path), PATH="")
    assert done.returncode == 0, done.stderr
    assert "there is no image muster-server:" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["environment.cdx.json"]
    read = json.loads((tmp_path / "environment.cdx.json").read_text())
    found = Bom.from_json(read)  # type: ignore[attr-defined]  # made by a decorator
    components = {component.name: component for component in found.components}
    assert components["grpcio"].version == version("grpcio")
    assert str(components["grpcio"].purl) == f"pkg:pypi/grpcio@{version('grpcio')}"
    assert components["muster-fl"].purl is None
    needs = {
        str(each.ref.value): {str(needed.ref.value) for needed in each.dependencies}
        for each in found.dependencies
    }
    pydantic, core = (f"{name}=={version(name)}" for name in ("pydantic", "pydantic-core"))
    assert core in needs[pydantic]
    assert {pydantic, core} <= needs["environment"]


class Advisories(BaseHTTPRequestHandler):
    """Answers like OSV (https://google.github.io/osv.dev/post-v1-query/). Only version 2 of
    "left-pad" has an advisory."""

    asked: set[tuple[str, str]]

    def do_POST(self) -> None:
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        package, asked = query["package"], query["version"]
        self.asked.add((package["name"], asked))
        ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "3"}]}]
        advisory = {"id": "OSV-1", "affected": [{"package": package, "ranges": ranges}]}
        bad = (package["name"], asked) == ("left-pad", "2")
        answer = json.dumps({"vulns": [advisory]} if bad else {}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def service() -> Iterator[str]:
    Advisories.asked = set()
    server = HTTPServer(("127.0.0.1", 0), Advisories)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    serving.join()
    server.server_close()


def audit(folder: Path, service: str, *components: str) -> "subprocess.CompletedProcess[str]":
    listed = {"components": [{"name": "x", "purl": purl} for purl in components]}
    for name in ("one", "other"):  # two images have most packages in common
        (folder / f"{name}.cdx.json").write_text(json.dumps(listed))
    options = ("--vulnerability-service", "osv", "--osv-url", service)
    return deploy("audit_packages.py", "--lists", str(folder), *options, NO_PROXY="127.0.0.1")


def test_an_advisory_for_a_package_is_told_once(tmp_path: Path, service: str) -> None:
    found = audit(tmp_path, service, "pkg:pypi/left-pad@2", "pkg:pypi/torch@2.1+cpu")
    assert found.stdout.splitlines() == [
        "left-pad 2: OSV-1, fixed in 3",
        "1 of 2 packages have known vulnerabilities",
    ]
    assert found.returncode == 1
    assert Advisories.asked == {("left-pad", "2"), ("torch", "2.1")}


def test_packages_without_advisories_pass(tmp_path: Path, service: str) -> None:
    found = audit(tmp_path, service, "pkg:pypi/left-pad@3", "pkg:deb/debian/left-pad@2?arch=all")
    assert (found.returncode, found.stdout) == (
        0,
        "0 of 1 packages have known vulnerabilities\n",
    )
    assert Advisories.asked == {("left-pad", "3")}


def test_a_service_that_does_not_answer_is_told_in_one_line(tmp_path: Path) -> None:
    found = audit(tmp_path, "http://127.0.0.1:9/", "pkg:pypi/left-pad@2")
    assert found.returncode == 2
    assert "the advisory service does not answer: " in found.stderr
    assert (len(found.stderr.splitlines()), found.stdout) == (1, "")


def test_an_audit_without_lists_is_refused(tmp_path: Path) -> None:
    found = deploy("audit_packages.py", "--lists", str(tmp_path))
    assert found.returncode == 2
    assert "has no lists of components: make sbom" in found.stderr
