"""Keep one engine serving.

    probes, exits, requests, finished jobs          (effects report them as observations)
        -> loop.Supervisor                          (the one owner of Status)
        -> decide.decide(status, observation)       (pure: next status, actions, journal entries, replies)
        -> store, then effects                      (persisted before acting)

How to add a request: a member of `state.RequestKind`, a row in `decide.REQUESTS`, a route in `api`.
How to add a state: a member of `state.State` and its rows in `state.TRANSITIONS`; the README draws them.
How to add a failure rule: see `classify`.
"""
