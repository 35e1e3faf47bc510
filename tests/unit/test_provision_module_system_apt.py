"""Packages and their sources, by recorded answers: what is wanted, what is refused, and each fault's sentence."""

import base64
from pathlib import Path

import pytest
from provision_recorded import RecordedBox, filled, whats

from rigd.provision.target import apt_sources, apt_wishes, aptget, dpkg, openpgp
from rigd.provision.target.contract import CommandResult, ModuleError
from rigd.provision.target.modules import apt, apt_hold, apt_key, apt_repository, deb822_repository

QUERY = "dpkg-query -W -f ${Package}"
PROVIDES = "dpkg-query -W -f ${db:Status-Abbrev}"
KNOWN = (
    "curl\tamd64\tii \t8.5.0-2\n"
    "vim\tamd64\thi \t9.1-1\n"
    "nano\tamd64\trc \t7.2-1\n"
    "mta\tamd64\tiF \t1.0\n"
)  # fmt: skip


@pytest.fixture(autouse=True)
def calm(monkeypatch):
    monkeypatch.setattr(dpkg, "interrupted", lambda: False)
    monkeypatch.setattr(dpkg, "lock_holder", lambda: "")
    monkeypatch.setattr(aptget, "lists_time_s", lambda: 1e12)
    monkeypatch.setattr(dpkg, "EXTENDED_STATES", Path("/none"))


def planned(simulation="", record=None, **given):
    arguments = filled(apt.MODULE, **given)
    box = RecordedBox(
        {
            QUERY: KNOWN,
            PROVIDES: "ii \tmta-full\tmail-server (= 1)\n",
            "apt-get -s": simulation,
            **(record or {}),
        }
    )
    return box, apt.difference(arguments, apt.probe(arguments, box))


def test_what_is_installed_costs_one_question():
    box, changes = planned(name=["curl", "vim"])

    assert (changes, len(box.ran)) == ([], 1)


def test_what_is_missing_is_foretold_by_apt_itself():
    _, changes = planned(
        "Inst jq (1.7-1 Debian:12 [amd64])\nInst libjq1 [1.6] (1.7-1 Debian)\n", name=["curl", "jq"]
    )

    assert whats(changes) == ["install jq 1.7-1", "upgrade libjq1 1.6 -> 1.7-1"]


@pytest.mark.parametrize(
    ("name", "there"),
    [("curl=8.5.*", True), ("curl=8.6*", False), ("mail-server", True), ("nano", False), ("mta", False)],
)
def test_versions_virtual_names_and_half_configured_packages(name, there):
    box, _ = planned(name=[name])

    assert any(line.startswith("apt-get -s") for line in box.ran) is not there


@pytest.mark.parametrize(("relation", "asked"), [((0, ""), False), ((1, ""), True)])
def test_a_least_version_is_compared_as_dpkg_does(relation, asked):
    box, _ = planned(name=["curl>=8.0"], record={"dpkg --compare-versions 8.5.0-2 ge 8.0": relation})

    assert any(line.startswith("apt-get -s") for line in box.ran) is asked


def test_what_only_others_brought_is_noted_as_wanted(tmp_path, monkeypatch):
    states = tmp_path / "extended_states"
    states.write_text(
        "Package: curl\nArchitecture: amd64\nAuto-Installed: 1\n\n"
        "Package: vim\nArchitecture: amd64\nAuto-Installed: 0\n\n"
        "Package: docs\nArchitecture: amd64\nAuto-Installed: 1\n\n"
    )
    monkeypatch.setattr(dpkg, "EXTENDED_STATES", states)
    box, changes = planned(name=["curl", "vim"], record={"apt-mark manual": ""})

    assert [(change.what, change.counts) for change in changes] == [
        ("note that curl is wanted for itself, not for what brought it", False)
    ]
    # As apt notes it, a package for all architectures is one for the box's own.
    known = dpkg._parse("docs\tall\tii \t1.0\n")
    assert dpkg.automatic(known, ["docs", "none"]) == ["docs"]
    arguments = filled(apt.MODULE, name=["curl", "vim"])
    apt.apply(arguments, apt.probe(arguments, box), changes, box)
    assert box.ran[-1] == "apt-mark manual curl"


