"""What runs on the box: the helper and its modules. Standard library alone, Python 3.10 (Ubuntu 22.04) or newer.

The controller imports the same files to know each module's arguments, and packs them into the one file it sends.
"""
