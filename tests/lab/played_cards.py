"""Two RTX 3090s in a box without any: what lspci, nvidia-smi, mokutil, modinfo and dkms answer there.

The driver's packages may be real; its kernel module is not built (`dkms` says that it is), and `nvidia-smi` keeps
limits and persistence in files, as cards keep them until a reboot.
"""

from box import Box

UUIDS = ("GPU-8f1d0b5e-0000-4000-8000-000000000001", "GPU-8f1d0b5e-0000-4000-8000-000000000002")
FOLDER = "/run/played-cards"

LSPCI = """
driver=nouveau; [ ! -e {folder}/bound ] || driver=nvidia
for slot in 01 02; do
  echo "0000:$slot:00.0 VGA compatible controller [0300]: NVIDIA Corporation GA102 [GeForce RTX 3090] [10de:2204]"
  printf '\\tKernel driver in use: %s\\n' "$driver"
done
"""
MOKUTIL = """
case "$1" in
  --sb-state) if [ -e {folder}/secure-boot ]; then echo 'SecureBoot enabled'; else echo 'SecureBoot disabled'; fi ;;
  --test-key) echo "$2 is not enrolled" ;;
esac
"""
FORMAT = "'${{db:Status-Abbrev}}${{Version}}'"
VERSION = f"$(dpkg-query -W -f {FORMAT} nvidia-kernel-dkms 2>/dev/null | sed -n 's/^.i //p' | cut -d- -f1)"
MODINFO = f"""
version={VERSION}
[ -n "$version" ] || exit 1
case "$*" in *signer*) echo ;; *) echo "$version" ;; esac
"""
DKMS = f"""
version={VERSION}
case "$1" in status) [ -z "$version" ] || echo "nvidia/$version, $(uname -r), x86_64: installed" ;; esac
"""
NVIDIA_SMI = """
[ -e {folder}/bound ] || {{ echo "NVIDIA-SMI couldn't communicate with the NVIDIA driver."; exit 9; }}
first={first}; second={second}
limit() {{ cat {folder}/limit-$1 2>/dev/null || echo 350.00; }}
awake() {{ cat {folder}/awake-$1 2>/dev/null || echo Disabled; }}
case "$1" in
  -L) echo "GPU 0: NVIDIA GeForce RTX 3090 (UUID: $first)"; echo "GPU 1: NVIDIA GeForce RTX 3090 (UUID: $second)" ;;
  -i) case "$3" in -pl) echo "$4.00" > {folder}/limit-$2 ;; -pm) echo Enabled > {folder}/awake-$2 ;; esac ;;
  --query-gpu=uuid,power.limit,*) for id in $first $second; do echo "$id, $(limit $id), 100.00, 390.00"; done ;;
  --query-gpu=*) index=0; for id in $first $second; do
      power="$(limit $id), 100.00, 390.00, $(awake $id)"; link="1, 4, 16, 16"
      echo "$id, $index, NVIDIA GeForce RTX 3090, $power, 00000000:0$((index + 1)):00.0, $link, 1, 24576, 535.261.03"
      index=$((index + 1)); done ;;
esac
"""


def insert(box: Box) -> None:
    """Put two cards into a box; nouveau has them until `bound` lies in the folder."""
    words = {"folder": FOLDER, "first": UUIDS[0], "second": UUIDS[1]}
    for name, text in {"lspci": LSPCI, "mokutil": MOKUTIL, "modinfo": MODINFO, "dkms": DKMS,
                       "nvidia-smi": NVIDIA_SMI}.items():  # fmt: skip
        box.put(f"/usr/local/bin/{name}", f"#!/bin/sh\n{text.format(**words)}", mode=0o755)
    box.run(f"mkdir -p {FOLDER}")
