#!/bin/sh
# The energy study's two devices: `weft bench energy` between a disk of 60 MB/s and a flash card of 450 MB/s (the study's did 48 to 72 and 393 to 504). Both
# are file systems in memory, held to these rates by a control group, so a disk's seeks are missing. Removes both at the end.
#
#   energy.sh WEFT [ARGUMENT..]          for example: energy.sh target/release/weft --bytes 160MiB --json-file energy.json
#
# As root. Each device has 5 GiB, so it takes 10 GiB of memory at most. Control groups of version 1 were tried, those of version 2 were not.
set -eu

[ $# -ge 1 ] || { echo "usage: energy.sh WEFT [ARGUMENT..]" >&2; exit 2; }
weft=$(realpath -- "$1")
shift
dir=/dev/shm/energy
old=/sys/fs/cgroup/blkio
new=/sys/fs/cgroup/weft-energy
mkdir "$dir" || { echo "energy.sh: another run is under way, or was killed: see losetup -a, unmount and remove $dir" >&2; exit 1; }

# Holds a device, MAJOR:MINOR, to a rate in bytes a second; 0 is no limit.
limit() {
    if [ -e $old/blkio.throttle.read_bps_device ]; then
        echo "$1 $2" >$old/blkio.throttle.read_bps_device
        echo "$1 $2" >$old/blkio.throttle.write_bps_device
    else
        [ -d $new ] || { echo +io >/sys/fs/cgroup/cgroup.subtree_control && mkdir $new && echo $$ >$new/cgroup.procs; }
        most=$2
        [ "$2" != 0 ] || most=max
        echo "$1 rbps=$most wbps=$most" >$new/io.max
    fi
}

end() {
    for device in disk flash; do
        if mountpoint -q "$dir/$device"; then umount "$dir/$device"; fi
        if [ -s "$dir/$device.loop" ]; then
            loop=$(cat "$dir/$device.loop")
            limit "$(cat "/sys/block/$(basename "$loop")/dev")" 0 || true
            losetup -d "$loop"
        fi
    done
    if [ -d $new ]; then echo $$ >/sys/fs/cgroup/cgroup.procs && rmdir $new; fi
    rm -rf "$dir"
}
trap end EXIT
trap 'exit 130' INT TERM

device() {
    truncate -s 5G "$dir/$1.img"
    mkfs.ext4 -q -F "$dir/$1.img"
    losetup -f --show "$dir/$1.img" >"$dir/$1.loop"
    mkdir "$dir/$1"
    mount "$(cat "$dir/$1.loop")" "$dir/$1"
    limit "$(cat "/sys/block/$(basename "$(cat "$dir/$1.loop")")/dev")" "$2"
}
device disk 60000000
device flash 450000000
"$weft" bench energy --from "$dir/disk" "$dir/flash" "$@"
