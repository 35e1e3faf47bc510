"""A budget as JSON."""

from dataclasses import asdict
from typing import Any

from rigd.budget.channels import Plan
from rigd.budget.pool import Pool
from rigd.budget.reckoning import Budget


def as_document(budget: Budget) -> dict[str, Any]:
    """Return a budget as JSON carries it."""
    plan = budget.plan
    verdict = (
        "unknown"
        if budget.used is None
        else "no channels"
        if plan is None
        else "holds"
        if plan.holds
        else "refused"
    )
    return {
        "rig": budget.rig,
        "verdict": verdict,
        "pool": None if budget.used is None else budget.used.document(),
        "deviation": budget.deviation,
        "activation": None if budget.activation is None else budget.activation.document(),
        "computed": None if budget.computed is None else _pool_document(budget.computed),
        "implied": None if budget.implied is None else _pool_document(budget.implied),
        "layout": None if budget.layout is None else asdict(budget.layout),
        "model": None if budget.shape is None else {"from": budget.shape_from, **asdict(budget.shape)},
        "plan": None if plan is None else _plan_document(plan),
        "fit": None if budget.fit is None else _fit_document(budget),
        "unknown": list(budget.unknown),
    }


def _pool_document(pool: Pool) -> dict[str, Any]:
    return {
        "tokens": pool.tokens.document(),
        "memory_bytes": pool.memory.document(),
        "blocks": pool.blocks,
        "usable_blocks": pool.usable_blocks,
        "context": pool.context,
        "concurrency": round(pool.concurrency, 4),
    }


def _plan_document(plan: Plan) -> dict[str, Any]:
    return {
        "pool": plan.pool.value,
        "reserve": plan.reserve,
        "for_context": plan.for_context,
        "worst": plan.worst,
        "free": plan.free,
        "hit_rate": plan.hit_rate,
        "expected": None if plan.hit_rate is None else plan.expected,
        "free_expected": None if plan.hit_rate is None else plan.free_expected,
        "blocks": plan.blocks,
        "usable_blocks": plan.usable_blocks,
        "channels": [
            {
                **row.channel.model_dump(mode="json"),
                "reserve": row.reserve,
                "worst": row.worst,
                "expected": None if plan.hit_rate is None else row.expected,
                "blocks": row.blocks,
            }
            for row in plan.rows
        ],
        "refusals": list(plan.refusals),
        "changes": [{"key": one.key, "before": one.before, "after": one.after} for one in plan.changes],
    }


def _fit_document(budget: Budget) -> dict[str, Any]:
    assert budget.fit is not None  # noqa: S101  (asked for only where there is one)
    return {
        "context": asdict(budget.fit.context),
        "sequences": [{"tokens": length, **asdict(most)} for length, most in budget.fit.sequences],
    }