@pytest.mark.parametrize(("version", "goes"), [("8.5*", True), ("8.6*", False)])
def test_package_goes_in_the_version_that_was_named(version, goes):
    box, _ = planned("Remv curl [8.5.0-2]\n", name=[f"curl={version}"], state="absent")

    assert any(line.startswith("apt-get -s") for line in box.ran) is goes


def test_pattern_that_fits_no_package_is_a_fault_unless_the_lists_are_old(monkeypatch):
    known = {"apt-cache pkgnames": "curl\nvim\n"}
    with pytest.raises(ModuleError, match=r"has a package that fits nvidia-drvier-\*"):
        planned(name=["nvidia-drvier-*", "curl"], record=known)
    assert planned(name=["none-*"], state="absent", record=known)[1] == []

    monkeypatch.setattr(aptget, "lists_time_s", lambda: 0.0)
    changes = planned(name=["nvidia-driver-*"], record=known, update_cache=True)[1]
    assert whats(changes) == ["read the package lists, and install what fits nvidia-driver-*"]


def test_removing_configuration_is_only_for_purge():
    assert planned(name=["nano"], state="absent")[1] == []
    assert whats(planned("Purg nano [7.2-1]\n", name=["nano"], state="absent", purge=True)[1]) == [
        "remove nano 7.2-1"
    ]


def test_a_removal_that_nobody_named_is_refused_unless_forced():
    simulation = "Remv docker.io [20.10]\nInst docker-ce (27.1 Docker [amd64])\n"
    with pytest.raises(ModuleError, match=r"would also remove docker\.io"):
        planned(simulation, name=["docker-ce"])

    assert whats(planned(simulation, name=["docker-ce"], force=True)[1])[0] == "remove docker.io 20.10"


def test_what_autoremove_takes_is_no_removal_that_was_forced():
    without = "Inst jq (1.7)\n"
    with_auto = "Remv old-lib [1.0]\nInst jq (1.7)\n"
    _, changes = planned(without, name=["jq"], autoremove=True, record={
        "apt-get -s -q -y -o Debug::NoLocking=1 -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold"
        " --auto-remove": with_auto})  # fmt: skip

    assert whats(changes) == ["remove old-lib 1.0", "install jq 1.7"]


def test_a_held_package_that_would_change_is_named():
    with pytest.raises(ModuleError, match="vim is held"):
        planned("Inst vim [9.1-1] (9.2-1)\n", name=["vim"], state="latest")


def test_lists_are_read_only_for_what_needs_them(monkeypatch):
    assert planned(name=["curl"], update_cache=True)[1] == []
    monkeypatch.setattr(aptget, "lists_time_s", lambda: 0.0)
    changes = planned("Inst jq (1.7)\n", name=["jq"], update_cache=True)[1]

    assert [(change.what, change.counts) for change in changes] == [
        ("read the package lists", False), ("install jq 1.7", True),
    ]  # fmt: skip


def test_a_name_that_old_lists_do_not_know_is_no_fault_before_they_are_read(monkeypatch):
    unknown = {"apt-get -s": (100, "", "E: Unable to locate package docker-ce\n")}
    with pytest.raises(ModuleError, match="no source of the box has a package 'docker-ce'"):
        planned(name=["docker-ce"], record=unknown)

    monkeypatch.setattr(aptget, "lists_time_s", lambda: 0.0)
    assert (
        "cannot foretell more" in planned(name=["docker-ce"], record=unknown, update_cache=True)[1][-1].what
    )


def test_an_interrupted_dpkg_is_finished_before_anything_else(monkeypatch):
    monkeypatch.setattr(dpkg, "interrupted", lambda: True)
    changes = planned("Inst jq (1.7)\n", name=["jq"])[1]

    assert "dpkg --configure -a" in changes[0].what


