#!/bin/sh
# RUSTC_WRAPPER of the tests' build with assertions: with-assertions.sh RUSTC ARGUMENT..
# Only tests run what has assertions. Without optimisation across codegen units, and without a copy
# of its MIR, it compiles in two thirds of the time. The tests themselves are not optimised; what
# they test is, and so are tests that compute much, and those inside of crates whose faults lose
# data. All else is compiled as users do it.
case " $* " in
*" debug-assertions=on "*) ;;
*) exec "$@" ;;
esac
level=
case " $* " in
*" --test "*)
    case "$CARGO_PKG_NAME $*" in
    "weft-gf "* | "weft-ec "* | "plan "* | "model "* | "sim "*) ;;
    "volume "*src/lib.rs* | "meta "*src/lib.rs* | "fs "*src/lib.rs*) ;;
    *) level=-Copt-level=0 ;;
    esac
    ;;
esac
for word; do
    shift
    [ "$word" = --emit=mir,link ] || set -- "$@" "$word"
done
exec "$@" -C lto=off $level
