#!/bin/sh
# Many clients of a 4+2 cluster on one machine: each mount writes a file, all at the same time, and then reads the file of another one. Says how fast that
# was in all, and what memory the processes took at most. Ends what it started, and keeps the data in DIR.
#
#   clients.sh WEFT DIR [CLIENTS [MIB]]          for example: clients.sh target/release/weft /srv/bench 64 64
#
# As root (it drops the page cache). All stores share DIR's disk.
set -eu

[ $# -ge 2 ] || { echo "usage: clients.sh WEFT DIR [CLIENTS [MIB]]" >&2; exit 2; }
weft=$(realpath -- "$1")
dir=$(realpath -m -- "$2")
here=$(realpath -- "$(dirname -- "$0")")
clients=${3:-64}
mib=${4:-64}
port=${PORT:-7950}
volume=weft://127.0.0.1:$port/films
[ ! -e "$dir/films" ] || { echo "clients.sh: $dir was used before; remove it or name another" >&2; exit 1; }
mkdir -p "$dir"
cd "$dir"

end() {
    for n in $(seq "$clients"); do
        if mountpoint -q "mnt$n"; then "$weft" unmount "mnt$n" || true; fi
    done
    for pid in *.pid; do kill "$(cat "$pid")" 2>/dev/null || true; done
}
trap end EXIT
trap 'exit 130' INT TERM

# shellcheck source=bench/listens.sh
. "$here/listens.sh"
now() { date +%s.%N; }
rate() { echo "$(now) $1" | awk -v mib=$((clients * mib)) '{ printf "%.0f MiB/s", mib / ($1 - $2) }'; }
peak() { for pid in "$@"; do sed -n 's/VmHWM:[[:space:]]*\([0-9]*\) kB/\1/p' "/proc/$pid/status"; done | sort -n | tail -n 1 | awk '{ printf "%.0f MiB", $1 / 1024 }'; }

targets=
for n in 1 2 3 4 5 6; do
    mkdir "disk$n"
    "$weft" serve store "disk$n" --listen 127.0.0.1:$((port + n)) >"store$n.log" 2>&1 &
    echo $! >"store$n.pid"
    targets="$targets store://127.0.0.1:$((port + n))/disk$n"
done
for n in 1 2 3 4 5 6; do listens $((port + n)) "$dir"; done
# shellcheck disable=SC2086 # targets are words
"$weft" create films --code rs:4+2 $targets >/dev/null
"$weft" serve meta films --listen 127.0.0.1:"$port" >meta.log 2>&1 &
echo $! >meta.pid
listens "$port" "$dir"
head -c "${mib}M" /dev/urandom >source
for n in $(seq "$clients"); do
    mkdir "mnt$n"
    "$weft" mount "$volume" "mnt$n" >/dev/null
done

begun=$(now)
writers=
for n in $(seq "$clients"); do
    dd if=source of="mnt$n/file$n" bs=1M conv=fsync 2>"write$n.log" &
    writers="$writers $!"
done
for writer in $writers; do wait "$writer"; done
echo "$clients clients write $mib MiB each, with fsync: $(rate "$begun")"
echo 3 >/proc/sys/vm/drop_caches
begun=$(now)
readers=
for n in $(seq "$clients"); do
    cmp source "mnt$n/file$((n % clients + 1))" &
    readers="$readers $!"
done
for reader in $readers; do wait "$reader"; done
echo "each reads what another one wrote, cold, and it is right: $(rate "$begun")"
# shellcheck disable=SC2046 # numbers
echo "most memory of a store: $(peak $(cat store*.pid)), of the metadata server: $(peak "$(cat meta.pid)"), of a mount: $(peak $(pgrep -f "$weft mount .*$volume"))"
