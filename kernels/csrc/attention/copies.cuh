// Copies from the cache to shared memory, ahead of their use: by a barrier in shared memory and whole pages where the chip can (sm_90 on), else
// by 16 bytes a thread.
#pragma once
#include "common/base.cuh"

// By `threads` threads, of which this is `thread`; `bytes` is a multiple of 16.
__device__ __forceinline__ void copy_ahead(u8 *to, const u8 *from, int bytes, int thread, int threads) {
    u32 address = shared_address(to);
    for (int i = thread * 16; i < bytes; i += threads * 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address + i), "l"(from + i) : "memory");
}

#if __CUDA_ARCH__ >= 900
#define BULK 1
__device__ __forceinline__ void barrier_init(u64 *barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void barrier_expect(u64 *barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_wait(u64 *barrier, u32 parity) {
    asm volatile("{\n.reg .pred p;\nL: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra L;\n}" ::"r"(shared_address(barrier)), "r"(parity)
                 : "memory");
}
__device__ __forceinline__ void copy_bulk(u8 *to, const u8 *from, u32 bytes, u64 *barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)), "l"(from),
                 "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}
// Our own stores to shared memory come before the copies that follow.
__device__ __forceinline__ void fence_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#else
#define BULK 0
__device__ __forceinline__ void fence_copies() {}
#endif
