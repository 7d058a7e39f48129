#!/usr/bin/env bash
# Two replicas on the GPUs at hand: equal bytes, a trap in one of them, everything at once, and tokens a second beside one replica.
#
#   scripts/gpu_replicas.sh CHIMERE ENGINE_TEST HTTP_TEST DEVICES MODEL [SECONDS]
#
# CHIMERE: target/release/chimere; ENGINE_TEST and HTTP_TEST: the test binaries of engine/tests/gpu and cli/tests/http, as
# `cargo test --release --no-run` names them; DEVICES: 0,1, or 0,0 with one card; MODEL: a GGUF file; SECONDS: how long everything is sent [180].
# HTTP_TEST reads the repository where it was built; an empty word leaves it out. USERS [64 128] are in flight. Run from the repository; set
# CHIMERE_NVRTC where libnvrtc.so.13 is not on the loader's path. Exits with 1 if something did not hold.
set -uo pipefail
chimere=$1 engine=$2 http=$3 devices=$4 model=$5 seconds=${6:-180}
export CHIMERE_TEST_DATA=${CHIMERE_TEST_DATA:-$PWD} CHIMERE_REQUIRE=gpu
failed=0

echo "== two backends on one card, and a trap in one of them"
for test in two_backends_on_a_device_compute_at_once_what_one_does a_trap_in_one_backend_leaves_the_other_of_the_device; do
    "$engine" --exact "$test" --nocapture || failed=1
done
if [[ -n $http ]]; then
    echo "== 200 answers, and a trap in one of two replicas"
    CHIMERE_TEST_DEVICES=$devices "$http" --exact --nocapture \
        replicas::answers_have_the_same_bytes_whatever_replica_is_lost_in_the_middle_of_200_of_them || failed=1
fi

echo "== the plan"
"$chimere" info --devices "$devices" --model "$model" || failed=1
"$chimere" info --devices 0,99 --model "$model" && failed=1

echo "== everything at once, $seconds s"
for users in ${USERS:-64 128}; do
    python3 loadtest/everything.py --chimere "$chimere" --seconds "$seconds" --users "$users" -- --device cuda --devices "$devices" \
        --model "$model" || failed=1
done

echo "== 128 users, 512 prompt tokens, 256 tokens: one replica, then those of $devices"
for which in 0 "$devices"; do
    log=$(mktemp)
    "$chimere" serve --device cuda --devices "$which" --model "$model" --max-seqs 128 --port 8479 2>"$log" &
    server=$!
    for _ in $(seq 600); do grep -q 'ready in' "$log" && break; sleep 1; done
    for _ in 1 2 3; do
        "$chimere" bench serve --url http://127.0.0.1:8479 --rate inf --concurrency 128 --requests 512 --prompt-tokens 512 --max-tokens 256 || failed=1
    done
    grep -E 'GPU|replica|total' "$log"
    kill "$server" && wait "$server"
done
exit $failed
