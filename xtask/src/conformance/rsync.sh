# Copies files with extended attributes, hard links and holes there and back; a second run must find nothing to do.
python3 - "$L/source" <<'EOF'
import os, random, sys

root = sys.argv[1]
dice = random.Random(2)
for i in range(300):
    folder = f"{root}/{i % 10}"
    os.makedirs(folder, exist_ok=True)
    name = f"{folder}/{i}"
    with open(name, "wb") as file:
        if i % 20 == 0:
            file.seek(1 << 20)
        file.write(dice.randbytes(dice.randrange(50000)))
    for at in range(i % 4):
        os.setxattr(name, f"user.test-{at}", dice.randbytes(dice.randrange(200)))
    if i % 15 == 0:
        os.link(name, f"{name}-link")
EOF
rsync -aXHS "$L/source/" "$D/copy/"
rsync -aXHS "$D/copy/" "$L/back/"
for copy in "$D/copy" "$L/back"; do
    rsync -aXHni --checksum --delete "$L/source/" "$copy/" > "$L/differences"
    cat "$L/differences"
    [ ! -s "$L/differences" ]
done
rsync -aXH --inplace --checksum --ignore-times --no-whole-file "$L/source/" "$D/copy/"
diff -r "$L/source" "$D/copy"
