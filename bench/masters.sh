#!/bin/sh
# Which stores code for which files: two clients write two files each, all at the same time, with server coding, on a 4+2 volume of seven stores. Shows the
# stripes and bytes that each store coded as a Master (figure 3 of the ExSTorus study has two clients, four files and three Masters). Ends what it started,
# and keeps the data in DIR.
#
#   masters.sh WEFT DIR [MIB]          for example: masters.sh target/release/weft /srv/bench 64
set -eu

[ $# -ge 2 ] || { echo "usage: masters.sh WEFT DIR [MIB]" >&2; exit 2; }
weft=$(realpath -- "$1")
dir=$(realpath -m -- "$2")
here=$(realpath -- "$(dirname -- "$0")")
mib=${3:-64}
port=${PORT:-7930}
volume=weft://127.0.0.1:$port/films
[ ! -e "$dir/films" ] || { echo "masters.sh: $dir was used before; remove it or name another" >&2; exit 1; }
mkdir -p "$dir"
cd "$dir"

end() {
    for n in 1 2; do
        if mountpoint -q "mnt$n"; then "$weft" unmount "mnt$n" || true; fi
    done
    for pid in *.pid; do kill "$(cat "$pid")" 2>/dev/null || true; done
}
trap end EXIT
trap 'exit 130' INT TERM

# shellcheck source=bench/listens.sh
. "$here/listens.sh"

targets=
for n in 1 2 3 4 5 6 7; do
    mkdir "disk$n"
    "$weft" serve store "disk$n" --listen 127.0.0.1:$((port + n)) >"store$n.log" 2>&1 &
    echo $! >"store$n.pid"
    targets="$targets store://127.0.0.1:$((port + n))/disk$n"
done
for n in 1 2 3 4 5 6 7; do listens $((port + n)) "$dir"; done
# shellcheck disable=SC2086 # targets are words
"$weft" create films --code rs:4+2 $targets >/dev/null
"$weft" serve meta films --listen 127.0.0.1:"$port" >meta.log 2>&1 &
echo $! >meta.pid
listens "$port" "$dir"
head -c "${mib}M" /dev/urandom >source
for n in 1 2; do
    mkdir "mnt$n"
    "$weft" mount "$volume" "mnt$n" --coding server >/dev/null
done

writers=
for n in 1 2; do
    for file in a b; do
        dd if=source of="mnt$n/file$n$file" bs=1M conv=fsync 2>"write$n$file.log" &
        writers="$writers $!"
    done
done
for writer in $writers; do wait "$writer"; done
# The stores report once a second.
sleep 3
"$weft" status -v "$volume" | sed -n 's/^ *store \([^ ]*\) .*, \(coded .* as Master\).*/store \1 \2/p'
