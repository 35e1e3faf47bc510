"""The firewall's module: what ufw's own rules say of the session at work, and the guard over what may cut it."""

from pathlib import Path

import pytest
from provision_recorded import RecordedBox, filled

from rigd.provision.target import ssh_session, ufw_files, ufw_guard
from rigd.provision.target.contract import ModuleError
from rigd.provision.target.modules import ufw
from rigd.provision.target.ssh_session import Session
from rigd.provision.target.ufw_rules import Verdict, rules_in, verdict

ACTIVE = "Status: active\nLogging: on (low)\nDefault: deny (incoming), allow (outgoing), disabled (routed)\n"
INACTIVE = "Status: inactive\n"
LAN = "allow tcp 22 0.0.0.0/0 any 192.168.0.0/16 in"
AT_HOME, AWAY = "192.168.1.9", "100.64.0.7"


def table(*rules, version=4):
    chain = ":ufw-user-input" if version == 4 else ":ufw6-user-input"
    lines = [f"### tuple ### {rule}\n-A what iptables is told\n" for rule in rules]
    return f"*filter\n{chain} - [0:0]\n### RULES ###\n{''.join(lines)}COMMIT\n"


@pytest.fixture
def firewall(tmp_path, monkeypatch):
    """Give a box whose ufw has the rule that lets the network at home in; `dry` is what it foretells."""
    monkeypatch.setattr(ufw_files, "USER_RULES", (str(tmp_path / "user.rules"),))
    monkeypatch.setattr(ufw_files, "DEFAULTS", str(tmp_path / "ufw"))
    monkeypatch.setattr(ufw_files, "CONFIGURATION", str(tmp_path / "ufw.conf"))
    monkeypatch.setattr(ufw_guard, "FOLDER", str(tmp_path / "guard"))
    monkeypatch.setattr(ufw_guard, "TIMER_FILE", str(tmp_path / "timer"))
    monkeypatch.setattr(ufw_guard, "SETTLE_S", 0)
    (tmp_path / "ufw").write_text('DEFAULT_INPUT_POLICY="DROP"\nDEFAULT_OUTPUT_POLICY="ACCEPT"\n')

    def box(peer="", *, status=INACTIVE, dry="", rules=(LAN,), policy="DROP"):
        (tmp_path / "user.rules").write_text(table(*rules))
        (tmp_path / "ufw").write_text(f'DEFAULT_INPUT_POLICY="{policy}"\nDEFAULT_OUTPUT_POLICY="ACCEPT"\n')
        made = TimedBox(tmp_path / "timer", {
            "ufw status": status, "ufw --dry-run": dry, "ufw": "", "systemctl": "", "systemd-run": "", "rm": "",
            "ss -Htin": "", "sh ": "", "cp": "", "iptables-save": "*filter", "ip6tables-save": "",
            "ip -o route": f"{peer} dev eth0 src 192.168.1.2 uid 0 \n",
        })  # fmt: skip
        made.variables = {"SSH_CONNECTION": f"{peer} 50000 192.168.1.2 22" if peer else "none"}
        return made

    return box


class TimedBox(RecordedBox):
    """A box that has a timer after systemd-run, and none after it was stopped."""

    def __init__(self, timer: Path, record):
        super().__init__(record)
        self.timer = timer

    def run(self, argv, **more):
        if argv[0] == "systemd-run":
            self.timer.touch()
        if argv[:2] == ["systemctl", "stop"]:
            self.timer.unlink(missing_ok=True)
        return super().run(argv, **more)


def foretold(box, **given):
    arguments = filled(ufw.MODULE, **given)
    return [change.what for change in ufw.difference(arguments, ufw.probe(arguments, box))]


def applied(box, **given):
    """Apply; give the programs that ran after the probe, guard's copies aside."""
    arguments = filled(ufw.MODULE, **given)
    state = ufw.probe(arguments, box)
    changes = ufw.difference(arguments, state)
    box.ran.clear()
    try:
        ufw.apply(arguments, state, changes, box)
    finally:
        box.ran = [line for line in box.ran if not line.startswith(("cp ", "ip"))]
    return [" ".join(line.split()[:2]) for line in box.ran]


# --- what the rules say ---


def session(address=AT_HOME, own="192.168.1.2", port=22, interface="eth0"):
    return Session(address=address, own_address=own, port=port, interface=interface)


