"""A hub on this machine that speaks as much of the Hugging Face hub's protocol as pushing and pulling need."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

REVISION = "0123456789abcdef0123456789abcdef01234567"


class LocalHub(ThreadingHTTPServer):
    """Keeps files of repositories in memory; `forge` replaces what it sends, but not what it says of it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, dict[str, bytes]] = {}
        self.forge: dict[str, bytes] = {}

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def local_hub() -> Iterator[LocalHub]:
    with LocalHub() as hub:
        thread = threading.Thread(target=hub.serve_forever, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: LocalHub

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def _answer(self, code: int, content: bytes | dict[str, Any], **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path = self.path.removeprefix("/api/")
        if path == "repos/create":
            asked = json.loads(body)
            name = "/".join(filter(None, (asked.get("organization"), asked["name"])))
            self.server.files.setdefault(name, {})
            self._answer(200, {"url": f"{self.server.address}/{name}"})
        elif path == "validate-yaml":
            self._answer(200, {"errors": [], "warnings": []})
        elif "/preupload/" in path:
            names = [file["path"] for file in json.loads(body)["files"]]
            modes = [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]
            self._answer(200, {"files": modes})
        elif "/commit/" in path:
            repository = path.removeprefix("models/").partition("/commit/")[0]
            files = self.server.files[repository]
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            self._answer(
                200, {"commitUrl": f"{self.server.address}/{repository}/commit/{REVISION}", "commitOid": REVISION}
            )
        else:
            self._answer(404, {"error": f"no {self.path}"})

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path.startswith("/api/models/"):
            repository = path.removeprefix("/api/models/").partition("/revision/")[0]
            if repository not in self.server.files:
                self._answer(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
                return
            files = self.server.files[repository]
            siblings = [
                {
                    "rfilename": name,
                    "size": len(content),
                    "blobId": "0",
                    "lfs": {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 1},
                }
                for name, content in files.items()
            ]
            self._answer(200, {"id": repository, "modelId": repository, "sha": REVISION, "siblings": siblings})
            return
        repository, _, rest = path.strip("/").partition("/resolve/")
        name = rest.partition("/")[2]
        content = self.server.files.get(repository, {}).get(name)
        if content is None:
            self._answer(404, {"error": "Entry not found"}, X_Error_Code="EntryNotFound")
            return
        sent = self.server.forge.get(name, content)
        self._answer(200, sent, ETag=f'"{hashlib.sha256(content).hexdigest()}"', X_Repo_Commit=REVISION)

    do_HEAD = do_GET
