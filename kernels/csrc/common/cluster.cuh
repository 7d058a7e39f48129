// Clusters: blocks that run side by side and write into each other's shared memory (sm_90 on; elsewhere a cluster is one block).
#pragma once
#include "common/base.cuh"

// -D: CLUSTER, blocks of a cluster where there are clusters.
#if __CUDA_ARCH__ >= 900
#define CL CLUSTER
#else
#define CL 1
#endif
#if CL > 1
#define IN_CLUSTERS __cluster_dims__(CL, 1, 1)
#else
#define IN_CLUSTERS
#endif

__device__ __forceinline__ int cluster_rank() {
#if CL > 1
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
#else
    return 0;
#endif
}

// Says that this block runs, so that others may write to it. `cluster_started` before the first write to another one: it ends, because the hardware
// starts the blocks of a cluster together, and each of them comes to `cluster_start` first. No clock bounds it.
__device__ __forceinline__ void cluster_start() {
#if CL > 1
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void cluster_started() {
#if CL > 1
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}

// Writes to where block 0 of the cluster has `p`.
__device__ __forceinline__ void store_first(float *p, float v) {
#if CL > 1
    u32 at = (u32)__cvta_generic_to_shared(p), there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(there) : "r"(at));
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there), "f"(v) : "memory");
#else
    *p = v;
#endif
}

// After the last `store_first` of all threads of the cluster: true in block 0, where everything is there now; the others are done. Block 0 waits for
// blocks that wait for nobody once they have started.
__device__ __forceinline__ bool all_stored() {
#if CL > 1
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    if (cluster_rank() != 0) return false;
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
    __syncthreads();
#endif
    return true;
}
