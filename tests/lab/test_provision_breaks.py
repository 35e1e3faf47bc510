"""Runs that are broken on purpose, and boxes in trouble: same end state, handlers run, one reboot; or a sentence."""

import concurrent.futures
import contextlib
import socket
from collections.abc import Callable
from pathlib import Path

import breaking
import install
import pytest
from box import booted
from breaking import BOUNDARIES, END, Break, Story
from desks import Desk, desk_of

pytestmark = pytest.mark.lab

WAYS: dict[str, Break] = {
    "link cut": breaking.link_cut,
    "helper killed": breaking.helper_killed,
    "rigd killed": breaking.rigd_killed,
}
Stories = dict[tuple[str, int], Story]
"""Way and boundary -> how it went."""
POWER_CUTS = (2, 4)
"""A box takes ten seconds to boot: its power is cut before the reboot and after it."""


@pytest.fixture(scope="module")
def stories(need_parts: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Stories:
    """Break runs in every way at every boundary; each way has a box of its own, and all go on side by side."""
    need_parts("box")
    with contextlib.ExitStack() as stack, concurrent.futures.ThreadPoolExecutor(len(WAYS) + 1) as pool:

        def all_of(way: str) -> Stories:
            desk = desk_in(stack, tmp_path_factory.mktemp("desk"))
            boundaries = BOUNDARIES if way in WAYS else POWER_CUTS
            breaks = WAYS.get(way, breaking.power_cut)
            return {(way, at): breaking.broken_at(desk, at, breaks) for at in boundaries}

        found: Stories = {}
        for part in pool.map(all_of, [*WAYS, "power cut"]):
            found |= part
        return found


def desk_in(stack: contextlib.ExitStack, folder: Path) -> Desk:
    lab = install.default_folder()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    box = stack.enter_context(booted(lab / "box", lab / "box_key", port))
    breaking.prepare(box)
    return desk_of(box, folder)


@pytest.mark.parametrize(("way", "at"), [(way, at) for way in WAYS for at in BOUNDARIES])
def test_broken_run_comes_to_the_same_end(stories: Stories, way: str, at: int) -> None:
    story = stories[way, at]

    assert story.left == END, [run.events for run in story.rest]
    assert story.rebooted
    assert [run.code for run in story.rest] == [0]


@pytest.mark.parametrize("at", POWER_CUTS)
def test_box_whose_power_was_cut_comes_to_the_same_end(stories: Stories, at: int) -> None:
    story = stories["power cut", at]
    reboots = story.left.pop("reboots", "")

    assert story.left == {name: text for name, text in END.items() if name != "reboots"}
    assert reboots in ("", END["reboots"])  # The cut may be the reboot that the run wanted.
    assert story.rebooted
    assert [run.code for run in story.rest] == [0]
