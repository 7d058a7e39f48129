#!/usr/bin/env bash
# Checks the CUDA engine on the GPU at hand and measures it at full size. Builds nothing, so that it runs where only binaries are.
#
#   scripts/gpu_report.sh CHIMERE DIR TEST...
#
# CHIMERE: target/release/chimere; DIR: where 40 GB of files may be written; TEST: test binaries of the engine (its library's, those of
# tests/gpu and tests/steps.rs), as `cargo test --release -p chimere-engine --no-run` names them.
# Run from the repository: the tests read its data. Set CHIMERE_NVRTC where libnvrtc.so.13 is not on the loader's path, MIXES to measure
# fewer than q4 and iq3, SOAK_SECONDS for the long test [20], EVERYTHING_SECONDS for how long the service is sent everything at once [180].
set -euo pipefail
chimere=$1 dir=$2
shift 2
export CHIMERE_TEST_DATA=${CHIMERE_TEST_DATA:-$PWD} CHIMERE_SOAK_SECONDS=${SOAK_SECONDS:-20} CHIMERE_REQUIRE=gpu

# The whole vocabulary: loading goes wrong, where it does, with many copies under way.
"$chimere" synth --mix q4 --layers 4 --experts 32 --out "$dir/small.gguf"
export CHIMERE_TEST_MODEL=$dir/small.gguf
failed=0
for test in "$@"; do
    "$test" --test-threads=1 --nocapture || failed=1
done

for mix in ${MIXES:-q4 iq3}; do
    file=$dir/35b-$mix.gguf
    [[ -f $file ]] || "$chimere" synth --mix "$mix" --out "$file"
    "$chimere" bench step --model "$file" --device cuda --batch 1,4,16,24,32,48,64,128,256 --context 0 --prefill 512,2048,8192 --repeat 3 --steps 32
    "$chimere" bench step --model "$file" --device cuda --batch 1,4,16,64 --context 16384 --prefill 0 --repeat 3 --steps 32
done
scripts/gpu_everything.sh "$chimere" "$dir" "${EVERYTHING_SECONDS:-180}" || failed=1
exit $failed
