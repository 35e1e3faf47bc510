"""A vendor's archive in a box: a few packages in a signed repository, served over HTTP, also after a reboot."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import small_archive
from box import Box
from small_archive import Deb

ROOT = "/srv/vendor"
PORT = 8471
UNIT = f"""
[Unit]
Description=an archive of packages
[Service]
ExecStart=/usr/bin/python3 -m http.server --bind 127.0.0.1 --directory {ROOT} {{port}}
[Install]
WantedBy=multi-user.target
"""
SIGN = r"""
set -e
command -v gpg >/dev/null || { apt-get -q update; apt-get -qy install --no-install-recommends gpg gpg-agent; }
export GNUPGHOME=/root/vendor-key
if [ ! -d $GNUPGHOME ]; then
  mkdir -m 700 $GNUPGHOME
  gpg --batch --quiet --passphrase '' --quick-generate-key 'Vendor <vendor@example.invalid>' rsa2048 sign never
fi
cd {release}
{{ echo 'Origin: Vendor'; echo 'Suite: {suite}'; echo 'Codename: {suite}'; echo "Date: $(LC_ALL=C date -Ru)"
  echo 'Architectures: amd64'; echo 'Components: stable'; echo 'SHA256:'
  find . -name Packages -printf '%P\n' | while read -r file; do
    echo " $(sha256sum "$file" | cut -d' ' -f1) $(stat -c %s "$file") $file"; done; }} > Release
gpg --batch --quiet --yes --passphrase '' --clearsign -o InRelease Release
gpg --armor --export > {key}
"""


@dataclass(frozen=True, kw_only=True)
class Vendor:
    """Where the archive is found."""

    address: str


def docker_debs() -> tuple[Deb, ...]:
    """Return packages of the names that Docker's own have; they hold nothing but a daemon that sleeps."""
    unit = small_archive.UNIT.replace("small", "docker")
    return (
        Deb(name="docker-ce", version="5:29.2.0",
            fields=("Depends: docker-ce-cli, containerd.io", "Conflicts: docker.io"),
            files=(("lib/systemd/system/docker.service", unit),)),
        Deb(name="docker-ce-cli", version="5:29.2.0"),
        Deb(name="containerd.io", version="2.2.0", fields=("Conflicts: containerd, runc",)),
        Deb(name="docker-buildx-plugin"),
        Deb(name="docker-compose-plugin"),
    )  # fmt: skip


def toolkit_debs(version: str = "1.18.0-1") -> tuple[Deb, ...]:
    """Return packages of the names that the container toolkit has."""
    names = ("nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container-tools",
             "libnvidia-container1")  # fmt: skip
    return tuple(Deb(name=name, version=version) for name in names)


def serve(
    box: Box, debs: Iterable[Deb], place: str, *, work: Path, suite: str | None = None, port: int = PORT
) -> Vendor:
    """Build the packages at `place` of the archive; a suite has a component `stable`, None means a flat one.

    The key lies beside them, as `gpg` for Docker's way, and as `gpgkey` at the root for NVIDIA's.
    """
    base = box.root / ROOT.lstrip("/") / place
    release = f"{ROOT}/{place}/dists/{suite}" if suite else f"{ROOT}/{place}"
    pool = base / "pool" if suite else base
    small_archive.build(pool, work, debs)
    key = f"{ROOT}/{place}/gpg" if suite else f"{ROOT}/gpgkey"
    if suite:
        lists = base / f"dists/{suite}/stable/binary-amd64"
        lists.mkdir(parents=True)
        text = (pool / "Packages").read_text().replace("Filename: ./", "Filename: pool/")
        (lists / "Packages").write_text(text)
        (pool / "Packages").unlink()
    box.run(SIGN.replace("{release}", release).replace("{suite}", suite or "stable").replace("{key}", key)
            .replace("{{", "{").replace("}}", "}"), timeout_s=120)  # fmt: skip
    box.put("/etc/systemd/system/vendor.service", UNIT.format(port=port))
    box.run("systemctl daemon-reload && systemctl enable -q vendor && systemctl restart vendor")
    box.run(f"bash -c 'until (: > /dev/tcp/127.0.0.1/{port}) 2> /dev/null; do sleep 0.1; done'")
    return Vendor(address=f"http://127.0.0.1:{port}")
