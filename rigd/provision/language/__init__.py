"""From files to plays and tasks: everything a playbook can get wrong without a host is found here, with its place."""
