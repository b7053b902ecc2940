#!/bin/sh
# Weft's cluster beside GlusterFS on one machine, both 4+2 and everything on loopback: six storage servers, a metadata server and a mount, each a
# process; six bricks and a mount. Ends what it started, and keeps the data in DIR.
#
#   cluster.sh WEFT DIR [options of `weft bench fs`]          for example: cluster.sh target/release/weft /srv/bench --rounds 3
#
# As root (GlusterFS); without GlusterFS: PEER=none cluster.sh ...; with a directory of the disk below both instead: PEER=disk cluster.sh ...
# (the cluster writes one and a half times as many bytes to it).
set -eu

[ $# -ge 2 ] || { echo "usage: cluster.sh WEFT DIR [options of weft bench fs]" >&2; exit 2; }
weft=$(realpath -- "$1")
dir=$(realpath -m -- "$2")
shift 2
here=$(realpath -- "$(dirname -- "$0")")
port=${PORT:-7910}
mkdir -p "$dir/weft/mnt" "$dir/gluster/mnt"
[ ! -e "$dir/weft/films" ] || { echo "cluster.sh: $dir was used before; remove it or name another" >&2; exit 1; }

servers=
end() {
    if mountpoint -q "$dir/weft/mnt"; then "$weft" unmount "$dir/weft/mnt" || true; fi
    for server in $servers; do kill "$server" 2>/dev/null || true; done
    if mountpoint -q "$dir/gluster/mnt"; then "$here/peers/gluster/mount.sh" --stop "$dir/gluster" "$dir/gluster/mnt" || true; fi
}
trap end EXIT
trap 'exit 130' INT TERM

# shellcheck source=bench/listens.sh
. "$here/listens.sh"

targets=
for n in 1 2 3 4 5 6; do
    mkdir "$dir/weft/disk$n"
    "$weft" serve store "$dir/weft/disk$n" --listen 127.0.0.1:$((port + n)) >"$dir/weft/store$n.log" 2>&1 &
    servers="$servers $!"
    targets="$targets store://127.0.0.1:$((port + n))/disk$n"
done
for n in 1 2 3 4 5 6; do listens $((port + n)) "$dir/weft"; done
# shellcheck disable=SC2086 # targets are words
"$weft" create "$dir/weft/films" --code rs:4+2 $targets >/dev/null
"$weft" serve meta "$dir/weft/films" --listen 127.0.0.1:"$port" >"$dir/weft/meta.log" 2>&1 &
servers="$servers $!"
listens "$port" "$dir/weft"
"$weft" mount "weft://127.0.0.1:$port/films" "$dir/weft/mnt"
mount_pid=$(pgrep -f "$weft mount .*weft://127.0.0.1:$port/films" | head -n 1)

peer=
if [ "${PEER-}" = disk ]; then
    mkdir "$dir/disk"
    peer="disk=$dir/disk"
elif [ "${PEER-}" != none ]; then
    "$here/peers/gluster/mount.sh" "$dir/gluster" "$dir/gluster/mnt" >"$dir/gluster/pids"
    peer="gluster=$dir/gluster/mnt"
fi
# shellcheck disable=SC2086 # there may be no peer
"$weft" bench fs "weft=$dir/weft/mnt" $peer ${mount_pid:+--pid weft=$mount_pid} "$@"
for server in $servers; do
    printf 'server %s, peak memory: ' "$server"
    sed -n 's/VmHWM:[[:space:]]*//p' "/proc/$server/status"
done
