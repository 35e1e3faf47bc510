"""Units, accounts, commands, firewall, tailnet and tables of the system, by recorded answers."""

import os
import pwd
import socket

import pytest
from provision_recorded import RecordedBox, filled, whats

from rigd.provision.target import fstab, ssh_session, units
from rigd.provision.target.contract import ModuleError
from rigd.provision.target.modules import (
    authorized_key,
    command,
    cron,
    getent,
    group,
    modprobe,
    mount,
    service,
    service_facts,
    shell,
    sysctl,
    systemd_service,
    tailscale,
    user,
    wait_for,
)


def changes_of(module, box, **given):
    arguments = filled(module.MODULE, **given)
    return module.MODULE.difference(arguments, module.MODULE.probe(arguments, box))


# --- commands ---


def test_a_command_runs_once_more_each_time_unless_a_file_says_otherwise(tmp_path):
    (tmp_path / "made").touch()
    box = RecordedBox()

    assert [change.once for change in changes_of(command, box, cmd="make all")] == [True]
    assert changes_of(command, box, cmd="make all", creates=str(tmp_path / "ma*")) == []
    assert changes_of(command, box, cmd="make all", creates="made", chdir=str(tmp_path)) == []
    assert changes_of(command, box, cmd="rm x", removes=str(tmp_path / "gone")) == []


def test_a_command_is_split_and_expanded_a_shell_s_line_is_not(monkeypatch):
    monkeypatch.setenv("RIGD_TEST_WORD", "b c")
    box = RecordedBox({"echo": "out\n\n", "/bin/bash": "x"})
    told = command.MODULE.apply(filled(command.MODULE, cmd="echo 'a b' $RIGD_TEST_WORD"), {}, [], box)
    shell.MODULE.apply(filled(shell.MODULE, cmd="a | b", executable="/bin/bash", stdin="yes"), {}, [], box)

    assert box.ran == ["echo a b b c", "/bin/bash -c a | b"]
    assert box.stdin == [None, b"yes\n"]
    assert (told["stdout"], told["rc"], told["cmd"]) == ("out", 0, ["echo", "a b", "b c"])


def test_a_command_that_fails_carries_all_it_said():
    with pytest.raises(ModuleError, match="non-zero return code") as fault:
        command.MODULE.apply(
            filled(command.MODULE, argv=["false"]), {}, [], RecordedBox({"false": (3, "o", "e")})
        )

    assert (fault.value.facts["rc"], fault.value.facts["stdout"], fault.value.facts["stderr"]) == (
        3,
        "o",
        "e",
    )


@pytest.mark.parametrize(("creates", "skipped"), [(None, True), ("/nowhere/at/all", False)])
def test_check_mode_foretells_only_what_creates_a_file(creates, skipped):
    arguments = filled(command.MODULE, cmd="make", creates=creates)
    state = command.MODULE.probe(arguments, RecordedBox(check=True))

    assert bool(command.MODULE.result(arguments, state).get("skipped")) is skipped


# --- units ---


