#!/bin/sh
# A GlusterFS 4+2 dispersed volume with six bricks in DIR, mounted at MNT: what Weft's cluster is measured beside. Prints the process ids of its
# client and servers. As root; installs Debian's glusterfs-server.
#
#   mount.sh DIR MNT                     then: weft bench fs weft=... gluster=MNT --pid gluster=PID
#   mount.sh --stop DIR MNT              ends it and leaves the bricks
#
# GlusterFS refuses loopback addresses, so it runs in a network namespace of its own, with an address that exists only there.
set -eu

usage() { echo "usage: mount.sh [--stop] DIR MNT" >&2; exit 2; }
stop=no
if [ "${1-}" = --stop ]; then stop=yes; shift; fi
[ $# -eq 2 ] || usage
[ "$(id -u)" -eq 0 ] || { echo "mount.sh: only root can run GlusterFS" >&2; exit 1; }
dir=$(realpath -- "$1")
mountpoint=$(realpath -- "$2")
namespace=weft-gluster
address=10.77.0.1
volume=bench
inside() { nsenter --net=/run/netns/$namespace "$@"; }

if [ $stop = yes ]; then
    umount "$mountpoint" || true
    # Everything in the namespace is GlusterFS.
    ip netns pids $namespace | xargs -r kill
    tries=0
    while [ -n "$(ip netns pids $namespace)" ] && [ $tries -lt 100 ]; do sleep 0.1; tries=$((tries + 1)); done
    ip netns pids $namespace | xargs -r kill -9
    ip netns delete $namespace
    exit
fi

if ! command -v glusterd >/dev/null || ! command -v ip >/dev/null; then
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends glusterfs-server glusterfs-client iproute2 >/dev/null
fi
if [ -e /run/netns/$namespace ]; then echo "mount.sh: it runs already; end it with mount.sh --stop DIR MNT" >&2; exit 1; fi
ip netns add $namespace
inside ip link set lo up
inside ip address add $address/32 dev lo

mkdir -p "$dir/state" "$dir/log"
cat >"$dir/glusterd.vol" <<END
volume management
    type mgmt/glusterd
    option working-directory $dir/state
    option transport-type socket
    option transport.socket.bind-address $address
    option transport.address-family inet
end-volume
END
inside glusterd --volfile="$dir/glusterd.vol" --log-file="$dir/log/glusterd.log" --pid-file="$dir/glusterd.pid"
bricks=
for brick in 1 2 3 4 5 6; do
    mkdir -p "$dir/$brick"
    bricks="$bricks $address:$dir/$brick"
done
tries=0
until inside gluster --mode=script volume list >/dev/null 2>&1; do
    [ $tries -lt 100 ] || { echo "mount.sh: glusterd does not answer, see $dir/log" >&2; exit 1; }
    sleep 0.1
    tries=$((tries + 1))
done
# shellcheck disable=SC2086 # bricks are words
inside gluster --mode=script volume info $volume >/dev/null 2>&1 ||
    inside gluster --mode=script volume create $volume disperse 6 redundancy 2 transport tcp $bricks force >&2
inside gluster --mode=script volume start $volume force >&2
inside mount -t glusterfs -o log-file="$dir/log/client.log" $address:/$volume "$mountpoint"
ip netns pids $namespace
