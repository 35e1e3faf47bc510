"""Modules about the system in a box of their own: foretold, done, and nothing left to do."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import small_archive
from box import Box

from rigd.provision.connection.link import Link, connect
from rigd.provision.connection.target import Target
from rigd.provision.language.arguments import check_arguments

pytestmark = [pytest.mark.lab, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]

ARCHIVE = "/srv/archive"
DEADLINE_S = 90
Event = dict[str, Any]


@pytest.fixture(scope="module")
def archive(nspawn_box: Box, tmp_path_factory) -> Box:
    """Give a box whose only source of packages is a folder in it."""
    small_archive.build(nspawn_box.root / ARCHIVE.lstrip("/"), tmp_path_factory.mktemp("debs"))
    nspawn_box.run("rm -f /etc/apt/sources.list")
    nspawn_box.put("/etc/apt/sources.list.d/small.list", f"deb [trusted=yes] file:{ARCHIVE} ./\n")
    nspawn_box.run("apt-get -q update")
    return nspawn_box


@pytest.fixture(scope="module")
def link(archive: Box, tmp_path_factory) -> Iterator[Link]:
    folder = tmp_path_factory.mktemp("ssh")
    public = (archive.root / "etc/ssh/ssh_host_ed25519_key.pub").read_text().split()
    known, config = folder / "known_hosts", folder / "config"
    known.write_text(f"[{archive.host}]:{archive.port} {public[0]} {public[1]}\n")
    lines = [f"IdentityFile {archive.key}", "IdentitiesOnly yes", f"UserKnownHostsFile {known}"]
    config.write_text("Host *\n" + "".join(f"  {line}\n" for line in lines))
    target = Target(name="box", address=archive.host, port=archive.port, user="root", ssh_config=config)
    opened = connect(target, blobs=lambda _digest: None)
    yield opened
    opened.close()


Do = Callable[..., Event]


@pytest.fixture
def do(link: Link) -> Do:
    """Run one task; give its last event. `check=True` foretells only."""

    def run(
        module: str, *, check: bool = False, environment: dict[str, str] | None = None, **arguments: Any
    ) -> Event:
        work = {"id": module, "module": module, "arguments": check_arguments(module, arguments), "check": check,
                "diff": True, "environment": environment or {}}  # fmt: skip
        kind = "batch" if check else "apply"
        fields: dict[str, Any] = {"tasks": [work]} if check else {"task": work}
        events = list(link.helper().request(kind, deadline_s=DEADLINE_S, **fields))
        return next(event for event in reversed(events) if event["event"] in ("probed", "applied", "failed"))

    return run


def converges(do: Do, module: str, **arguments: Any) -> Event:
    """Foretell, do, and look that nothing is left; give what was done."""
    foretold = do(module, check=True, **arguments)
    assert foretold["event"] == "probed", foretold
    done = do(module, **arguments)
    assert done["event"] == "applied", done
    assert foretold["changed"] is done["changed"] is True, (foretold, done)
    assert whats(foretold) == whats(done)
    again = do(module, **arguments)
    assert (again["event"], again["changed"]) == ("applied", False), again
    return done


def whats(event: Event) -> list[str]:
    return [change["what"] for change in event["changes"]]


def refused(do: Do, module: str, **arguments: Any) -> str:
    event = do(module, **arguments)
    assert event["event"] == "failed", event
    return str(event["msg"])


# --- packages ---


def test_a_package_comes_and_goes(do, archive):
    done = converges(do, "apt", name=["rigd-two"])
    assert {"install rigd-one 2.0", "install rigd-two 1.0"} == set(whats(done))

    converges(do, "apt", name=["rigd-two", "rigd-one"], state="absent", purge=True)
    assert "rigd-two" not in archive.run("dpkg -l", check=False)


def test_a_version_a_pattern_and_the_latest(do):
    assert whats(converges(do, "apt", name=["rigd-one=1.*"])) == ["install rigd-one 1.0"]
    assert do("apt", name=["rigd-one"])["changed"] is False
    assert whats(converges(do, "apt", name=["rigd-one"], state="latest")) == ["upgrade rigd-one 1.0 -> 2.0"]
    assert do("apt", name=["rigd-one>=1.5"])["changed"] is False
    converges(do, "apt", name=["rigd-o*"], state="absent")
    assert do("package", name=["rigd-one"], state="absent")["changed"] is False


def test_a_virtual_package_that_is_provided_is_there(do):
    converges(do, "apt", name=["rigd-mailer"])
    assert do("apt", name=["rigd-mail"])["changed"] is False


def test_removing_what_nobody_named_is_refused(do):
    converges(do, "apt", name=["rigd-two"])
    assert "would also remove rigd-two" in refused(do, "apt", name=["rigd-rival"])
    assert "would also remove rigd-two" in refused(do, "apt", name=["rigd-one"], state="absent")
    converges(do, "apt", name=["rigd-rival"], force=True)
    converges(do, "apt", name=["rigd-rival", "rigd-one"], state="absent")


def test_a_held_package_is_told(do, archive):
    converges(do, "apt", name=["rigd-one=1.0"])
    converges(do, "apt_hold", name=["rigd-on*"])
    assert "rigd-one is held" in refused(do, "apt", name=["rigd-one"], state="latest")
    assert archive.run("apt-mark showhold").strip() == "rigd-one"
    converges(do, "apt_hold", name=["rigd-one"], state="absent")
    converges(do, "apt", name=["rigd-one"], state="absent")


def test_an_unknown_package_and_one_that_breaks_are_sentences(do, archive):
    assert "no source of the box has a package 'rigd-none'" in refused(do, "apt", name=["rigd-none"])
    text = refused(do, "apt", name=["rigd-broken"])
    assert "could not be set up" in text
    assert "the build has failed" in text
    assert do("apt", name=["rigd-broken"], check=True)["changed"] is True
    converges(do, "apt", name=["rigd-broken"], state="absent", purge=True)


def test_a_script_that_asks_gets_no_answer_and_holds_nothing_up(do):
    converges(do, "apt", name=["rigd-asks"])


def test_changed_configuration_files_are_kept(do, archive):
    converges(do, "apt", name=["rigd-config=1.0"])
    archive.run("echo mine > /etc/rigd-config")
    converges(do, "apt", name=["rigd-config"], state="latest")
    assert archive.run("cat /etc/rigd-config").strip() == "mine"


def test_an_interrupted_dpkg_is_finished_first(do, archive):
    archive.run(
        "cd /tmp && dpkg --unpack /srv/archive/rigd-one_1.0_all.deb; touch /var/lib/dpkg/updates/0001"
    )
    done = do("apt", name=["rigd-mailer", "rigd-two"])
    assert done["event"] == "applied", done
    assert "finish what an interrupted dpkg left (dpkg --configure -a)" in whats(done)
    assert do("apt", name=["rigd-two"])["changed"] is False


def test_a_lock_is_waited_for_and_its_holder_told(do, archive):
    do("apt", name="rigd-two")
    lock = (
        "f = open('/var/lib/dpkg/lock-frontend', 'w'); fcntl.lockf(f, fcntl.LOCK_EX); open('/tmp/held', 'w')"
    )
    archive.run(
        f'nohup python3 -c "import fcntl, time; {lock}; time.sleep(90)" >/dev/null 2>&1 &'
        " until test -e /tmp/held; do sleep 0.1; done"
    )
    text = refused(do, "apt", name="rigd-two", state="absent", lock_timeout=1, force=True)
    archive.run("pkill -f lock-frontend", check=False)
    assert "another program held apt's lock" in text
    assert "python3" in text


def test_a_deb_file(do):
    converges(do, "apt", deb=f"{ARCHIVE}/rigd-unit_1.0_all.deb")


def test_reading_the_lists_is_no_change(do):
    done = do("apt", update_cache=True)
    assert (done["event"], done["changed"], whats(done)) == ("applied", False, ["read the package lists"])
    assert do("apt", update_cache=True, cache_valid_time=3600)["changes"] == []


def test_an_archive_that_is_not_there_is_a_sentence(do, archive):
    archive.put("/etc/apt/sources.list.d/gone.list", "deb [trusted=yes] http://127.0.0.1:9 ./\n")
    text = refused(do, "apt", update_cache=True, update_cache_retries=1)
    archive.run("rm /etc/apt/sources.list.d/gone.list")
    assert "cannot be reached" in text


# --- sources ---


def test_a_source_with_its_key_and_a_rival_switched_off(do, archive):
    key = Path("/usr/share/keyrings/debian-archive-bookworm-stable.gpg")
    inside = "/usr/share/keyrings/debian-archive-bookworm-stable.gpg"
    assert key.name in archive.run(f"ls {inside}")
    archive.put("/etc/apt/sources.list.d/old.list", "deb http://example.invalid/debian bookworm main\n")
    done = converges(do, "deb822_repository", name="vendor", uris=["http://example.invalid/debian"],
                     suites=["bookworm"], components=["main"], signed_by=f"file://{inside}")  # fmt: skip
    assert any("old.list names the same source" in what for what in whats(done))
    assert archive.run("ls /etc/apt/sources.list.d").split() == ["small.list", "vendor.sources"]
    assert "Signed-By: /etc/apt/keyrings/vendor.gpg" in archive.run(
        "cat /etc/apt/sources.list.d/vendor.sources"
    )
    assert "with another key" in refused(do, "apt_repository", repo="deb http://example.invalid/debian bookworm main",
                                         update_cache=False)  # fmt: skip
    converges(do, "deb822_repository", name="vendor", state="absent")
    assert archive.run("ls /etc/apt/keyrings").split() == []


def test_a_source_line(do, archive):
    line = "deb [trusted=yes] file:/srv/other ./"
    archive.run("mkdir -p /srv/other && cp /srv/archive/Packages /srv/other/")
    converges(do, "apt_repository", repo=line, filename="other")
    assert archive.run("cat /etc/apt/sources.list.d/other.list").strip() == line
    converges(do, "apt_repository", repo=line, state="absent")
    assert archive.run("ls /etc/apt/sources.list.d").split() == ["small.list"]


def test_a_key_for_all_sources(do):
    file = "/usr/share/keyrings/debian-archive-bookworm-stable.gpg"
    assert do("apt_key", file=file)["changed"] is False  # Debian's own trusted keys hold it.


# --- units ---


def test_a_unit_is_enabled_started_stopped_masked(do, archive):
    archive.put("/etc/systemd/system/small.service", small_archive.UNIT)
    done = converges(do, "systemd_service", name="small", enabled=True, state="started", daemon_reload=True)
    assert "start small" in whats(done)
    assert archive.run("systemctl is-active small").strip() == "active"
    assert whats(do("service", name="small", state="restarted")) == ["restart small"]
    converges(do, "service", name="small", state="stopped", enabled=False)


def test_a_masked_unit_cannot_be_enabled(do, archive):
    archive.put("/lib/systemd/system/hidden.service", small_archive.UNIT)
    converges(do, "systemd", name="hidden", masked=True, daemon_reload=True)
    assert "is masked" in refused(do, "systemd", name="hidden", enabled=True)
    assert "is masked" in refused(do, "systemd", name="hidden", state="started")
    converges(do, "systemd", name="hidden", masked=False, state="started", enabled=True)


def test_daemons_are_reloaded_only_when_a_unit_file_changed(do, archive):
    archive.put("/etc/systemd/system/small.service", small_archive.UNIT)
    archive.run("systemctl daemon-reload")
    assert do("systemd", daemon_reload=True)["changes"] == []
    archive.put("/etc/systemd/system/small.service.d/more.conf", "[Service]\nNice=1\n")
    done = do("systemd", daemon_reload=True)
    assert (done["changed"], whats(done)) == (False, ["read changed unit files"])
    assert do("systemd", daemon_reload=True)["changes"] == []


def test_a_unit_that_is_not_there_names_the_nearest(do):
    assert "did you mean 'ssh.service'" in refused(do, "service", name="sshh", state="started")
    foretold = do("service", name="not-yet", state="started", check=True)
    assert (foretold["event"], foretold["changed"]) == ("probed", True)


def test_a_service_that_dies_at_once_is_a_fault_with_its_log(do, archive):
    unit = "[Service]\nType=notify\nExecStart=/bin/sh -c 'echo no GPU here; exit 7'\n"
    archive.put("/etc/systemd/system/dies.service", unit)
    text = refused(do, "systemd", name="dies", state="started", daemon_reload=True)
    assert "no GPU here" in text


def test_a_static_unit_is_left_alone(do):
    event = do("systemd", name="systemd-tmpfiles-clean.service", enabled=True)
    assert event["changed"] is False


# --- accounts ---


def test_groups_and_users(do, archive):
    converges(do, "group", name="gpu", gid=4711)
    converges(do, "group", name="gpu", gid=4712)
    converges(do, "user", name="rig", groups=["gpu", "users"], comment="the rig",
              password="$6$salt$abc", generate_ssh_key=True)  # fmt: skip
    assert archive.run("id -Gn rig").split() == ["rig", "users", "gpu"]
    assert archive.run("getent shadow rig").split(":")[1] == "$6$salt$abc"
    converges(do, "user", name="rig", groups=["sudo"], append=True)
    assert set(archive.run("id -Gn rig").split()) == {"rig", "users", "gpu", "sudo"}
    done = converges(do, "user", name="rig", groups=["gpu"])
    assert whats(done) == ["groups of rig: gpu,sudo,users -> gpu"]
    converges(do, "user", name="rig", password_lock=True)
    converges(do, "user", name="rig", expires=86400.0 * 30000, comment="another")
    converges(do, "user", name="svc", system=True, create_home=False, home="/var/lib/svc")
    assert "no group nobodys" in refused(do, "user", name="rig", groups=["nobodys"])
    converges(do, "user", name="rig", state="absent", remove=True)
    converges(do, "group", name="gpu", state="absent")


def test_keys_that_may_log_in(do, archive):
    archive.run("useradd -m keyed")
    key = archive.key.with_suffix(".pub").read_text().strip()
    converges(do, "authorized_key", user="keyed", key=key)
    converges(do, "authorized_key", user="keyed", key=key, key_options='no-pty,command="/bin/true"')
    assert archive.run("stat -c '%U %a' /home/keyed/.ssh/authorized_keys").strip() == "keyed 600"
    converges(do, "authorized_key", user="keyed", key=key, state="absent")


# --- the rest ---


def test_kernel_settings(do, archive):
    done = converges(do, "sysctl", name="kernel.domainname", value="rigs", reload=False)
    assert len(whats(done)) == 1
    assert archive.run("cat /etc/sysctl.d/60-rigd.conf") == "kernel.domainname=rigs\n"
    converges(do, "sysctl", name="kernel.domainname", state="absent")


def test_names_and_zones(do, archive):
    converges(do, "hostname", name="rigged")
    assert archive.run("hostname; cat /etc/hostname").split() == ["rigged", "rigged"]
    text = refused(do, "timezone", name="Mars/Base")
    assert "time zone" in text


def test_jobs_in_a_file(do, archive):
    job = {"name": "look", "job": "/bin/true", "cron_file": "rigd", "user": "root"}
    converges(do, "cron", **job, minute="*/5")
    converges(do, "cron", **job, minute="*/7")
    converges(do, "cron", name="PATH", job="/usr/bin:/bin", env=True, cron_file="rigd", user="root")
    assert archive.run("cat /etc/cron.d/rigd") == (
        'PATH="/usr/bin:/bin"\n#Ansible: look\n*/7 * * * * root /bin/true\n'
    )
    assert "no cron" in refused(do, "cron", name="mine", job="/bin/true")


def test_mounts(do, archive):
    converges(do, "mount", path="/mnt/small", src="tmpfs", fstype="tmpfs", opts="size=1m", state="mounted")
    assert "tmpfs" in archive.run("findmnt -n /mnt/small")
    done = do("mount", path="/mnt/small", src="tmpfs", fstype="tmpfs", opts="size=2m", state="mounted")
    assert done["event"] == "applied", done
    assert "size=2048k" in archive.run("findmnt -n /mnt/small")
    converges(do, "mount", path="/mnt/small", state="absent")
    assert "small" not in archive.run("cat /etc/fstab")
    text = refused(do, "mount", path="/data", src="UUID=no-such", fstype="ext4", state="mounted")
    assert "no UUID=no-such" in text
    done = do(
        "mount", path="/data", src="UUID=no-such", fstype="ext4", opts="defaults", state="present", check=True
    )
    assert "nofail" in done["facts"]["warnings"][0]
    assert "never unmounts" in refused(do, "mount", path="/run", state="absent")


def test_a_drivers_blacklist_makes_ram_disks_anew(do, archive):
    archive.run("touch -d '2020-01-01' /boot/initrd.img-6.1.0-1-amd64")
    archive.put("/usr/sbin/update-initramfs", "#!/bin/sh\ntouch /boot/initrd.img-*\n", mode=0o755)
    archive.put("/usr/bin/lsinitramfs", "#!/bin/sh\necho etc/modprobe.d/rigd-nvidia.conf\n", mode=0o755)
    done = converges(do, "kernel_blacklist", name=["nouveau", "nova-core"], lines=["options nouveau modeset=0"],
                     blacklist_file="/etc/modprobe.d/rigd-nvidia.conf")  # fmt: skip
    assert whats(done)[1] == "make the initial ram disks anew (6.1.0-1-amd64)"
    archive.run("touch -d '2020-01-01' /boot/initrd.img-6.1.0-1-amd64")
    done = do("kernel_blacklist", name=["nouveau"], blacklist_file="/etc/modprobe.d/rigd-nvidia.conf")
    assert whats(done) == ["make the initial ram disks anew (6.1.0-1-amd64)"]


def test_what_only_looks(do):
    for module, arguments in {
        "ping": {}, "service_facts": {}, "package_facts": {},
        "getent": {"database": "passwd", "key": "root"},
    }.items():  # fmt: skip
        event = do(module, check=True, **arguments)
        assert (event["event"], event["changed"]) == ("probed", False), event
    assert do("service_facts")["facts"]["ansible_facts"]["services"]["ssh.service"]["state"] == "running"
    assert do("wait_for", port=9, timeout=1)["event"] == "failed"
    assert do("wait_for", path="/etc/passwd", search_regex="^root:(x):")["facts"]["match_groups"] == ["x"]
