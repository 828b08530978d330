"""A hub of data sets in miniature, over HTTP on 127.0.0.1, for the package `huggingface_hub`.

It serves the few paths of the hub's API that a download needs. Each data set has commits, newest
last: the files of each by name.
"""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Files = dict[str, bytes]

_API = re.compile(r"/api/datasets/(?P<name>[^/]+/[^/]+)(?P<rest>/.*)?")
_FILE = re.compile(r"/datasets/(?P<name>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>.*)")


class _NotFound(Exception):
    """What the hub answers with an error. Attributes: status, code (`X-Error-Code`)."""

    def __init__(self, status: int, code: str) -> None:
        self.status, self.code = status, code


@dataclass
class FakeHub:
    """The data sets of the hub by name, and the files that were asked for.

    Attributes:
        gated: names whose files nobody may read.
    """

    commits: dict[str, list[Files]] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    read: list[str] = field(default_factory=list)
    url: str = ""

    def commit(self, name: str, at: int = -1) -> str:
        """The hash of a commit of a data set."""
        return _hash(self.commits[name][at])

    def files(self, name: str, revision: str) -> tuple[str, Files]:
        if name not in self.commits:
            raise _NotFound(401, "RepoNotFound")
        there = {_hash(files): files for files in self.commits[name]}
        wanted = self.commit(name) if revision == "main" else revision
        if wanted not in there:
            raise _NotFound(404, "RevisionNotFound")
        return wanted, there[wanted]

    def api(self, name: str, rest: str, asked: dict[str, list[str]]) -> Any:
        if rest == "/auth-check" and name in self.gated:
            raise _NotFound(403, "GatedRepo")
        if rest == "/refs":
            branch = {"name": "main", "ref": "refs/heads/main", "targetCommit": self.commit(name)}
            return {"branches": [branch], "tags": [], "converts": []}
        what, _, more = rest.strip("/").partition("/")
        revision, _, path = more.partition("/")
        commit, files = self.files(name, unquote(revision) or "main")
        if what in ("", "revision"):
            siblings = [{"rfilename": file} for file in files]
            gated = "auto" if name in self.gated else False
            return {"id": name, "sha": commit, "gated": gated, "siblings": siblings, "tags": []}
        if what == "paths-info":
            return [_entry(file, files) for file in asked["paths"] if file in files]
        assert what == "tree", rest
        folder = f"{unquote(path)}/" if path else ""
        found = [_entry(file, files) for file in files if file.startswith(folder)]
        folders = {str(above) for file in files for above in PurePosixPath(file).parents[:-1]}
        found += [{"type": "directory", "path": each, "oid": commit} for each in folders]
        if path and not found:
            raise _NotFound(404, "EntryNotFound")
        return found


def _hash(files: Files) -> str:
    return hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()


def _entry(file: str, files: Files) -> dict[str, Any]:
    oid = hashlib.sha1(files[file]).hexdigest()
    return {"type": "file", "path": file, "size": len(files[file]), "oid": oid}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {}
        try:
            if api := _API.fullmatch(parts.path):
                asked = json.loads(body) if body[:1] == b"{" else parse_qs(body.decode())
                content = json.dumps(self.hub.api(api["name"], api["rest"] or "", asked)).encode()
                headers["Content-Type"] = "application/json"
            elif file := _FILE.fullmatch(parts.path):
                commit, files = self.hub.files(file["name"], unquote(file["revision"]))
                headers["X-Repo-Commit"] = commit
                content = files.get(unquote(file["path"]), b"")
                if unquote(file["path"]) not in files:
                    raise _NotFound(404, "EntryNotFound")
                headers["ETag"] = f'"{hashlib.sha1(content).hexdigest()}"'
                if self.command == "GET":
                    self.hub.read.append(unquote(file["path"]))
            else:
                raise _NotFound(404, "EntryNotFound")
            self.send_response(200)
        except _NotFound as wrong:
            content = b""
            headers["X-Error-Code"] = wrong.code
            self.send_response(wrong.status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = do_POST = _answer

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def served(hub: FakeHub) -> Iterator[FakeHub]:
    """Serve a hub on a free port until the end."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        hub.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
