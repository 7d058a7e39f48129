// Words between the host's page-locked memory and the device. A copy between two kernels waits for one of the device's copy engines, and the
// kernel behind it for that; a kernel that reads or writes the host's memory itself does not.
//
// A thread has a word. Bound: 4 bytes a word over the bus, whose latency `bring` has behind it while the kernel ahead still runs.
#include "common/base.cuh"
#include "arguments.cuh"

// To the device. The host wrote all of it before the launch and leaves it alone until it is done, so it is read before the wait; what lies at
// `to` may still be read until then.
extern "C" __global__ void __launch_bounds__(256) bring(const Arguments args) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    let_next_start();
    u32 word = i < args.words ? __ldcv(args.from + i) : 0;
    wait_for_inputs();
    if (i < args.words) args.to[i] = word;
}

// To the host, who looks at it when the event behind it is there.
extern "C" __global__ void __launch_bounds__(256) fetch(const Arguments args) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    let_next_start();
    wait_for_inputs();
    if (i < args.words) __stwt(args.to + i, __ldcg(args.from + i));
}
