"""The modules, one file each; imported when a task first uses it."""

import dataclasses  # (whole, since one of the modules here is called `replace`)
import importlib
import pkgutil
from functools import cache

from rigd.provision.target.contract import Module  # noqa: TC001  (no typing tricks on the box)

PREFIXES = (
    "ansible.builtin.",
    "ansible.posix.",
    "community.general.",
    "community.docker.",
    "rigd.box.",
    "ansible.legacy.",
)
"""Collections whose modules are known by their last word."""
OTHER_NAMES = {"systemd": "systemd_service"}
"""Second names of modules, as Ansible has them."""


@cache
def short_names() -> frozenset[str]:
    """Return the short names of all modules."""
    return frozenset(found.name for found in pkgutil.iter_modules(__path__)) | OTHER_NAMES.keys()


@cache
def module_of(name: str) -> "Module | None":
    """Return the module of a short or fully qualified name, or None."""  # (`find` is the name of one of them.)
    prefix, _, short = name.rpartition(".")
    if short not in short_names():
        return None
    module: Module = importlib.import_module(f"{__name__}.{OTHER_NAMES.get(short, short)}").MODULE
    if short in OTHER_NAMES:
        names = tuple(f"{own.rpartition('.')[0]}.{short}" for own in module.names)
        module = dataclasses.replace(module, names=names)
    return module if not prefix or name in module.names else None
