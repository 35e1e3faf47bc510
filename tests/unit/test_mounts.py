"""Mounts that are meant and missing."""

from pathlib import Path

import pytest

from rigd.adapters.mounts import awaited


@pytest.fixture
def fstab(tmp_path):
    path = tmp_path / "fstab"
    path.write_text(
        f"# a comment\nUUID=1 / ext4 defaults 0 1\nUUID=2 {tmp_path}/disk\\040one ext4 nofail 0 2\nshort\n"
    )
    return path


def test_path_below_a_mount_that_is_meant_and_not_there_is_awaited(fstab, tmp_path):
    assert awaited(tmp_path / "disk one/models/x", fstab=fstab, unit_folders=()) == tmp_path / "disk one"


def test_path_that_no_mount_explains_is_not(fstab, tmp_path):
    assert awaited(tmp_path / "typo/models", fstab=fstab, unit_folders=()) is None
    assert awaited(Path("/no/such/model"), fstab=fstab, unit_folders=()) is None


def test_units_of_systemd_count_as_well(tmp_path):
    units = tmp_path / "units"
    units.mkdir()
    (units / "x.mount").write_text(f"[Mount]\nWhat=nas:/m\nWhere={tmp_path}/nas\n")

    found = awaited(tmp_path / "nas/model", fstab=tmp_path / "none", unit_folders=(units, tmp_path / "none"))

    assert found == tmp_path / "nas"
