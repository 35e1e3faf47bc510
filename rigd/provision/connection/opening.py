"""Opens Fabric's connection: by the ssh configuration, gateways, keys and known hosts; what fails is a sentence."""

import contextlib
import logging
import shlex
import socket
from typing import Any

import paramiko
from fabric import Config, Connection

from rigd.provision.connection import hostkeys, sshconfig
from rigd.provision.connection.target import HostUnreachableError, Target

# What goes wrong comes as an exception; paramiko also logs it, traceback and all, on the person's terminal.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


def configured(target: Target) -> Connection:
    """Return Fabric's connection, by the ssh configuration, the target, and our rules about host keys."""
    # Of Fabric's and Invoke's own configuration files none is read: rigd has one place for its settings.
    config = Config(lazy=True, ssh_config=sshconfig.read(target.ssh_config))
    name = target.address or target.name
    # An exception from a general ProxyJump, which Fabric takes for a host of that name.
    direct = str(config.base_ssh_config.lookup(name).get("proxyjump", "")).lower() == "none"
    arguments: dict[str, Any] = {
        "banner_timeout": target.connect_timeout_s,
        "auth_timeout": target.connect_timeout_s * 2,
        "channel_timeout": target.connect_timeout_s * 2,
    }
    if target.key_file is not None:
        arguments["key_filename"] = [str(target.key_file)]
    if target.password is not None:
        arguments["password"] = target.password
    connection = Connection(
        name, user=target.user, port=target.port, config=config, gateway=False if direct else None,
        connect_timeout=int(max(1, target.connect_timeout_s)), connect_kwargs=arguments,
    )  # fmt: skip
    step: Any = connection
    while isinstance(step, Connection):
        _guard(step, target)
        step = step.gateway
    return connection


def _guard(connection: Connection, target: Target) -> None:
    """Have a connection, or a gateway on the way, accept known hosts alone."""
    given = connection.ssh_config
    files = _files(connection)
    hostkeys.load_known(connection.client, files)
    wish = given.get("stricthostkeychecking", "ask").lower()
    connection.client.set_missing_host_key_policy(
        hostkeys.UnknownKeyPolicy(
            name=connection.original_host,
            store=files[0],
            accept_new=target.accept_new or wish in ("no", "off", "accept-new"),
        )
    )
    arguments = connection.connect_kwargs
    if given.get("identitiesonly", "no").lower() == "yes" and arguments.get("key_filename"):
        arguments.setdefault("look_for_keys", False)
    # A gateway has the same patience, and keys named for it alone.
    for name in ("banner_timeout", "auth_timeout", "channel_timeout"):
        arguments.setdefault(name, target.connect_timeout_s * 2)
    if connection.connect_timeout is None:
        connection.connect_timeout = int(max(1, target.connect_timeout_s))


def _files(connection: Connection) -> list[Any]:
    given = connection.ssh_config
    named = f"{given.get('userknownhostsfile', '')} {given.get('globalknownhostsfile', '')}"
    return hostkeys.known_files(shlex.split(named))


def open_it(connection: Connection, target: Target) -> None:
    """Connect, or raise `HostUnreachableError` with a sentence."""
    name = target.name
    where = f"{connection.user}@{connection.host}:{connection.port}"
    try:
        _connect(connection)
    except HostUnreachableError:
        raise
    except paramiko.BadHostKeyException as error:
        raise _changed(connection, error) from None
    except paramiko.PasswordRequiredException:
        raise HostUnreachableError(
            f"cannot log in to '{name}' as {where}: the key is locked with a passphrase",
            hint="give it to the agent: ssh-add KEYFILE",
        ) from None
    except paramiko.AuthenticationException as error:
        proofs = "neither our keys nor the password given" if target.password else "none of our keys"
        raise HostUnreachableError(
            f"cannot log in to '{name}' as {where}: it takes {proofs}",
            hint=f"try: ssh -p {connection.port} {connection.user}@{connection.host}",
        ) from error
    except (paramiko.SSHException, OSError, EOFError) as error:
        missing = isinstance(error, FileNotFoundError)
        raise _no_way(connection, target, where, error) from (None if missing else error)


def _changed(connection: Connection, error: paramiko.BadHostKeyException) -> HostUnreachableError:
    """Return what to tell of a changed key: the host's own, or that of a gateway on the way."""
    step: Any = connection
    while isinstance(step.gateway, Connection) and step.host != error.hostname:
        step = step.gateway
    known_as = hostkeys.known_as(step.host, step.port)
    return hostkeys.changed(step.original_host, known_as, error, _files(step))


def _connect(connection: Connection) -> None:
    try:
        connection.open()
    except paramiko.BadHostKeyException:
        raise
    except paramiko.SSHException as error:
        transport = connection.client.get_transport()
        if transport is None or not transport.is_active():
            raise
        # The host is there and known, so it is our proofs that it does not like, or that we have none.
        if _let_in_without(connection, transport):
            return
        if isinstance(error, paramiko.AuthenticationException):
            raise
        raise paramiko.AuthenticationException(str(error)) from error


def _let_in_without(connection: Connection, transport: paramiko.Transport) -> bool:
    """Return whether the host lets the user in with no proof at all, as Tailscale's ssh does: the network gave it."""
    with contextlib.suppress(paramiko.SSHException, EOFError):
        transport.auth_none(connection.user)
    if not transport.is_authenticated():
        return False
    connection.transport = transport
    return True


def _no_way(connection: Connection, target: Target, where: str, error: Exception) -> HostUnreachableError:
    """Return the sentence for a host that does not answer, or not as ssh does."""
    name = target.name
    if isinstance(error, socket.gaierror):
        return HostUnreachableError(
            f"cannot reach '{name}': there is no host named '{connection.host}'",
            hint="check the inventory's ansible_host, ~/.ssh/config, or whether Tailscale is up", temporary=True,
        )  # fmt: skip
    if isinstance(error, FileNotFoundError):
        return HostUnreachableError(f"cannot reach '{name}': there is no file {error.filename}")
    hint = f"is it on, and does its sshd listen? try: ssh -p {connection.port} {connection.user}@{connection.host}"
    if connection.gateway:
        hint += " (it is reached through a gateway of the ssh configuration)"
    return HostUnreachableError(f"cannot reach '{name}' at {where}", hint=hint, temporary=True)
