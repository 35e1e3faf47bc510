"""A change of the firewall under guard: a timer puts it back as it was, unless ssh is seen to come in still.

    set_timer --> change --> confirm --yes--> the timer is stopped
                                     --no---> put back at once; where we are cut off or dead, by the timer

That the session itself lives proves little: ufw lets through what is established, and stops the next one.
"""

import os
import time

from rigd.provision.target import ssh_session, ufw_files
from rigd.provision.target.contract import Box, ModuleError
from rigd.provision.target.questions import ask
from rigd.provision.target.ssh_session import Session

ROLLBACK_S = 120
UNIT = "rigd-ufw-rollback"
TIMER_FILE = f"/run/systemd/transient/{UNIT}.timer"
FOLDER = "/run/rigd-ufw"
FAMILIES = ("iptables", "ip6tables")
KNOCKS = 2
"""A single packet may be lost."""
SETTLE_S = 2.0
COMMAND_TIMEOUT_S = 60


def pending() -> bool:
    """Return whether a change that nobody confirmed stands under its timer."""
    return os.path.exists(TIMER_FILE)


def undone() -> str:
    """Return the sentence that the timer left when it last put something back; "" where it did not."""
    try:
        with open(f"{FOLDER}/undone", encoding="utf-8") as said:
            return said.read().strip()
    except OSError:
        return ""


def set_timer(box: Box, *, active: bool) -> None:
    """Keep the firewall as it is now, on or off, and have it put back if nobody stops that."""
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)
    for path in ufw_files.ALL:
        if os.path.exists(path):
            box.run(["cp", "-p", path, _kept(path)])
    for family in FAMILIES:
        # What the kernel has, too: the files may say what nobody has loaded yet.
        table = ask(box, [f"{family}-save", "-t", "filter"]).stdout
        box.write(f"{FOLDER}/{family}", table.encode(), mode=0o600)
    box.write(f"{FOLDER}/put-back", _script(active=active).encode(), mode=0o700)
    ask(box, ["systemctl", "reset-failed", f"{UNIT}.service"])
    # Without its accuracy named a timer may come a minute late.
    box.run(
        ["systemd-run", "--quiet", f"--unit={UNIT}", f"--on-active={ROLLBACK_S}",
         "--timer-property=AccuracySec=1s", "sh", f"{FOLDER}/put-back", "timer"]
    )  # fmt: skip


def confirm(box: Box, session: Session) -> None:
    """Stop the timer once ssh is seen to come in; raise a ModuleError, all put back, where it does not."""
    box.progress("looking whether ssh still comes in")
    if not _comes_in(box, session):
        put_back(box)
        raise ModuleError(
            f"with this the firewall lets no new ssh session from {session.address} in, so it was put back "
            f"as it was; see `ufw status numbered` and /etc/ufw/before.rules for what stops port {session.port}"
        )
    if not pending():
        raise ModuleError(
            f"the box took longer than {ROLLBACK_S} s, so the timer put the firewall back as it was; run it again"
        )
    box.run(["systemctl", "stop", f"{UNIT}.timer"])
    ask(box, ["rm", "-rf", FOLDER])


def put_back(box: Box) -> None:
    """Put back what was set before; the timer goes only after that."""
    box.run(["sh", f"{FOLDER}/put-back"], ok=None, timeout_s=COMMAND_TIMEOUT_S * 2)
    ask(box, ["systemctl", "stop", f"{UNIT}.timer"])
    ask(box, ["rm", "-rf", FOLDER])


def _comes_in(box: Box, session: Session) -> bool:
    for _ in range(KNOCKS):
        seen = box.reached()
        if seen is None:
            return _lives(box, session)
        if seen:
            return True
    return False


def _lives(box: Box, session: Session) -> bool:
    """Return whether the session lives, where nobody outside could be asked for more."""
    until_s = time.monotonic() + ROLLBACK_S / 4
    while True:
        time.sleep(SETTLE_S)
        if ssh_session.carries(box, session):
            return True
        if time.monotonic() > until_s:
            return False


def _kept(path: str) -> str:
    return f"{FOLDER}/{path.strip('/').replace('/', '-')}"


def _script(*, active: bool) -> str:
    """Return what puts back; the file that says whether it is on comes last, for `disable` writes it, too."""
    off = "ufw --force disable"
    copies = [f"[ ! -e {_kept(path)} ] || cp -p {_kept(path)} {path}" for path in ufw_files.ALL]
    tables = [
        f"[ ! -s {FOLDER}/{family} ] || {family}-restore -w 10 {FOLDER}/{family}" for family in FAMILIES
    ]
    live = " && ".join(f"{{ {table}; }}" for table in tables)
    ending = [*copies, f"{live} || {off}"] if active else [*copies[:-1], off, copies[-1]]
    told = (
        "a change of the firewall was put back as it was, since for "
        f"{ROLLBACK_S} s nobody saw ssh come in with it"
    )
    tell = f'[ "$1" != timer ] || echo "$(date "+%F %T"): {told}" | tee {FOLDER}/undone'
    return "\n".join(["#!/bin/sh", *ending, tell, ""])
