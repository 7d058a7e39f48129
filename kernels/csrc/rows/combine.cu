// x[row] += sum over k of gates[row][k] * experts[row * USED + k] + gates[row][USED] * shared[row], and the int8 form of x * w
//
// A thread holds eight values of a row (common/int8_rows.cuh, quantize_quads), so neither a row nor a block of threads waits for another: the
// sums of squares are by blocks of 32. Terms are added one after another, k = 0 first, the shared expert last, and their sum to x, as
// experts.cu does it.
// Bound: 4 * COLS * (USED + 3) bytes a row, read or written once;
// 2 * COLS * (USED + 6) with f16.
//
// A factor of 0 leaves its term out, whatever lies there: nobody computed what a row's cut took away.
// Without STREAM there is no x: the int8 form is that of the sum alone, for a matrix to read, and there are no squares.
// slots[row] < 0: no row, nothing is read or written. x, experts, shared: rows of COLS f32; experts f16 where `halves` says so.
//
// -D: COLS (a multiple of 32), PADDED (COLS up to a multiple of 128), USED, SHARED (whether there is a shared expert), STREAM, PLANES.
#include "common/int8_rows.cuh"
#include "arguments.cuh"

#define EACH_ROW (COLS / 8)
#define GATES (USED + 1)
// Experts whose values are on their way at a time.
#define AT_ONCE (USED < 16 ? USED : 16)

__device__ __forceinline__ void add(float4 &sum, float gate, float4 y) {
    // Nobody wrote the part of an expert that the row does without.
    bool there = gate != 0.0f;
    sum.x = __fmaf_rn(gate, there ? y.x : 0.0f, sum.x), sum.y = __fmaf_rn(gate, there ? y.y : 0.0f, sum.y);
    sum.z = __fmaf_rn(gate, there ? y.z : 0.0f, sum.z), sum.w = __fmaf_rn(gate, there ? y.w : 0.0f, sum.w);
}
__device__ __forceinline__ float4 plus(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }

// Four values of an expert's row, as they are kept.
struct Floats {
    typedef float Kept;
    float4 v;
    __device__ __forceinline__ void read(const float *at) { v = *(const float4 *)at; }
    __device__ __forceinline__ float4 get() const { return v; }
};
struct Halves {
    typedef u16 Kept;
    uint2 v;
    __device__ __forceinline__ void read(const u16 *at) { v = *(const uint2 *)at; }
    __device__ __forceinline__ float4 get() const { return make_float4(low_half(v.x), high_half(v.x), low_half(v.y), high_half(v.y)); }
};

// What is added to values `first`.. and `first` + 16.. of a row; all of it, or of AT_ONCE experts, is on its way before any is used.
template <class FOUR> __device__ __forceinline__ void sum_terms(float4 &a, float4 &b, const Arguments &args, u32 row, int first) {
    const typename FOUR::Kept *pair = (const typename FOUR::Kept *)args.experts + (u64)row * USED * COLS + first;
    float4 own_a, own_b;
    float of_shared;
    if constexpr (SHARED) {
        const u64 at = (u64)row * COLS + first;
        own_a = *(const float4 *)(args.shared + at), own_b = *(const float4 *)(args.shared + at + 16);
        of_shared = args.gates[(u64)row * GATES + USED];
    }
#pragma unroll
    for (int base = 0; base < USED; base += AT_ONCE) {
        FOUR ya[AT_ONCE], yb[AT_ONCE];
        float gate[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE && base + k < USED; k++) {
            ya[k].read(pair + (base + k) * COLS), yb[k].read(pair + (base + k) * COLS + 16);
            gate[k] = args.gates[(u64)row * GATES + base + k];
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE && base + k < USED; k++) add(a, gate[k], ya[k].get()), add(b, gate[k], yb[k].get());
    }
    if constexpr (SHARED) add(a, of_shared, own_a), add(b, of_shared, own_b);
}

extern "C" __global__ void __launch_bounds__(256) combine(const Arguments args) {
    let_next_start();
    u32 item = blockIdx.x * blockDim.x + threadIdx.x, row = item / EACH_ROW, of_row = item % EACH_ROW;
    int block = of_row / 4, first = block * 32 + of_row % 4 * 4;
    float4 w0, w1;
    if constexpr (STREAM) w0 = __ldg((const float4 *)(args.weight + first)), w1 = __ldg((const float4 *)(args.weight + first + 16));
    wait_for_inputs();

    bool live = row < args.rows && args.slots[row] >= 0;
    float4 a, b;
    a = b = make_float4(0, 0, 0, 0);
    u64 at = (u64)row * COLS + first;
    if (live) {
        if constexpr (STREAM) a = *(const float4 *)(args.x + at), b = *(const float4 *)(args.x + at + 16);
        float4 sum_a = make_float4(0, 0, 0, 0), sum_b = sum_a;
        if (args.halves) sum_terms<Halves>(sum_a, sum_b, args, row, first);
        else sum_terms<Floats>(sum_a, sum_b, args, row, first);
        a = plus(a, sum_a), b = plus(b, sum_b);
        if constexpr (STREAM) *(float4 *)(args.x + at) = a, *(float4 *)(args.x + at + 16) = b;
    }
    if constexpr (STREAM) {
        float sum = quads_squares(a, b);
        if (live && of_row % 4 == 0) args.squares[(u64)row * (COLS / 32) + block] = sum;
        a = make_float4(a.x * w0.x, a.y * w0.y, a.z * w0.z, a.w * w0.w);
        b = make_float4(b.x * w1.x, b.y * w1.y, b.z * w1.z, b.w * w1.w);
    }
    quantize_quads(a, b, args.codes + ((u64)row * PADDED + block * 32) * PLANES, args.meta + ((u64)row * (PADDED / 32) + block) * PLANES, live);
}
