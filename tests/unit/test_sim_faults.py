"""Faults come from the command line and from a file that may change at any time."""

import json
import os

import pytest

from rigd.sim.faults import FAULTS, Faults, FaultsError, read
from rigd.sim.signatures import SIGNATURES, traceback_text


def write(path, text: str) -> None:
    path.write_text(text)
    stamp = path.stat().st_mtime_ns + 1_000_000_000
    os.utime(path, ns=(stamp, stamp))


def look(faults: Faults):
    faults._looked_s = float("-inf")
    return faults.now()


def test_command_line_faults_are_on_from_the_start():
    now = Faults((("die-after", "30"), ("empty", "")), None).now()

    assert now.number("die-after") == 30
    assert now.on("empty")
    assert not now.on("garbage")


def test_file_is_read_again_when_it_changes(tmp_path):
    path = tmp_path / "faults.json"
    faults = Faults((), path)
    assert not look(faults).on("freeze")

    write(path, json.dumps({"freeze": True}))
    assert look(faults).on("freeze")

    write(path, json.dumps({"freeze": False, "slow-health": 2.5}))
    assert not look(faults).on("freeze")
    assert look(faults).number("slow-health") == 2.5

    path.unlink()
    assert not look(faults).on("slow-health")


def test_half_written_file_leaves_the_faults_as_they_were(tmp_path):
    path = tmp_path / "faults.json"
    write(path, '{"empty": true}')
    faults = Faults((), path)
    assert look(faults).on("empty")

    path.write_text('{"empty": tr')
    assert look(faults).on("empty")


@pytest.mark.parametrize("text", ['{"nonsense": 1}', "[]", "{"])
def test_wrong_file_is_named(tmp_path, text):
    path = tmp_path / "faults.json"
    path.write_text(text)

    with pytest.raises(FaultsError, match=r"faults\.json"):
        read(path)


def test_fault_without_a_number_counts_as_zero():
    assert Faults((("die-after", ""),), None).now().number("die-after") == 0


@pytest.mark.parametrize("name", sorted(SIGNATURES))
def test_every_signature_fills_in_its_numbers(name):
    text = traceback_text(
        SIGNATURES[name], model="m", max_num_seqs=8, max_model_len=9, needed_gib=1, available_gib=2, fits=4
    )

    assert "{" not in text.replace("('fp8e4b15', 'fp8e5')", "")
    assert text.strip()


def test_every_fault_says_what_its_value_means():
    assert all(meaning for meaning in FAULTS.values())