@pytest.mark.parametrize(
    ("rules", "lets_in"),
    [
        pytest.param(["allow tcp 22 0.0.0.0/0 any 0.0.0.0/0 in"], True, id="port"),
        pytest.param(["allow any 22 0.0.0.0/0 any 0.0.0.0/0 in"], True, id="any-protocol"),
        pytest.param(["allow udp 22 0.0.0.0/0 any 0.0.0.0/0 in"], False, id="other-protocol"),
        pytest.param(["allow tcp 80,20:30 0.0.0.0/0 any 0.0.0.0/0 in"], True, id="in-a-range"),
        pytest.param(["allow tcp 2222 0.0.0.0/0 any 0.0.0.0/0 in"], False, id="other-port"),
        pytest.param(["limit_log tcp 22 0.0.0.0/0 any 0.0.0.0/0 in"], True, id="limited-and-logged"),
        pytest.param(["allow any any 0.0.0.0/0 any 192.168.0.0/16 in"], True, id="from-its-network"),
        pytest.param(["allow any any 0.0.0.0/0 any 10.0.0.0/8 in"], False, id="from-another-network"),
        pytest.param(["allow tcp 22 192.168.1.2 any 0.0.0.0/0 in"], True, id="to-this-address"),
        pytest.param(["allow tcp 22 192.168.1.3 any 0.0.0.0/0 in"], False, id="to-another-address"),
        pytest.param(["allow tcp 22 0.0.0.0/0 50000 0.0.0.0/0 in"], False, id="from-one-port-alone"),
        pytest.param(["allow any any 0.0.0.0/0 any 0.0.0.0/0 in_eth0"], True, id="on-its-interface"),
        pytest.param(["allow any any 0.0.0.0/0 any 0.0.0.0/0 in_eth+"], True, id="on-interfaces-like-it"),
        pytest.param(["allow any any 0.0.0.0/0 any 0.0.0.0/0 in_tailscale0"], False, id="on-another-interface"),
        pytest.param(["allow any any 0.0.0.0/0 any 0.0.0.0/0 out"], False, id="on-the-way-out"),
        pytest.param(["route:allow any any 0.0.0.0/0 any 0.0.0.0/0 in_eth0!out_b"], False, id="on-the-way-through"),
        pytest.param(["allow tcp 22 0.0.0.0/0 any 0.0.0.0/0 OpenSSH - in comment=6c61"], True, id="application"),
        pytest.param(["deny any any 0.0.0.0/0 any 192.168.1.9 in", LAN], False, id="the-first-decides"),
        pytest.param([LAN, "deny any any 0.0.0.0/0 any 192.168.1.9 in"], True, id="what-comes-later-does-not"),
    ],
)  # fmt: skip
def test_the_first_rule_that_fits_decides(rules, lets_in):
    assert verdict({4: rules}, "deny", session()).lets_in is lets_in


def test_where_no_rule_fits_the_policy_decides_and_the_box_itself_is_always_let_in():
    assert verdict({}, "allow", session()) == Verdict(lets_in=True)
    assert verdict({}, "reject", session()) == Verdict(lets_in=False)
    assert verdict({}, "deny", session("127.0.0.1", interface="lo")) == Verdict(lets_in=True)


def test_each_version_of_the_protocol_has_its_own_rules():
    rules = rules_in(table(LAN) + table("allow tcp 2222 ::/0 any ::/0 in", version=6))
    other = session("fe80::1", "fe80::2", 2222)

    assert set(rules) == {4, 6}
    assert verdict(rules, "deny", other).rule == "allow in from any to any port 2222 proto tcp"
    assert not verdict({4: rules[4]}, "deny", other).lets_in


def test_the_session_is_the_login_s():
    given = {"SSH_CONNECTION": "fe80::1%eth0 5000 fe80::2%eth0 2222"}

    assert ssh_session.present(given) == Session(address="fe80::1", own_address="fe80::2", port=2222)
    assert ssh_session.present({"SSH_CONNECTION": "none"}) is None


# --- what is refused, and what is kept ---


@pytest.mark.parametrize(
    ("peer", "first"),
    [
        ("", "ufw enable"),
        (AT_HOME, "ufw enable"),
        (AWAY, f"ufw allow ssh from {AWAY}, who is working here now"),
    ],
)
def test_the_firewall_is_not_switched_on_against_who_does_it(firewall, peer, first):
    assert foretold(firewall(peer), state="enabled")[0] == first


def test_a_policy_that_gets_stricter_keeps_the_session(firewall):
    box = firewall(AWAY, status=ACTIVE, policy="ACCEPT")

    assert foretold(box, default="deny", direction="incoming") == [
        f"ufw allow ssh from {AWAY}, who is working here now",
        "ufw default deny incoming",
    ]


