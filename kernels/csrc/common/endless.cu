// A wait that never ends, so that tests see how one is ended: thread 37 of block (2, 1) waits for what nobody brings.
#include "common/mbarrier.cuh"
#include "arguments.cuh"

extern "C" __global__ void endless(const Arguments args) {
    __shared__ u64 barrier, word;
    if (blockIdx.x != 2 || blockIdx.y != 1 || threadIdx.x != 37) return;
    word = 0;
#if __CUDA_ARCH__ >= 900
    if (args.by == 0) {
        barrier_make(shared_address(&barrier), 1);
        barrier_wait<ENDLESS>(shared_address(&barrier), 0);
    }
#endif
    wait_until<ENDLESS>([&] { return *(volatile u64 *)&word != 0; });
}
