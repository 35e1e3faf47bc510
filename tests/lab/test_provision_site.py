"""`site.yml` from a bare box to a serving rigd, on both Debian releases; Ansible does the same beside it."""

import concurrent.futures
import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from box import BoxError, free_port
from desks import Ran
from peers import ansible
from provisioned import FOREIGN, PLAYBOOKS, RIG, Fresh, fresh

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

READY_S = 60
OF_ANSIBLES_OWN = ("python3-apt", "python-apt-common", "python3-debian", "python3-chardet", "python3-pkg-resources",
                   "distro-info-data", "iso-codes", "lsb-release")  # fmt: skip
"""Packages that Ansible's modules for apt bring along."""
OF_EACH_BOX = ("etc/docker/key.json", "etc/machine-id", "etc/.pwd.lock")


@dataclass(frozen=True, kw_only=True)
class Site:
    """A box that `site.yml` was applied to, and how that went."""

    desk: Fresh
    first: Ran
    second: Ran
    left: Ran


@pytest.fixture(
    scope="module", params=[("box", "op"), ("trixie", "root")], ids=["debian-12-sudo", "debian-13-root"]
)
def site(request, need_parts, tmp_path_factory, own_wheel_kept) -> Iterator[Site]:
    """Apply the whole site twice to a bare box, and then only look."""
    part, user = request.param
    need_parts(part, "box", "wheels")
    rig = tmp_path_factory.mktemp("rig") / "rig.yaml"
    rig.write_text(RIG.format(port=free_port()))
    with fresh(part, user=user, rigd_rig_file=str(rig), rigd_source=str(own_wheel_kept)) as desk:
        desk.box.run("mkdir -p /srv/models/double")
        yield Site(desk=desk, first=desk.do("site"), second=desk.do("site"), left=desk.foretell("site"))


def told(ran: Ran) -> str:
    """Return what went wrong, for an assertion."""
    return "\n".join(
        [
            ran.err[-2000:],
            *(
                json.dumps(event)[:1500]
                for event in ran.events
                if event.get("outcome") in ("failed", "unreachable")
            ),
        ]
    )


def changed(ran: Ran) -> list[str]:
    return [name for name, event in ran.tasks.items() if event["outcome"] == "changed"]


def reasons(ran: Ran) -> list[str]:
    return [str(event["result"]["shown"]["msg"]) for event in ran.events
            if event["event"] == "result" and (event["result"].get("shown") or {}).get("msg")]  # fmt: skip


def test_it_runs_to_its_end_as_far_as_a_box_without_cards_can(site):
    assert site.first.code == 0, told(site.first)
    assert "failed" not in site.first.recap
    print(
        f"\nfirst run {site.first.took_s:.1f} s, second {site.second.took_s:.1f} s, check {site.left.took_s:.1f} s"
    )


def test_a_second_run_changes_nothing(site):
    assert site.second.code == 0, told(site.second)
    assert changed(site.second) == []


def test_after_it_nothing_is_left_to_do(site):
    assert site.left.code == 0, told(site.left)
    assert changed(site.left) == []


def test_what_such_a_box_cannot_do_is_skipped_with_its_reason(site):
    said = reasons(site.first)

    assert "skipped: a container cannot set the clock, its host does" in said
    # Headers, blacklist, driver, Secure Boot, persistence, toolkit, CDI, smoke.
    assert said.count("no NVIDIA card found on the PCI bus (lspci -d 10de:)") == 8
    for off in (
        "tailscale_enabled is false",
        "firewall_enabled is false",
        "updates_policy is leave",
        "power_watts",
    ):
        assert any(off in text for text in said)


def test_docker_runs_with_the_keys_of_both_owners(site):
    keys = json.loads(site.desk.box.run("cat /etc/docker/daemon.json"))

    assert keys.items() >= json.loads(FOREIGN).items()
    assert keys["live-restore"] is True
    assert "Live Restore Enabled: true" in site.desk.box.run("docker info 2>&1")


def test_rigd_serves(site):
    box = site.desk.box
    try:
        box.run(f"rigd wait ready --timeout {READY_S}", timeout_s=READY_S + 20)
    except BoxError as error:
        raise AssertionError(f"{error}\n{box.run('journalctl -u rigd -o cat -n 40', check=False)}") from error

    assert set(box.run("id -Gn rigd").split()) >= {"rigd", "docker", "systemd-journal", "video", "render"}
    assert box.run("stat -c '%U %G %a' /etc/rigd/rig.yaml").strip() == "root rigd 640"
    assert "enabled" in box.run("systemctl is-enabled rigd")


def test_the_box_itself_finds_that_nothing_has_drifted(site):
    """The playbooks and the wheel that came with rigd give the same answer there."""
    box = site.desk.box
    words = "-e docker_source=distribution -e preflight_free_gib=2 --skip-tags rigd"
    last = box.run(
        f"rigd provision check /opt/rigd/playbooks/site.yml --json {words} 2>/dev/null | tail -n 1"
    )
    recap = json.loads(last)

    assert (recap["exit_code"], recap["hosts"]["localhost"]["changed"]) == (0, 0), last


def test_a_playbook_of_the_site_is_its_tag(site):
    ran = site.desk.apply(PLAYBOOKS / "site.yml", *site.desk.given(), "--tags", "sysctl")

    assert ran.code == 0, told(ran)
    assert "Limits of logins" in ran.tasks
    assert "The package lists are fresh" not in ran.tasks


# --- Ansible beside it ---


def comparable(state: set[str]) -> set[str]:
    """Return what the two must agree on."""
    packages = {f"package {name}" for name in OF_ANSIBLES_OWN}
    return {
        line for line in state if not line.startswith(OF_EACH_BOX) and line.rpartition(" ")[0] not in packages
    }


def test_ansible_runs_the_same_files_to_the_same_end(need_parts, own_wheel_kept):
    need_parts("box", "peers")
    words = {"rigd_source": str(own_wheel_kept)}
    with fresh("box", **words) as ours, fresh("box", **words) as theirs:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            mine = pool.submit(ours.do, "site")
            played = ansible(
                PLAYBOOKS / "site.yml", theirs.inventory(theirs.box.port), theirs.folder, *theirs.given()
            )
            ran = mine.result()
        left = theirs.foretell("site")
        both = comparable(ours.state()), comparable(theirs.state())

    assert ran.code == 0, told(ran)
    assert played.code == 0, [result for _, result in played.tasks if result.get("failed")]
    assert sorted(both[0] ^ both[1]) == []
    assert changed(left) == [], "rigd finds something left to do where Ansible is done"
    print(f"\nrigd {ran.took_s:.1f} s, ansible-playbook {played.took_s:.1f} s")
