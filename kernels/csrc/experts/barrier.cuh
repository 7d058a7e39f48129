// How the blocks of the launch of all experts wait for each other.
#pragma once
#include "common/cluster.cuh"
#include "common/waits.cuh"

// Every block says that it has come, and waits for all. The highest bit flips when the last one comes, and nothing else is left over.
__device__ __forceinline__ u32 come(u32 *barrier) {
    u32 old, add = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(barrier), "r"(add) : "memory");
    return old;
}
// Ends when all blocks of the launch have come, which each does without waiting for another but for scores (`choose`). All run at a time: the grid has
// no more than the chip holds (`resident_clusters` of the launcher), blocks of the kernels before leave, and a later kernel's do not come before all of
// these run (common/base.cuh). The bit flips again in the next launch, which does not come here before this one has ended.
__device__ __forceinline__ void wait_for_all(u32 *barrier, u32 old) {
    wait_until<EXPERT_BLOCKS>([&] {
        u32 now;
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(barrier) : "memory");
        return ((old ^ now) & 0x80000000u) != 0;
    });
}

// By all threads of a cluster: its blocks have the same groups of outputs, and so come here equally often. No clock bounds it.
__device__ __forceinline__ void cluster_sync() {
#if CL > 1
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
    __syncthreads();
#endif
}
