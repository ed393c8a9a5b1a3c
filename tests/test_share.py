"""share.py: policies go to a hub and come back as they were, and nothing that is damaged or foreign is kept.

The hub is a server on this machine, which speaks as much of the Hugging Face hub's protocol as pushing and pulling
need; the real one is not contacted.
"""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import agent_zoo.hub
import share as sharing
from agent_zoo.checkpoint import Origin, read_info
from tests.command import ROOT, assert_refused, run_here, run_well

pytest.importorskip("huggingface_hub")

NAME = "start_kit_3M"
POLICY = ROOT / "policies" / f"{NAME}.safetensors"
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
            siblings = []
            for name, content in files.items():
                lfs = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 1}
                siblings.append({"rfilename": name, "size": len(content), "blobId": "0", "lfs": lfs})
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


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    import huggingface_hub

    original = huggingface_hub.HfApi
    with LocalHub() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        own = {"endpoint": server.address, "token": "secret"}
        monkeypatch.setattr(huggingface_hub, "HfApi", lambda **options: original(**own, **options))
        yield server
        server.shutdown()
        thread.join()


def pull(folder: Path, *more: str, repository: str = "me/mine") -> object:
    return run_here("share.py", "pull", repository, "--policies-dir", str(folder), *more)


def test_a_policy_comes_back_as_it_was_and_a_card_or_policy_that_is_there_stays(hub: LocalHub, tmp_path: Path) -> None:
    pushed = run_well("share.py", "push", str(POLICY), "me/mine")
    assert REVISION in pushed.stdout
    card = hub.files["me/mine"]["README.md"].decode()
    assert hashlib.sha256(POLICY.read_bytes()).hexdigest() in card and "neurips23_start_kit" in card
    assert "3,030,777" in card and "share.py pull me/mine" in card
    assert pull(tmp_path).returncode == 0
    assert (tmp_path / POLICY.name).read_bytes() == POLICY.read_bytes()
    hub.files["me/mine"]["README.md"] = b"written by hand"
    run_well("share.py", "push", str(POLICY), "me/mine")
    assert hub.files["me/mine"]["README.md"] == b"written by hand"
    run_well("share.py", "push", str(POLICY), "me/mine", "--new-card")
    assert b"start_kit_3M" in hub.files["me/mine"]["README.md"]
    (tmp_path / POLICY.name).write_text("mine")
    assert_refused(pull(tmp_path), "exists already", "--overwrite")
    assert pull(tmp_path, "--overwrite").returncode == 0
    assert (tmp_path / POLICY.name).read_bytes() == POLICY.read_bytes()


def test_what_is_no_policy_is_not_pushed_and_one_too_large_not_fetched(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(POLICY.read_bytes()[:-1])
    assert_refused(run_here("share.py", "push", str(damaged), "me/mine"), "damaged.safetensors")
    assert hub.files == {}
    monkeypatch.setattr(sharing, "LARGEST_BYTES", 1 << 20)
    hub.files["me/mine"] = {POLICY.name: POLICY.read_bytes()}
    assert_refused(pull(tmp_path), "larger than")


@pytest.mark.parametrize("sent", [POLICY.read_bytes()[:-1] + b"\0", b"\x80\x04pickle"], ids=["altered", "pickle"])
def test_what_was_altered_on_the_way_is_not_kept(hub: LocalHub, tmp_path: Path, sent: bytes) -> None:
    hub.files["me/mine"] = {POLICY.name: POLICY.read_bytes()}
    hub.forge[POLICY.name] = sent
    assert_refused(pull(tmp_path), "me/mine")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("files", "arguments", "part"),
    [
        ({}, (), "these policies: none"),
        ({"evil.pt": b"", "folder/a.safetensors": b""}, (), "these policies: none"),
        ({"a.safetensors": b"", "b.safetensors": b""}, (), "a, b: name one with -p"),
        ({"a.safetensors": b""}, ("-p", "b"), "none of that name"),
        ({"a.safetensors": b"\x80\x04 a pickle"}, (), "pickle"),
        ({"-a.safetensors": b""}, (), "cannot name a file"),
    ],
)
def test_what_is_no_policy_of_this_project_is_refused(
    hub: LocalHub, tmp_path: Path, files: dict[str, bytes], arguments: tuple[str, ...], part: str
) -> None:
    hub.files["me/mine"] = files
    assert_refused(pull(tmp_path, *arguments), part)
    assert list(tmp_path.iterdir()) == []


def test_a_hub_that_has_no_such_repository_or_is_gone_gives_one_line(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_refused(pull(tmp_path), "me/mine", "hf auth login")
    assert_refused(pull(tmp_path, repository="a/b/c"), "write OWNER/NAME")
    monkeypatch.setattr(agent_zoo.hub, "find_spec", lambda _: None)
    assert_refused(pull(tmp_path), "--extra hub")


def test_a_card_does_not_say_what_nobody_knows_of_an_imported_policy() -> None:
    own = read_info(POLICY)
    imported = replace(own, steps=0, seed=0, origin=Origin("kit.pt", "0" * 64, (), steps_known=False))
    rows = {line for line in agent_zoo.hub.model_card(NAME, "me/mine", imported, "0" * 64).splitlines() if "|" in line}
    assert {"| seed | `unknown` |", "| agent-steps | `unknown` |"} <= rows
    assert f"| seed | `{own.seed}` |" in agent_zoo.hub.model_card(NAME, "me/mine", own, "0" * 64)


def test_a_header_cannot_write_markup_into_a_card() -> None:
    info = replace(read_info(POLICY), versions={"torch": "`</td><script>|\n# a"})
    card = agent_zoo.hub.model_card(NAME, "me/mine", info, "0" * 64)
    assert "<script" not in card and "\n# a" not in card and "`/tdscript" in card
