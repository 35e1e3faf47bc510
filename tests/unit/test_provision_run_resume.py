"""A run that reboots its own machine: the marker, the boots it may take, the unit."""

import os
import stat

import pytest
from provisioning import Bench

from rigd.errors import RigdError, UsageError
from rigd.provision.run import resume


@pytest.fixture
def boot(monkeypatch):
    """Set what the kernel calls this boot."""

    def boot(name: str) -> None:
        monkeypatch.setattr(resume, "boot_id", lambda: name)

    boot("one")
    return boot


def test_marker_comes_back_after_the_boot(tmp_path, boot):
    written = resume.write(tmp_path, ["provision", "apply", "site.yml"])
    boot("two")

    found = resume.next_boot(tmp_path)

    assert found is not None
    assert found.arguments == written.arguments
    assert found.boots == 1
    assert stat.S_IMODE((tmp_path / "resume.json").stat().st_mode) == 0o600


def test_same_boot_counts_once(tmp_path, boot):
    resume.write(tmp_path, ["provision"])
    boot("two")
    resume.next_boot(tmp_path)

    found = resume.next_boot(tmp_path)

    assert found is not None
    assert found.boots == 1


def test_fourth_boot_gives_up(tmp_path, boot):
    boots = 0
    for name in ("two", "three", "four"):
        resume.write(tmp_path, ["provision"], boots=boots)
        boot(name)
        found = resume.next_boot(tmp_path)
        assert found is not None
        boots = found.boots
    resume.write(tmp_path, ["provision"], boots=boots)
    boot("five")

    with pytest.raises(RigdError, match="3 times"):
        resume.next_boot(tmp_path)
    assert resume.next_boot(tmp_path) is None


def test_nothing_to_go_on_with(tmp_path):
    assert resume.next_boot(tmp_path) is None


def test_marker_that_cannot_be_read_is_told(tmp_path):
    (tmp_path / "resume.json").write_text("{")

    with pytest.raises(UsageError, match="cannot read"):
        resume.next_boot(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root refuses what others may have written")
def test_root_goes_on_with_nothing_that_others_may_have_written(tmp_path):
    resume.write(tmp_path, ["provision", "apply", "x.yml"])
    tmp_path.chmod(0o777)

    with pytest.raises(UsageError, match="others may write there"):
        resume.next_boot(tmp_path)


def test_unit_names_this_program_and_state_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/usr/local/bin/rigd", "provision"])

    text = resume.unit_text(tmp_path)

    assert "ExecStart=/usr/local/bin/rigd provision resume\n" in text
    assert f"ConditionPathExists={tmp_path}/resume.json\n" in text


REBOOT = """
- {name: driver, copy: {content: x, dest: "{{ here }}/driver"}, register: driver, notify: restart}
- {name: reboot, reboot: {}, when: driver is changed}
- {name: after, copy: {content: x, dest: "{{ here }}/after"}}
"""
HANDLERS = '- {name: restart, shell: "echo x >> {{ here }}/restarted"}\n'


def test_run_on_this_machine_ends_before_its_reboot_and_goes_on_after_it(tmp_path):
    bench = Bench(tmp_path)
    bench.box.local = True
    first = bench.play(REBOOT, handlers=HANDLERS)
    assert first.code == 3
    assert not (tmp_path / "after").exists()
    assert bench.box.reboots == 0  # The command line asks once all is written down.
    assert first.reboot is not None
    first.reboot()
    assert bench.box.reboots == 1
    bench.box.power_cycle()

    second = bench.run()

    assert second.code == 0
    assert (tmp_path / "after").exists()
    assert (tmp_path / "restarted").read_text() == "x\n"


def test_check_only_says_that_it_would_reboot(tmp_path):
    bench = Bench(tmp_path)

    found = bench.play("- {name: reboot, reboot: {}}\n", check=True)

    assert found.code == 3
    assert bench.box.reboots == 0
