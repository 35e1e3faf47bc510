"""A source that is named twice: what brings nothing more goes, what brings more stays, two keys are told."""

import pytest
from provision_recorded import filled

from rigd.provision.target.contract import ModuleError
from rigd.provision.target.modules import deb822_repository

WANTED = {"name": "non-free", "uris": ["http://deb.example/debian"], "suites": ["bookworm"]}
OLD = "/etc/apt/sources.list"


def changes(old, **arguments):
    given = filled(deb822_repository.MODULE, **WANTED, **arguments)
    state = {"texts": {OLD: old}, "seen": None, "key": None, "keys": {}}
    return [change.what for change in deb822_repository.difference(given, state)]


def test_a_line_that_brings_more_of_the_same_source_stays():
    """A task for non-free once removed the file that brought main, and left the box without packages."""
    found = changes("deb http://deb.example/debian bookworm main\n", components=["non-free"])

    assert not any(OLD in what and "sources.list.d" not in what for what in found)


def test_a_line_that_brings_nothing_more_goes():
    found = changes("deb http://deb.example/debian bookworm main\n", components=["main", "contrib"])

    assert any(what.startswith(f"{OLD} names the same source") for what in found)


def test_a_line_that_brings_more_under_another_key_is_told():
    with pytest.raises(ModuleError, match=r"brings main: with two keys .* apt reads no list at all"):
        changes("deb http://deb.example/debian bookworm main\n", components=["non-free"], signed_by="/k.gpg")
