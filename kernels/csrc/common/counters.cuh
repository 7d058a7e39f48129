// Counters by which blocks of a launch tell one another what they have written. Who tells has met the other threads of its block, whose writes
// are then told of too; who hears, and whoever of its block it meets, sees all that was written before it was told, past L1.
#pragma once
#include "common/waits.cuh"

__device__ __forceinline__ void tell(int *counter, int count) {
    asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(counter), "r"(count) : "memory");
}
__device__ __forceinline__ int tell_and_hear(int *counter, int count) {
    int before;
    asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(count) : "memory");
    return before;
}
__device__ __forceinline__ int told(const int *counter) {
    int now;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    return now;
}
// Whoever waits says where it does why all that tell are running or have ended.
template <Wait WAIT> __device__ __forceinline__ void await_told(const int *counter, int all) {
    wait_until<WAIT>([&] { return told(counter) >= all; });
}

// Whether this block is the last of `blocks` to come here, for all its threads. The counter is 0 again then.
__device__ __forceinline__ bool last_to_finish(int *counter, int blocks) {
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) {
        last = tell_and_hear(counter, 1) == blocks - 1;
        if (last) *counter = 0;
    }
    __syncthreads();
    return last;
}
