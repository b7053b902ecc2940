# Takes a generated tree of small files, links and modes there and back; contents and attributes must be the same.
python3 - "$L/tree" "$FILES" <<'EOF'
import os, random, sys

root, files = sys.argv[1], int(sys.argv[2])
dice = random.Random(1)
for i in range(files):
    folder = f"{root}/{i // 1000:03}/{i // 50 % 20:02}"
    if i % 50 == 0:
        os.makedirs(folder)
    name = f"{folder}/{i:06}"
    if i % 50 == 7:
        os.symlink(f"{i - 1:06}", name)
    elif i % 50 == 8:
        os.link(f"{folder}/{i - 2:06}", name)
    else:
        with open(name, "wb") as file:
            file.write(dice.randbytes(dice.choice([0, 1, 100, 1000, 4096, 5000, 20000])))
        os.chmod(name, dice.choice([0o600, 0o644, 0o755, 0o444]))
        os.utime(name, ns=(10**18, 10**18 + dice.randrange(10**17)))
EOF
tar -C "$L/tree" --format=posix -cf "$L/there.tar" .
mkdir "$D/tree" "$L/back"
tar -C "$D/tree" -xpf "$L/there.tar"
diff -r --no-dereference "$L/tree" "$D/tree"
tar -C "$D/tree" --format=posix -cf "$D/back.tar" .
tar -C "$L/back" -xpf "$D/back.tar"
diff -r --no-dereference "$L/tree" "$L/back"
attributes() {
    (cd "$1" && find . -type d -printf '%p %y %m\n' -o -printf '%p %y %m %n %s %T@ %l\n' | LC_ALL=C sort)
}
attributes "$L/tree" > "$L/expected"
attributes "$D/tree" > "$L/there"
attributes "$L/back" > "$L/returned"
diff "$L/expected" "$L/there"
diff "$L/expected" "$L/returned"
