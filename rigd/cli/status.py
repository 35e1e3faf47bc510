"""`rigd status`: what is so, at a glance. Standard library only; see `rigd.client` for why."""

from __future__ import annotations

import json
import os
import sys
import time

from rigd import client
from rigd.errors import ExitCode

TYPE_CHECKING = False  # Type checkers take it for true; importing `typing` for it costs 3 ms.
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    Document = dict[str, Any]
    Asked = tuple[dict[str, str], bool]

GREEN, YELLOW, RED, BOLD, DIM = "32", "33", "31", "1", "2"
COLOURS = {
    "ready": GREEN,
    "failed": RED,
    "stopped": DIM,
    "starting": YELLOW,
    "warming": YELLOW,
    "degraded": YELLOW,
    "stopping": YELLOW,
    "backoff": RED,
    "maintenance": YELLOW,
}
HOST_COLOURS = {"info": DIM, "warning": YELLOW, "error": RED}
LABEL_WIDTH = 9
DAY_S, HOUR_S, MINUTE_S = 86400, 3600, 60
TENTHS_S = 10
BAR_WIDTH = 20
DRIFT_SHOWN = 5


def parse(arguments: Sequence[str]) -> Asked | None:
    """Return the options of a plain `rigd status`, or None when the words need a real parser."""
    options: dict[str, str] = {}
    as_json, words = False, []
    rest = iter(arguments)
    for word in rest:
        name, equals, value = word.partition("=")
        if name in ("--socket", "--url"):
            value = value if equals else next(rest, "")
            if not value or name[2:] in options:
                return None
            options[name[2:]] = value
        elif word == "--json":
            as_json = True
        else:
            words.append(word)
    return (options, as_json) if words == ["status"] else None


def quick(asked: Asked) -> int:
    """Print the status of the daemon and return the exit code."""
    options, as_json = asked
    show(client.connect(os.environ, **options).get("/v1/status"), as_json=as_json)
    return int(ExitCode.DONE)


def show(document: Document, *, as_json: bool) -> None:
    """Print the status document, as it is or for a person."""
    text = json.dumps(document, indent=2) if as_json else render(document, colour=colours(sys.stdout))
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def colours(stream: object) -> bool:
    """Return whether colours are welcome on a stream."""
    isatty = getattr(stream, "isatty", None)
    return bool(isatty is not None and isatty() and not os.environ.get("NO_COLOR"))


def render(document: Document, *, colour: bool = False) -> str:
    """Return the status as aligned lines; pure but for the local time zone."""
    paint = _painter(colour)
    lines = [_title(document, paint)]
    for label, section in SECTIONS:
        for index, text in enumerate(section(document, paint)):
            lines.append(f"  {paint((label if index == 0 else '').ljust(LABEL_WIDTH), DIM)} {text}")
    return "\n".join(lines)


def headline(document: Document) -> str:
    """Return the status as one plain line."""
    live = _now(document, _painter(False))
    now = next(iter(live), "")
    return " ".join(part for part in (str(document.get("state")), f"({document.get('reason')})", now) if part)


def duration(seconds: float) -> str:
    """Return a length of time in its two largest units, short ones to the tenth."""
    if 0 < seconds < TENTHS_S:
        return f"{seconds:.1f} s"
    whole = max(0, int(seconds))
    if whole >= DAY_S:
        return f"{whole // DAY_S} d {whole % DAY_S // HOUR_S} h"
    if whole >= HOUR_S:
        return f"{whole // HOUR_S} h {whole % HOUR_S // MINUTE_S} min"
    if whole >= MINUTE_S:
        return f"{whole // MINUTE_S} min {whole % MINUTE_S} s"
    return f"{whole} s"


def clock(at_s: float, now_s: float) -> str:
    """Return the local time of day, with the date when it is another day."""
    at, now = time.localtime(at_s), time.localtime(now_s)
    return time.strftime("%H:%M:%S" if at[:3] == now[:3] else "%Y-%m-%d %H:%M", at)


