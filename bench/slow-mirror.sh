#!/bin/sh
# What one slow mirror of the m+2 costs a client that syncs each write: a 4+2 cluster of six stores on one machine, of which four have the journal. One of
# those is stopped for 90 of each 100 milliseconds. Rates beside those with all as fast as they are, in turns; at last with two slow ones. Ends what it started, and keeps the data in DIR.
#
#   slow-mirror.sh WEFT DIR [WRITES [ROUNDS]]          for example: slow-mirror.sh target/release/weft /srv/bench 1000 5
#
# As root (it mounts). All stores share DIR's disk.
set -eu

[ $# -ge 2 ] || { echo "usage: slow-mirror.sh WEFT DIR [WRITES [ROUNDS]]" >&2; exit 2; }
weft=$(realpath -- "$1")
dir=$(realpath -m -- "$2")
here=$(realpath -- "$(dirname -- "$0")")
writes=${3:-1000}
rounds=${4:-5}
port=${PORT:-7960}
volume=weft://127.0.0.1:$port/films
[ ! -e "$dir/films" ] || { echo "slow-mirror.sh: $dir was used before; remove it or name another" >&2; exit 1; }
mkdir -p "$dir/mnt"
cd "$dir"

fast() {
    [ -e slow.pid ] || return 0
    kill "$(cat slow.pid)" 2>/dev/null || true
    rm slow.pid
    for pid in store*.pid; do kill -CONT "$(cat "$pid")" 2>/dev/null || true; done
}
end() {
    fast
    if mountpoint -q mnt; then "$weft" unmount mnt || true; fi
    for pid in *.pid; do kill "$(cat "$pid")" 2>/dev/null || true; done
}
trap end EXIT
trap 'exit 130' INT TERM
# shellcheck source=bench/listens.sh
. "$here/listens.sh"

# Stops processes for 90 of each 100 milliseconds.
slow() {
    while kill -STOP "$@" && sleep 0.09 && kill -CONT "$@" && sleep 0.01; do :; done &
    echo $! >slow.pid
}
now() { date +%s.%N; }
# Synced writes of 4 KiB in a second, of so many.
rate() {
    begun=$(now)
    dd if=/dev/zero of=mnt/file bs=4k count="$1" oflag=dsync conv=notrunc status=none
    echo "$1 $begun $(now)" | awk '{ printf "%.0f", $1 / ($3 - $2) }'
}
median() { tr ' ' '\n' | grep . | sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }

targets=
for number in 1 2 3 4 5 6; do
    mkdir "disk$number"
    "$weft" serve store "disk$number" --listen 127.0.0.1:$((port + number)) >>"store$number.log" 2>&1 &
    echo $! >"store$number.pid"
    targets="$targets store://127.0.0.1:$((port + number))/disk$number"
done
for number in 1 2 3 4 5 6; do listens $((port + number)); done
# shellcheck disable=SC2086
"$weft" volume create films --code rs:4+2 $targets >create.log
"$weft" serve meta films --listen "127.0.0.1:$port" >>meta.log 2>&1 &
echo $! >meta.pid
listens "$port"
"$weft" mount "$volume" mnt

rate "$writes" >warm.log
mirrors=
for number in 1 2 3 4 5 6; do
    if [ -n "$(ls "disk$number/journal")" ]; then mirrors="$mirrors $number"; fi
done
echo "mirrors:$mirrors"
for mirror in $mirrors; do
    all=; slowed=
    for _ in $(seq "$rounds"); do
        all="$all $(rate "$writes")"
        slow "$(cat "store$mirror.pid")"
        slowed="$slowed $(rate "$writes")"
        fast
        # What it was behind by is written before the next round.
        sleep 1
    done
    echo "store $mirror slow: $(echo "$slowed" | median) synced writes of 4 KiB a second, $(echo "$all" | median) without ($slowed beside$all)"
done
# shellcheck disable=SC2086
set -- $mirrors
slow "$(cat "store$1.pid")" "$(cat "store$2.pid")"
echo "stores $1 and $2 slow: $(rate 50)"
fast