def test_apt_asks_nothing_and_waits_for_the_lock():
    box = RecordedBox({"sh -c": "", "apt-get": ""})
    aptget.run(box, ["install", "jq"], lock_wait_s=7)

    assert "DPkg::Lock::Timeout=7" in box.ran[-1]
    assert aptget.ENVIRONMENT["NEEDRESTART_MODE"] == "l"


@pytest.mark.parametrize("bad", ["jq=1=2", "=1", "jq="])
def test_a_wrong_package_is_told(bad):
    with pytest.raises(ModuleError, match="is no package"):
        apt_wishes.parse(bad)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (("E: Release file for http://mirror.example/debian/InRelease is not valid yet (invalid for another"
         " 3h 2min 8s). Updates"), "the clock of the box is behind"),
        ("E: Release file for http://mirror/InRelease is expired (invalid since 3d)", "its mirror is stale"),
        ("E: Conflicting values set for option Signed-By regarding source https://nvidia.github.io/ /: a != b",
         "two files of /etc/apt/sources.list.d name https://nvidia.github.io/"),
        ("W: GPG error: http://x InRelease: signatures couldn't be verified: NO_PUBKEY A4B469963BF863CC",
         "no key A4B469963BF863CC"),
        ("E: The repository 'http://x bookworm Release' does not have a Release file.", "no signed Release file"),
        ("W: Failed to fetch http://x  Temporary failure resolving 'mirror.example'", "mirror.example cannot be"),
        ("W: Failed to fetch http://x  Could not connect to 127.0.0.1:9 (127.0.0.1). - (111)", "cannot be reached"),
        ("E: You don't have enough free space in /var/cache/apt/archives/.", "full at /var/cache/apt/archives"),
        ("dpkg: error: failed to write (No space left on device)", "the disk of the box is full"),
        ("E: dpkg was interrupted, you must manually run 'dpkg --configure -a'", "broken off in the middle"),
        ("E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by 81", "(unattended-upgr (pid 81))"),
        ("E: Held packages were changed and -y was used without --allow-change-held-packages.", "apt-mark showhold"),
        ("E: Unable to locate package jqq", "has a package 'jqq'"),
        ("E: Package 'nvidia-driver' has no installation candidate", "components such as non-free"),
        ("E: Version '9' for 'jq' was not found", "no source has jq in version 9"),
        ("E: Packages were downgraded and -y was used without --allow-downgrades.", "allow_downgrade"),
        ("The following packages have unmet dependencies:\n a : Depends: b", "do not fit together"),
        ("E: Sub-process /usr/bin/dpkg returned an error code (1)", "could not be set up"),
        ("E: something never seen before", "apt-get ended with 100"),
    ],
)  # fmt: skip
def test_each_fault_of_apt_is_a_sentence_with_its_own_words(said, sentence):
    answer = CommandResult(argv=("apt-get",), rc=100, stdout="", stderr=f"{said}\n")
    text = str(aptget.failure(answer, "unattended-upgr (pid 81)"))

    assert sentence in text
    assert said.splitlines()[-1] in text


def test_holds_take_patterns_and_want_what_is_installed():
    arguments = filled(apt_hold.MODULE, name=["v*", "curl"])
    box = RecordedBox({QUERY: KNOWN.partition("nano")[0], "apt-mark": ""})
    changes = apt_hold.difference(arguments, apt_hold.probe(arguments, box))

    assert whats(changes) == ["hold curl"]
    with pytest.raises(ModuleError, match="nano is not installed"):
        apt_hold.difference(arguments, apt_hold.probe(filled(apt_hold.MODULE, name=["nano"]), box))


# --- keys ---

