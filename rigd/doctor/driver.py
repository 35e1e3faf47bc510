"""Checks of the driver: loaded, matching its library, new enough for the engine, there after the next boot. Pure."""

import re
from collections.abc import Iterator

from rigd.doctor.finding import Facts, Finding, error, info, number, ok, playbook, unknown, warning
from rigd.doctor.wish import Wish


def loaded(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say whether the driver runs, with a library of its own version, and answers."""
    if wish is not None and not wish.uses_cards:
        return
    module, library = facts["driver"]["loaded"], facts["driver"]["library"]
    if not module:
        yield error("driver", "no NVIDIA driver is loaded", f"{playbook('driver')}, then reboot")
        return
    if library and library != module:
        sentence = f"the kernel runs driver {module}, programs that start now find library {library}"
        yield error("driver", f"{sentence}: what runs goes on, what starts fails", "reboot the host")
    elif (why := unknown(facts, "smi")) is not None:
        yield error(
            "driver",
            f"driver {module} is loaded and does not answer: {why}",
            "`dmesg | grep -i -e nvrm -e xid`",
        )
    else:
        kind = "open" if facts["driver"]["open"] else "NVIDIA's own"
        yield ok("driver", f"driver {module} ({kind} module), CUDA {facts['smi']['cuda'] or 'not told'}")
    missing = [node for node in ("nvidiactl", "nvidia-uvm") if node not in facts["driver"]["nodes"]]
    if missing:
        mend = "`sudo nvidia-modprobe -c 0 -u`, and nvidia-persistenced at boot: playbooks/persistence.yml"
        yield warning(
            "driver", f"/dev/{', /dev/'.join(missing)} is missing: programs without root find no card", mend
        )
    if facts["driver"]["runfile"]:
        sentence = "NVIDIA's .run installer was used: packages laid over it break one another"
        yield warning("driver", sentence, "sudo nvidia-uninstall, then " + playbook("driver"))


def cuda(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say whether the driver is new enough for the CUDA that the engine brings.

    GeForce cards have no forward compatibility: a container with a newer CUDA fails (error 804), though nvidia-smi
    works in it.
    """
    if wish is None or not wish.uses_cards or unknown(facts, "smi") is not None:
        return
    driver = facts["smi"]["cuda"]
    if wish.docker:
        image = facts["image"]
        if unknown(facts, "image") is not None or not image["there"]:
            yield info(
                "cuda",
                f"the image {_image(wish)} is not here, so its CUDA is not known",
                f"docker pull {_image(wish)}",
            )
            return
        wanted = _wanted(image["cuda"], image["require"])
        what = f"the image {image['name']} wants CUDA {wanted}"
    else:
        wanted = facts["process"]["cuda"]
        what = f"the engine's torch {facts['process']['torch']} was built for CUDA {wanted}"
    if not wanted or not driver:
        yield info("cuda", "what CUDA the engine needs, or the driver has, is not told")
        return
    if number(driver)[:2] >= number(wanted)[:2]:
        yield ok("cuda", f"{what}, and the driver has {driver}")
        return
    same = number(driver)[:1] == number(wanted)[:1]
    sentence = f"{what}, and driver {facts['driver']['loaded']} has {driver}"
    mend = f"{playbook('driver')} for a newer driver, then reboot; or an engine for CUDA {driver}"
    if same and not wish.docker:
        yield warning("cuda", f"{sentence}: kernels that are compiled at run time may fail", mend)
    else:
        yield error("cuda", f"{sentence}: error 804, although nvidia-smi works", mend)


def _image(wish: Wish) -> str:
    return "" if wish.spec.container is None else wish.spec.container.image


def _wanted(version: str, require: str) -> str:
    """Return the CUDA that an image states, as major.minor: the larger of its two statements."""
    match = re.search(r"cuda>=(\d+\.\d+)", require)
    stated = [".".join(version.split(".")[:2]) if version else "", match[1] if match else ""]
    return max(stated, key=number)


def next_boot(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say whether the kernel that boots next has a driver, and whether the firmware lets it load."""
    if not facts["cards"] or (wish is not None and not wish.uses_cards):
        return
    kernel = facts["kernel"]
    following, module = kernel["next"], kernel["next_module"]
    broken = [
        one for one in kernel["dkms"] if one["kernel"] in ("", following) and one["state"] != "installed"
    ]
    installed = [one for one in kernel["dkms"] if one["kernel"] == following and one["state"] == "installed"]
    if not module["version"]:
        because = f" (DKMS says {broken[0]['state']} for {broken[0]['version']})" if broken else ""
        sentence = f"kernel {following} boots next and has no NVIDIA module{because}"
        yield error("next boot", sentence, f"{playbook('headers')}; {playbook('driver')}; `dkms status`")
    elif facts["driver"]["loaded"] and module["version"] != facts["driver"]["loaded"]:
        sentence = (
            f"driver {module['version']} is installed, {facts['driver']['loaded']} runs until the next reboot"
        )
        yield warning("next boot", sentence, playbook("reboot"))
    elif following != kernel["running"]:
        yield info(
            "next boot", f"kernel {following} boots next, with driver {module['version']}", playbook("reboot")
        )
    else:
        yield ok("next boot", f"kernel {following} has driver {module['version']}")
    yield from _secure(facts, dkms=bool(installed or broken))


def _secure(facts: Facts, *, dkms: bool) -> Iterator[Finding]:
    kernel = facts["kernel"]
    if not kernel["secure_boot"]:
        yield ok("secure boot", "Secure Boot is off")
        return
    signer = kernel["next_module"]["signer"]
    if dkms and not kernel["mok_enrolled"]:
        sentence = (
            "Secure Boot is on, and the driver was built here with a key that the firmware does not know"
        )
        mend = "sudo mokutil --import /var/lib/dkms/mok.pub, reboot, enrol it at the console; or turn Secure Boot off"
        yield error("secure boot", sentence, mend)
    elif not signer and kernel["next_module"]["version"]:
        yield error("secure boot", "Secure Boot is on, and the driver is not signed", playbook("secure_boot"))
    else:
        yield ok("secure boot", f"Secure Boot is on, and the driver is signed by {signer or 'a known key'}")


def updates(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say whether updates that come by themselves would change the driver under the kernel."""
    del wish
    seen = facts["updates"]
    if not seen.get("apt"):
        return
    if seen["half_done"]:
        yield error("packages", "dpkg was interrupted in the middle of a package", "sudo dpkg --configure -a")
    held = set(seen["held"])
    drivers = set(seen["driver_packages"])
    kernels = set(seen["kernel_packages"])
    away = any("nvidia" in pattern for pattern in seen["blacklist"]) or (drivers and drivers <= held)
    if drivers & held and kernels and not kernels & held:
        sentence = "the driver is held and the kernel is not: the next kernel comes without a module"
        yield warning("updates", sentence, playbook("updates", variables="updates_policy=hold"))
    elif seen["unattended"] and drivers and not away:
        sentence = (
            "unattended-upgrades may replace the driver's library under the loaded module: what runs goes on, the"
            " next start fails"
        )
        yield warning("updates", sentence, playbook("updates", variables="updates_policy=hold"))
    elif held & (drivers | kernels):
        sentence = "driver and kernel are held: security fixes of the kernel wait, too"
        mend = (
            playbook("updates", variables="updates_policy=release") + " every few weeks, reboot, hold again"
        )
        yield info("updates", sentence, mend)
    else:
        yield ok("updates", "no update comes by itself that changes the driver")


def reboot(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say whether a reboot is due."""
    del wish
    if facts["reboot"]["required"]:
        why = ", ".join(facts["reboot"]["packages"][:5])
        yield warning(
            "reboot", f"the system asks for a reboot{f' because of {why}' if why else ''}", playbook("reboot")
        )
    else:
        yield ok("reboot", "no reboot is due")
