"""A box without Python: it is installed by plain commands, the only ones that rigd ever runs without its helper."""

import time

from rigd.provision.connection.link import Tell
from rigd.provision.connection.start import Door, Ended, NoPythonError, check_password, wrapped
from rigd.provision.connection.target import BecomeError, HostUnreachableError, Target

DEADLINE_S = 900.0
"""A slow mirror and a first boot that still holds apt's lock."""
LOCK_TIMEOUT_S = 600

INSTALL = """
echo RIGD-HELPER ENTERED
command -v apt-get >/dev/null 2>&1 || {{ echo RIGD-HELPER NO-APT; exit 3; }}
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
apt-get -q -o DPkg::Lock::Timeout={lock_s} update >&2 || echo "package lists could not be read anew" >&2
exec apt-get -q -y -o DPkg::Lock::Timeout={lock_s} --no-install-recommends install python3 </dev/null >&2
"""
"""`python3-minimal` lacks json, which the helper speaks."""


def install_python(door: Door, target: Target, *, tell: Tell) -> None:
    """Install Python on the host as root, or raise with a sentence."""
    tell(f"installing Python on {target.name}: it has none that is new enough, and the helper needs it")
    started_s = time.monotonic()
    script = INSTALL.format(lock_s=LOCK_TIMEOUT_S)
    done = door.run(wrapped(script, "", user="root"), deadline_s=DEADLINE_S)
    if b"RIGD-HELPER NO-SUDO" in done.stdout:
        raise BecomeError(
            f"cannot install Python on '{target.name}': there is no sudo, and '{door.login}' is not root",
            hint=f"log in as root, or there: apt-get install python3 sudo && adduser {door.login} sudo",
        )
    if b"RIGD-HELPER ENTERED" not in done.stdout:
        check_password(door, target, "root")
        secret = f"{target.become_password}\n".encode()
        done = door.run(wrapped(script, "", user="root", ask=True), stdin=secret, deadline_s=DEADLINE_S)
    _judge(done, target)
    tell(f"installed Python on {target.name} in {time.monotonic() - started_s:.0f} s")


def _judge(done: Ended, target: Target) -> None:
    if b"RIGD-HELPER NO-APT" in done.stdout:
        raise NoPythonError(
            f"cannot install Python on '{target.name}': it has no apt-get, and rigd knows Debian and Ubuntu",
            hint="install Python 3.10 or newer by hand, then run the same command again",
        )
    if done.rc != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise HostUnreachableError(
            f"cannot install Python on '{target.name}': apt-get ended with {done.rc}"
            + (f": {said[-1].strip()}" if said else ""),
            hint="see what `apt-get install python3` says there",
        )
