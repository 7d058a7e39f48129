#!/usr/bin/env bash
# Serves a final build on the GPU at hand and sends it everything at once (loadtest/everything.py): the shipped model, then 12 and 40 layers of
# the 35B's shape, each with 64 and 256 requests in flight.
#
#   scripts/gpu_everything.sh CHIMERE DIR [SECONDS]
#
# CHIMERE: target/release/chimere; DIR: where 30 GB of files may be written; SECONDS: how long each of the six loads lasts [180].
# MODELS [nano 12 40] and USERS [64 256] choose fewer. Run from the repository; needs python3 and nothing else. Exits with 1 if one did not hold.
set -uo pipefail
chimere=$1 dir=$2 seconds=${3:-180}
failed=0
for model in ${MODELS:-nano 12 40}; do
    file=models/nano/nano-q8_0.gguf
    if [[ $model != nano ]]; then
        file=$dir/35b-q4-$model.gguf
        [[ -f $file ]] || "$chimere" synth --shape qwen3.5-35b-a3b --mix q4 --layers "$model" --draft-head --out "$file" || exit 1
    fi
    for users in ${USERS:-64 256}; do
        echo "== $model, $users in flight, $seconds s"
        python3 loadtest/everything.py --chimere "$chimere" --seconds "$seconds" --users "$users" -- --device cuda --model "$file" || failed=1
    done
done
exit $failed
