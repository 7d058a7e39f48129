#!/bin/sh
# A RUSTC_WRAPPER for `cargo fuzz build`: only what is fuzzed is watched by the fuzzer, which is this repository's code
# and the library that reads grammars. What these two call is compiled as it is shipped and runs several times as fast.
compiler=$1
shift
case " $* " in
*" --crate-name chimere"* | *" --crate-name llguidance "* | *" fuzz_targets/"*) exec "$compiler" "$@" ;;
esac
n=$#
while [ "$n" -gt 0 ]; do
    argument=$1
    shift
    n=$((n - 1))
    case $argument in
    -Cpasses=sancov-module | -Cllvm-args=-sanitizer-coverage-*) ;;
    *) set -- "$@" "$argument" ;;
    esac
done
exec "$compiler" "$@"
