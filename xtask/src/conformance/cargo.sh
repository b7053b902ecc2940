# Builds and tests a small crate there, then changes it and builds again.
export CARGO_TARGET_DIR="$D/target"
mkdir "$D/src"
cd "$D"
# A workspace of its own: the directory may lie in another one.
cat > Cargo.toml <<'EOF'
[package]
name = "tiny"
version = "0.1.0"
edition = "2024"
[workspace]
EOF
cat > src/main.rs <<'EOF'
fn main() {
    println!("Hello, world!");
}
EOF
cargo build --quiet --offline
[ "$(target/debug/tiny)" = "Hello, world!" ]
cat > src/main.rs <<'EOF'
fn main() {
    println!("{}", (1..=10u64).product::<u64>());
}
#[test]
fn works() {
    assert_eq!(1 + 1, 2);
}
EOF
cargo test --quiet --offline
cargo build --quiet --offline --release
[ "$(target/release/tiny)" = 3628800 ]