def unit_box(active="inactive", *, enabled="disabled", load="loaded", check=False, **properties):
    told = {
        "Id": "x.service",
        "LoadState": load,
        "ActiveState": active,
        "NeedDaemonReload": "no",
        **properties,
    }
    show = "".join(f"{name}={value}\n" for name, value in told.items())
    rc = 0 if enabled in ("enabled", "static", "alias", "generated", "indirect") else 1
    return RecordedBox(
        {"systemctl show -p Id": show, "systemctl is-enabled": (rc, f"{enabled}\n"), "systemctl": "",
         "systemctl list-unit-files": "docker.service enabled\n", "systemctl show -p UnitsLoad": "0\n"},
        check=check,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("box", "given", "expected"),
    [
        (unit_box("active", enabled="enabled"), {"state": "started", "enabled": True}, []),
        (unit_box(), {"state": "started", "enabled": True}, ["enable x", "start x"]),
        (
            unit_box("active", enabled="enabled"),
            {"state": "stopped", "enabled": False},
            ["disable x", "stop x"],
        ),
        (unit_box("deactivating"), {"state": "stopped"}, ["stop x"]),
        (unit_box("failed"), {"state": "stopped"}, []),
        (unit_box("active"), {"state": "restarted"}, ["restart x"]),
        (unit_box("active"), {"state": "reloaded"}, ["reload x"]),
        (unit_box(), {"state": "restarted"}, ["start x"]),
        (unit_box(enabled="static"), {"enabled": True}, []),
        (unit_box(enabled="static"), {"enabled": False}, []),
        (
            unit_box(enabled="masked", load="masked"),
            {"masked": False, "enabled": True},
            ["unmask x", "enable x"],
        ),
        (unit_box(enabled="masked", load="masked"), {"masked": True}, []),
        (unit_box(enabled="masked", load="masked"), {"enabled": False}, []),
        (unit_box(enabled="enabled-runtime"), {"enabled": True}, ["enable x"]),
        (unit_box(enabled="not-found", load="not-found", check=True), {"state": "started"}, ["start x"]),
        (unit_box("active", NeedDaemonReload="yes"), {"daemon_reload": True}, ["read changed unit files"]),
        (unit_box("active"), {"daemon_reload": True}, []),
    ],
)
def test_what_systemd_has_to_do(box, given, expected):
    assert whats(changes_of(systemd_service, box, name="x", **given)) == expected


@pytest.mark.parametrize(
    ("properties", "once"),
    [({"Type": "oneshot", "RemainAfterExit": "no"}, True), ({"Type": "oneshot", "RemainAfterExit": "yes"}, False),
     ({"Type": "simple"}, False)],
)  # fmt: skip
def test_a_one_shot_that_does_not_remain_is_started_each_time(properties, once):
    assert [
        change.once
        for change in changes_of(systemd_service, unit_box(**properties), name="x", state="started")
    ] == [once]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"name": "dokcer", "state": "started"}, "did you mean 'docker.service'"),
        ({"name": "x*", "state": "started"}, "is a pattern"),
    ],
)
def test_a_unit_that_cannot_be_meant(given, text):
    with pytest.raises(ModuleError, match=text):
        changes_of(systemd_service, unit_box(load="not-found", enabled="not-found"), **given)


@pytest.mark.parametrize(
    ("given", "by_ssh", "socket", "refused"),
    [
        ({"state": "stopped"}, True, "inactive", True),
        ({"enabled": False}, True, "inactive", True),
        ({"masked": True}, True, "inactive", True),
        ({"state": "restarted"}, True, "inactive", False),
        ({"state": "stopped"}, True, "active", False),
        ({"state": "stopped"}, False, "inactive", False),
    ],
    ids=["stopped", "disabled", "masked", "restarted", "socket-lets-in", "at-the-console"],
)
def test_the_last_way_in_stays_open_for_who_came_by_it(given, by_ssh, socket, refused, monkeypatch):
    session = ssh_session.Session(address="192.0.2.1", own_address="192.0.2.2", port=22) if by_ssh else None
    monkeypatch.setattr(ssh_session, "present", lambda _environment=None: session)
    box = unit_box("active", enabled="enabled", Id="ssh.service", Names="sshd.service ssh.service")
    box.record["systemctl is-active"] = (3, f"{socket}\n")

    if refused:
        with pytest.raises(ModuleError, match="this run came in by 'sshd'"):
            changes_of(systemd_service, box, name="sshd", **given)
    else:
        assert changes_of(systemd_service, box, name="sshd", **given)


def test_what_means_nothing_to_systemd_is_told():
    state = {"properties": {}}
    arguments = filled(service.MODULE, name="x", state="restarted", sleep=5)

    assert service.result(arguments, state)["warnings"] == [
        "sleep: means nothing to systemd, and is left aside"
    ]
    assert "warnings" not in service.result(filled(service.MODULE, name="x", state="restarted"), state)