def printable(text: object) -> str:
    """Return text without control characters: nothing that an engine wrote may steer the terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in str(text))


def _painter(colour: bool) -> Callable[[str, str], str]:
    if not colour:
        return lambda text, _code: text
    return lambda text, code: f"\x1b[{code}m{text}\x1b[0m"


def _title(document: Document, paint: Callable[[str, str], str]) -> str:
    state = str(document.get("state"))
    now_s = float(document["now_s"])
    since_s = document.get("since_s")
    since = f" since {clock(since_s, now_s)} ({duration(now_s - since_s)})" if since_s else ""
    reason = document.get("reason")
    because = f": {printable(reason)}" if reason else ""
    painted = paint(state.upper(), COLOURS.get(state, BOLD) + ";1")
    wanted = str(document.get("desired"))
    odd = {("stopped", "running"): " (wanted: running)", ("ready", "stopped"): " (wanted: stopped)"}
    name = paint(printable(document.get("rig")), BOLD)
    return f"{name} {painted}{since}{odd.get((state, wanted), '')}{because}"


def _now(document: Document, paint: Callable[[str, str], str]) -> Iterator[str]:
    live = document.get("live")
    if live:
        parts = [printable(live["phase"])]
        if live.get("fraction") is not None:
            parts.append(f"{_bar(live['fraction'])} {live['fraction']:.0%}")
        if live.get("elapsed_s") is not None:
            parts.append(f"for {duration(live['elapsed_s'])}")
        left_s = live.get("eta_s")
        if left_s is not None:
            parts.append(f"about {duration(left_s)} left" if left_s > 0 else "longer than usual")
        if live.get("detail"):
            parts.append(printable(live["detail"]))
        yield ", ".join(parts)
    waiting = document.get("waiting")
    if waiting:
        since = clock(waiting["since_s"], document["now_s"])
        left = duration(waiting["until_s"] - document["now_s"])
        yield paint(f"waits for {waiting['for']} since {since}, {left} more at most", YELLOW)
    retry_s = document.get("retry_s")
    if retry_s:
        yield paint(f"tries again in {duration(retry_s - document['now_s'])}", YELLOW)


def _bar(fraction: float) -> str:
    done = round(max(0.0, min(1.0, fraction)) * BAR_WIDTH)
    return "[" + "#" * done + "." * (BAR_WIDTH - done) + "]"


def _engine(document: Document, _paint: Callable[[str, str], str]) -> Iterator[str]:
    engine = document.get("engine")
    if not engine:
        yield "none runs"
        return
    identity = str(engine["id"])[:12]
    version = f", vLLM {engine['version']}" if engine.get("version") else ""
    ready_s = document.get("ready_s")
    created_s = engine.get("created_s")
    took = f", ready after {duration(ready_s - created_s)}" if ready_s and created_s else ""
    yield f"{engine['runtime']} {identity} (pid {engine['pid']}, start {engine['start']}){version}{took}"
    yield f"{printable(engine['model'])} at {engine['url']}"


def _health(document: Document, paint: Callable[[str, str], str]) -> Iterator[str]:
    health = document.get("health")
    if not health or not document.get("engine"):
        return
    word = str(health.get("health"))
    parts = [paint(word, {"passing": GREEN, "failing": RED}.get(word, YELLOW))]
    if health.get("detail"):
        parts.append(printable(health["detail"]))
    if health.get("running") is not None:
        parts.append(f"{health['running']} running, {health['waiting']} waiting")
    if health.get("kv_usage") is not None:
        pool = f" of {health['pool_tokens']:,} tokens" if health.get("pool_tokens") else ""
        parts.append(f"KV cache {health['kv_usage']:.1%}{pool} used")
    if health.get("acceptance") is not None:
        parts.append(f"{health['acceptance']:.0%} of draft tokens accepted")
    if health.get("silent_s") is not None:
        parts.append(f"last progress {duration(health['silent_s'])} ago")
    yield ", ".join(parts)
    canary = health.get("canary")
    if canary:
        ago = duration(document["now_s"] - canary["at_s"])
        word = paint(canary["answer"], GREEN if canary["answer"] == "good" else RED)
        said = f": {printable(canary['detail'])}" if canary.get("detail") else ""
        yield f"canary {word} in {canary['took_s']:.2f} s, {ago} ago{said}"


def _troubles(document: Document, paint: Callable[[str, str], str]) -> Iterator[str]:
    for trouble in document.get("troubles") or []:
        since = f", since {clock(trouble['since_s'], document['now_s'])}"
        yield f"{paint(printable(trouble['sentence']), YELLOW)} ({trouble['class']}{since})"
        yield f"  -> {printable(trouble['hint'])}"


def _baseline(document: Document, paint: Callable[[str, str], str]) -> Iterator[str]:
    baseline = document.get("baseline") or {}
    forms = (
        ("pool_tokens", "KV pool {:,} tokens"),
        ("startup_s", "ready after {:.0f} s"),
        ("tokens_per_s", "{:.1f} tokens/s to a request alone"),
        ("acceptance", "{:.0%} of draft tokens accepted"),
    )
    parts = [form.format(baseline[key]) for key, form in forms if baseline.get(key) is not None]
    if parts:
        yield paint(", ".join(parts), DIM)


def _warm(document: Document, paint: Callable[[str, str], str]) -> Iterator[str]:
    warm = document.get("warm") or []
    width = max((len(entry["prefix"]) for entry in warm), default=0)
    for entry in warm:
        word = paint("warm", GREEN) if entry["proved"] else paint("not warm", RED)
        cold, hot = entry.get("cold_ttft_s"), entry.get("warm_ttft_s")
        faster = f", first token {cold:.2f} s cold, {hot:.2f} s warm" if cold and hot else ""
        detail = f", {printable(entry['detail'])}" if entry.get("detail") and not entry["proved"] else ""
        yield (
            f"{entry['prefix'].ljust(width)}  {word}: {entry['hit']:.1%} of {entry['prefix_tokens']:,} tokens"
            f" cached{faster}{detail}"
        )


def _gpus(document: Document, paint: Callable[[str, str], str]) -> Iterator[str]:
    for card in document.get("gpus") or []:
        parts = [f"{card['index']} {printable(card['name'])}"]
        if card.get("memory_used_mib") is not None:
            parts.append(f"{card['memory_used_mib']:,.0f} of {card['memory_total_mib']:,.0f} MiB")
        for key, form in (("temperature_c", "{:.0f} C"), ("utilization", "{:.0%}"), ("power_w", "{:.0f} W")):
            if card.get(key) is not None:
                parts.append(form.format(card[key]))
        if card.get("problem"):
            parts.append(paint(printable(card["problem"]), RED))
        yield ", ".join(parts)


def _host(document: Document, paint: Callable[[str, str], str]) -> Iterator[str]:
    for finding in document.get("host") or []:
        since = f", since {clock(finding['since_s'], document['now_s'])}"
        colour = HOST_COLOURS.get(finding["severity"], RED)
        yield f"{paint(printable(finding['sentence']), colour)} ({finding['class']}{since})"
        if finding["severity"] != "info" or finding["blocks"]:
            yield f"  -> {printable(finding['hint'])}"


def render_drift(document: Document) -> list[str]:
    """Return whether the host is as its playbook says, as lines."""
    return list(_drift(document, _painter(colours(sys.stdout))))


def _drift(document: Document, paint: Callable[[str, str], str]) -> Iterator[str]:
    drift = document.get("drift")
    if not drift:
        return
    now_s, name = document["now_s"], printable(drift["playbook"])
    checked = drift.get("checked_s")
    when = f"looked {duration(now_s - checked)} ago" if checked else "not looked yet"
    doing = {"check": ", looking now", "apply": ", being applied now"}.get(drift.get("running") or "", "")
    found = drift.get("differences") or []
    if drift.get("problem"):
        yield f"{paint(printable(drift['problem']), RED)} ({name}, {when}{doing})"
        if drift.get("hint"):
            yield f"  -> {printable(drift['hint'])}"
    elif not found:
        yield paint(f"as {name} says" if checked else name, GREEN if checked else DIM) + f" ({when}{doing})"
    if found:
        count = len(found) + drift.get("more", 0)
        unsure = "" if all(one["certain"] for one in found) else "; looked at again soon"
        yield paint(f"{count} differ from {name}", YELLOW) + f" ({when}{doing}{unsure})"
    for one in found[:DRIFT_SHOWN]:
        what = f": {printable(one['what'])}" if one.get("what") else ""
        may = ", rigd may apply it" if one["allowed"] else ""
        yield f"  {printable(one['task'])}{what} (since {clock(one['since_s'], now_s)}{may})"
    if drift.get("reboot"):
        yield paint("the playbook wants a reboot", YELLOW)
    if found:
        yield f"  -> rigd provision check {name} --diff"


def _failure(document: Document, paint: Callable[[str, str], str]) -> Iterator[str]:
    failure = document.get("failure")
    attempts = document.get("attempts") or {}
    if failure:
        now_s = document["now_s"]
        ago = f"{clock(failure['at_s'], now_s)} ({duration(now_s - failure['at_s'])} ago)"
        yield f"{ago}, start {failure['start']}: {paint(printable(failure['sentence']), RED)}"
        for line in (failure.get("evidence") or [])[:3]:
            yield paint(f"  | {printable(line)}", DIM)
        if failure.get("hint"):
            yield f"  -> {printable(failure['hint'])}"
    if attempts.get("failed"):
        window = duration(attempts["window_s"])
        yield f"{attempts['failed']} of {attempts['limit']} failures allowed within {window}"
    if document.get("gave_up"):
        yield paint(f"gave up: {printable(document['gave_up'])}", RED)


def _overlay(document: Document, paint: Callable[[str, str], str]) -> Iterator[str]:
    for step in document.get("overlay") or []:
        yield paint(printable(f"{step['text']} ({step['kind']}, start {step['start']})"), YELLOW)


def _configuration(document: Document, paint: Callable[[str, str], str]) -> Iterator[str]:
    configuration = document.get("configuration")
    if not configuration:
        return
    yield f"{printable(configuration['path'])} ({configuration['digest']})"
    if configuration.get("fallback"):
        yield paint(
            "it failed; the last known good settings run instead: correct it, then `rigd restart`", YELLOW
        )
    if configuration.get("changed"):
        running = configuration.get("running_digest")
        yield paint(f"the engine runs an older configuration ({running}): `rigd restart`", YELLOW)


def _store(document: Document, paint: Callable[[str, str], str]) -> Iterator[str]:
    problem = (document.get("store") or {}).get("problem")
    if problem:
        yield paint(printable(problem), RED)


def _daemon(document: Document, _paint: Callable[[str, str], str]) -> Iterator[str]:
    daemon = document.get("daemon")
    if daemon:
        up = duration(document["now_s"] - daemon["started_s"])
        yield f"pid {daemon['pid']}, rigd {daemon['version']}, up {up}"


def _next(document: Document, paint: Callable[[str, str], str]) -> Iterator[str]:
    if document.get("hint"):
        yield paint(printable(document["hint"]), BOLD)


SECTIONS: tuple[tuple[str, Callable[[Document, Callable[[str, str], str]], Iterator[str]]], ...] = (
    ("now", _now),
    ("engine", _engine),
    ("health", _health),
    ("trouble", _troubles),
    ("baseline", _baseline),
    ("prefixes", _warm),
    ("gpu", _gpus),
    ("host", _host),
    ("drift", _drift),
    ("failure", _failure),
    ("rig file", _configuration),
    ("changed", _overlay),
    ("store", _store),
    ("daemon", _daemon),
    ("next", _next),
)
"""What is shown, in order; a section that has nothing to say yields nothing."""
