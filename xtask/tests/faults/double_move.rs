//! The shape that rustc 1.95 and 1.96 compile to a double free (rust-lang/rust#158830): two calls
//! that take equal constant-made values which own memory. Not part of any build: the test of the
//! check compiles it and expects it to be found.

use std::collections::BTreeMap;

#[inline(never)]
fn attempt(number: usize, mut bad: BTreeMap<usize, String>) -> (bool, BTreeMap<usize, String>) {
    bad.insert(number, number.to_string());
    (bad.len() > number, bad)
}

fn main() {
    let number = std::env::args().count();
    let (mut done, mut bad) = attempt(number, BTreeMap::new());
    for _ in 0..2 {
        if !done {
            (done, bad) = attempt(number + 1, BTreeMap::new());
        }
    }
    println!("{done} {bad:?}");
}
