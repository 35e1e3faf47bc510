"""How much the KV pool holds, and whether what its clients are promised fits. Pure.

    config.json -> model_config.read_shape() -> ModelShape --+
    rig file    -> settings.settings_of()    -> PoolSettings +-> blocks.lay_out() -> Layout  (bytes of a block)
    card, bytes -> memory.pool_memory()      -> Figure ------+-> pool.make_pool() -> Pool     (blocks, tokens)
    engine, log -> readback.read_log()       -> measured ----+
    channels    -> channels.make_plan()      -> Plan          (reserve, worst, expected, free, refusals, changes)
                -> fit.fit()                 -> Fit           (longest context, most sequences, and why not more)

The arithmetic is that of vLLM 0.32: one pool of equal blocks; groups of layers (full attention, sliding windows,
recurrent states) take blocks from it by turns; a recurrent state fills a block however short the request is.

How to add a family of models: a line in `model_config.FAMILIES`, or a reader beside `_gated_delta_net`.
"""
