"""Reboots a box once, however often the run is broken off around it.

    journal: wanted (boot id) -> asked, under a name that systemd takes only once -> another boot id -> over

On this machine the run ends instead, and `resume.py` goes on with it after the boot.
"""

from rigd.errors import UsageError
from rigd.provision.run import results
from rigd.provision.run.calls import Call
from rigd.provision.run.events import Progress
from rigd.provision.run.flow import RebootsHere
from rigd.provision.run.play import HostPlay
from rigd.provision.run.prepared import Item, Prepared
from rigd.provision.run.results import Result
from rigd.provision.target import modules

UNIT = "rigd-reboot"
DELAY_S = 4
"""The answer has this long to come through before the link ends, in seconds."""
DEFAULT_TIMEOUT_S = 600.0

ASK = f"""\
if command -v systemd-run >/dev/null 2>&1 && [ -d /run/systemd/system ]; then
  for try in 1 2 3 4 5; do
    systemctl is-active --quiet {UNIT}.timer {UNIT}.service && exit 0
    systemctl reset-failed {UNIT}.timer {UNIT}.service 2>/dev/null
    systemd-run --quiet --unit={UNIT} --on-active={DELAY_S} --timer-property=AccuracySec=1s \\
      /bin/sh -c "$1" && exit 0
    sleep 1
  done
  exit 1
fi
setsid /bin/sh -c "sleep {DELAY_S}; $1" </dev/null >/dev/null 2>&1 &
"""
"""Detached, so that the link ends after the answer and not in the middle of it. A unit of that name that has just
ended is refused until systemd has forgotten it."""


def reboot(host: HostPlay, prepared: Prepared, item: Item) -> Result:
    """Reboot the task's box and wait until it is back; facts are read anew afterwards."""
    if prepared.check:
        return {**results.done(), "changed": True, "remark": "would reboot"}
    task = prepared.id
    box = host.boxes.of(item.user)
    now = box.boot_id
    before = host.past.reboots.get(task)
    if before is not None and before.boot_id != now:
        # It happened, whoever saw it: a broken run had asked for it, or somebody else was quicker.
        host.run.journal.reboot(host.name, task, boot_id=before.boot_id, state="over")
        return {**results.done(), "changed": True, "rebooted": True, "inherited": True,
                "remark": "the run that was broken off has rebooted it"}  # fmt: skip
    host.run.journal.reboot(host.name, task, boot_id=now, state="wanted")
    if box.local:
        raise RebootsHere(lambda: _ask_here(host, item, task, now))
    _ask(host, item)
    host.run.journal.reboot(host.name, task, boot_id=now, state="asked")
    _wait(host, item, now)
    host.run.journal.reboot(host.name, task, boot_id=now, state="over")
    host.rebooted()
    return {**results.done(), "changed": True, "rebooted": True}


def _ask_here(host: HostPlay, item: Item, task: str, boot_id: str) -> None:
    _ask(host, item)
    host.run.journal.reboot(host.name, task, boot_id=boot_id, state="asked")


def _ask(host: HostPlay, item: Item) -> None:
    """Ask for the reboot; a second time while the first is on its way does nothing."""
    arguments = item.arguments
    host.wait(float(arguments.get("pre_reboot_delay") or 0))
    command = str(arguments.get("reboot_command") or "systemctl reboot || shutdown -r now")
    answer, _none = host.boxes.of(item.user).apply(_asking(command), ())
    if answer.failed is not None:
        raise UsageError(
            f"cannot ask for the reboot: {answer.failed}", hint="does the task need `become: true`?"
        )


def _asking(command: str) -> Call:
    module = modules.module_of("ansible.builtin.command")
    if module is None:
        raise UsageError("the module 'command' is missing from this installation")
    arguments = {
        "argv": ["/bin/sh", "-c", ASK, "reboot", command],
        "expand_argument_vars": False,
    }
    return Call(id="reboot", module=module, short="command", arguments=arguments, timeout_s=60.0)


def _wait(host: HostPlay, item: Item, boot_id: str) -> None:
    timeout_s = float(item.arguments.get("reboot_timeout") or DEFAULT_TIMEOUT_S)
    host.run.tell(Progress(host=host.name, text="rebooting; waiting until it is back", lasting=True))
    host.boxes.back(boot_id, timeout_s)
    host.wait(float(item.arguments.get("post_reboot_delay") or 0))