def test_files_newer_than_systemd_s_last_look_want_a_reload(tmp_path, monkeypatch):
    (tmp_path / "x.service.d").mkdir()
    (tmp_path / "x.service.d/more.conf").touch()
    monkeypatch.setattr(units, "UNIT_FOLDERS", (str(tmp_path),))
    monkeypatch.setattr(units, "OTHER_SOURCES", ())
    long_ago, just_now = (
        RecordedBox({"systemctl show": "1\n"}),
        RecordedBox({"systemctl show": f"{10**18}\n"}),
    )

    assert units.needs_reload(long_ago, None)
    assert not units.needs_reload(just_now, None)


def test_services_are_facts():
    box = RecordedBox({
        "systemctl list-units": "ssh.service loaded active running OpenSSH\n"
                                "x.service not-found inactive dead x\ndown.service loaded failed failed d\n",
        "systemctl list-unit-files": "ssh.service enabled enabled\nlater.service disabled enabled\n",
    })  # fmt: skip
    found = service_facts.probe({}, box)

    assert {name: (entry["state"], entry["status"]) for name, entry in found.items()} == {
        "ssh.service": ("running", "enabled"), "x.service": ("stopped", "not-found"),
        "down.service": ("failed", "failed"), "later.service": ("inactive", "disabled"),
    }  # fmt: skip


# --- accounts ---

ME = pwd.getpwuid(os.geteuid()).pw_name


def user_state(**more):
    known = {"name": "rig", "uid": 1000, "gid": 1000, "group": "rig", "comment": "", "home": "/home/rig",
             "shell": "/bin/sh", "home_exists": True, "groups": ["docker", "video"], "hash": "$6$a$b",
             "expires_days": None}  # fmt: skip
    return {
        "user": known | more,
        "unknown_groups": [],
        "group_of_that_name": True,
        "check": False,
        "public_key": None,
        "at_work": False,
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, []),
        ({"groups": ["video", "docker"]}, []),
        ({"groups": ["video"], "append": True}, []),
        ({"groups": ["video"]}, ["groups of rig: docker,video -> video"]),
        ({"groups": ["render"], "append": True}, ["groups of rig: docker,video -> docker,render,video"]),
        ({"groups": [""]}, ["groups of rig: docker,video -> none"]),
        ({"groups": ["rig"], "append": True}, []),
        (
            {"shell": "/bin/bash", "uid": 1001},
            ["uid of rig: 1000 -> 1001", "shell of rig: /bin/sh -> /bin/bash"],
        ),
        ({"password": "$6$a$b"}, []),
        ({"password": "$6$c$d"}, ["password of rig"]),
        ({"password": "$6$c$d", "update_password": "on_create"}, []),
        ({"password_lock": True}, ["lock the password of rig"]),
        ({"password_lock": False}, []),
        ({"expires": 86400.0}, ["expiry of rig: None -> 1"]),
        ({"expires": -1.0}, []),
        ({"state": "absent", "remove": True}, ["remove the user rig with its home"]),
    ],
)
def test_what_differs_of_a_user(given, expected):
    assert whats(user.difference(filled(user.MODULE, name="rig", **given), user_state())) == expected


@pytest.mark.parametrize(
    "given",
    [{"state": "absent", "force": True, "remove": True}, {"groups": ["docker"]}],
    ids=["removed", "without-sudo"],
)
def test_who_works_here_is_neither_removed_nor_taken_out_of_sudo(given):
    state = user_state(groups=["docker", "sudo"]) | {"at_work": True}
    with pytest.raises(ModuleError, match="works on the box now"):
        user.difference(filled(user.MODULE, name="rig", **given), state)

    added = filled(user.MODULE, name="rig", groups=["video"], append=True)
    assert whats(user.difference(added, state)) == ["groups of rig: docker,sudo -> docker,sudo,video"]


