// Waits of threads that look again and again until something has come, each with a bound. No other file has such a loop: a test sees to that.
//
// A wait ends if the comment where it stands is right. The bound is for one that is wrong: the host then gets an error that names the wait,
// instead of a device that is busy for ever. A thread that has waited for WAIT_TICKS ticks writes its place to host memory, since the trap that
// follows takes the device's memory with it, and traps.
//
// Only ticks count that the thread has seen, or looks that it has taken. So time in which a debugger or another process has the device is not waited
// time, and a clock that jumps ends nothing. A wait that is over at once reads no clock.
//
// No thread looks, and so nothing is bounded here, in `__syncthreads`, `bar.sync`, `barrier.cluster`, `griddepcontrol.wait`,
// `cp.async.wait_group`, `wgmma.wait_group` and `setmaxnreg.inc`. The host gives up a step that one of these holds up.
#pragma once
#include "common/base.cuh"
#include "common/wait_numbers.cuh"

// A tick is 2^26 ns, 67 ms. Five seconds are far more than any launch takes, and less than the host waits for a step.
#ifndef WAIT_TICKS
#define WAIT_TICKS 75
#endif

// A word for each wait, in host memory. The host sets it when it has loaded the module.
extern "C" {
__constant__ u64 *ended_waits;
}

// Stores where the thread is to the word at WAIT bytes of `ended_waits`, and traps: bit 63, 31 bits of block x, 16 of block y, 16 of the thread.
#define PLACE_REGISTERS ".reg .u32 low, high;\n.reg .u64 words, place;\n"
#define END_WAIT(WAIT) \
    "ld.const.u64 words, [ended_waits];\n"                     \
    "mov.u32 low, %%tid.x;\n"                                  \
    "mov.u32 high, %%ctaid.y;\n"                               \
    "bfi.b32 low, high, low, 16, 16;\n"                        \
    "mov.u32 high, %%ctaid.x;\n"                               \
    "or.b32 high, high, 0x80000000;\n"                         \
    "mov.b64 place, {low, high};\n"                            \
    "st.relaxed.sys.global.u64 [words + " WAIT "], place;\n"   \
    "fence.acq_rel.sys;\n"                                     \
    "trap;\n"                                                  \
    "exit;\n"

// For tests: warp DELAY_WARP of each block sleeps for DELAY_NS before each of its waits, and so comes to them as late as a warp can.
__device__ __forceinline__ void delay_wait() {
#ifdef DELAY_WARP
    if (threadIdx.x / WARP == DELAY_WARP) __nanosleep(DELAY_NS);
#endif
}

// Looks at device memory within a tick, at the most: each of them takes half a microsecond or more.
#define LOOKS_A_TICK (1u << 17)

// Until `done` returns true. Looks are counted here, not ticks, because a clock that is read in the loop shows in the time of a step. The end of the
// wait is marked as unlikely, so that the compiler puts it behind the kernel's other instructions.
template <Wait WAIT, class Done> __device__ __forceinline__ void wait_until(const Done &done) {
    delay_wait();
    u32 looks = 0;
#pragma unroll 1
    do
        if (__builtin_expect(looks++ == WAIT_TICKS * LOOKS_A_TICK, 0)) {
            asm volatile("{" PLACE_REGISTERS END_WAIT("%0") "}" ::"n"(8 * (int)WAIT));
            __builtin_unreachable();
        }
    while (!done());
}

#if __CUDA_ARCH__ >= 900
// Behind a look that found nothing: goes on at ON, unless the bound has come. SEEN, 0 at first: how many ticks the thread has seen, times 64, and
// the last 6 bits of the latest. MOST: MOST_SEEN.
//
// In PTX, with one register that lives on: written in C++, the compiler serialises matrix instructions around it, or spills.
#define SEEN_REGISTERS ".reg .pred more;\n.reg .u32 now;\n" PLACE_REGISTERS
#define GO_ON_OR_END(ON, SEEN, MOST, WAIT) \
    "mov.u32 now, %%globaltimer_lo;\n"                         \
    "shr.u32 now, now, 26;\n"                                  \
    "bfi.b32 now, now, " SEEN ", 0, 6;\n"                      \
    "setp.eq.u32 more, now, " SEEN ";\n"                       \
    "@more bra " ON ";\n"                                      \
    "add.u32 " SEEN ", now, 64;\n"                             \
    "setp.lt.u32 more, " SEEN ", " MOST ";\n"                  \
    "@more bra " ON ";\n" END_WAIT(WAIT)
#define MOST_SEEN ((WAIT_TICKS + 1) * 64)

// Until the phase with this parity has ended, of a barrier in shared memory (common/mbarrier.cuh). A look lets the warp sleep for a while.
//
// A parity tells a phase only from the ones beside it. So a thread may wait here only if the phase after the one that it waits for cannot end
// before it has gone on: if that phase needs something that the thread, or one that it meets in between, does afterwards.
template <Wait WAIT> __device__ __forceinline__ void barrier_wait(u32 barrier, u32 parity) {
    delay_wait();
    asm volatile("{.reg .pred done;\n"
                 ".reg .u32 seen;\n" SEEN_REGISTERS
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra over;\n"
                 "mov.u32 seen, 0;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra over;\n" GO_ON_OR_END("again", "seen", "%2", "%3") "over:}" ::"r"(barrier),
                 "r"(parity), "n"(MOST_SEEN), "n"(8 * (int)WAIT)
                 : "memory");
}
#endif