@pytest.mark.parametrize(
    ("given", "after", "why"),
    [
        pytest.param({"rule": "deny", "to_port": "22", "proto": "tcp"},
                     ["deny tcp 22 0.0.0.0/0 any 0.0.0.0/0 in", LAN],
                     "by `deny in from any to any port 22 proto tcp`", id="a-rule-ahead"),
        pytest.param({"rule": "reject", "interface_in": "eth0"},
                     ["reject any any 0.0.0.0/0 any 0.0.0.0/0 in_eth0"],
                     "by `reject in on eth0 from any to any`", id="the-interface"),
        pytest.param({"rule": "allow", "delete": True, "to_port": "22"}, [],
                     "for `allow in from 192.168.0.0/16 to any port 22 proto tcp` alone lets it in", id="the-loss"),
    ],
)  # fmt: skip
def test_a_wish_that_would_cut_the_session_is_refused_with_the_way_out(firewall, given, after, why):
    with pytest.raises(ModuleError, match="would cut the ssh session") as refused:
        foretold(firewall(AT_HOME, status=ACTIVE, dry=table(*after)), **given)

    assert why in str(refused.value)
    assert f"ufw insert 1 allow from {AT_HOME} to any port 22 proto tcp" in str(refused.value)


def test_the_same_wish_is_fine_for_a_session_that_it_does_not_touch_and_where_nothing_filters(firewall):
    wish = {"rule": "deny", "from_ip": "192.168.0.0/16"}
    after = table("deny any any 0.0.0.0/0 any 192.168.0.0/16 in", "allow tcp 22 0.0.0.0/0 any 0.0.0.0/0 in")

    assert len(foretold(firewall(AWAY, status=ACTIVE, dry=after), **wish)) == 1
    assert len(foretold(firewall(AT_HOME, dry=after), **wish)) == 1
    with pytest.raises(ModuleError, match="would cut"):
        foretold(firewall(AT_HOME, dry=after), **wish, state="enabled")


def test_a_session_that_came_in_by_what_ufw_does_not_show_is_left_to_the_trial(firewall):
    """Tailscale's own chain comes before ufw's."""
    box = firewall(AWAY, status=ACTIVE, dry=table(LAN, "deny tcp 80 0.0.0.0/0 any 0.0.0.0/0 in"))

    assert foretold(box, rule="deny", to_port="80", proto="tcp") == [
        "ufw deny from any to any port 80 proto tcp"
    ]


# --- the guard ---

GUARDED = ["systemctl reset-failed", "systemd-run --quiet", "ufw allow", "ufw --force", "systemctl stop",
           "rm -rf"]  # fmt: skip


def test_a_timer_stands_by_while_the_firewall_changes_and_goes_when_ssh_comes_in(firewall):
    assert applied(firewall(AWAY), state="enabled") == GUARDED


def test_the_timer_is_to_the_second(firewall):
    box = firewall(AWAY)
    applied(box, state="enabled")

    [line] = [line for line in box.ran if line.startswith("systemd-run")]
    assert "--on-active=120 --timer-property=AccuracySec=1s" in line


def test_more_that_is_allowed_needs_no_guard(firewall):
    box = firewall(AT_HOME, status=ACTIVE, dry=table(LAN, "allow tcp 80 0.0.0.0/0 any 0.0.0.0/0 in"))

    assert applied(box, rule="allow", to_port="80", proto="tcp") == ["ufw allow"]


def test_a_change_after_which_nobody_comes_in_is_put_back_and_told(firewall, tmp_path):
    box = firewall(AWAY)
    box.open_to_others = False
    with pytest.raises(ModuleError, match=f"no new ssh session from {AWAY} in, so it was put back as it was"):
        applied(box, state="enabled")

    put_back = box.ran.index(f"sh {tmp_path}/guard/put-back")
    assert put_back < box.ran.index("systemctl stop rigd-ufw-rollback.timer")
    script = (tmp_path / "guard/put-back").read_text()
    assert script.index("user.rules") < script.index("ufw --force disable") < script.index("ufw.conf")


def test_a_command_that_fails_half_way_is_put_back_at_once(firewall, tmp_path):
    box = firewall(AWAY)
    box.record["ufw --force enable"] = (1, "", "iptables is broken")
    with pytest.raises(ModuleError, match="iptables is broken"):
        applied(box, state="enabled")

    assert f"sh {tmp_path}/guard/put-back" in box.ran