KEY = b"""\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEaw0cUhYJKwYBBAHaRw8BAQdA2ja7MQVDMHYx+dbk/pBQ31K+kDnjiz8sSmLS
hE+mY+W0H3NhbXBsZSA8c2FtcGxlQGV4YW1wbGUuaW52YWxpZD6IkAQTFggAOBYh
BMdLb11bE8ru0DgAmdxvNcE3CPDaBQJrDRxSAhsDBQsJCAcCBhUKCQgLAgQWAgMB
Ah4BAheAAAoJENxvNcE3CPDatxIA/1kAb6sC9CxVkgIsDh62G0lvK6UoSlKpzW9G
8eY2nQNMAQCxnPw8Vf6ESWzUDd7n8gUs/wStW8mQHbOiN24MC/OjBw==
=yK2s
-----END PGP PUBLIC KEY BLOCK-----
"""
FINGERPRINT = "C74B6F5D5B13CAEED0380099DC6F35C13708F0DA"


def test_fingerprints_are_gpg_s_with_and_without_armour():
    assert openpgp.fingerprints(KEY) == openpgp.fingerprints(openpgp.binary(KEY)) == [FINGERPRINT]


@pytest.mark.parametrize(
    "content",
    [
        b"<pre>\n" + KEY + b"</pre>\n",
        KEY.replace(b"\n", b"\r\n"),
        b"-----BEGIN PGP SIGNED MESSAGE-----\n\nkey:\n" + KEY,
    ],
    ids=["page", "dos", "mail"],
)
def test_key_is_kept_without_what_stands_around_it(content):
    assert openpgp.alone(content) == KEY
    assert openpgp.fingerprints(content) == [FINGERPRINT]


def test_every_block_of_a_file_of_keys_counts():
    two = KEY + b"and another:\n" + KEY

    assert openpgp.alone(two) == KEY + KEY
    assert openpgp.fingerprints(two) == [FINGERPRINT, FINGERPRINT]
    assert openpgp.binary(two) == openpgp.binary(KEY) * 2


def test_key_in_the_playbook_is_proved_and_cut_out():
    assert deb822_repository._inline("the key:\n" + KEY.decode()) == KEY.decode()
    assert deb822_repository._inline("/usr/share/keyrings/vendor.gpg") is None
    with pytest.raises(ModuleError, match="no signing key"):
        deb822_repository._inline(KEY[:200].decode())


@pytest.mark.parametrize("name", ["both.gpg", "both.asc"])
def test_only_the_key_that_was_named_goes_from_a_keyring(name, tmp_path, monkeypatch):
    folder = tmp_path / "trusted.gpg.d"
    folder.mkdir()
    monkeypatch.setattr(apt_sources, "APT", tmp_path)
    other = b"\x99\x00\x06\x04other"
    keyring = openpgp.binary(KEY) + other
    armour = b"\n".join([openpgp.BEGIN, b"", base64.b64encode(keyring), openpgp.END, b""])
    (folder / name).write_bytes(armour if name.endswith("asc") else keyring)
    (folder / "alone.asc").write_bytes(KEY)
    arguments = filled(apt_key.MODULE, id=FINGERPRINT[-16:], state="absent")
    box = RecordedBox({})

    state = apt_key.probe(arguments, box)
    apt_key.apply(arguments, state, apt_key.difference(arguments, state), box)

    assert sorted(path.name for path in folder.iterdir()) == [name]
    assert openpgp.binary((folder / name).read_bytes()) == other
    assert apt_key.difference(arguments, apt_key.probe(arguments, box)) == []


def test_key_without_an_end_is_refused():
    with pytest.raises(ValueError, match="cut off"):
        openpgp.fingerprints(KEY + KEY[:100])


@pytest.mark.parametrize(
    "content", [b"<html>404</html>", b"", KEY[:200] + b"!!" + KEY[200:], openpgp.binary(KEY)[:40]]
)
def test_what_is_no_key_is_told(content):
    with pytest.raises(ValueError, match="it"):
        openpgp.fingerprints(content)


# --- sources ---


@pytest.fixture
def etc(tmp_path, monkeypatch):
    (tmp_path / "sources.list.d").mkdir()
    monkeypatch.setattr(apt_sources, "APT", tmp_path)
    return tmp_path / "sources.list.d"


def repository(**given):
    return filled(
        deb822_repository.MODULE,
        name="NVIDIA Toolkit",
        uris=["https://example.invalid/deb"],
        suites=["/"],
        **given,
    )


