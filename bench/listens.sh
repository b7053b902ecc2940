# For scripts of this folder: waits until the server of a port of this machine answers. listens PORT LOGS
listens() {
    tries=0
    until ss -Hltn "sport = :$1" | grep -q .; do
        [ $tries -lt 100 ] || { echo "nothing listens at port $1, see $2" >&2; exit 1; }
        sleep 0.1
        tries=$((tries + 1))
    done
}
