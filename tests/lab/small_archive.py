"""An archive of small Debian packages, made on the spot: versions, dependencies, scripts that misbehave."""

import hashlib
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MAINTAINER = "Nobody <nobody@example.invalid>"


@dataclass(frozen=True, kw_only=True)
class Deb:
    """One package."""

    name: str
    version: str = "1.0"
    fields: tuple[str, ...] = ()
    scripts: tuple[tuple[str, str], ...] = ()
    files: tuple[tuple[str, str], ...] = ()


UNIT = "[Unit]\nDescription=small\n[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"

DEBS = (
    Deb(name="rigd-one", version="1.0", files=(("usr/share/rigd-one", "1\n"),)),
    Deb(name="rigd-one", version="2.0", files=(("usr/share/rigd-one", "2\n"),)),
    Deb(name="rigd-two", fields=("Depends: rigd-one",)),
    Deb(name="rigd-rival", fields=("Conflicts: rigd-two",)),
    Deb(name="rigd-mailer", fields=("Provides: rigd-mail",)),
    Deb(name="rigd-asks", scripts=(("postinst", "#!/bin/sh\nread answer </dev/tty || exit 0\nexit 1\n"),)),
    Deb(name="rigd-broken", scripts=(("postinst", "#!/bin/sh\necho the build has failed >&2\nexit 3\n"),)),
    Deb(name="rigd-large", files=(("srv/small/large", "x" * 2_000_000),)),
    Deb(name="rigd-unit", files=(("lib/systemd/system/rigd-unit.service", UNIT),)),
    Deb(name="rigd-config", version="1.0", fields=(), files=(("etc/rigd-config", "one\n"),),
        scripts=(("conffiles", "/etc/rigd-config\n"),)),
    Deb(name="rigd-config", version="2.0", files=(("etc/rigd-config", "two\n"),),
        scripts=(("conffiles", "/etc/rigd-config\n"),)),
)  # fmt: skip


def build(folder: Path, work: Path, debs: Iterable[Deb] = DEBS) -> None:
    """Make the packages and their list in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    stanzas = []
    for deb in debs:
        tree = work / f"{deb.name}-{deb.version}"
        control = tree / "DEBIAN"
        control.mkdir(parents=True)
        fields = [f"Package: {deb.name}", f"Version: {deb.version}", "Architecture: all", f"Maintainer: {MAINTAINER}",
                  *deb.fields, "Description: a small package"]  # fmt: skip
        (control / "control").write_text("\n".join(fields) + "\n")
        for name, text in deb.scripts:
            (control / name).write_text(text)
            (control / name).chmod(0o644 if name == "conffiles" else 0o755)
        for name, text in deb.files:
            path = tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        file = folder / f"{deb.name}_{deb.version}_all.deb"
        command = ["dpkg-deb", "--build", "--root-owner-group", str(tree), str(file)]
        subprocess.run(command, check=True, capture_output=True)
        content = file.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        stanzas.append("\n".join([*fields[:-1], f"Filename: ./{file.name}", f"Size: {len(content)}",
                                  f"SHA256: {digest}", fields[-1]]))  # fmt: skip
    (folder / "Packages").write_text("\n\n".join(stanzas) + "\n")
