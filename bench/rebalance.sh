#!/bin/sh
# How much a rebalancing slows one client down. Fills a volume of six stores, adds a seventh, and writes and reads files in turns: while chunks move, and while the rebalancing is paused.
# Prints MB/s of each, and the ratio of the medians.
#
#   rebalance.sh WEFT DIR [ROUNDS] [MIB] [FILL_MIB]                for example: rebalance.sh target/release/weft /dev/shm/bench 8 256 4096
#
# As root, for the mount. CODE (rs:4+2), LIMIT (32M, bytes a second that are moved) and PORT (7960) may be set. Ends what it started, and keeps the data in DIR.
set -eu

[ $# -ge 2 ] || { echo "usage: rebalance.sh WEFT DIR [ROUNDS] [MIB] [FILL_MIB]" >&2; exit 2; }
weft=$(realpath -- "$1")
dir=$(realpath -m -- "$2")
rounds=${3:-8}
mib=${4:-256}
fill=${5:-4096}
code=${CODE:-rs:4+2}
limit=${LIMIT:-32M}
port=${PORT:-7960}
[ ! -e "$dir/films" ] || { echo "rebalance.sh: $dir was used before; remove it or name another" >&2; exit 1; }
mkdir -p "$dir/mnt"
volume=weft://127.0.0.1:$port/films

servers=
end() {
    if mountpoint -q "$dir/mnt"; then "$weft" unmount "$dir/mnt" || true; fi
    for server in $servers; do kill "$server" 2>/dev/null || true; done
}
trap end EXIT
trap 'exit 130' INT TERM
answers() {
    tries=0
    until bash -c "exec 3<>/dev/tcp/127.0.0.1/$1" 2>/dev/null; do
        [ $tries -lt 100 ] || { echo "nothing listens on port $1, see $dir" >&2; exit 1; }
        sleep 0.1
        tries=$((tries + 1))
    done
}
targets=
for n in 1 2 3 4 5 6 7; do
    mkdir "$dir/disk$n"
    "$weft" serve store "$dir/disk$n" --listen "127.0.0.1:$((port + n))" >"$dir/store$n.log" 2>&1 &
    servers="$servers $!"
    [ $n -eq 7 ] || targets="$targets store://127.0.0.1:$((port + n))/disk$n"
done
for n in 1 2 3 4 5 6 7; do answers $((port + n)); done
# shellcheck disable=SC2086 # targets are words
"$weft" volume create "$dir/films" --code "$code" $targets >/dev/null
"$weft" serve meta "$dir/films" --listen "127.0.0.1:$port" >"$dir/meta.log" 2>&1 &
servers="$servers $!"
answers "$port"
"$weft" rebalance "$volume" --auto off >/dev/null
"$weft" mount "$volume" "$dir/mnt"
dd if=/dev/urandom of="$dir/mnt/old" bs=1M count="$fill" conv=fsync status=none
"$weft" target add "$volume" "store://127.0.0.1:$((port + 7))/disk7" >/dev/null
"$weft" rebalance "$volume" pause >/dev/null
"$weft" rebalance "$volume" resume --limit "$limit" >/dev/null

moved() { du -sm "$dir/disk7" | cut -f1; }
# Runs a command, and prints MB/s and the MiB that the new store got meanwhile.
measured() {
    had=$(moved)
    begun=$(date +%s.%N)
    "$@"
    echo "$begun $(date +%s.%N) $mib $had $(moved)" | awk '{ printf "%.1f %d", $3 * 1.048576 / ($2 - $1), $5 - $4 }'
}
write() { dd if=/dev/zero of="$dir/mnt/new$1" bs=1M count="$mib" conv=fsync status=none; }
read_() {
    echo 1 >/proc/sys/vm/drop_caches
    dd if="$dir/mnt/old" of=/dev/null bs=1M count="$mib" skip=$(($1 * mib % (fill - mib))) status=none
}
for round in $(seq "$rounds"); do
    for how in paused moving; do
        if [ $how = paused ]; then
            "$weft" rebalance "$volume" pause >/dev/null
        else
            "$weft" rebalance "$volume" resume >/dev/null
            "$weft" rebalance "$volume" >/dev/null
            # It has surveyed all sets, and moves.
            sleep 1
        fi
        for what in write read_; do
            echo "$what $how $(measured $what "$round")"
        done
        rm -f "$dir/mnt/new$round"
    done
done | tee "$dir/rates.txt" | sed 's/read_/read/; s/$/ (MB\/s, and MiB that the new store got)/'
for what in write read_; do
    median() { grep "^$what $1 " "$dir/rates.txt" | cut -d' ' -f3 | sort -g | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }
    echo "$what $(median paused) $(median moving)" |
        awk '{ printf "%s: %.0f MB/s paused, %.0f while chunks move: %.2f\n", $1 == "read_" ? "read" : "write", $2, $3, $3 / $2 }'
done
"$weft" rebalance "$volume" status
