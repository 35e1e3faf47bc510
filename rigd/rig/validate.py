"""What the types of a rig file cannot say: settings that contradict one another. Pure; each rule is one function.

To add a rule: write a function that yields findings, and name it in `RULES`.
"""

from collections.abc import Callable, Iterator

from rigd.rig import rules_alerts, rules_container, rules_engine, rules_host, rules_service
from rigd.rig.findings import Finding
from rigd.rig.schema import Rig

RULES: tuple[Callable[[Rig], Iterator[Finding]], ...] = (
    rules_container.image_is_pinned,
    rules_container.shared_memory_is_enough,
    rules_container.cards_are_enough,
    rules_engine.batches_hold_prompts,
    rules_engine.tool_calls_have_a_parser,
    rules_container.template_is_mounted,
    rules_container.mounts_are_distinct,
    rules_container.ulimits_are_ordered,
    rules_engine.secrets_are_references,
    rules_engine.environment_names_are_names,
    rules_engine.extra_is_extra,
    rules_engine.served_name_is_one,
    rules_engine.address_is_private,
    rules_container.container_port_is_used,
    rules_service.channels_fit,
    rules_service.prefixes_are_distinct,
    rules_service.deadlines_make_sense,
    rules_host.cards_are_distinct,
    rules_host.temperatures_are_ordered,
    rules_host.drift_has_a_playbook,
    rules_alerts.urls_are_urls,
    rules_alerts.urls_are_private,
    rules_alerts.times_make_sense,
)


def validate(rig: Rig) -> tuple[Finding, ...]:
    """Return everything that is wrong or doubtful about a rig; what depends on vLLM's version is told elsewhere."""
    return tuple(finding for rule in RULES for finding in rule(rig))