def test_the_group_of_who_becomes_root_is_never_removed():
    with pytest.raises(ModuleError, match="users become root"):
        group.difference(filled(group.MODULE, name="sudo", state="absent"), {"gid": 27})


def test_root_is_never_removed():
    state = user.probe(filled(user.MODULE, name="root", state="absent"), RecordedBox({}))

    assert state["at_work"]


def test_a_password_goes_in_by_stdin_alone():
    arguments = filled(user.MODULE, name="rig", password="$6$c$d")
    box = RecordedBox({"chpasswd": ""})
    user.apply(arguments, user_state(), user.difference(arguments, user_state()), box)

    assert box.ran == ["chpasswd -e"]
    assert box.stdin == [b"rig:$6$c$d\n"]


def test_a_new_user_without_a_password_is_locked_as_it_is():
    arguments = filled(user.MODULE, name="rig", password_lock=True, create_home=False)
    box = RecordedBox({"useradd": ""})
    nobody = user_state() | {"user": None}
    user.apply(arguments, nobody, user.difference(arguments, nobody), box)

    assert box.ran == ["useradd -M -N -- rig"]


def test_a_password_that_is_no_hash_is_refused():
    assert "no hash" in str(user.check_arguments({"password": "hunter2"}))
    assert user.check_arguments({"password": "!"}) is None


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample me@laptop"


@pytest.mark.parametrize(
    ("before", "given", "after"),
    [
        ("", {}, f"{KEY}\n"),
        (f"# mine\n{KEY}\n", {}, None),
        (f"no-pty {KEY}\nssh-rsa BBBB other\n", {}, f"ssh-rsa BBBB other\n{KEY}\n"),
        (f'command="a b",no-pty {KEY}\n', {"key_options": 'command="a b",no-pty'}, None),
        ("ssh-rsa BBBB other\n", {"exclusive": True}, f"{KEY}\n"),
        (f"{KEY}\nssh-rsa BBBB other\n", {"state": "absent"}, "ssh-rsa BBBB other\n"),
    ],
)
def test_keys_that_may_log_in(tmp_path, before, given, after):
    (tmp_path / "keys").write_text(before)
    changes = changes_of(
        authorized_key, RecordedBox(), user=ME, key=KEY, path=str(tmp_path / "keys"), **given
    )

    assert [change.after for change in changes] == ([] if after is None else [after])


def test_getent_splits_and_names_what_is_missing():
    box = RecordedBox(
        {"getent passwd root": "root:x:0:0:root:/root:/bin/bash\n", "getent passwd none": (2, "")}
    )
    arguments = filled(getent.MODULE, database="passwd", key="root")
    assert getent.probe(arguments, box) == {"root": ["x", "0", "0", "root", "/root", "/bin/bash"]}
    with pytest.raises(ModuleError, match="no 'none' in passwd"):
        getent.probe(arguments | {"key": "none"}, box)
    assert getent.probe(arguments | {"key": "none", "fail_key": False}, box) == {"none": None}


# --- tailnet ---


def tailnet(state, prefs="{}", **own):
    import json  # noqa: PLC0415  (here alone)

    status = json.dumps({"BackendState": state, "Self": own})
    return RecordedBox({"tailscale status": status, "tailscale debug prefs": prefs, "tailscale": ""})


def test_a_box_logs_in_only_when_it_must_and_no_argument_holds_the_key(tmp_path):
    key = tmp_path / "key"
    key.write_text("tskey-auth-secret")
    key.chmod(0o600)
    arguments = filled(tailscale.MODULE, auth_key_file=str(key), ssh=True, advertise_tags=["tag:rig"])
    box = tailnet("NeedsLogin")
    changes = tailscale.difference(arguments, tailscale.probe(arguments, box))
    tailscale.apply(arguments, {}, changes, box)

    assert (
        box.ran[-1] == f"tailscale up --auth-key=file:{key} --timeout=60s --advertise-tags=tag:rig --ssh=true"
    )
    assert "secret" not in "".join(box.ran)


