"""Inventories give the hosts, groups and variables that Ansible reads from the same files."""

import pytest

from rigd.errors import UsageError
from rigd.provision.language.faults import PlaybookError
from rigd.provision.language.inventory import hosts_named, load_inventory
from rigd.provision.language.patterns import matching

INI = """
# rigs
solo ansible_host=10.0.0.9 flag=True n=5 s="a b" l=[1,2]
[web]
web[01:03].lan:2222 zone=a   # the three
[db]
db-[a:b] x="{{ y }}"
[prod:children]
web
db
[prod:vars]
level=prod
name = some text
[web:vars]
level=web
"""
YAML = """
all:
  hosts:
    solo: {ansible_host: 10.0.0.9, flag: true, n: 5, s: a b, l: [1, 2]}
  children:
    prod:
      vars: {level: prod, name: some text}
      children:
        web:
          hosts: {"web[01:03].lan": {zone: a, ansible_port: 2222}}
          vars: {level: web}
        db:
          hosts: {"db-[a:b]": {x: "{{ y }}"}}
"""


@pytest.fixture(params=["ini", "yml"])
def inventory(request, tmp_path):
    files = {
        f"hosts.{request.param}": INI if request.param == "ini" else YAML,
        "group_vars/web/main.yml": "level: web file\n",
        "group_vars/all.yml": "everybody: yes\n",
        "host_vars/db-a.yml": "level: host\n",
        "play/site.yml": "- hosts: all\n",
        "play/group_vars/all": "everybody: play\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return load_inventory(tmp_path / f"hosts.{request.param}", playbook=tmp_path / "play" / "site.yml")


def test_hosts_have_the_variables_that_ansible_gives_them(inventory):
    everybody = {"everybody": "play"}
    web = {"ansible_port": 2222, "zone": "a", "level": "web file", "name": "some text"}
    db = {"x": "{{ y }}", "name": "some text"}

    assert {host.name: host.vars for host in inventory.hosts} == {
        "solo": everybody | {"ansible_host": "10.0.0.9", "flag": True, "n": 5, "s": "a b", "l": [1, 2]},
        "web01.lan": everybody | web,
        "web02.lan": everybody | web,
        "web03.lan": everybody | web,
        "db-a": everybody | db | {"level": "host"},
        "db-b": everybody | db | {"level": "prod"},
    }


def test_groups_go_from_wide_to_narrow(inventory):
    groups = {host.name: host.groups for host in inventory.hosts}

    assert groups["web01.lan"] == ("all", "prod", "web")
    assert groups["solo"] == ("all", "ungrouped")
    assert inventory.groups["prod"] == ("web01.lan", "web02.lan", "web03.lan", "db-a", "db-b")


@pytest.mark.parametrize(
    ("pattern", "limit", "names"),
    [
        pytest.param("all", None, "solo web01.lan web02.lan web03.lan db-a db-b", id="all"),
        pytest.param("web:!web01.lan", None, "web02.lan web03.lan", id="without"),
        pytest.param("prod:&web", None, "web01.lan web02.lan web03.lan", id="both"),
        pytest.param("!web", None, "solo db-a db-b", id="only-without"),
        pytest.param("web,solo", None, "solo web01.lan web02.lan web03.lan", id="comma"),
        pytest.param("web[0]", None, "web01.lan", id="first"),
        pytest.param("web[-1]", None, "web03.lan", id="last"),
        pytest.param("web[1:]", None, "web02.lan web03.lan", id="slice"),
        pytest.param("~web0[12]", None, "web01.lan web02.lan", id="regex"),
        pytest.param("db-*", None, "db-a db-b", id="glob"),
        pytest.param("localhost", None, "localhost", id="implicit"),
        pytest.param("all", "db", "db-a db-b", id="limit"),
        pytest.param(
            "all:!no_such", None, "solo web01.lan web02.lan web03.lan db-a db-b", id="without-nothing"
        ),
    ],
)
def test_patterns_choose_hosts(inventory, pattern, limit, names):
    assert [host.name for host in matching(inventory, pattern, limit=limit)] == names.split()


def test_an_unknown_name_is_told_with_the_nearest(inventory):
    with pytest.raises(UsageError, match="hosts: there is no host or group 'wbe'; did you mean 'web'"):
        matching(inventory, "wbe")
    with pytest.raises(UsageError, match="--limit: there is no host or group"):
        matching(inventory, "all", limit="no_such")


def test_hosts_of_the_command_line_say_user_and_port(tmp_path):
    found = hosts_named(["me@box:22", "plain", "localhost", "[fe80::1]:2", "fe80::2"])

    assert {host.name: host.vars for host in found.hosts} == {
        "box": {"ansible_host": "box", "ansible_user": "me", "ansible_port": 22},
        "plain": {"ansible_host": "plain"},
        "localhost": {"ansible_connection": "local"},
        "fe80::1": {"ansible_host": "fe80::1", "ansible_port": 2},
        "fe80::2": {"ansible_host": "fe80::2"},
    }


def test_one_box_by_two_names_stays_two_hosts():
    assert [host.name for host in hosts_named(["a@box", "b@box"]).hosts] == ["box", "b@box"]


@pytest.mark.parametrize("name", ["me@", "box:ssh", "-oProxyCommand=x", ""])
def test_a_name_that_is_none_is_refused(name):
    with pytest.raises(UsageError, match="names no host"):
        hosts_named([name])


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        pytest.param("hosts", "[a:parents]\nb\n", "1:1: a section is", id="section"),
        pytest.param("hosts", "box port\n", "1:1: 'port' is no name=value", id="pair"),
        pytest.param("hosts", "box[1-3]\n", "1:1: the range in 'box", id="range"),
        pytest.param("hosts", 'box x="{{ y"\n', "1:1: the template is not well written", id="template"),
        pytest.param(
            "hosts", "h\n[a:children]\nwbe\n[web]\nx\n", "no group 'wbe'; did you mean 'web'?", id="child"
        ),
        pytest.param("hosts", "[web\nh\n", "is not closed with ]", id="open"),
        pytest.param("hosts", "h[5:1]\n", "it ends before it begins", id="backwards"),
        pytest.param("hosts", "h[1:x]\n", "it takes numbers or single letters", id="mixed"),
        pytest.param(
            "hosts", "[a:children]\nb\n[b:children]\na\n[b]\nx\n", "is, by way of its children", id="circle"
        ),
        pytest.param("hosts.yml", "all: {host: {}}\n", "1:7: 'host' is no part of a group", id="yaml-key"),
        pytest.param(
            "hosts.yml", "all: {hosts: [a]}\n", "1:7: 'hosts' of a group takes a mapping", id="yaml-list"
        ),
        pytest.param("hosts", "#!/bin/sh\n", "programs that print an inventory are left out", id="program"),
    ],
)
def test_mistakes_are_told_with_their_places(tmp_path, name, text, sentence):
    (tmp_path / name).write_text(text)

    with pytest.raises(PlaybookError) as caught:
        load_inventory(tmp_path / name)

    assert sentence in str(caught.value)


def test_an_inventory_may_be_a_folder(tmp_path):
    (tmp_path / "one").write_text("[web]\na\n")
    (tmp_path / "two.yml").write_text("web: {hosts: {b: }}\n")
    (tmp_path / "README.md").write_text("not an inventory: at all")

    assert load_inventory(tmp_path).groups["web"] == ("a", "b")


def test_a_missing_or_empty_inventory_is_told(tmp_path):
    with pytest.raises(UsageError, match="there is no inventory"):
        load_inventory(tmp_path / "none")
    (tmp_path / "empty").write_text("# nobody\n")
    with pytest.raises(UsageError, match="there are no hosts"):
        load_inventory(tmp_path / "empty")
