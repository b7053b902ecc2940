#!/bin/sh
# How one client's speed grows with the stores: each store is in a network namespace of its own, behind a link with a limit; the metadata server and the
# client have none. Writes and reads one file, then four at once, and prints MB/s beside what the links allow: STORES x RATE, of which writes get k of k+m.
# Also how busy the processors of the machine were, which all processes here share, and how long the mount, the metadata server and all stores had one, in
# seconds for each GB: where the processors are busy all the time, it is they that limit, and not the links.
#
#   scale.sh WEFT DIR STORES [RATE_MBIT] [MIB]                for example: scale.sh target/release/weft /srv/bench 12 200 600
#
# As root, with iproute2 and util-linux. CODE (rs:4+2), MOUNT_OPTIONS and LABEL may be set. Ends what it started, removes its namespaces, and keeps the data in DIR.
set -eu

[ $# -ge 3 ] || { echo "usage: scale.sh WEFT DIR STORES [RATE_MBIT] [MIB]" >&2; exit 2; }
weft=$(realpath -- "$1")
dir=$(realpath -m -- "$2")
stores=$3
rate=${4:-200}
mib=${5:-600}
code=${CODE:-rs:4+2}
[ ! -e "$dir/films" ] || { echo "scale.sh: $dir was used before; remove it or name another" >&2; exit 1; }
mkdir -p "$dir/mnt"

servers=
machine() { if [ "$1" -eq 0 ]; then echo weft-scale-client; else echo "weft-scale-$1"; fi; }
clean() {
    for n in $(seq 0 "$stores"); do ip netns del "$(machine "$n")" 2>/dev/null || true; done
    ip netns del weft-scale-hub 2>/dev/null || true
}
end() {
    if mountpoint -q "$dir/mnt"; then on 0 "$weft" unmount "$dir/mnt" || true; fi
    for server in $servers; do kill "$server" 2>/dev/null || true; done
    clean
}
# Runs a command on a machine: only its network is another one.
exec_on() {
    machine=$(machine "$1")
    shift
    exec nsenter --net="/run/netns/$machine" "$@"
}
on() { (exec_on "$@"); }
clean
trap end EXIT
trap 'exit 130' INT TERM

# All addresses are those of loopback, which no other machine can use: so the servers need no certificates.
ip netns add weft-scale-hub
ip -n weft-scale-hub link add bridge type bridge
ip -n weft-scale-hub link set bridge up
# A burst holds a whole segment of 64 KiB, or the kernel cuts each into packets, and that takes all processors.
for n in $(seq 0 "$stores"); do
    name=$(machine "$n")
    ip netns add "$name"
    ip -n weft-scale-hub link add "port$n" type veth peer name wire netns "$name"
    ip -n weft-scale-hub link set "port$n" master bridge up
    ip -n "$name" link set lo up
    ip -n "$name" address delete 127.0.0.1/8 dev lo
    on "$n" sh -c 'echo 1 >/proc/sys/net/ipv4/conf/wire/route_localnet'
    ip -n "$name" address add "127.78.0.$((n + 1))/16" dev wire
    ip -n "$name" link set wire up
    [ "$n" -gt 0 ] || continue
    tc -n weft-scale-hub qdisc add dev "port$n" root tbf rate "${rate}mbit" burst 256kb limit 1mb
    tc -n "$name" qdisc add dev wire root tbf rate "${rate}mbit" burst 256kb limit 1mb
done
answers() {
    tries=0
    until on 0 bash -c "exec 3<>/dev/tcp/127.78.0.$1/7900" 2>/dev/null; do
        [ $tries -lt 100 ] || { echo "nothing listens on machine $1, see $dir" >&2; exit 1; }
        sleep 0.1
        tries=$((tries + 1))
    done
}
targets=
stores_=
for n in $(seq "$stores"); do
    mkdir "$dir/disk$n"
    (exec_on "$n" "$weft" serve store "$dir/disk$n" --listen "127.78.0.$((n + 1)):7900" >"$dir/store$n.log" 2>&1) &
    servers="$servers $!"
    stores_="$stores_ $!"
    targets="$targets store://127.78.0.$((n + 1)):7900/disk$n"
done
for n in $(seq "$stores"); do answers $((n + 1)); done
# shellcheck disable=SC2086 # targets are words
on 0 "$weft" create "$dir/films" --code "$code" $targets >/dev/null
(exec_on 0 "$weft" serve meta "$dir/films" --listen 127.78.0.1:7900 >"$dir/meta.log" 2>&1) &
meta=$!
servers="$servers $meta"
answers 1
# shellcheck disable=SC2086 # options are words
mount() { on 0 "$weft" mount weft://127.78.0.1:7900/films "$dir/mnt" ${MOUNT_OPTIONS:-}; }
mount

# The ticks in which the processors were busy, and all ticks.
processors() { awk '$1 == "cpu" { idle = $5 + $6; for (n = 2; n <= 9; n++) all += $n; print all - idle, all }' /proc/stat; }
# The ticks that some processes had.
ticks() { for pid in "$@"; do sed 's/.*) //' "/proc/$pid/stat"; done 2>/dev/null | awk '{ all += $12 + $13 } END { print all + 0 }'; }
mount_pid() { pgrep -f "^$weft mount .*$dir/mnt" | head -n 1; }
used() { echo "$(date +%s.%N) $(processors) $(ticks "$(mount_pid)") $(ticks $meta) $(ticks $stores_)"; }
# The seconds that a command takes, how busy the processors are meanwhile, and the seconds of processors that the mount, the metadata server and the stores take.
seconds() {
    before=$(used)
    "$@"
    echo "$before $(used)" | awk -v hertz="$(getconf CLK_TCK)" \
        '{ print $7 - $1, 100 * ($8 - $2) / ($9 - $3), ($10 - $4) / hertz, ($11 - $5) / hertz, ($12 - $6) / hertz }'
}
write() { for n in $(seq "$1"); do dd if=/dev/zero of="$dir/mnt/$1-$n" bs=1M count=$((mib / $1)) conv=fsync status=none & jobs="$jobs $!"; done; }
read_() { for n in $(seq "$1"); do dd if="$dir/mnt/$1-$n" of=/dev/null bs=1M status=none & jobs="$jobs $!"; done; }
all() { jobs=; "$@"; for job in $jobs; do wait "$job"; done; }
k=$(echo "$code" | sed 's/.*:\([0-9]*\)+.*/\1/')
m=$(echo "$code" | sed 's/.*+\([0-9]*\).*/\1/')
show() {
    echo "$3" | awk -v label="${LABEL:-}" -v what="$1" -v files="$2" -v mib="$mib" -v stores="$stores" -v rate="$rate" -v part="$4" \
        '{ speed = mib * 1.048576 / $1; most = stores * rate / 8 * part
           gb = mib * 1.048576 / 1000
           printf "%s%s %s stores, %s files: %.0f MB/s, %.0f %% of %.0f that the links allow; processors %.0f %% busy, seconds a GB: mount %.1f, metadata %.1f, stores %.1f\n",
               label, what, stores, files, speed, 100 * speed / most, most, $2, $3 / gb, $4 / gb, $5 / gb }'
}
for files in 1 4; do show write $files "$(seconds all write $files)" "$(awk "BEGIN { print $k / ($k + $m) }")"; done
on 0 "$weft" unmount "$dir/mnt"
mount
for files in 1 4; do show read $files "$(seconds all read_ $files)" 1; done
