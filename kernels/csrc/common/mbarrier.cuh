// Barriers in shared memory on which copies and warps arrive (sm_90 on), and copies that do.
//
// A barrier goes through phases; who waits for phase i of it (`barrier_wait`, common/waits.cuh) gives the parity of i, and
// goes on once that phase has ended.
#pragma once
#include "common/waits.cuh"

// By one thread, before any other uses it: a phase ends after so many arrivals, and when the bytes that it was told of are there.
__device__ __forceinline__ void barrier_make(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// After these, before a block's barrier: seen by copies too.
__device__ __forceinline__ void barriers_made() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void barrier_arrive(u32 barrier) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory"); }
__device__ __forceinline__ void barrier_arrive_for(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// A multiple of 16 bytes, from and to multiples of 16.
__device__ __forceinline__ void copy_bulk(u32 to, const void *from, u32 bytes, u32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes),
                 "r"(barrier)
                 : "memory");
}
