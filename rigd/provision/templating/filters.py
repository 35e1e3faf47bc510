"""The filters that playbooks use besides Jinja's own, and which of Ansible's are left out."""

from collections.abc import Callable, Mapping
from typing import Any

from rigd.provision.templating import filters_data, filters_formats, filters_paths, filters_text

FILTERS: Mapping[str, Callable[..., Any]] = {
    **filters_text.FILTERS,
    **filters_formats.FILTERS,
    **filters_data.FILTERS,
    **filters_paths.FILTERS,
}
LEFT_OUT: Mapping[str, str] = {
    "ansible.netcommon.ipaddr": "it needs another library; write the address itself",
    "community.general.json_query": "it needs another library; use selectattr and map",
    "ipaddr": "it needs another library; write the address itself",
    "json_query": "it needs another library; use selectattr and map",
    "password_hash": "a new salt would change the password in every run; write the hash itself (`openssl passwd -6`)",
    "unvault": "encrypted values are left out; keep the secret in a file that only its owner reads",
    "vault": "encrypted values are left out; keep the secret in a file that only its owner reads",
    "win_basename": "it is about Windows",
    "win_dirname": "it is about Windows",
    "win_splitdrive": "it is about Windows",
}
