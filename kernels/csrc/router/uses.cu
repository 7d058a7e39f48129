// Which experts any of a pass's rows chose: of each block that chooses a bit an expert, added to those that are set.
//
// One block a block that chooses. Bound: 4 bytes a pair of a row and one of its experts, once.
//
// -D: WORDS: of a block's bits.
#include "common/base.cuh"
#include "arguments.cuh"

#define THREADS 256

extern "C" __global__ void __launch_bounds__(THREADS) uses(const Arguments args) {
    __shared__ u32 bits[WORDS];
    let_next_start();
    for (int w = threadIdx.x; w < WORDS; w += THREADS) bits[w] = 0;
    __syncthreads();
    wait_for_inputs();
    const int *chosen = args.chosen + (u64)blockIdx.x * args.pitch;
    for (int i = threadIdx.x; i < args.count; i += THREADS) {
        int expert = __ldcg(chosen + i);
        // Below 0 are rows that are none, and experts that a row does without.
        if (expert >= 0) atomicOr(&bits[expert / 32], 1u << expert % 32);
    }
    __syncthreads();
    for (int w = threadIdx.x; w < WORDS; w += THREADS) args.bits[blockIdx.x * WORDS + w] |= bits[w];
}
