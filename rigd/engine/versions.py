"""What differs between vLLM versions and is acted on, in one table. Pure.

Read from the sources of 0.11.0 to 0.32.0; a row says in which versions a thing is there.
"""

import enum
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rigd.rig.findings import Finding, Severity
from rigd.rig.schema import Engine, Rig

Version = tuple[int, int, int]
OLDEST_KNOWN = (0, 11, 0)
NEWEST_KNOWN = (0, 33, 0)
ATTENTION_VARIABLE = "VLLM_ATTENTION_BACKEND"


class Kind(enum.StrEnum):
    """What a row is about."""

    ARGUMENT = "argument"
    """A setting of `engine.arguments`, by its key."""
    VARIABLE = "variable"
    """An environment variable that the engine reads."""
    METRIC = "metric"
    """A name in `/metrics`."""
    CONSTRAINT = "constraint"
    """A rule of the engine that a rig has to keep."""


@dataclass(frozen=True, kw_only=True)
class Feature:
    """A thing that only some versions have: from `since` on, up to but without `until`."""

    kind: Kind
    name: str
    since: Version | None = None
    until: Version | None = None
    note: str = ""
    """What a person does instead where it is not there, or why it matters."""

    def known_to(self, version: Version) -> bool:
        """Whether a version has it."""
        return (self.since is None or version >= self.since) and (self.until is None or version < self.until)


FEATURES: tuple[Feature, ...] = (
    Feature(
        kind=Kind.ARGUMENT, name="attention_backend", since=(0, 13, 0),
        note="before 0.13 rigd sets VLLM_ATTENTION_BACKEND instead",
    ),
    Feature(
        kind=Kind.VARIABLE, name=ATTENTION_VARIABLE, until=(0, 15, 0),
        note="from 0.15 on nothing reads it and the engine takes another backend without a word: "
        "use engine.arguments.attention_backend",
    ),
    Feature(
        kind=Kind.ARGUMENT, name="max_num_active_seqs", since=(0, 31, 0),
        note="lower max_num_seqs instead, or move to 0.31",
    ),
    Feature(
        kind=Kind.ARGUMENT, name="language_model_only", since=(0, 17, 0),
        note="use extra.limit-mm-per-prompt with 0 images and videos instead",
    ),
    Feature(
        kind=Kind.ARGUMENT, name="default_chat_template_kwargs", since=(0, 14, 0),
        note="let the clients send chat_template_kwargs",
    ),
    Feature(
        kind=Kind.ARGUMENT, name="max_model_len=auto", since=(0, 14, 0), note="write a number of tokens",
    ),
    Feature(
        kind=Kind.ARGUMENT, name="swap-space", until=(0, 18, 0), note="the new scheduler swaps nothing: remove it",
    ),
    Feature(
        kind=Kind.METRIC, name="vllm:gpu_cache_usage_perc", until=(0, 12, 0),
        note="renamed to vllm:kv_cache_usage_perc",
    ),
    Feature(kind=Kind.METRIC, name="vllm:kv_cache_usage_perc"),
    Feature(
        kind=Kind.CONSTRAINT, name="mamba_align", since=(0, 17, 0), until=(0, 27, 0),
        note="prefix caching on a hybrid model makes blocks of about 2,100 tokens, and max_num_batched_tokens "
        "must hold one",
    ),
)  # fmt: skip

MAMBA_ALIGN_LEAST_TOKENS = 2304
"""Least max_num_batched_tokens that holds one aligned block of the hybrid models seen (2,096 tokens)."""

_BY_NAME: Mapping[str, Feature] = {feature.name: feature for feature in FEATURES}


