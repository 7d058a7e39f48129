// Row i of the outputs is row list[i] of the inputs, or zeros where list[i] < 0: int8 form and squares of rows of COLS.
//
// One block a row, whole vectors. Bound: (1.25 * PLANES + 0.125) * COLS bytes in and out.
//
// -D: COLS (a multiple of 32), PADDED (COLS up to a multiple of 128), PLANES.
#include "common/int8_rows.cuh"
#include "arguments.cuh"

#define THREADS 128
#define CODES (PADDED * PLANES)

template <typename T, int N> __device__ __forceinline__ void copy(T *to, const T *from, bool zero, T none) {
    for (int i = threadIdx.x; i < N; i += THREADS) to[i] = zero ? none : from[i];
}

extern "C" __global__ void __launch_bounds__(THREADS) gather(const Arguments args) {
    let_next_start();
    wait_for_inputs();
    u64 to = blockIdx.x;
    int listed = args.list[to];
    bool zero = listed < 0;
    u64 from = zero ? 0 : listed;
    uint4 none = make_uint4(0, 0, 0, 0);
    copy<uint4, CODES / 16>((uint4 *)(args.codes_out + to * CODES), (const uint4 *)(args.codes + from * CODES), zero, none);
    copy<uint4, CODES / 64>((uint4 *)(args.meta_out + to * (CODES / 32)), (const uint4 *)(args.meta + from * (CODES / 32)), zero, none);
    copy<float, COLS / 32>(args.squares_out + to * (COLS / 32), args.squares + from * (COLS / 32), zero, 0.0f);
}
