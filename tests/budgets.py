"""Recorded pools of vLLM 0.32.0 on the CPU, and rigd's own reckoning of the same settings."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rigd.budget.blocks import lay_out
from rigd.budget.model_config import read_shape
from rigd.budget.pool import Pool, make_pool
from rigd.budget.settings import settings_of
from rigd.engine.arguments import engine_arguments
from rigd.rig.schema import Rig

DATA = Path(__file__).parent / "data/budget"
ON_CPU = {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}
PACKED = ("tiny", "tinymimo", "tiny35")
"""Models of the lab, weights and all; of the others there is a config.json only."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model, its settings as a rig file has them, and what vLLM made of them."""

    model: str
    arguments: dict[str, Any]
    said: dict[str, Any]

    @property
    def name(self) -> str:
        words = [f"{key}={value}" for key, value in self.arguments.items() if key not in _PLAIN]
        gib = f"{self.arguments['kv_cache_memory_bytes'] / 2**30:g}GiB"
        return "-".join([self.model, gib, *words]).replace(" ", "")

    @property
    def rig(self) -> Rig:
        engine = {
            "runtime": "process",
            "version": "0.32.0",
            "model": self.model,
            "environment": ON_CPU,
            "arguments": self.arguments,
        }
        return Rig.model_validate({"name": "case", "engine": engine})

    @property
    def argv(self) -> list[str]:
        return list(engine_arguments(self.rig.engine))


_PLAIN = ("kv_cache_memory_bytes", "trust_remote_code")


def cases() -> list[Case]:
    """Return all recorded cases."""
    rows = json.loads((DATA / "pools.json").read_text())
    return [Case(model=row["model"], arguments=row["arguments"], said=row.get("said", {})) for row in rows]


def reckoned(case: Case, *, wide_cpu: bool) -> Pool:
    """Return what rigd makes of a case; `wide_cpu` as the CPU is that vLLM was asked on."""
    path = DATA / "models" / f"{case.model}.json"
    shape = read_shape(path.read_text(), str(path))
    settings = settings_of(case.rig, wide_cpu=wide_cpu)
    assert settings.pool_bytes is not None
    return make_pool(
        lay_out(shape, settings), settings.pool_bytes, settings.max_model_len or shape.max_context
    )


def as_said(pool: Pool) -> dict[str, Any]:
    """Return a pool in the words of `pool_oracle.py`."""
    return {
        "tokens": pool.tokens.value,
        "blocks": pool.blocks,
        "block": pool.layout.block,
        "groups": sum(group.groups for group in pool.layout.groups),
        "context": pool.context,
    }


def oracle_question(case: Case, models: Path, scratch: Path) -> list[str]:
    """Return the argument list that `pool_oracle.py` is asked with."""
    if case.model in PACKED:
        return [str(models / case.model), *case.argv]
    folder = scratch / case.model
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text((DATA / "models" / f"{case.model}.json").read_text())
    return [str(folder), "--skip-tokenizer-init", *case.argv]
