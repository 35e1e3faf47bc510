"""Configuration files for agent clients, from the channels of a rig. Pure: texts in, texts out.

    rig + address + key + rate -> plan.make_plan() -> Plan (an endpoint for each channel, agents to channels)
        -> opencode | pi | claude_code | codex | openai_env .settings()   (what each client calls it)
        -> merge.merge(old text, settings)                                (what is there stays)
        -> new text, notes, a diff

    opencode_guard.js: what OpenCode and Kilo load beside their file, so that no prompt outgrows its channel
    pack: prompt files for a coordinator and its subagents, stable to the byte

How to add a client: a module with `files(plan)`, a row in `table.CLIENTS`, a row in `versions.KNOWN`.
"""
