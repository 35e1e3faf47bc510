"""Carries out a playbook: probes in batches, one change at a time, a journal before and after each, a recap."""
