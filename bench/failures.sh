#!/bin/sh
# What failures cost a 4+2 cluster on one machine: cold reads with two of seven stores killed beside healthy ones, and making a lost store again
# beside what the same disk takes for the bytes that this reads and writes. Ends what it started, and keeps the data in DIR.
#
#   failures.sh WEFT DIR [MIB [ROUNDS]]          for example: failures.sh target/release/weft /srv/bench 1024 3
#
# As root (it drops the page cache). All stores share DIR's disk.
set -eu

[ $# -ge 2 ] || { echo "usage: failures.sh WEFT DIR [MIB [ROUNDS]]" >&2; exit 2; }
weft=$(realpath -- "$1")
dir=$(realpath -m -- "$2")
here=$(realpath -- "$(dirname -- "$0")")
mib=${3:-1024}
rounds=${4:-3}
port=${PORT:-7930}
volume=weft://127.0.0.1:$port/films
[ ! -e "$dir/films" ] || { echo "failures.sh: $dir was used before; remove it or name another" >&2; exit 1; }
mkdir -p "$dir/mnt"
cd "$dir"

end() {
    if mountpoint -q mnt; then "$weft" unmount mnt || true; fi
    for pid in *.pid; do kill "$(cat "$pid")" 2>/dev/null || true; done
}
trap end EXIT
trap 'exit 130' INT TERM

store() {
    "$weft" serve store "disk$1" --listen 127.0.0.1:$((port + $1)) >>"store$1.log" 2>&1 &
    echo $! >"store$1.pid"
}
lose() { kill -9 "$(cat "store$1.pid")"; }
# shellcheck source=bench/listens.sh
. "$here/listens.sh"
cold() { sync && echo 3 >/proc/sys/vm/drop_caches; }
now() { date +%s.%N; }
since() { echo "$(now) $1" | awk '{ printf "%.3f", $1 - $2 }'; }
rate() { echo "$1 $2" | awk '{ printf "%.0f", $1 / $2 }'; }
median() { tr ' ' '\n' | grep . | sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }
# CPU-seconds of all servers so far.
cpu() { for pid in *.pid; do awk '{ print $14 + $15 }' "/proc/$(cat "$pid")/stat" 2>/dev/null || true; done | awk '{ sum += $1 } END { print sum / 100 }'; }

targets=
for n in 1 2 3 4 5 6 7; do
    mkdir "disk$n"
    store "$n"
    targets="$targets store://127.0.0.1:$((port + n))/disk$n"
done
for n in 1 2 3 4 5 6 7; do listens $((port + n)) "$dir"; done
# shellcheck disable=SC2086 # targets are words
"$weft" create films --code rs:4+2 $targets >/dev/null
"$weft" serve meta films --listen 127.0.0.1:"$port" >meta.log 2>&1 &
echo $! >meta.pid
listens "$port" "$dir"
"$weft" mount "$volume" mnt >/dev/null

head -c "${mib}M" /dev/urandom >source
cp source mnt/file
sync -f mnt/file
healthy='' degraded='' shares=''
round=1
while [ "$round" -le "$rounds" ]; do
    cold
    begun=$(now)
    dd if=mnt/file of=/dev/null bs=1M 2>/dev/null
    whole=$(since "$begun")
    lose 2
    lose 5
    cold
    begun=$(now)
    dd if=mnt/file of=/dev/null bs=1M 2>/dev/null
    lacking=$(since "$begun")
    cmp source mnt/file
    store 2
    store 5
    listens $((port + 2)) "$dir"
    listens $((port + 5)) "$dir"
    sleep 5
    healthy="$healthy $(rate "$mib" "$whole")"
    degraded="$degraded $(rate "$mib" "$lacking")"
    shares="$shares $(echo "$whole $lacking" | awk '{ printf "%.2f", $1 / $2 }')"
    round=$((round + 1))
done
echo "cold read, 1 MiB records, MiB/s: healthy$healthy, two stores killed$degraded; median ratio $(echo "$shares" | median)"

lose 3
rm -r disk3
cold
before=$(cpu)
begun=$(now)
"$weft" repair "$volume" --json >repaired.json || { cat repaired.json >&2; exit 1; }
took=$(since "$begun")
used=$(echo "$(cpu) $before" | awk '{ print $1 - $2 }')
bytes=$(sed -n 's/.*"bytes": *\([0-9]*\).*/\1/p' repaired.json | head -n 1)
cold
begun=$(now)
# Four blocks are read for each that is made.
find disk1 disk2 disk4 disk5 disk6 disk7 -type f -size +1M -print0 | xargs -0 cat | head -c $((bytes * 4)) >/dev/null
head -c "$bytes" source | dd of=written bs=1M conv=fsync 2>/dev/null
limit=$(since "$begun")
echo "$bytes $took $used $limit" | awk '{
    gib = $1 / 2^30
    printf "a lost store made again: %.0f MiB in %.2f s, %.0f MiB/s, %.1f CPU-seconds of the servers per GiB\n", $1 / 2^20, $2, $1 / 2^20 / $2, $3 / gib
    printf "reading four times as much from this disk and writing it: %.2f s; the repair is at %.0f %% of that speed\n", $4, 100 * $4 / $2
}'
cold
cmp source mnt/file
echo "the file is what it was"
