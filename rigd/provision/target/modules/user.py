"""Users of the system."""

import datetime as dt
import os
from collections.abc import Mapping
from typing import Any

from rigd.provision.target import accounts, attributes, guarded
from rigd.provision.target.contract import Argument, Box, Change, Kind, Module, ModuleError

AGEING = "`chage` sets ageing; unattended boxes have no use for it"
OTHER_SYSTEMS = "it is about other systems than Linux"

ON_CREATE = "on_create"

ARGUMENTS = {
    "name": Argument(required=True, aliases=("user",)),
    "state": Argument(default="present", choices=("present", "absent")),
    "uid": Argument(kind=Kind.INTEGER),
    "non_unique": Argument(kind=Kind.BOOLEAN, default=False),
    "group": Argument(),
    "groups": Argument(kind=Kind.LIST, elements=Kind.TEXT),
    "append": Argument(kind=Kind.BOOLEAN, default=False),
    "comment": Argument(),
    "home": Argument(kind=Kind.PATH),
    "create_home": Argument(kind=Kind.BOOLEAN, default=True, aliases=("createhome",)),
    "move_home": Argument(kind=Kind.BOOLEAN, default=False),
    "skeleton": Argument(kind=Kind.PATH),
    "shell": Argument(kind=Kind.PATH),
    "system": Argument(kind=Kind.BOOLEAN, default=False),
    "password": Argument(secret=True),
    "update_password": Argument(default="always", choices=("always", ON_CREATE)),
    "password_lock": Argument(kind=Kind.BOOLEAN),
    "expires": Argument(kind=Kind.FLOAT),
    "umask": Argument(),
    "force": Argument(kind=Kind.BOOLEAN, default=False),
    "remove": Argument(kind=Kind.BOOLEAN, default=False),
    "generate_ssh_key": Argument(kind=Kind.BOOLEAN, default=False),
    "ssh_key_type": Argument(default="rsa"),
    "ssh_key_bits": Argument(kind=Kind.INTEGER, default=0),
    "ssh_key_file": Argument(kind=Kind.PATH),
    "ssh_key_comment": Argument(),
    "ssh_key_passphrase": Argument(
        secret=True, left_out="an unattended key has none, and ssh-keygen takes it in argv"
    ),
    "password_expire_max": Argument(left_out=AGEING),
    "password_expire_min": Argument(left_out=AGEING),
    "password_expire_warn": Argument(left_out=AGEING),
    "password_expire_account_disable": Argument(left_out=AGEING),
    "login_class": Argument(left_out=OTHER_SYSTEMS),
    "profile": Argument(left_out=OTHER_SYSTEMS),
    "authorization": Argument(left_out=OTHER_SYSTEMS),
    "role": Argument(left_out=OTHER_SYSTEMS),
    "hidden": Argument(left_out=OTHER_SYSTEMS),
    "seuser": Argument(left_out="Debian and Ubuntu run without SELinux"),
    "local": Argument(left_out="users are the box's own, there is no directory service to go around"),
    "uid_min": Argument(left_out="the range of /etc/login.defs holds; say `uid`"),
    "uid_max": Argument(left_out="the range of /etc/login.defs holds; say `uid`"),
}


def probe(arguments: Mapping[str, Any], box: Box) -> dict[str, Any]:
    """Return the user as it is, the groups that are wanted and missing, and its public key."""
    user = accounts.find(arguments["name"])
    named = [*(arguments["groups"] or []), *([arguments["group"]] if arguments["group"] else [])]
    state: dict[str, Any] = {
        "user": user,
        "unknown_groups": [name for name in named if name and accounts.group_id(name) is None],
        "group_of_that_name": accounts.group_id(arguments["name"]) is not None,
        "check": box.check,
        "public_key": None,
        "at_work": arguments["name"] in guarded.at_work() or arguments["name"] == "root",
    }
    if arguments["generate_ssh_key"] and user:
        state["key_file"] = _key_file(arguments, user)
        state["public_key"] = _read(state["key_file"] + ".pub")
    return state


