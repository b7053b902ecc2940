#!/bin/sh
# RUSTC_WRAPPER of the tests' build: as-users.sh RUSTC ARGUMENT..
# Libraries and programs are compiled as users have them. The code of tests is not: it compiles in
# half the time without optimisation across codegen units, and without a copy of its MIR. It is not
# optimised at all, but for tests that compute much, and those of crates whose faults lose data: these
# contain generic code of what they test, or, inside of a crate, all of it.
case " $* " in
*" --test "*) ;;
*) exec "$@" ;;
esac
case "$CARGO_PKG_NAME" in
weft-gf | weft-ec | plan | model | sim | volume | meta | fs | cluster) level= ;;
*) level=-Copt-level=0 ;;
esac
for word; do
    shift
    [ "$word" = --emit=mir,link ] || set -- "$@" "$word"
done
exec "$@" -C lto=off $level
