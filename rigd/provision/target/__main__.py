"""Started on the box as a process of its own: frames on the standard streams, until the input ends."""

import os
import select
import sys

OLDEST = (3, 10)


def main() -> int:
    """Serve the controller on the other end of the standard streams."""
    if sys.version_info < OLDEST:
        sys.stderr.write("RIGD-HELPER OLD-PYTHON {}.{}\n".format(*sys.version_info[:2]))
        return 126
    if len(sys.argv) > 2 and sys.argv[1] == "--user":  # noqa: PLR2004  (two words)
        _become(sys.argv[2])

    from rigd.provision.target import helper  # noqa: PLC0415  (an old Python cannot even read it)

    source, sink = _own_streams()

    def receive() -> bytes:
        ready, _, _ = select.select([source], [], [], serving.silence_limit_s)
        if not ready:
            raise TimeoutError
        return os.read(source, 262144)

    def send(data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(sink, left) :]

    serving = helper.Helper(receive, send)
    serving.serve()
    # Threads that wait for something that never comes must not hold the process.
    os._exit(0)


def _own_streams() -> "tuple[int, int]":
    """Take the standard streams for the frames alone: what a module prints goes to stderr, and it reads nothing."""
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return source, sink


def _become(name: str) -> None:
    """Drop root's rights for those of a user, for good, with the environment of that user."""
    import pwd  # noqa: PLC0415  (only here)

    try:
        user = pwd.getpwnam(name)
    except KeyError:
        sys.stderr.write(f"RIGD-HELPER NO-USER {name}\n")
        raise SystemExit(125) from None
    os.initgroups(user.pw_name, user.pw_gid)
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)
    for stale in [variable for variable in os.environ if variable.startswith(("SUDO_", "XDG_"))]:
        del os.environ[stale]
    os.environ.update(HOME=user.pw_dir, USER=name, LOGNAME=name, SHELL=user.pw_shell)
    os.chdir(user.pw_dir if os.path.isdir(user.pw_dir) else "/")


if __name__ == "__main__":
    sys.exit(main())
