// Copies from the cache to shared memory, ahead of their use: by a barrier in shared memory and whole pages where the chip can (sm_90 on), else
// by 16 bytes a thread.
#pragma once
#include "common/mbarrier.cuh"

// By `threads` threads, of which this is `thread`; `bytes` is a multiple of 16.
__device__ __forceinline__ void copy_ahead(u8 *to, const u8 *from, int bytes, int thread, int threads) {
    u32 address = shared_address(to);
    for (int i = thread * 16; i < bytes; i += threads * 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address + i), "l"(from + i) : "memory");
}

#if __CUDA_ARCH__ >= 900
#define BULK 1
// Our own stores to shared memory come before the copies that follow.
__device__ __forceinline__ void fence_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#else
#define BULK 0
__device__ __forceinline__ void fence_copies() {}
#endif
