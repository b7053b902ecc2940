# Copies a file there in records of several sizes, overwrites, appends and makes it sparse; compared with local copies.
dd if=/dev/urandom of="$L/data" bs=1M count=64 status=none
for record in 4096 777 131072 1048576 16777216; do
    count=$((record == 777 ? 10000 : 67108864 / record))
    dd if="$L/data" of="$L/part" bs=$record count=$count status=none
    dd if="$L/data" of="$D/part" bs=$record count=$count conv=fsync status=none
    cmp "$L/part" "$D/part"
    rm "$D/part"
done
for place in "$L" "$D"; do
    cp "$L/data" "$place/file"
    dd if="$L/data" of="$place/file" bs=1000 skip=5000 seek=333 count=7777 conv=notrunc status=none
    dd if="$L/data" of="$place/file" bs=4096 seek=40000 count=3 conv=notrunc status=none
    dd if="$L/data" of="$place/file" bs=3333 count=9 oflag=append conv=notrunc status=none
    dd if=/dev/zero of="$place/file" bs=1M count=8 seek=20 conv=notrunc,sparse status=none
    truncate --size=150000001 "$place/file"
done
sync "$D/file"
cmp "$L/file" "$D/file"
if dd if="$L/data" of="$D/direct" bs=1M oflag=direct status=none; then
    cmp "$L/data" "$D/direct"
    dd if="$D/direct" iflag=direct bs=1M status=none | cmp - "$L/data"
fi
