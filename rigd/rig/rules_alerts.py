"""Rules about alerts. Pure but for the box's own list of time zones. No finding repeats a URL."""

from collections.abc import Iterator
from zoneinfo import ZoneInfo

from rigd.rig.alert_urls import holds_secret, schema_of
from rigd.rig.findings import Finding, error, warning
from rigd.rig.schema import PrivateUrl, Rig


def urls_are_urls(rig: Rig) -> Iterator[Finding]:
    """Tell of a text that is no URL at all."""
    for number, url in enumerate(rig.alerts.urls):
        if isinstance(url, PrivateUrl) and schema_of(url.get_secret_value()) is None:
            yield error(
                f"alerts.urls[{number}]",
                "is no Apprise URL",
                "for example ntfys://ntfy.sh/my-topic; https://github.com/caronc/apprise/wiki lists all",
            )


def urls_are_private(rig: Rig) -> Iterator[Finding]:
    """Tell of a URL with a token that is written out."""
    for number, url in enumerate(rig.alerts.urls):
        text = url.get_secret_value() if isinstance(url, PrivateUrl) else ""
        if schema_of(text) is not None and holds_secret(text):
            yield warning(
                f"alerts.urls[{number}]",
                "looks like a URL with a token or password, written out in the rig file",
                "write a reference instead: {env: NAME}, {file: /path} or {credential: NAME}",
            )


def times_make_sense(rig: Rig) -> Iterator[Finding]:
    """Tell of times that contradict one another, and of an unknown time zone."""
    alerts = rig.alerts
    if alerts.repeat_s is not None and alerts.repeat_max_s < alerts.repeat_s:
        yield error("alerts.repeat_max_s", f"is less than repeat_s ({alerts.repeat_s:g} s)")
    if alerts.quiet_hours is not None and alerts.quiet_hours[:5] == alerts.quiet_hours[6:]:
        yield error("alerts.quiet_hours", "begins when it ends", "for example '22:30-07:00'")
    if alerts.timezone is not None and not _known(alerts.timezone):
        yield error("alerts.timezone", f"{alerts.timezone!r} is not known here", "for example Europe/Berlin")


def _known(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (
        OSError,
        ValueError,
        LookupError,
    ):  # Folders, absolute paths and unknown names, by Python version.
        return False
    return True
