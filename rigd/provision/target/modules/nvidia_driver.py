"""The NVIDIA driver: from which source, in which branch, and really there for the kernel that boots next."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rigd.provision.target import apt_packages, nvidia_facts, nvidia_plan
from rigd.provision.target.contract import Argument, Box, Change, Kind, Module, ModuleError

BUILD_TIMEOUT_S = 2400.0

ARGUMENTS = {
    "state": Argument(default="present", choices=("present", "planned")),
    "branch": Argument(kind=Kind.INTEGER),
    "cuda": Argument(),
    "source": Argument(default="auto", choices=("auto", "archive", "nvidia")),
}


def probe(arguments: Mapping[str, Any], box: Box) -> dict[str, Any]:
    """Return the facts, the plan, and what apt would do about it."""
    facts = nvidia_facts.read(box)
    source = None if arguments["source"] == "auto" else arguments["source"]
    wish = nvidia_plan.Wish(branch=arguments["branch"], cuda=arguments["cuda"], source=source)
    plan = nvidia_plan.choose(facts, wish)
    foreign = nvidia_plan.foreign(facts["installed"], plan, facts["distribution"])
    state: dict[str, Any] = {"facts": facts, "plan": asdict(plan), "check": box.check, "foreign": foreign}
    state["packages"] = None
    if plan.resolved and arguments["state"] == "present":
        state["packages"] = apt_packages.probe(_apt(plan.packages), box)
    state["built"] = _built(state, nvidia_facts.dkms(box) if plan.dkms else [])
    return state


def _apt(packages: Any) -> dict[str, Any]:
    return {"name": list(packages), "state": "present", "install_recommends": False}


def _built(state: Mapping[str, Any], dkms: list[dict[str, str]]) -> dict[str, Any]:
    """Return whether the module is there for the kernel that boots next, and what DKMS says of it."""
    kernel = state["facts"]["next_kernel"]
    told = [f"{entry['version']} for {entry['kernel'] or 'no kernel'}: {entry['state']}" for entry in dkms]
    built = bool(state["facts"]["module"]["version"])
    if state["plan"]["dkms"] and dkms:
        # apt is content with a failed build; DKMS is not.
        built = built and any(entry["kernel"] == kernel and entry["state"] == "installed" for entry in dkms)
    return {"so": built, "dkms": told}


def difference(arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Change]:
    """Return the packages to install and the module to build; stop with instructions where a person must act."""
    facts, plan = state["facts"], state["plan"]
    if arguments["state"] == "planned":
        return []
    if plan["source"] == nvidia_plan.STOP:
        raise ModuleError(plan["why"])
    if facts["runfile"]:
        raise ModuleError(
            f"a driver was installed by NVIDIA's .run file, and packages would be laid over it. Remove it first:"
            f" `{nvidia_facts.RUNFILE}`"
        )
    if state["foreign"]:
        raise ModuleError(
            f"driver packages of the other source are installed ({', '.join(state['foreign'][:4])}), and the two"
            f" do not"
            f" mix. Keep that source (`source:`), or remove them: `apt-get purge {' '.join(state['foreign'])}`"
        )
    if not facts["cards"]:
        raise ModuleError(
            "there is no NVIDIA card on the PCI bus (`lspci -d 10de:`). Is it seated and powered?"
        )
    if not plan["resolved"]:
        return _unresolved(state)
    changes = apt_packages.difference(_apt(plan["packages"]), state["packages"])
    if not state["built"]["so"] and not any(change.counts for change in changes):
        what = f"build the nvidia module for {facts['next_kernel']}"
        changes.append(Change(what=what, subject="dkms", data={"build": True}))
    return changes


def _unresolved(state: Mapping[str, Any]) -> list[Change]:
    plan = state["plan"]
    names = ", ".join(plan["packages"])
    if plan["source"] == nvidia_plan.VENDOR and state["check"]:
        return [Change(what=f"install {names} (once NVIDIA's repository is set up)", subject="nvidia")]
    missing = [name for name in plan["packages"] if name not in state["facts"]["available"]]
    where = (
        "NVIDIA's repository"
        if plan["source"] == nvidia_plan.VENDOR
        else "the archive (restricted or non-free)"
    )
    raise ModuleError(
        f"apt does not know {', '.join(missing)}. Set up {where} by `deb822_repository`, read the lists (`apt` with"
        f" `update_cache`), then run this again. Chosen because {plan['why']}"
    )


def apply(_arguments: Mapping[str, Any], state: Mapping[str, Any], changes: list[Change], box: Box) -> None:
    """Install, build what apt left unbuilt, and look that the module is really there."""
    plan = state["plan"]
    if any(not change.data.get("build") for change in changes):
        if plan["packages"][0].startswith("nvidia-driver-pinning-"):
            # The pin decides what the other names resolve to, so it goes first and alone.
            pin = _apt(plan["packages"][:1])
            apt_packages.apply(pin, apt_packages.probe(pin, box), [], box)
        wanted = _apt(plan["packages"])
        now = apt_packages.probe(wanted, box)
        if now.get("plan"):
            apt_packages.refuse(wanted, now, now["plan"])
        apt_packages.apply(wanted, now, [], box)
    kernel = nvidia_facts.next_kernel(box)
    if not nvidia_facts.module(box, kernel)["version"] and plan["dkms"]:
        box.progress(f"building the nvidia module for {kernel}")
        box.run(["dkms", "autoinstall", "-k", kernel], ok=None, timeout_s=BUILD_TIMEOUT_S)
    _verify(state, kernel, box)


def _verify(state: Mapping[str, Any], kernel: str, box: Box) -> None:
    """Look past apt's exit code, which is 0 also where DKMS failed."""
    found = nvidia_facts.module(box, kernel)
    failed = [
        entry
        for entry in nvidia_facts.dkms(box)
        if entry["kernel"] == kernel and entry["state"] != "installed"
    ]
    if not found["version"] or (state["plan"]["dkms"] and failed):
        tail = nvidia_facts.build_log_tail()
        raise ModuleError(
            f"the packages are installed, but there is no nvidia module for {kernel}, the kernel that boots next."
            " Its headers are missing, or the module does not build with it (`dkms status`)."
            " Do not reboot before that is mended" + (f"\n{tail}" if tail else "")
        )
    if state["facts"]["secure_boot"] and not found["signer"]:
        raise ModuleError(
            f"the module for {kernel} is not signed, and Secure Boot would not load it. {nvidia_plan.MOK}"
        )


