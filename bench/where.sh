#!/bin/sh
# Where the processor time of a cluster goes: six storage servers (4+2), a metadata server and a mount, each a process, on loopback, under `perf`, while dd
# writes MIB MiB through the mount and reads them back cold, and a program reads 4 KiB at random places. A table for each, in CPU-seconds per GiB (per
# 10,000 reads), by process and kind of work. Needs perf and fio; as root. Ends what it started, and removes its data; if something
# fails, DIR stays, with what was said.
#
#   where.sh WEFT DIR [MIB]          for example: where.sh target/release/weft /srv/where
set -eu

[ $# -ge 2 ] || { echo "usage: where.sh WEFT DIR [MIB]" >&2; exit 2; }
for tool in perf fio; do
    command -v $tool >/dev/null || { echo "where.sh: $tool is not installed" >&2; exit 1; }
done
weft=$(realpath -- "$1")
dir=$(realpath -m -- "$2")
mib=${3:-2048}
here=$(realpath -- "$(dirname -- "$0")")
port=${PORT:-7950}
rate=1999
[ ! -e "$dir" ] || { echo "where.sh: $dir is there; name another" >&2; exit 1; }
mkdir -p "$dir/mnt"

servers=
end() {
    status=$?
    if mountpoint -q "$dir/mnt"; then "$weft" unmount "$dir/mnt" || umount -l "$dir/mnt" || true; fi
    for server in $servers; do kill "$server" 2>/dev/null || true; done
    wait
    if [ $status -eq 0 ]; then rm -rf --one-file-system "$dir"; fi
}
trap end EXIT
trap 'exit 130' INT TERM

# shellcheck source=bench/listens.sh
. "$here/listens.sh"

targets=
for n in 1 2 3 4 5 6; do
    mkdir "$dir/disk$n"
    "$weft" serve store "$dir/disk$n" --listen 127.0.0.1:$((port + n)) >"$dir/store$n.log" 2>&1 &
    servers="$servers $!"
    targets="$targets store://127.0.0.1:$((port + n))/disk$n"
done
stores=$servers
for n in 1 2 3 4 5 6; do listens $((port + n)) "$dir"; done
# shellcheck disable=SC2086 # targets are words
"$weft" create "$dir/films" --code rs:4+2 $targets >/dev/null
"$weft" serve meta "$dir/films" --listen 127.0.0.1:"$port" >"$dir/meta.log" 2>&1 &
meta=$!
servers="$servers $meta"
listens "$port" "$dir"
"$weft" mount "weft://127.0.0.1:$port/films" "$dir/mnt" >/dev/null
mount=$(pgrep -f "$weft mount .*weft://127.0.0.1:$port/films" | head -n 1)

# account UNITS COMMAND...: a table of what the command made everybody do, per unit.
account() {
    units=$1
    shift
    # The clock of the processor, not its cycles: a sample then stands for the same time whether it is busy or not.
    perf record -q -e cpu-clock -o "$dir/perf.data" -a -g -F $rate -- "$@" >"$dir/command.log" 2>&1 || { cat "$dir/command.log" >&2; exit 1; }
    perf script -i "$dir/perf.data" -F comm,pid,ip,sym 2>/dev/null |
        awk -v units="$units" -v rate=$rate -v stores="$stores" -v meta="$meta" -v mount="$mount" -f "$here/where.awk"
}

cold() {
    sync
    echo 3 >/proc/sys/vm/drop_caches
}

gib=$(awk "BEGIN { print $mib / 1024 }")
dd if=/dev/zero of="$dir/mnt/warm" bs=1M count=256 conv=fsync 2>/dev/null
echo "dd of 1 MiB records with fsync, $mib MiB; CPU-seconds per GiB:"
account "$gib" dd if=/dev/zero of="$dir/mnt/file" bs=1M count="$mib" conv=fsync
tail -n 1 "$dir/command.log"
cold
echo "dd of 1 MiB records, cold; CPU-seconds per GiB:"
account "$gib" dd if="$dir/mnt/file" of=/dev/null bs=1M
tail -n 1 "$dir/command.log"
cold
echo "20,000 reads of 4 KiB at random places, one at a time, cold; CPU-seconds per 10,000:"
account 2 fio --name=random --filename="$dir/mnt/file" --rw=randread --bs=4k --io_size=80000k --size="${mib}m" --readonly --output-format=terse \
    --terse-version=3
cut -d ';' -f 8 "$dir/command.log" | sed 's/$/ reads a second/'
