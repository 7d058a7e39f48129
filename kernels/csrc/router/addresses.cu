// Writes words of 64 bits where they belong: `count` pairs of an address and what is to stand there, all addresses different.
//
// One block. Bound: nothing but its launch; as many copies of 8 bytes would take one each.
#include "common/base.cuh"
#include "arguments.cuh"

#define THREADS 128

extern "C" __global__ void __launch_bounds__(THREADS) addresses(const Arguments args) {
    let_next_start();
    wait_for_inputs();
    for (int i = threadIdx.x; i < args.count; i += THREADS) *(u64 *)args.pairs[2 * i] = args.pairs[2 * i + 1];
}
