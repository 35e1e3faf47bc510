"""Two RTX 3090s in a box without any: what lspci, nvidia-smi, mokutil, modinfo and dkms answer there.

The driver's packages may be real; its kernel module is not built (`dkms` says that it is), and `nvidia-smi` keeps
limits and persistence in files, as cards keep them until a reboot.
"""

from box import Box

UUIDS = ("GPU-8f1d0b5e-0000-4000-8000-000000000001", "GPU-8f1d0b5e-0000-4000-8000-000000000002")
FOLDER = "/var/lib/played-cards"

FORMAT = "'${{db:Status-Abbrev}}${{Version}}'"
VERSION = f"$(dpkg-query -W -f {FORMAT} nvidia-kernel-dkms 2>/dev/null | sed -n 's/^.i //p' | cut -d- -f1)"
BOUND = f"""
version={VERSION}
now=$(/usr/bin/cat /proc/sys/kernel/random/boot_id)
[ -n "$version" ] && [ "$now" != "$(/usr/bin/cat {FOLDER}/installed-at)" ]"""
"""Succeeds once the driver's packages are there and the box has rebooted since the cards were put in."""
LSPCI = """
driver=nouveau; ! {folder}/bound || driver=nvidia
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
{folder}/bound || {{ echo "NVIDIA-SMI couldn't communicate with the NVIDIA driver."; exit 9; }}
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


CAT = """
[ "$1" = /sys/module/nvidia/version ] || exec /usr/bin/cat "$@"
{folder}/bound && {folder}/version
"""
PERSISTENCED = """
for id in {first} {second}; do echo Enabled > {folder}/awake-$id; done
setsid sleep infinity >/dev/null 2>&1 &
"""


def insert(box: Box) -> None:
    """Put two cards into a box; nouveau has them until there is a driver and the box has rebooted."""
    words = {"folder": FOLDER, "first": UUIDS[0], "second": UUIDS[1]}
    tools = {
        "lspci": LSPCI,
        "mokutil": MOKUTIL,
        "modinfo": MODINFO,
        "dkms": DKMS,
        "nvidia-smi": NVIDIA_SMI,
        "cat": CAT,
    }
    scripts = {f"/usr/local/bin/{name}": text for name, text in tools.items()}
    scripts |= {f"{FOLDER}/bound": BOUND, f"{FOLDER}/version": f"echo {VERSION}"}
    # Their packages' own would build for minutes, and wait for a device.
    for path, text in {"/usr/sbin/dkms": DKMS, "/usr/bin/nvidia-persistenced": PERSISTENCED}.items():
        box.run(f"dpkg-divert --quiet --local --rename --add {path}")
        scripts[path] = text
    for path, text in scripts.items():
        box.put(path, f"#!/bin/sh\n{text.format(**words)}\n", mode=0o755)
    box.run(f"/usr/bin/cp /proc/sys/kernel/random/boot_id {FOLDER}/installed-at")