def parse_version(version: str) -> Version:
    """Return the three leading numbers of a version such as `0.32.0` or `0.27.1+cpu`."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if found is None:
        raise ValueError(f"{version!r} is no version such as 0.32.0")
    return int(found[1]), int(found[2]), int(found[3])


def knows(version: str, name: str) -> bool:
    """Whether a vLLM version has what a row of the table names; what no row names is in all of them."""
    feature = _BY_NAME.get(name)
    return feature is None or feature.known_to(parse_version(version))


def version_findings(rig: Rig) -> tuple[Finding, ...]:
    """Return what the rig's version of vLLM does not know or would silently ignore."""
    engine = rig.engine
    return (
        *_age(engine), *_unknown_settings(engine), *_attention_variable(engine), *_mamba_align(engine),
    )  # fmt: skip


def _age(engine: Engine) -> Iterator[Finding]:
    version = parse_version(engine.version)
    if version < OLDEST_KNOWN or version >= (NEWEST_KNOWN[0], NEWEST_KNOWN[1] + 1, 0):
        yield Finding(
            severity=Severity.WARNING,
            key="engine.version",
            sentence=f"rigd's table of versions covers vLLM 0.11 to 0.33, and {engine.version} is outside",
            hint="`rigd engine check` asks the engine's own parser",
        )


def _unknown_settings(engine: Engine) -> Iterator[Finding]:
    given = {name: f"engine.arguments.{name}" for name in engine.arguments.model_fields_set}
    given |= {name.replace("_", "-"): f"engine.arguments.extra.{name}" for name in engine.arguments.extra}
    if engine.arguments.max_model_len == "auto":
        given["max_model_len=auto"] = "engine.arguments.max_model_len"
    version = parse_version(engine.version)
    for name, key in given.items():
        feature = _BY_NAME.get(name)
        if feature is None or feature.known_to(version) or name == "attention_backend":
            continue
        if getattr(engine.arguments, name, True) is None:
            continue
        yield Finding(
            severity=Severity.ERROR,
            key=key,
            sentence=f"vLLM {engine.version} does not know {name.replace('=', ': ')} ({_span(feature)})",
            hint=feature.note,
        )


def _span(feature: Feature) -> str:
    words = []
    if feature.since is not None:
        words.append("there since " + ".".join(map(str, feature.since)))
    if feature.until is not None:
        words.append("gone since " + ".".join(map(str, feature.until)))
    return ", ".join(words)


def _attention_variable(engine: Engine) -> Iterator[Finding]:
    value = engine.environment.get(ATTENTION_VARIABLE)
    if value is None:
        return
    key = f"engine.environment.{ATTENTION_VARIABLE}"
    flag = engine.arguments.attention_backend
    if not isinstance(value, str):
        yield Finding(
            severity=Severity.ERROR,
            key=key,
            sentence="the attention backend is no secret",
            hint="write its name under engine.arguments.attention_backend",
        )
    elif flag is not None and flag.upper() != value.upper():
        yield Finding(
            severity=Severity.ERROR,
            key=key,
            sentence=f"says {value}, but engine.arguments.attention_backend says {flag}",
            hint="keep the argument and remove the variable",
        )
    elif not knows(engine.version, ATTENTION_VARIABLE):
        yield Finding(
            severity=Severity.WARNING,
            key=key,
            sentence=f"vLLM {engine.version} does not read this variable; rigd passes --attention-backend {value}",
            hint=f"write engine.arguments.attention_backend: {value} and remove the variable",
        )


def _mamba_align(engine: Engine) -> Iterator[Finding]:
    arguments = engine.arguments
    tokens = arguments.max_num_batched_tokens
    hybrid = arguments.mamba_ssm_cache_dtype is not None
    if (
        hybrid
        and arguments.enable_prefix_caching
        and tokens is not None
        and tokens < MAMBA_ALIGN_LEAST_TOKENS
        and _BY_NAME["mamba_align"].known_to(parse_version(engine.version))
    ):
        yield Finding(
            severity=Severity.WARNING,
            key="engine.arguments.max_num_batched_tokens",
            sentence=f"{tokens} may be less than one aligned block of a hybrid model, which vLLM "
            f"{engine.version} refuses at start",
            hint=f"use {MAMBA_ALIGN_LEAST_TOKENS} or more; {_BY_NAME['mamba_align'].note}",
        )
