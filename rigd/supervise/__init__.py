"""Keep one engine serving.

    probes, exits, requests, finished jobs          (effects report them as observations)
        -> loop.Supervisor                          (the one owner of Status)
        -> decide.decide(status, observation)       (pure: a Decision: next status, actions, entries, replies)
        -> store, then effects                      (persisted before acting)

How to add a request: a member of `observations.RequestKind`, a row in `requests._REQUESTS`, a route in `api`.
How to add a state: a member of `state.State` and its rows in `state.TRANSITIONS`; the README draws them.
How to add a failure rule: see `classify`.
"""
