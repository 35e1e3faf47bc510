"""What a run knows while it goes: shared by all its hosts (`RunState`), and of one host (`HostState`)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rigd.provision.connection.target import Target
from rigd.provision.language.model import Host
from rigd.provision.run.boxes import Boxes, TargetOf
from rigd.provision.run.events import Recap, Tell
from rigd.provision.run.flow import Stop
from rigd.provision.run.journal import Journal
from rigd.provision.run.known import Known
from rigd.provision.run.options import RunOptions
from rigd.provision.run.past import HostPast
from rigd.provision.run.scopes import Scopes


@dataclass(kw_only=True)
class RunState:
    """What all hosts of a run share."""

    options: RunOptions
    tell: Tell
    journal: Journal
    scopes: Scopes
    target_of: Callable[[str, Mapping[str, Any]], Target]
    """Takes a host's name and its variables of the connection."""
    recap: Recap = field(default_factory=Recap)
    stop: Stop = field(default_factory=Stop)


@dataclass(kw_only=True)
class HostState:
    """One host over the whole run."""

    host: Host
    reach: Callable[[str, TargetOf], Boxes]
    """Makes the ways to the boxes of a host, told how each is to be found."""
    known: Known
    """Facts, registered results and variables that tasks have set."""
    past: HostPast = field(default_factory=HostPast)
    """What a broken run left here."""
    out: bool = False
    """Failed or gone: no further play includes it."""
    reached: dict[str, Boxes] = field(default_factory=dict)
    """Ways that are open, by what a play says of the connection."""

    def close(self) -> None:
        """End all helpers."""
        for boxes in self.reached.values():
            boxes.close()

    def abort(self) -> None:
        """End all helpers, from another thread than the one that uses them."""
        for boxes in list(self.reached.values()):
            boxes.abort()