def test_a_firewall_that_was_on_is_on_again_as_it_was(firewall, tmp_path):
    box = firewall(AT_HOME, status=ACTIVE, dry=table(LAN, "deny tcp 80 0.0.0.0/0 any 0.0.0.0/0 in"))
    applied(box, rule="deny", to_port="80", proto="tcp")

    script = (tmp_path / "guard/put-back").read_text()
    assert (
        script.index("ufw.conf") < script.index("iptables-restore") < script.index("|| ufw --force disable")
    )
    assert (tmp_path / "guard/iptables").read_text() == "*filter"


def test_without_a_timer_nothing_is_changed(firewall):
    box = firewall(AWAY)
    del box.record["systemd-run"]
    with pytest.raises(ModuleError, match="no command 'systemd-run'"):
        applied(box, state="enabled")

    assert not any(line.startswith("ufw") for line in box.ran)


def test_a_timer_that_was_quicker_is_told(firewall, monkeypatch):
    box = firewall(AWAY)
    monkeypatch.setattr(box, "reached", lambda: not box.timer.unlink())
    with pytest.raises(ModuleError, match="took longer than 120 s"):
        applied(box, state="enabled")


@pytest.mark.parametrize("carries", [True, False])
def test_on_the_box_itself_its_session_is_all_that_can_be_looked_at(firewall, monkeypatch, carries):
    monkeypatch.setattr(ssh_session, "carries", lambda _box, _session: carries)
    monkeypatch.setattr(ufw_guard, "ROLLBACK_S", 0)
    box = firewall(AWAY)
    box.open_to_others = None
    if carries:
        assert applied(box, state="enabled") == GUARDED
        return
    with pytest.raises(ModuleError, match="put back as it was"):
        applied(box, state="enabled")


def test_a_run_that_broke_off_under_the_timer_is_confirmed_by_the_next(firewall):
    box = firewall(AT_HOME, status=ACTIVE)
    box.timer.touch()

    assert applied(box, state="enabled") == ["systemctl stop", "rm -rf"]
    assert not box.timer.exists()


def test_what_the_timer_put_back_is_a_warning_of_the_next_run(firewall, tmp_path):
    (tmp_path / "guard").mkdir()
    (tmp_path / "guard/undone").write_text("2026-01-01 10:00:00: a change was put back\n")
    arguments = filled(ufw.MODULE, state="enabled")

    told = ufw.result(arguments, ufw.probe(arguments, firewall(AT_HOME)))
    assert told["warnings"] == ["2026-01-01 10:00:00: a change was put back"]


# --- rules and policies ---


@pytest.mark.parametrize(
    ("dry", "given", "expected"),
    [
        pytest.param("Skipping adding existing rule\nSkipping adding existing rule (v6)\n", {}, [], id="there"),
        pytest.param(table(LAN, "allow tcp 22 0.0.0.0/0 any 0.0.0.0/0 in") + "Rules updated\n", {},
                     ["ufw allow from any to any port 22 proto tcp"], id="not-there"),
        pytest.param("Skipping adding existing rule\n" + table("allow tcp 22 ::/0 any ::/0 in", version=6), {},
                     ["ufw allow from any to any port 22 proto tcp"], id="there-for-one-version"),
        pytest.param(table(LAN) + "Rules updated\n", {"delete": True}, [], id="gone"),
        pytest.param(table() + "Rules updated\n", {"delete": True},
                     ["ufw delete allow from any to any port 22 proto tcp"], id="not-gone"),
        pytest.param(table(LAN + " comment=6c616e"), {"comment": "lan"},
                     ["ufw allow from any to any port 22 proto tcp comment lan"], id="without-its-comment"),
    ],
)  # fmt: skip
def test_ufw_itself_says_what_the_rules_would_be(firewall, dry, given, expected):
    assert (
        foretold(firewall(status=ACTIVE, dry=dry), rule="allow", to_port="22", proto="tcp", **given)
        == expected
    )


def test_policies_are_compared(firewall):
    assert foretold(firewall(status=ACTIVE), default="deny", direction="incoming") == []
    assert foretold(firewall(status=ACTIVE), default="reject", direction="incoming") == [
        "ufw default reject incoming"
    ]


def test_the_words_of_a_rule():
    arguments = filled(ufw.MODULE, rule="deny", direction="in", interface="eth0", from_ip="10.0.0.0/8", to_port="80",
                       proto="tcp", insert=1, comment="no web", log=True)  # fmt: skip

    assert " ".join(ufw.rule_words(arguments)) == (
        "insert 1 deny in on eth0 log from 10.0.0.0/8 to any port 80 proto tcp comment no web"
    )