def test_a_source_is_written_as_ansible_names_and_writes_it(etc, tmp_path):
    (tmp_path / "key.asc").write_bytes(KEY)
    arguments = repository(signed_by=f"file://{tmp_path}/key.asc", architectures=["amd64"], mode="0644")
    box = RecordedBox()
    changes = deb822_repository.difference(arguments, deb822_repository.probe(arguments, box))
    deb822_repository.apply(arguments, {}, changes, box)

    key = tmp_path / "keyrings/nvidia-toolkit.asc"
    assert key.read_bytes() == KEY
    assert (etc / "nvidia-toolkit.sources").read_text() == (
        f"Architectures: amd64\nX-Repolib-Name: NVIDIA Toolkit\nSigned-By: {key}\nSuites: /\nTypes: deb\n"
        "URIs: https://example.invalid/deb\n"
    )
    assert FINGERPRINT in changes[0].what
    assert deb822_repository.difference(arguments, deb822_repository.probe(arguments, box)) == []


def test_a_key_that_is_there_is_not_fetched_again(etc, tmp_path):
    test_a_source_is_written_as_ansible_names_and_writes_it(etc, tmp_path)
    (tmp_path / "key.asc").unlink()
    arguments = repository(signed_by=f"file://{tmp_path}/key.asc", architectures=["amd64"], mode="0644")

    assert deb822_repository.difference(arguments, deb822_repository.probe(arguments, RecordedBox())) == []


def test_older_files_for_the_same_source_are_switched_off(etc):
    (etc / "libnvidia-container.list").write_text(
        "deb [signed-by=/usr/share/keyrings/x.gpg] https://example.invalid/deb/ /\n#deb https://x.invalid/other /\n"
    )
    (etc / "both.list").write_text(
        "deb https://example.invalid/deb /\ndeb https://other.invalid/ stable main\n"
    )
    arguments = repository()
    changes = deb822_repository.difference(arguments, deb822_repository.probe(arguments, RecordedBox()))
    deb822_repository.apply(arguments, {}, changes, RecordedBox())

    assert not (etc / "libnvidia-container.list").exists()
    assert (etc / "both.list").read_text().splitlines() == [
        "# deb https://example.invalid/deb /", "deb https://other.invalid/ stable main",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"uris": ["https://x"], "suites": ["/"], "components": ["main"]}, "has no components"),
        ({"uris": ["https://x"], "suites": ["stable"]}, "`components` is missing"),
        ({"suites": ["stable"]}, "`uris` is missing"),
        ({"state": "absent"}, None),
    ],
)
def test_a_source_s_arguments_fit_together(given, wrong):
    found = deb822_repository.check_arguments({"name": "x", **given})

    assert (found is None) if wrong is None else (wrong in str(found))


def test_a_line_that_another_file_has_with_another_key_is_refused(etc):
    (etc / "docker.sources").write_text(
        "Types: deb\nURIs: https://download.example.invalid\nSuites: bookworm\nComponents: stable\nSigned-By: /a\n"
    )
    arguments = filled(apt_repository.MODULE, repo="deb https://download.example.invalid bookworm stable")
    with pytest.raises(ModuleError, match="with another key"):
        apt_repository.difference(arguments, apt_repository.probe(arguments, RecordedBox()))


def test_a_line_s_file_is_named_after_its_address():
    assert apt_sources.suggested_file(
        "deb [arch=amd64] https://me:secret@download.example.invalid/linux x y"
    ) == ("download_example_invalid_linux.list")


def test_a_source_that_cannot_be_read_does_not_stay(etc):
    arguments = filled(apt_repository.MODULE, repo="deb http://gone.invalid ./", update_cache_retries=1)
    box = RecordedBox({"sh -c": (100, "", "E: Release file is broken\n")})
    changes = apt_repository.difference(arguments, apt_repository.probe(arguments, box))
    with pytest.raises(ModuleError, match="Release file is broken"):
        apt_repository.apply(arguments, {}, changes, box)

    assert list(etc.iterdir()) == []
