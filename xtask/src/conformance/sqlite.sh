# Inserts, updates and rolls back in each journal mode, with a second process writing at the same time.
cat > "$L/work.py" <<'EOF'
import sqlite3, subprocess, sys

path, mode, role = sys.argv[1:4]

def connect():
    base = sqlite3.connect(path, timeout=120, isolation_level=None)
    set_to = base.execute(f"PRAGMA journal_mode={mode}").fetchone()[0]
    assert set_to == mode, f"journal mode {set_to} instead of {mode}"
    return base

base = connect()
if role == "second":
    for i in range(200):
        base.execute("INSERT INTO t(who, v) VALUES ('second', ?)", (i,))
    sys.exit()
base.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, who TEXT, v INTEGER, b BLOB)")
base.execute("CREATE INDEX i ON t(v)")
other = subprocess.Popen([sys.executable, sys.argv[0], path, mode, "second"])
for batch in range(20):
    base.execute("BEGIN IMMEDIATE")
    base.executemany("INSERT INTO t(who, v, b) VALUES ('first', ?, randomblob(300))",
                     ((batch * 500 + i,) for i in range(500)))
    base.execute("COMMIT")
for i in range(100):
    base.execute("UPDATE t SET v = v + 1 WHERE who = 'first' AND id % 100 = ?", (i,))
base.execute("BEGIN IMMEDIATE")
base.execute("DELETE FROM t")
base.execute("ROLLBACK")
assert other.wait() == 0, "the second process failed"
base.close()
base = connect()
assert base.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
expected = {"first": (10000, sum(range(10000)) + 10000), "second": (200, sum(range(200)))}
found = {who: (n, s) for who, n, s in base.execute("SELECT who, count(*), sum(v) FROM t GROUP BY who")}
assert found == expected, found
base.execute("VACUUM")
assert base.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
EOF
for mode in delete truncate persist wal; do
    python3 "$L/work.py" "$D/$mode.db" $mode first
done