def test_a_running_box_is_only_set(tmp_path):
    box = tailnet("Running", '{"RunSSH": false, "Hostname": "rig", "AdvertiseRoutes": null}')
    arguments = filled(tailscale.MODULE, ssh=True, hostname="rig", advertise_routes=[])
    changes = tailscale.difference(arguments, tailscale.probe(arguments, box))
    tailscale.apply(arguments, {}, changes, box)

    assert box.ran[-1] == "tailscale set --ssh=true"


@pytest.mark.parametrize(
    ("state", "given", "text"),
    [
        ("NeedsMachineAuth", {}, "admin has to approve"),
        ("NeedsLogin", {}, "give `auth_key_file`"),
    ],
)
def test_what_a_person_has_to_do_for_the_tailnet(state, given, text):
    arguments = filled(tailscale.MODULE, **given)
    box = tailnet(state)
    with pytest.raises(ModuleError, match=text):
        tailscale.apply(arguments, {}, tailscale.difference(arguments, tailscale.probe(arguments, box)), box)


def test_a_key_that_others_can_read_is_refused(tmp_path):
    (tmp_path / "key").touch(mode=0o644)
    arguments = filled(tailscale.MODULE, auth_key_file=str(tmp_path / "key"))
    with pytest.raises(ModuleError, match="chmod 600"):
        tailscale.apply(
            arguments, {}, tailscale.difference(arguments, {"state": "NeedsLogin"}), RecordedBox()
        )


def test_other_tags_are_told_since_they_take_a_login():
    arguments = filled(tailscale.MODULE, advertise_tags=["tag:rig"])
    state = tailscale.probe(arguments, tailnet("Running", Tags=["tag:old"]))

    assert "--force-reauth" in tailscale.result(arguments, state)["warnings"][0]


# --- tables ---


@pytest.mark.parametrize(
    ("before", "given", "after"),
    [
        ([], {}, ["#Ansible: a", "5 * * * * /x"]),
        (["#Ansible: a", "5 * * * * /x"], {}, None),
        (["#Ansible: a", "1 * * * * /x", "#Ansible: b", "2 * * * * /y"], {},
         ["#Ansible: a", "5 * * * * /x", "#Ansible: b", "2 * * * * /y"]),
        (["5 * * * * /x"], {}, ["#Ansible: a", "5 * * * * /x"]),
        (["#Ansible: a", "5 * * * * /x"], {"disabled": True}, ["#Ansible: a", "#5 * * * * /x"]),
        (["#Ansible: a", "5 * * * * /x", "kept"], {"state": "absent"}, ["kept"]),
        ([], {"minute": "*", "special_time": "reboot"}, ["#Ansible: a", "@reboot /x"]),
    ],
)  # fmt: skip
def test_jobs_are_found_by_name(before, given, after):
    arguments = filled(cron.MODULE, name="a", job="/x", minute=given.pop("minute", "5"), **given)
    changes = cron.difference(arguments, {"lines": before, "exists": True})

    assert [change.after.splitlines() for change in changes] == ([] if after is None else [after])


def test_an_entry_of_fstab_replaces_the_one_for_its_path():
    text = "# disks\nUUID=a /data ext4 defaults 0 2\n/dev/sdb1 /mnt/my\\040disk xfs noatime 0 0\n"
    entry = dict(zip(fstab.FIELDS, ("UUID=b", "/data", "xfs", "nofail", "0", "0"), strict=True))

    assert [found["path"] for found in fstab.entries(text)] == ["/data", "/mnt/my disk"]
    assert fstab.with_entry(text, entry).splitlines()[1] == "UUID=b /data xfs nofail 0 0"
    assert "my" not in fstab.without_entry(text, "/mnt/my disk")


