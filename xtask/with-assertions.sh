#!/bin/sh
# RUSTC_WRAPPER of the tests' build with assertions: with-assertions.sh RUSTC ARGUMENT..
# Only tests run what has assertions. Without optimisation across codegen units, and without a copy
# of its MIR, it compiles in two thirds of the time. All else is compiled as users do it.
case " $* " in
*" debug-assertions=on "*) ;;
*) exec "$@" ;;
esac
for word; do
    shift
    [ "$word" = --emit=mir,link ] || set -- "$@" "$word"
done
exec "$@" -C lto=off
