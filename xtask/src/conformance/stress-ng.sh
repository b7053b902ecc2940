# Asks again and again for everything to be written back, sync and syncfs of every mount, while files are made and
# removed: a sync that finds something gone must not say so.
cd "$D"
trap 'touch "$L/done"' EXIT
change() {
    while [ ! -e "$L/done" ]; do
        mkdir files
        for number in 1 2 3 4 5 6 7 8 9; do
            echo "$number" > "files/$number"
        done
        mv files/1 files/2
        rm -r files
    done
}
{ set +x; } 2> /dev/null
change &
set -x
stress-ng --io 2 --verify --timeout 30 --temp-path "$D"
touch "$L/done"
wait $!
