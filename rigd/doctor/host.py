"""Checks of the machine itself: memory, shared memory, limits, disks, mounts, clock. Pure."""

from collections.abc import Iterable, Iterator

from rigd.doctor.finding import Facts, Finding, error, info, ok, playbook, unknown, warning
from rigd.doctor.wish import Wish
from rigd.engine.spec import MountSpec

SHM_GIB = 1.0
"""Less shared memory than this, and NCCL or vLLM's workers end with a bus error."""
MEMORY_GIB = 16.0
FILES = 1000


def shared_memory(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say whether there is shared memory for what the ranks pass to one another."""
    own = None if wish is None else wish.shm_gib
    ranks = 1 if wish is None else wish.ranks
    if own is not None:
        if own < SHM_GIB and ranks > 1:
            sentence = (
                f"the container has {own * 1024:g} MiB of /dev/shm for {ranks} ranks: NCCL ends by SIGBUS"
            )
            yield error("shared memory", sentence, "engine.docker: shm_size 16gb, or ipc: host")
        else:
            yield ok("shared memory", f"the container has {own:g} GiB of its own")
        return
    size, free = facts["memory"]["shm_gib"], facts["memory"]["shm_free_gib"]
    wanted = SHM_GIB if wish is None else max(SHM_GIB, wish.rig.gates.shm_free_mib / 1024)
    if free < wanted:
        mend = "ls -lS /dev/shm: files of ended programs may go; or mount -o remount,size=16g /dev/shm"
        yield error(
            "shared memory", f"{free:g} of {size:g} GiB are free in /dev/shm, {wanted:g} GiB are wanted", mend
        )
    else:
        yield ok("shared memory", f"{free:g} of {size:g} GiB free in /dev/shm")


def memory(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say whether there is main memory for loading a model, and a cushion."""
    del wish
    seen = facts["memory"]
    if seen["total_gib"] < MEMORY_GIB:
        sentence = f"{seen['total_gib']} GiB of memory: loading a model of tens of GB may end in the kernel ending it"
        yield warning("memory", sentence, "a swap file helps: " + playbook("sysctl"))
    elif not seen["swap_gib"]:
        yield info(
            "memory", f"{seen['total_gib']} GiB of memory, and no swap as a cushion", playbook("sysctl")
        )
    else:
        yield ok("memory", f"{seen['total_gib']} GiB of memory, {seen['swap_gib']} GiB of swap")


def limits(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say whether the engine may lock memory."""
    if wish is not None and wish.docker:
        given = (
            {name: soft for name, soft, _hard in wish.spec.container.ulimits} if wish.spec.container else {}
        )
        if given.get("memlock") != -1 and wish.ranks > 1:
            mend = "engine.docker.ulimits: {memlock: {soft: -1, hard: -1}}"
            yield info("limits", "the container's memlock is Docker's default: NCCL pins less memory", mend)
        return
    seen = facts["memory"]
    if (
        seen["memlock"][0] != -1
        and wish is not None
        and facts["service"].get("unit", {}).get("LoadState") != "loaded"
    ):
        sentence = (
            f"this login may lock {seen['memlock'][0] // 1024} KiB: NCCL cannot pin memory of a bare engine"
        )
        yield warning("limits", sentence, f"{playbook('sysctl')}; rigd.service has no such limit")
    elif wish is not None:
        yield ok("limits", "memory may be locked")


def disks(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say whether the folders of the rig file are there, with room and rights."""
    found = facts["disks"]
    if "error" in found:
        yield error("disks", f"the disks could not be looked at: {found['error']}", "dmesg; df -h")
        return
    least = 5.0 if wish is None else wish.rig.gates.disk_free_gib
    mounts = () if wish is None or wish.spec.container is None else wish.spec.container.mounts
    places = ["/", *(() if wish is None else (wish.state_dir,))]
    places += [mount.source for mount in mounts if not mount.read_only and mount.source in found]
    bad = [*_absent(facts, mounts), *_model(facts, wish)]
    bad += [one for place in dict.fromkeys(places) if (one := _room(place, facts, least)) is not None]
    yield from bad
    if not bad:
        yield ok(
            "disks", f"at least {least:g} GiB free where rigd and the engine write, and all folders are there"
        )


def _absent(facts: Facts, mounts: Iterable[MountSpec]) -> Iterator[Finding]:
    for mount in mounts:
        seen = facts["disks"].get(mount.source)
        if seen is not None and "error" not in seen and not seen["there"] and not mount.create:
            mend = f"put it there; a folder: `mkdir -p {mount.source}`, or `create: true`, or mount its disk"
            yield error("disks", f"{mount.source} is not there, and the engine's container mounts it", mend)


def _model(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    folder = None if wish is None else wish.model_folder
    seen = facts["disks"].get(folder)
    if wish is None or folder is None or seen is None or "error" in seen:
        return
    if not seen["there"] or seen["empty_mount_point"]:
        word = "is empty" if seen["there"] else "is not there"
        mend = f"is its disk mounted? `findmnt`, {playbook('disks')}"
        yield error("disks", f"the model's folder {folder} {word}", mend)
    elif not seen["readable"] and not wish.docker:
        user = facts["system"]["runs_as"]
        sentence = f"user {user} may not read the model's folder {folder}"
        yield error("disks", sentence, f"sudo chmod -R o+rX {folder}")


def _room(place: str, facts: Facts, least_gib: float) -> Finding | None:
    seen = facts["disks"].get(place)
    if seen is None:
        return None
    if "error" in seen:
        return error("disks", f"{place}: {seen['error']}", f"df {place}; is a network disk mounted and up?")
    if seen["read_only"]:
        return error(
            "disks", f"{place} is mounted read-only", "dmesg: a disk with errors is mounted so; fsck"
        )
    if seen["free_gib"] < least_gib:
        sentence = f"{seen['free_gib']} GiB are free at {place}, {least_gib:g} GiB are wanted"
        return error("disks", sentence, f"du -xh {seen['nearest']} | sort -h | tail")
    if seen["files_free"] is not None and seen["files_free"] < FILES:
        return error(
            "disks",
            f"{place} has room and no inodes left",
            f"du --inodes -x {seen['nearest']} | sort -n | tail",
        )
    return None


def cache(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say whether the model can be downloaded to where it is looked for."""
    folder = None if wish is None else wish.hub_cache
    if wish is None or wish.rig.engine.model.startswith(("/", "~", ".")):
        return
    if folder is None:
        sentence = "no mount keeps the models of the Hub: every new container downloads its model again"
        yield warning(
            "model cache", sentence, "engine.docker.mounts: ~/.cache/huggingface on /root/.cache/huggingface"
        )
        return
    seen = facts["disks"].get(folder)
    if seen is None or "error" in seen:
        return
    if not seen["writable"] and not wish.docker:
        user = facts["system"]["runs_as"]
        yield error("model cache", f"user {user} may not write to {seen['nearest']}, so no model is downloaded",
                    f"sudo install -d -o {user} {folder}, or HF_HOME in engine.environment")  # fmt: skip
    else:
        yield ok("model cache", f"{folder}, {seen['free_gib']} GiB free")


def mounts(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say whether everything is mounted that /etc/fstab names."""
    del wish
    missing = facts["fstab"]["missing"] if unknown(facts, "fstab") is None else []
    if missing:
        sentence = (
            f"/etc/fstab names what is not mounted: {', '.join(missing)}; what is written there fills /"
        )
        yield warning("mounts", sentence, f"sudo mount {missing[0]}; see `systemctl --failed`")
    else:
        yield ok("mounts", "everything that /etc/fstab names is mounted")


def clock(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say whether the network sets the clock."""
    del wish
    synchronised = facts["clock"].get("synchronised")
    if synchronised is False:
        sentence = "the clock is not set by the network: apt, TLS and the tailnet fail when it is wrong"
        yield warning("clock", sentence, playbook("clock"))
    elif synchronised is None:
        yield info("clock", "nothing on this box says whether its clock is set", playbook("clock"))
    else:
        yield ok("clock", "the network sets the clock")


def system(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say what the box is, and where it runs."""
    del wish
    seen = facts["system"]
    where = f", in {seen['virtual']}" if seen["virtual"] not in ("", "none") else ""
    yield info("system", f"{seen['name'] or seen['distribution']}, kernel {seen['kernel']}{where}")