def result(_arguments: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """Return plan and facts, and whether a reboot brings what is installed into use."""
    facts, plan = state["facts"], state["plan"]
    installed = facts["module"]["version"]
    bound = sorted({card["driver"] for card in facts["cards"]} - {"nvidia", ""})
    reasons = []
    if installed and facts["loaded"] != installed:
        reasons.append(f"loaded is {facts['loaded'] or 'none'}, installed {installed}")
    if installed and bound:
        reasons.append(f"{', '.join(bound)} has the cards")
    if installed and facts["running_kernel"] != facts["next_kernel"]:
        reasons.append(f"kernel {facts['next_kernel']} is installed, {facts['running_kernel']} runs")
    return {
        "source": plan["source"], "branch": plan["branch"], "packages": list(plan["packages"]), "why": plan["why"],
        "resolved": plan["resolved"], "cards": facts["cards"], "version": installed, "loaded": facts["loaded"],
        "next_kernel": facts["next_kernel"], "secure_boot": facts["secure_boot"], "dkms": state["built"]["dkms"],
        "reboot_required": bool(reasons), "reboot_reasons": reasons,
        "distribution": f"{facts['distribution']}{re.sub(chr(92) + '.', '', facts['release'])}",
    }  # fmt: skip


def check_arguments(arguments: Mapping[str, Any]) -> str | None:
    cuda = arguments.get("cuda")
    if cuda and not re.fullmatch(r"\d+\.\d+", str(cuda)):
        return f'`cuda` is a version such as "13.0" (quoted), not {cuda}'
    return None


MODULE = Module(
    names=("rigd.box.nvidia_driver",),
    arguments=ARGUMENTS,
    probe=probe,
    difference=difference,
    apply=apply,
    result=result,
    exclusive=(("branch", "cuda"),),
    check_arguments=check_arguments,
    summary="the NVIDIA driver by a table (source, Secure Boot, CUDA), proved for the kernel that boots next",
)
