"""Checks of Docker, of how cards get into containers, and of the engine's image. Pure."""

from collections.abc import Iterator

from rigd.doctor.finding import Facts, Finding, error, info, number, ok, playbook, unknown, warning
from rigd.doctor.wish import Wish
from rigd.provision.target import cdi as specs

CDI_KNOWN, CDI_FIRST = (25,), (29, 2)
SNAPSHOTTER = "io.containerd.snapshotter.v1"
IMAGE_GIB = 30.0
"""Room that an engine's image takes while it is unpacked."""
TOOLKIT_JIT, TOOLKIT_BAD = (1, 18), (1, 19, 1)


def _wanted(wish: Wish | None) -> bool:
    return wish is None or wish.docker


def docker(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say which Docker there is, whether it answers, and whether rigd's user may ask it."""
    if not _wanted(wish):
        return
    seen = facts["docker"]
    packages = seen["packages"]
    version = str(seen["info"].get("ServerVersion") or "")
    severity = error if wish is not None else info
    if not seen["program"] and not seen["socket"]:
        yield severity("docker", "there is no Docker", playbook("docker"))
        return
    if seen["snap"]:
        sentence = "Docker is a snap: its confinement keeps NVIDIA's toolkit and other folders away"
        yield error("docker", sentence, f"sudo snap remove docker, then {playbook('docker')}")
    if "podman-docker" in packages:
        sentence = "`docker` is podman in disguise (podman-docker): rigd needs Docker's own daemon"
        yield error("docker", sentence, f"sudo apt remove podman-docker, then {playbook('docker')}")
    if not seen["answers"]:
        denied = "permission denied" in seen["problem"].lower()
        mend = (
            "run as root, or join the group docker"
            if denied
            else "systemctl status docker; journalctl -u docker -n 50"
        )
        yield severity("docker", f"Docker does not answer: {seen['problem'] or 'nobody listens'}", mend)
        return
    if any("rootless" in option for option in seen["info"].get("SecurityOptions") or ()):
        sentence = (
            "Docker runs without root: cards get in only with extra settings of NVIDIA's toolkit (no-cgroups)"
        )
        yield warning("docker", sentence, playbook("docker"))
    flavour = next((name for name in ("docker-ce", "docker.io") if name in packages), "Docker")
    if number(version) < CDI_KNOWN:
        sentence = f"{flavour} {version} knows no CDI: cards come by a hook, and each `daemon-reload` takes them away"
        yield warning("docker", sentence, f"{playbook('docker')} brings docker-ce")
    else:
        yield ok("docker", f"{flavour} {version}")
    groups = facts["service"].get("groups") or ()
    if (
        unknown(facts, "service") is None
        and facts["service"].get("user") == "rigd"
        and "docker" not in groups
    ):
        yield error(
            "docker",
            "user rigd is not in the group docker",
            "sudo usermod -aG docker rigd; systemctl restart rigd",
        )


def settings(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say whether Docker's settings can be read, and keep containers alive."""
    if not _wanted(wish) or not facts["docker"]["answers"]:
        return
    found = facts["docker"]["daemon_json"]
    if found.get("error"):
        sentence = f"/etc/docker/daemon.json is not valid ({found['error']}): Docker will not start again"
        yield error(
            "daemon.json",
            sentence,
            "correct it, then `dockerd --validate --config-file /etc/docker/daemon.json`",
        )
    elif not facts["docker"]["info"].get("LiveRestoreEnabled"):
        sentence = "an update of Docker ends the engine: containers end with its daemon (live-restore is off)"
        yield warning("daemon.json", sentence, playbook("daemon_json"))
    else:
        yield ok("daemon.json", "containers outlive a restart of Docker's daemon")


def injection(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say whether cards get into containers the way the rig file says, and stay there."""
    if wish is None or not wish.docker or not wish.uses_cards or not facts["docker"]["answers"]:
        return
    info_, way = (
        facts["docker"]["info"],
        wish.rig.engine.docker.gpu_injection if wish.rig.engine.docker else "gpus",
    )
    version, toolkit = number(str(info_.get("ServerVersion") or "")), facts["toolkit"]["program"]
    cdi_on = bool(info_.get("CDISpecDirs"))
    made = facts["cdi"]["generated"] or facts["cdi"]["by_hand"]
    if not toolkit:
        yield error("injection", "NVIDIA's container toolkit is not installed", playbook("toolkit"))
        return
    by_cdi = (
        way == "cdi"
        or (way == "gpus" and version >= CDI_FIRST)
        or (way == "runtime" and number(toolkit) >= TOOLKIT_JIT)
    )
    if way == "cdi" and (version < CDI_KNOWN or not cdi_on):
        mend = playbook("docker") if version < CDI_KNOWN else f"{playbook('daemon_json')} (features: cdi)"
        yield error("injection", "the rig file asks for CDI, and this Docker does not take it", mend)
    elif way in ("cdi", "gpus") and by_cdi and made is None:
        sentence = "there is no CDI specification: " + (
            "no card gets in"
            if way == "cdi"
            else "Docker falls back to the hook, silently, and cards may be lost later"
        )
        yield (error if way == "cdi" else warning)("injection", sentence, playbook("cdi"))
    elif way == "runtime" and "nvidia" not in facts["docker"]["runtimes"]:
        yield error(
            "injection",
            "the rig file asks for runtime nvidia, which Docker lacks",
            playbook("toolkit"),
        )
    elif not by_cdi and info_.get("CgroupDriver") == "systemd":
        sentence = (
            "cards come by a hook, and any `systemctl daemon-reload` (each package update does one) takes them"
            " away from the running engine: Failed to initialize NVML"
        )
        mend = f"engine.docker.gpu_injection: cdi, with Docker 28.2 or newer: {playbook('docker')}"
        yield warning("injection", sentence, mend)
    else:
        yield ok("injection", f"cards get in by {'CDI' if by_cdi else 'the hook'}, toolkit {toolkit}")


def toolkit(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say whether the toolkit's packages are of one version, and one without known trouble."""
    if not _wanted(wish):
        return
    packages = facts["toolkit"]["packages"]
    if len({version.split("-")[0] for version in packages.values()}) > 1:
        said = ", ".join(f"{name} {version}" for name, version in packages.items())
        yield warning("toolkit", f"its packages are of different versions: {said}", playbook("toolkit"))
    elif number(facts["toolkit"]["program"]) >= TOOLKIT_BAD and number(facts["toolkit"]["program"]) < (1, 20):
        sentence = f"toolkit {facts['toolkit']['program']} is of a series with known trouble when CUDA starts"
        yield info("toolkit", sentence, playbook("toolkit"))


def cdi(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say whether the CDI specification speaks of the driver that runs."""
    if not _wanted(wish) or unknown(facts, "cdi") is not None or not facts["driver"]["loaded"]:
        return
    module, seen = facts["driver"]["loaded"], facts["cdi"]
    wrong = specs.judge(module, seen["generated"], seen["by_hand"])
    if "by-hand" in wrong:
        sentence = (
            f"{specs.BY_HAND}, made by hand, speaks of driver {seen['by_hand']['version']}; {module} runs"
        )
        yield error("cdi", sentence, f"{playbook('cdi')} puts it aside")
    if "stale" in wrong:
        sentence = f"the CDI specification speaks of driver {seen['generated']['version']}; {module} runs"
        yield error("cdi", sentence, f"sudo systemctl restart nvidia-cdi-refresh, or {playbook('cdi')}")
    if not wrong and seen["generated"] is not None:
        yield ok("cdi", f"the CDI specification speaks of driver {module}")


def store(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say whether there is room for the image where Docker really keeps images."""
    if not _wanted(wish) or not facts["docker"]["answers"]:
        return
    info_ = facts["docker"]["info"]
    containerd = any(SNAPSHOTTER in str(value) for row in info_.get("DriverStatus") or () for value in row)
    place = "/var/lib/containerd" if containerd else str(info_.get("DockerRootDir") or "/var/lib/docker")
    if containerd and facts["docker"]["daemon_json"].get("data-root"):
        sentence = (
            f"data-root of daemon.json does not hold for images: they are in {place} (containerd's store)"
        )
        yield warning(
            "image store",
            sentence,
            "root of containerd's config.toml, or features: {containerd-snapshotter: false}",
        )
    disk = facts["disks"].get(place) or facts["disks"]["/"]
    if "error" in disk:
        yield error("image store", f"{place}: {disk['error']}", f"df {place}")
        return
    here = wish is not None and unknown(facts, "image") is None and facts["image"]["there"]
    if not here and disk["free_gib"] < IMAGE_GIB:
        sentence = f"{disk['free_gib']} GiB are free at {place}; an image takes up to {IMAGE_GIB:g} GiB"
        yield error(
            "image store",
            sentence,
            "docker system df; docker image prune; or a larger disk: playbooks/disks.yml",
        )
    else:
        yield ok(
            "image store",
            f"{disk['free_gib']} GiB free at {place}{', and the image is here' if here else ''}",
        )
