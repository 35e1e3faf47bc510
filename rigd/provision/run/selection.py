"""Which tasks a run takes: `--tags`, `--skip-tags`, and the special tags always, never, tagged, untagged and all."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase as fnmatch

from rigd.provision.language.model import Block, Node, Play, Task

SPECIAL = frozenset({"always", "never", "tagged", "untagged", "all"})


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Tags asked for and tags left out, as on the command line. Pure."""

    tags: frozenset[str] = frozenset({"all"})
    skip: frozenset[str] = frozenset()

    def takes(self, own: frozenset[str]) -> bool:
        """Return whether something with these tags runs."""
        return self._wanted(own) and not self._skipped(own)

    def _wanted(self, own: frozenset[str]) -> bool:
        if "always" in own or own & self.tags:
            return True
        if "never" in own:
            return False
        return (
            "all" in self.tags
            or ("tagged" in self.tags and bool(own))
            or ("untagged" in self.tags and not own)
        )

    def _skipped(self, own: frozenset[str]) -> bool:
        if "always" in own and "always" not in self.skip:
            # Only being named, or `all` together with it, leaves out what always runs.
            return bool(own & self.skip - {"all", "tagged"})
        return (
            bool(own & self.skip)
            or "all" in self.skip
            or ("tagged" in self.skip and bool(own))
            or ("untagged" in self.skip and not own)
        )

    def unknown(self, plays: tuple[Play, ...]) -> frozenset[str]:
        """Return asked tags that nothing in these plays carries."""
        return (self.tags | self.skip) - tags_of(plays)


def tags_of(plays: tuple[Play, ...]) -> frozenset[str]:
    """Return all tags that something in these plays carries, and the special ones."""
    return SPECIAL.union(
        *(play.tags for play in plays), *(task.tags for play in plays for task in _tasks(play))
    )


def includes(play: Play) -> bool:
    """Return whether tasks are included while the play runs, whose tags are not known before."""
    return any(task.action.endswith((".include_tasks", ".include_role")) for task in _tasks(play))


def _tasks(play: Play) -> Iterator[Task]:
    for section in (play.pre_tasks, play.roles, play.tasks, play.post_tasks):
        for node in section:
            yield from _below(node)


def _below(node: Node) -> Iterator[Task]:
    if isinstance(node, Task):
        yield node
        return
    for child in (*node.tasks, *node.rescue, *node.always):
        yield from _below(child)


def flattened(nodes: tuple[Node, ...], selection: Selection) -> list[Node]:
    """Return the nodes that run, in order; blocks that neither rescue nor have an `always` are opened up."""
    found: list[Node] = []
    for node in nodes:
        if isinstance(node, Block):
            if node.rescue or node.always:
                found.append(node)
            else:
                found.extend(flattened(node.tasks, selection))
        elif selection.takes(node.tags):
            found.append(node)
    return found


def beginning_at(nodes: tuple[Node, ...], name: str) -> tuple[Node, ...] | None:
    """Return the nodes from the first task of this name on, None if it is not among them."""
    for index, node in enumerate(nodes):
        if isinstance(node, Task):
            if node.name and (node.name == name or fnmatch(node.name, name)):
                return nodes[index:]
            continue
        inside = beginning_at(node.tasks, name)
        if inside is not None:
            return (replace(node, tasks=inside), *nodes[index + 1 :])
    return None
