#!/bin/sh
# Mounts SRC at MNT through libfuse's own example, passthrough_ll, with the kernel's write-back cache: the least
# that a user-space file system costs, and so the baseline for one. Prints the server's process id.
#
#   mount.sh SRC MNT                     then: weft bench fs weft=... passthrough=MNT --pid passthrough=PID
#   fusermount3 -u MNT                   ends it
#
# The example is taken from Debian's libfuse3-dev and compiled into target/peers; nothing of it is kept here.
set -eu

[ $# -eq 2 ] || { echo "usage: mount.sh SRC MNT" >&2; exit 2; }
source=$(realpath -- "$1")
mountpoint=$(realpath -- "$2")
root=$(realpath -- "$(dirname -- "$0")/../../..")
build=$root/target/peers/passthrough
program=$build/passthrough_ll
examples=/usr/share/doc/libfuse3-dev/examples

have_packages() {
    pkg-config --exists fuse3 2>/dev/null && command -v fusermount3 >/dev/null
}

install_packages() {
    [ "$(id -u)" -eq 0 ] || { echo "mount.sh: only root can install libfuse3-dev, fuse3, gcc, pkg-config" >&2; exit 1; }
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
        libfuse3-dev fuse3 gcc libc6-dev pkg-config >/dev/null
}

# Copies passthrough_ll.c and its header here: from the package's documentation, or, where a slim system leaves
# documentation out, from the package itself.
fetch_example() {
    from=$examples
    if [ ! -e "$from/passthrough_ll.c" ] && [ ! -e "$from/passthrough_ll.c.gz" ]; then
        (cd "$build" && apt-get -qq download libfuse3-dev && dpkg-deb -x libfuse3-dev_*.deb package)
        from=$build/package$examples
    fi
    for name in passthrough_ll.c passthrough_helpers.h; do
        if [ -e "$from/$name" ]; then cp "$from/$name" "$build/"; else gunzip -c "$from/$name.gz" >"$build/$name"; fi
    done
}

if [ ! -x "$program" ]; then
    mkdir -p "$build"
    have_packages || install_packages
    fetch_example
    # shellcheck disable=SC2046 # flags are words
    gcc -O2 -w -o "$program" "$build/passthrough_ll.c" $(pkg-config fuse3 --cflags --libs)
fi

# Entries and attributes are kept for a second, as by default, and data in the page cache for as long as it fits.
options=source=$source,writeback,cache=always,timeout=1,xattr,default_permissions
[ "$(id -u)" -ne 0 ] || options=$options,allow_other
# It holds a file open for every inode that the kernel knows.
ulimit -n 1048576 2>/dev/null || ulimit -n "$(ulimit -Hn)"
log=$build/log
"$program" -f -o "$options" "$mountpoint" >"$log" 2>&1 &
server=$!
tries=0
until mountpoint -q "$mountpoint"; do
    tries=$((tries + 1))
    if [ $tries -gt 100 ] || ! kill -0 $server 2>/dev/null; then
        echo "mount.sh: passthrough_ll did not mount: $(tail -n 1 "$log")" >&2
        exit 1
    fi
    sleep 0.05
done
echo $server