@pytest.mark.parametrize(
    ("opts", "warned"), [("defaults", True), ("defaults,nofail", False), ("noauto", False)]
)
def test_a_disk_that_may_be_missing_at_boot_is_told(opts, warned):
    arguments = filled(mount.MODULE, path="/data", src="UUID=a", fstype="ext4", opts=opts, state="present")

    assert ("warnings" in mount.result(arguments, {})) is warned


@pytest.mark.parametrize("path", ["/", "/usr/", "//etc", "/usr/../etc", "/lib", "/bin"])
def test_nothing_is_mounted_over_the_system_s_own_places(path):
    state = {"text": "", "mounted": None, "exists": True, "missing_device": ""}
    arguments = filled(mount.MODULE, path=path, src="tmpfs", fstype="tmpfs", state="mounted")
    with pytest.raises(ModuleError, match="never mounts anything over it"):
        mount.difference(arguments, state)


@pytest.mark.parametrize("path", ["/", "/etc", "/usr/", "/var", "/usr/../etc"])
def test_the_system_s_own_places_are_never_unmounted(path):
    state = {"text": "", "mounted": {"path": path}, "exists": True, "missing_device": ""}
    with pytest.raises(ModuleError, match="belongs to the system"):
        mount.difference(filled(mount.MODULE, path=path, state="unmounted"), state)


@pytest.mark.parametrize(
    ("text", "now", "given", "expected"),
    [
        ("vm.swappiness=10\n", "10", {}, []),
        ("vm.swappiness = 10\n", "60", {}, ["vm.swappiness: 60 -> 10"]),
        ("vm.swappiness=60\n# kept\n", "10", {}, ["vm.swappiness = 10 in /f"]),
        (None, None, {}, ["vm.swappiness = 10 in /f"]),
        ("vm.swappiness=10\n", "60", {"reload": False}, []),
        ("vm.swappiness=10\nx=1\n", "60", {"state": "absent"}, ["no vm.swappiness in /f"]),
    ],
)
def test_kernel_settings(text, now, given, expected):
    arguments = filled(sysctl.MODULE, name="vm.swappiness", value="10", sysctl_file="/f", **given)

    assert whats(sysctl.difference(arguments, {"text": text, "now": now, "later": []})) == expected


def test_settings_of_several_numbers_and_names_with_slashes():
    assert sysctl.plain("4096\t87380\t 6291456\n") == "4096 87380 6291456"
    assert str(sysctl.proc_path("net.ipv4.conf.eth0/1.forwarding")).endswith(
        "/net/ipv4/conf/eth0.1/forwarding"
    )


@pytest.mark.parametrize(
    ("loaded", "given", "expected"),
    [
        (True, {}, []),
        (False, {"params": "NVreg_X=1"}, ["load the kernel module nvidia"]),
        (True, {"state": "absent"}, ["remove the kernel module nvidia"]),
        (True, {"persistent": "present", "params": "a=1"},
         ["write /etc/modules-load.d/nvidia.conf", "write /etc/modprobe.d/nvidia.conf"]),
    ],
)  # fmt: skip
def test_kernel_modules(loaded, given, expected):
    state = {"loaded": loaded, "texts": {"load": None, "options": None}}

    assert whats(modprobe.difference(filled(modprobe.MODULE, name="nvidia", **given), state)) == expected


def test_waiting_ends_as_soon_as_it_is_so_and_at_the_deadline(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert changes_of(wait_for, RecordedBox(), port=port) == []
        assert whats(changes_of(wait_for, RecordedBox(), port=port, state="stopped")) == [
            f"wait for port {port} of 127.0.0.1 to be stopped"
        ]
    arguments = filled(wait_for.MODULE, path=str(tmp_path / "never"), timeout=0, sleep=0)
    with pytest.raises(ModuleError, match="in vain"):
        wait_for.apply(arguments, {}, [], RecordedBox())
