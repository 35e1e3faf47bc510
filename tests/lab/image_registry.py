"""A registry that has one container image, made from a folder; it answers what `docker pull` asks, and no more."""

import contextlib
import hashlib
import json
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIGURATION = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
"""Docker looks at the layer itself, and takes one that is not compressed."""
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Registry:
    """One that listens; `pulled` grows with each layer that somebody fetched."""

    address: str
    pulled: list[str]


def _sum(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@contextlib.contextmanager
def registry(
    host: str, image: str, root: Path, work: Path, *, leave_out: tuple[str, ...] = ()
) -> Iterator[Registry]:
    """Serve `root` as `image` (`name:tag`) on an address of this machine, over plain HTTP."""
    name, _, tag = image.partition(":")
    layer = work / "layer.tar"
    subprocess.run(
        ["tar", "-C", root, *(f"--exclude={path}" for path in leave_out), "-cf", layer, "."],
        check=True,
        timeout=120,
    )
    with layer.open("rb") as file:
        layer_sum = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    configuration = json.dumps(
        {"architecture": "amd64", "os": "linux", "config": {"Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]},
         "rootfs": {"type": "layers", "diff_ids": [layer_sum]}, "history": [{"created_by": "the lab"}]}
    ).encode()  # fmt: skip
    parts: list[dict[str, Any]] = [
        {"mediaType": CONFIGURATION, "size": len(configuration), "digest": _sum(configuration)},
        {"mediaType": LAYER, "size": layer.stat().st_size, "digest": layer_sum},
    ]
    manifest = json.dumps(
        {"schemaVersion": 2, "mediaType": MANIFEST, "config": parts[0], "layers": parts[1:]}
    ).encode()
    there: dict[str, tuple[str, bytes | Path]] = {
        "/v2/": ("application/json", b"{}"),
        f"/v2/{name}/manifests/{tag}": (MANIFEST, manifest),
        f"/v2/{name}/manifests/{_sum(manifest)}": (MANIFEST, manifest),
        f"/v2/{name}/blobs/{_sum(configuration)}": ("application/octet-stream", configuration),
        f"/v2/{name}/blobs/{layer_sum}": ("application/octet-stream", layer),
    }
    pulled: list[str] = []

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            kind, content = there.get(self.path, ("", b""))
            size = len(content) if isinstance(content, bytes) else content.stat().st_size
            self.send_response(200 if kind else 404)
            self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
            self.send_header("Content-Type", kind or "text/plain")
            self.send_header("Content-Length", str(size))
            if kind == MANIFEST:
                self.send_header("Docker-Content-Digest", _sum(manifest))
            self.end_headers()
            if self.command == "HEAD":
                return
            if isinstance(content, bytes):
                self.wfile.write(content)
                return
            with content.open("rb") as file:
                while chunk := file.read(CHUNK_BYTES):
                    self.wfile.write(chunk)
            pulled.append(self.path)

        do_HEAD = do_GET  # noqa: N815  (the name that the server looks for)

        def log_message(self, *_: object) -> None:
            """Tell nobody."""

    server = ThreadingHTTPServer((host, 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield Registry(address=f"{host}:{server.server_port}", pulled=pulled)
    finally:
        server.shutdown()
        server.server_close()
