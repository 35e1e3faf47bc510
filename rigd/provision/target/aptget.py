"""apt-get as a supervisor wants it: never a question, told progress, a simulation to read, faults as sentences."""

import contextlib
import os
import re
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rigd.provision.target import dpkg
from rigd.provision.target.contract import Box, CommandResult, ModuleError

LISTS = Path("/var/lib/apt/lists")
UPDATE_STAMP = Path("/var/lib/apt/periodic/update-success-stamp")
LOCK_WAIT_S = 600
TIMEOUT_S = 5400.0
"""A driver with DKMS on a slow box and a slow line stays below this."""

TAIL_LINES = 10

ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "DEBIAN_PRIORITY": "critical",
    "NEEDRESTART_MODE": "l",  # `a` would restart Docker and Tailscale under our feet
    "NEEDRESTART_SUSPEND": "1",
    "APT_LISTCHANGES_FRONTEND": "none",
    "APT_LISTBUGS_FRONTEND": "none",
    "UCF_FORCE_CONFFOLD": "1",
}
KEEP_CONFIGURATION = ("-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold")

Rule = tuple[str, str]
SENTENCES: tuple[Rule, ...] = (
    (r"is not valid yet \(invalid for another ([^)]+)\)",
     ("the clock of the box is behind: the archive's lists are not valid for another {0}. Set the clock"
     " (`timedatectl set-ntp true`, or `date -s ...`) and run again")),
    (r"Release file for (\S+) is expired",
     ("the lists of {0} have expired: its mirror is stale, or the clock of the box is ahead. Check `date`,"
     " or choose another mirror")),
    (r"Conflicting values set for option Signed-By regarding source (\S+)",
     ("two files of /etc/apt/sources.list.d name {0} with different keys, so apt reads no list at all. Find them"
     " with `grep -r {0} /etc/apt/sources.list*` and remove the older one")),
    (r"NO_PUBKEY ([0-9A-F]+)",
     ("the box has no key {0} for one of its sources, so it does not trust its lists. Give the source its key"
     " with `deb822_repository` and `signed_by`")),
    (r"The repository '([^']+)' (?:does not have a Release file|is not signed|no longer has a Release file)",
     "{0} has no signed Release file: the address or suite is wrong, or the archive is gone. Check the source"),
    (r"(?:Temporary failure resolving|Could not resolve) '?([^'\s]+)'?",
     ("the name {0} cannot be resolved: the box has no network or no DNS now. Check `resolvectl status` and try"
     " again")),
    (r"(?:Could not connect to|Unable to connect to|Cannot initiate the connection to) (\S+)",
     "the archive {0} cannot be reached. Check the box's network, proxy and firewall, and run again"),
    (r"(?:You don't have enough free space in|No space left on device)\s*(\S*)",
     ("the disk of the box is full{0:at}. See `df -h / /boot /var`; `apt-get clean` and `apt-get autoremove` give"
     " some back")),
    (r"dpkg was interrupted",
     "dpkg was broken off in the middle. Run `dpkg --configure -a` on the box"),
    (r"(?m)^E: Could not get lock (\S+?)\.? ",  # Without the E it was only waited for.
     "another program held apt's lock {0} for as long as we wait ({holder}). Let it end, then run again"),
    (r"Unable to acquire the dpkg frontend lock|Unable to lock directory",
     "another program held apt's lock for as long as we wait ({holder}). Let it end, then run again"),
    (r"Held packages were changed",
     ("a held package would have to change: see `apt-mark showhold`; `apt-mark unhold NAME`, or"
     " `allow_change_held_packages: true`")),
    (r"Unable to locate package (\S+)",
     ("no source of the box has a package '{0}'. Check its name and the sources, or read the lists anew"
     " (`update_cache: true`)")),
    (r"Package '?([^'\s]+)'? has no installation candidate",
     ("the box's sources know '{0}' only from what others say of it. Check the sources (components such as non-free),"
     " or read the lists anew (`update_cache: true`)")),
    (r"Version '([^']+)' for '([^']+)' was not found",
     "no source has {1} in version {0}. `apt-cache madison {1}` lists those there are"),
    (r"(?:Packages were downgraded and -y was used)",
     "this would put an older version in place of a newer one. Say `allow_downgrade: true` if that is meant"),
    (r"(?:The following packages have unmet dependencies|held broken packages|pkgProblemResolver::Resolve)",
     ("the packages do not fit together: apt's words are below. A source that was mixed in, or a hold, is the"
     " usual reason")),
    (r"The following packages cannot be authenticated|There were unauthenticated packages",
     "apt cannot prove where the packages come from. Give their source its key (`signed_by`)"),
    (r"Sub-process /usr/bin/dpkg returned an error code|Errors were encountered while processing",
     "a package could not be set up; dpkg's words are below. After mending it: `dpkg --configure -a`"),
)  # fmt: skip


def options(*, lock_wait_s: int = LOCK_WAIT_S) -> list[str]:
    """Return what every call carries: yes to all, wait for the lock, try a flaky line again."""
    # Without a terminal of its own, so that a script which wants an answer from one is told that there is none.
    settings = (f"DPkg::Lock::Timeout={lock_wait_s}", "Acquire::Retries=3", "Acquire::http::Timeout=30",
                "Acquire::https::Timeout=30", "Dpkg::Use-Pty=0")  # fmt: skip
    return ["-y", "-q", *(word for setting in settings for word in ("-o", setting))]


