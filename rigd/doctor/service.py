"""Checks of rigd's own unit, a bare engine's program, and notes of vLLM that outlive their truth. Pure."""

from collections.abc import Iterator

from rigd.doctor.finding import Facts, Finding, error, info, number, ok, playbook, unknown, warning
from rigd.doctor.wish import Wish

OLD_CLOCK = 252
"""systemd before this takes ProtectClock for a word on all devices."""


def unit(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say whether rigd comes up by itself, and sees the cards."""
    seen = facts["service"]
    if unknown(facts, "service") is not None or not seen.get("systemd"):
        yield info("service", "no systemd answers here: rigd runs in the foreground (`rigd up`)")
        return
    values = seen["unit"]
    if values.get("LoadState") != "loaded":
        yield info(
            "service",
            "rigd.service is not installed: after a reboot nothing starts by itself",
            playbook("rigd"),
        )
        return
    state = f"{values.get('ActiveState')} ({values.get('SubState')})"
    if values.get("ActiveState") == "failed":
        yield error("service", f"rigd.service is {state}: {values.get('Result')}", "journalctl -u rigd -n 50")
    elif values.get("UnitFileState") not in ("enabled", "enabled-runtime"):
        yield warning(
            "service",
            f"rigd.service is {state}, and does not start at boot",
            "sudo systemctl enable --now rigd",
        )
    else:
        yield ok("service", f"rigd.service is {state} and starts at boot")
    yield from _hidden(facts)
    if wish is not None and _asks_root(wish) and seen["units"].get("rigd-host-act.socket") != "active":
        mend = "sudo systemctl enable --now rigd-host-act.socket"
        yield warning(
            "service", "the rig file lets rigd act on the host, and root's one-shot is not there", mend
        )
    drifts = wish is not None and wish.rig.host.drift.playbook is not None
    if drifts and seen["units"].get("rigd-provision.socket") != "active":
        mend = "sudo systemctl enable --now rigd-provision.socket"
        yield warning(
            "service", "the rig file names a playbook for drift, and root's one-shot is not there", mend
        )


def _asks_root(wish: Wish) -> bool:
    host = wish.rig.host
    return bool(host.gpus) or host.allow_gpu_reset or host.allow_reboot


def _hidden(facts: Facts) -> Iterator[Finding]:
    """Yield settings of the unit that hide cards, or processes, from it."""
    values, version = facts["service"]["unit"], facts["service"]["version"] or 0
    hides = []
    if values.get("PrivateDevices") == "yes":
        hides.append("PrivateDevices=yes removes /dev/nvidia*")
    if values.get("ProtectClock") == "yes" and version < OLD_CLOCK:
        hides.append("ProtectClock=yes denies every device but the clock on this systemd")
    allowed = values.get("DeviceAllow", "")
    if values.get("DevicePolicy") in ("closed", "strict") and "nvidia" not in allowed:
        hides.append(f"DevicePolicy={values['DevicePolicy']} without char-nvidia denies the cards")
    if values.get("ProtectProc") in ("invisible", "noaccess") or values.get("ProcSubset") == "pid":
        hides.append("ProtectProc and ProcSubset hide who uses a card or a port")
    if hides:
        mend = "remove it from the unit, or from its drop-ins: systemctl cat rigd"
        yield error("hardening", f"rigd.service hides its cards: {'; '.join(hides)}", mend)


def program(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say whether a bare engine's program is there, of the version that the rig file names."""
    if wish is None or wish.docker or unknown(facts, "process") is not None:
        return
    seen, version = facts["process"], wish.rig.engine.version
    if not seen["program"]:
        sentence = f"there is no program '{seen['name']}' for the engine"
        yield error("program", sentence, "engine.process.executable: [/path/to/venv/bin/vllm, serve]")
    elif seen["vllm"] and number(seen["vllm"])[:2] != number(version)[:2]:
        sentence = f"{seen['program']} is vLLM {seen['vllm']}, and the rig file says {version}"
        yield warning("program", sentence, f'engine.version: "{seen["vllm"]}"')
    elif (
        wish.uses_cards
        and seen["torch"]
        and not seen["cuda"]
        and not wish.environment.get("VLLM_TARGET_DEVICE")
    ):
        yield info("program", f"{seen['program']} has torch {seen['torch']}, which was built without CUDA")
    else:
        said = ", ".join(f"{name} {seen[name]}" for name in ("vllm", "torch", "python") if seen[name])
        yield ok("program", f"{seen['program']}{f': {said}' if said else ''}")


def peer_notes(facts: Facts, wish: Wish | None) -> Iterator[Finding]:
    """Say whether vLLM remembers peer access of another driver: its notes go by the cards' numbers alone."""
    del wish
    since_s = facts["driver"].get("library_s") if unknown(facts, "driver") is None else None
    found = facts["caches"] if isinstance(facts["caches"], list) else []
    old = [one["path"] for one in found if since_s is not None and one["made_s"] < since_s]
    if old:
        sentence = f"vLLM's note on peer access is older than the driver: {', '.join(old)}"
        yield warning("p2p cache", sentence, f"rm {' '.join(old)}; it is made again at the next start")
