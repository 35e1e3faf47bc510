"""Is this host fit for its rig? A read-only preflight.

    rig file -> Wish.questions() -> provision.target.doctor_facts (on the box, deadlines, no judgement) -> facts
    facts + Wish -> checks.CHECKS (pure) -> findings: severity, evidence, what mends it

How to add a check: a function (facts, wish) -> findings in the file of its subject, and a line in `checks.CHECKS`.
"""