def _key_file(arguments: Mapping[str, Any], user: Mapping[str, Any]) -> str:
    given = arguments["ssh_key_file"] or f".ssh/id_{arguments['ssh_key_type']}"
    return os.path.join(user["home"], given)


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return None


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return what to add, change or remove."""
    name, user = arguments["name"], state["user"]
    if arguments["state"] == "absent":
        if state["at_work"]:
            raise ModuleError(
                f"'{name}' works on the box now, and is not removed: log in as another user for that"
            )
        what = f"remove the user {name}" + (" with its home" if arguments["remove"] else "")
        return [] if user is None else [_change(name, "remove", what)]
    if state["unknown_groups"] and not state["check"]:
        raise ModuleError(
            f"there is no group {', '.join(state['unknown_groups'])}: add it by a `group` task before"
        )
    if user is None:
        added = [_change(name, "add", f"add the user {name}")]
        return (
            [*added, _change(name, "key", f"make an ssh key for {name}")]
            if arguments["generate_ssh_key"]
            else added
        )
    found = _entry_differences(arguments, user)
    if state["at_work"]:
        _refuse_loss_of_rights(name, found)
    changes = [
        _change(name, "modify", f"{key} of {name}: {was} -> {will}", words) for key, was, will, words in found
    ]
    if arguments["password"] is not None and arguments["update_password"] != ON_CREATE:
        wanted = arguments["password"] if not arguments["password_lock"] else None
        if wanted is not None and (user["hash"] or "").lstrip("!") != wanted.lstrip("!"):
            changes.append(_change(name, "password", f"password of {name}"))
    changes += _lock_difference(arguments, user)
    if arguments["create_home"] and not user["home_exists"] and arguments["home"] in (None, user["home"]):
        changes.append(_change(name, "home", f"make the home {user['home']}"))
    if arguments["generate_ssh_key"] and state["public_key"] is None:
        changes.append(_change(name, "key", f"make an ssh key for {name}"))
    return changes


def _refuse_loss_of_rights(name: str, found: list[tuple[str, str, str, tuple[str, ...]]]) -> None:
    for key, was, will, _words in found:
        lost = guarded.RIGHTS & (set(was.split(",")) - set(will.split(",")))
        if key == "groups" and lost:
            raise ModuleError(
                f"this would take '{name}', who works on the box now, out of the group {', '.join(sorted(lost))}."
                " Say `append: true` to add groups, or name that group, too"
            )


def _change(name: str, act: str, what: str, words: tuple[str, ...] = ()) -> Change:
    return Change(what=what, subject=f"user {name}", data={"act": act, "words": words})


def _entry_differences(
    arguments: Mapping[str, Any], user: Mapping[str, Any]
) -> list[tuple[str, str, str, tuple[str, ...]]]:
    """Return what, was, will and usermod's words of each field that differs."""
    found = []
    simple = {"uid": "-u", "comment": "-c", "home": "-d", "shell": "-s"}
    for key, flag in simple.items():
        wanted = arguments[key]
        if wanted is not None and wanted != user[key]:
            more = ("-m",) if key == "home" and arguments["move_home"] else ()
            more = ("-o",) if key == "uid" and arguments["non_unique"] else more
            found.append((key, str(user[key]), str(wanted), (flag, str(wanted), *more)))
    if arguments["group"] and accounts.group_id(arguments["group"]) != user["gid"]:
        found.append(("group", user["group"], arguments["group"], ("-g", arguments["group"])))
    if arguments["groups"] is not None:
        wanted = {attributes.group_name(accounts.group_id(name) or 0) if name.isdigit() else name
                  for name in arguments["groups"] if name} - {user["group"]}  # fmt: skip
        have = set(user["groups"])
        target = have | wanted if arguments["append"] else wanted
        if target != have:
            # Spelt out in full, so that what usermod does is what was shown.
            found.append(("groups", ",".join(sorted(have)) or "none", ",".join(sorted(target)) or "none",
                          ("-G", ",".join(sorted(target)))))  # fmt: skip
    if arguments["expires"] is not None:
        days = -1 if arguments["expires"] < 0 else int(arguments["expires"] // accounts.DAY_S)
        if days != (user["expires_days"] if user["expires_days"] is not None else -1):
            found.append(
                ("expiry", str(user["expires_days"]), str(days), ("-e", _date(arguments["expires"])))
            )
    return found


def _date(expires_s: float) -> str:
    return (
        "" if expires_s < 0 else dt.datetime.fromtimestamp(expires_s, tz=dt.timezone.utc).strftime("%Y-%m-%d")
    )


def _lock_difference(arguments: Mapping[str, Any], user: Mapping[str, Any]) -> list[Change]:
    wanted, entry = arguments["password_lock"], user["hash"]
    if wanted is None or entry is None or entry.startswith("!") is wanted:
        return []
    if not wanted and entry.strip("!") == "":
        return []  # There is no password to unlock.
    word = "lock" if wanted else "unlock"
    return [
        _change(user["name"], "modify", f"{word} the password of {user['name']}", ("-L" if wanted else "-U",))
    ]


def apply(arguments: Mapping[str, Any], state: Mapping[str, Any], changes: list[Change], box: Box) -> None:
    """Run useradd, usermod, userdel; a password goes in by stdin, where no process list shows it."""
    name = arguments["name"]
    modify = [word for change in changes if change.data["act"] == "modify" for word in change.data["words"]]
    acts = {change.data["act"] for change in changes}
    if "remove" in acts:
        box.run(["userdel", *(["-f"] if arguments["force"] else []), *(["-r"] if arguments["remove"] else []),
                 "--", name], ok=(0, 12))  # 12: there was no home to remove.  # fmt: skip
        return
    if "add" in acts:
        box.run(_add_words(arguments, state))
    if "-L" in modify or "-U" in modify:
        # usermod wants the lock apart from a new password.
        word = "-L" if "-L" in modify else "-U"
        modify.remove(word)
        box.run(["usermod", word, "--", name])
    if modify:
        box.run(["usermod", *modify, "--", name])
    if "password" in acts or ("add" in acts and arguments["password"] is not None):
        entry = ("!" if arguments["password_lock"] else "") + arguments["password"]
        box.run(["chpasswd", "-e"], stdin=f"{name}:{entry}\n".encode())
    if "home" in acts:
        _make_home(arguments, box)
    if "key" in acts:
        _make_key(arguments, box)


def _add_words(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[str]:
    words = ["useradd"]
    for key, flag in (("uid", "-u"), ("group", "-g"), ("comment", "-c"), ("home", "-d"), ("shell", "-s")):
        if arguments[key] is not None:
            words += [flag, str(arguments[key])]
    groups = [name for name in arguments["groups"] or [] if name]
    words += ["-G", ",".join(groups)] if groups else []
    words += ["-o"] if arguments["non_unique"] else []
    words += ["-r"] if arguments["system"] else []
    words += ["-m"] if arguments["create_home"] else ["-M"]
    words += ["-k", arguments["skeleton"]] if arguments["skeleton"] and arguments["create_home"] else []
    words += ["-K", f"UMASK={arguments['umask']}"] if arguments["umask"] else []
    words += ["-e", _date(arguments["expires"])] if arguments["expires"] is not None else []
    # As Ansible has it: a group of the same name that is there already becomes no private group.
    words += ["-N"] if state["group_of_that_name"] and not arguments["group"] else []
    return [*words, "--", arguments["name"]]


def _make_home(arguments: Mapping[str, Any], box: Box) -> None:
    home, uid, gid = accounts.home_of(arguments["name"])
    skeleton = arguments["skeleton"] or "/etc/skel"
    box.run(["mkdir", "-p", "--", os.path.dirname(home)])
    box.run(["cp", "-rT", "--", skeleton, home] if os.path.isdir(skeleton) else ["mkdir", "--", home])
    box.run(["chown", "-R", f"{uid}:{gid}", "--", home])
    os.chmod(home, 0o777 & ~int(arguments["umask"] or "022", 8))


def _make_key(arguments: Mapping[str, Any], box: Box) -> None:
    home, uid, gid = accounts.home_of(arguments["name"])
    path = _key_file(arguments, {"home": home})
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        os.mkdir(folder, 0o700)
        os.chown(folder, uid, gid)
    comment = arguments["ssh_key_comment"] or f"ansible-generated on {os.uname().nodename}"
    bits = ["-b", str(arguments["ssh_key_bits"])] if arguments["ssh_key_bits"] else []
    box.run(["ssh-keygen", "-q", "-t", arguments["ssh_key_type"], *bits, "-C", comment, "-N", "", "-f", path])
    for file in (path, f"{path}.pub"):
        os.chown(file, uid, gid)


def result(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """Return what Ansible tells of a user."""
    facts: dict[str, Any] = {"name": arguments["name"], "state": arguments["state"]}
    if user := state["user"]:
        facts |= {"uid": user["uid"], "group": user["gid"], "home": user["home"], "shell": user["shell"],
                  "comment": user["comment"], "groups": ",".join(arguments["groups"] or []),
                  "append": arguments["append"], "move_home": arguments["move_home"]}  # fmt: skip
    if state["public_key"]:
        facts |= {"ssh_public_key": state["public_key"], "ssh_key_file": state["key_file"]}
    return facts


def check_arguments(arguments: Mapping[str, Any]) -> str | None:
    password = arguments.get("password")
    if password and password[0] not in "$*!" and "{{" not in password:
        return (
            "`password` is no hash (they begin with $): make one with `openssl passwd -6` or `password_hash`"
        )
    if arguments.get("append") and arguments.get("groups") is None:
        return "`append` says what to do with `groups`, and there are none"
    return None


MODULE = Module(
    names=("ansible.builtin.user",),
    arguments=ARGUMENTS,
    probe=probe,
    difference=difference,
    apply=apply,
    result=result,
    check_arguments=check_arguments,
    summary="users of the system, their groups, password and ssh key",
    differs=(
        "a password that is no hash is refused, where Ansible warns: it would lock the user out",
        "the hash goes to chpasswd by stdin, so that no process list shows it",
        "the user who works on the box now is neither removed nor taken out of the group sudo",
    ),
)