def run(
    box: Box, words: list[str], *, lock_wait_s: int = LOCK_WAIT_S, timeout_s: float = TIMEOUT_S
) -> CommandResult:
    """Run apt-get; tell what it does and who keeps it waiting; a failure is a sentence with apt's own words."""
    holder = dpkg.lock_holder()
    if holder:
        box.progress(f"waiting for apt's lock, held by {holder}")
    with _status_pipe(box) as pipe:
        argv = ["apt-get", *options(lock_wait_s=lock_wait_s), *words]
        if pipe:
            script = 'pipe=$1; shift; exec "$@" 3>"$pipe"'
            argv = ["sh", "-c", script, "sh", pipe, argv[0], "-o", "APT::Status-Fd=3", *argv[1:]]
        answer = box.run(argv, environment=ENVIRONMENT, timeout_s=timeout_s, ok=None)
    if answer.rc != 0:
        raise failure(answer, dpkg.lock_holder() or holder)
    return answer


def failure(answer: CommandResult, holder: str = "") -> ModuleError:
    """Return the fault of an apt-get that ended badly, in a sentence, with its own words beneath."""
    text = f"{answer.stdout}\n{answer.stderr}"
    facts = {"rc": answer.rc, "stdout": answer.stdout, "stderr": answer.stderr}
    told = [line for line in answer.stderr.splitlines() if line.strip() and not line.startswith("debconf: ")]
    tail = "\n".join((told or text.strip().splitlines())[-TAIL_LINES:])
    for pattern, sentence in SENTENCES:
        if match := re.search(pattern, text):
            return ModuleError(f"{_fill(sentence, match.groups(), holder)}\n{tail}", **facts)
    return ModuleError(f"apt-get ended with {answer.rc}:\n{tail}", **facts)


def _fill(sentence: str, groups: tuple[str | None, ...], holder: str) -> str:
    first = (groups[0] or "").rstrip(".,") if groups else ""
    sentence = sentence.replace("{0:at}", f" at {first}" if first else "").replace(
        "{holder}", holder or "it has ended now"
    )
    for number, group in enumerate(groups):
        sentence = sentence.replace(f"{{{number}}}", (group or "").rstrip(".,"))
    return sentence


def simulate(box: Box, words: list[str]) -> dict[str, Any]:
    """Return what apt-get would do: `install` and `remove` lists, or `error` when it would not."""
    argv = ["apt-get", "-s", "-q", "-y", "-o", "Debug::NoLocking=1", *words]
    answer = box.run(argv, environment=ENVIRONMENT, timeout_s=300, ok=None)
    if answer.rc != 0:
        return {"install": [], "remove": [], "configure": [], "error": str(failure(answer))}
    return {**read_simulation(answer.stdout), "error": ""}


def read_simulation(text: str) -> dict[str, Any]:
    """Return packages to install ([name, old or "", new]), to remove ([name, version]), and those half set up."""
    install, remove, configure = [], [], []
    for line in text.splitlines():
        # Inst curl [7.88.1-10+deb12u5] (7.88.1-10+deb12u8 Debian:12.8/stable [amd64])
        if match := re.match(r"Inst (\S+) (?:\[([^\]]+)\] )?\(([^\s)]+)", line):
            install.append([match[1], match[2] or "", match[3]])
        elif match := re.match(r"(?:Remv|Purg) (\S+)(?: \[([^\]]+)\])?", line):
            remove.append([match[1], match[2] or ""])
        elif match := re.match(r"Conf (\S+)", line):
            configure.append(match[1])
    fresh = {name for name, *_ in install}
    return {
        "install": install,
        "remove": remove,
        "configure": [name for name in configure if name not in fresh],
    }


def lists_time_s() -> float:
    """Return when the package lists were last read, in seconds of the epoch; 0 when never."""
    times = []
    for path in (UPDATE_STAMP, LISTS):
        with contextlib.suppress(OSError):
            times.append(path.stat().st_mtime)
    if not any(
        entry.name.endswith(("Packages", "Release", "InRelease", ".lz4")) for entry in _entries(LISTS)
    ):
        return 0.0
    return max(times, default=0.0)


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def configure_interrupted(box: Box) -> bool:
    """Finish what an interrupted dpkg left, if it was interrupted."""
    if not dpkg.interrupted():
        return False
    box.progress("dpkg was interrupted: configuring what it left")
    answer = box.run(
        ["dpkg", "--force-confdef", "--force-confold", "--configure", "-a"],
        environment=ENVIRONMENT, timeout_s=TIMEOUT_S, ok=None,
    )  # fmt: skip
    if answer.rc != 0:
        raise failure(answer)
    return True


@contextlib.contextmanager
def _status_pipe(box: Box) -> Iterator[str]:
    """Give the path of a pipe whose lines, in apt's status format, become progress; "" where none can be made."""
    with tempfile.TemporaryDirectory(prefix="rigd-apt-") as folder:
        path = f"{folder}/status"
        try:
            os.mkfifo(path, 0o600)
            # Open for both, so that neither side waits for the other.
            descriptor = os.open(path, os.O_RDWR)
        except OSError:
            yield ""
            return
        reader = threading.Thread(target=_tell, args=(descriptor, box), daemon=True)
        reader.start()
        try:
            yield path
        finally:
            os.write(descriptor, b"\nend\n")
            reader.join(5)
            os.close(descriptor)


def _tell(descriptor: int, box: Box) -> None:
    last = ""
    with open(descriptor, encoding="utf-8", errors="replace", closefd=False) as lines:
        for line in lines:
            if line == "end\n":
                return
            # pmstatus:curl:42.8571:Unpacking curl (amd64)      dlstatus:1:20.5:Retrieving file 1 of 12
            words = line.rstrip("\n").split(":", 3)
            if words[0] in ("pmstatus", "dlstatus") and words[3:] and words[3] != last:
                last = words[3]
                with contextlib.suppress(ValueError):
                    box.progress(f"{float(words[2]):.0f} % {last}")
