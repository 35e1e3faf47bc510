"""What to launch: a rig's engine section becomes argv, environment, mounts and labels. Pure.

    schema.Engine -> versions (what this vLLM reads) -> arguments (argv) -> spec.LaunchSpec (with its digest)
"""
