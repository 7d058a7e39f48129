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
// slots[row] < 0: no row, nothing is written; what lies there is read all the same, so that nothing waits for the slot. x, experts, shared:
// rows of COLS f32; experts f16 where `halves` says so.
//
// combine_row, a block a row, also brings the rows that the next product wants in f16 (half_rows.cuh), so that they need no launch.
//
// -D: COLS (a multiple of 32), PADDED (COLS up to a multiple of 128), USED, SHARED (whether there is a shared expert), STREAM, PLANES, BY_ROW:
// whether there is combine_row.
#include "rows/half_rows.cuh"
#include "arguments.cuh"

#define EACH_ROW (COLS / 8)
#define GATES (USED + 1)
// Experts whose values are on their way at a time.
#define AT_ONCE (USED <= 10 ? USED : 8)
// Blocks of a multiprocessor that are enough. Not told so, the compiler keeps registers to 60 and has four loads on their way at a time
// instead of all of a thread's, and each turn is a trip to the cache.
#define ENOUGH(THREADS) ((THREADS) <= 256 ? 2 : 1)

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

// Eight values of a row: `first`.. and `first` + 16.. of block `block`, and what the next norm multiplies them with.
struct Part {
    u32 row;
    int block, first;
    float4 w0, w1;

    __device__ __forceinline__ Part(const Arguments &args, u32 row, u32 of_row)
        : row(row), block(of_row / 4), first(of_row / 4 * 32 + of_row % 4 * 4) {
        if constexpr (STREAM) w0 = __ldg((const float4 *)(args.weight + first)), w1 = __ldg((const float4 *)(args.weight + first + 16));
    }
    // What they are afterwards, written to the stream. Whether there is a row: in `live`.
    __device__ __forceinline__ void add_terms(float4 &a, float4 &b, bool &live, const Arguments &args) const {
        const int slot = args.slots[row];
        u64 at = (u64)row * COLS + first;
        if constexpr (STREAM) a = *(const float4 *)(args.x + at), b = *(const float4 *)(args.x + at + 16);
        float4 sum_a = make_float4(0, 0, 0, 0), sum_b = sum_a;
        if (args.halves) sum_terms<Halves>(sum_a, sum_b, args, row, first);
        else sum_terms<Floats>(sum_a, sum_b, args, row, first);
        a = plus(a, sum_a), b = plus(b, sum_b), live = slot >= 0;
        if (STREAM && live) *(float4 *)(args.x + at) = a, *(float4 *)(args.x + at + 16) = b;
    }
    // Their int8 form.
    __device__ __forceinline__ Quads put(const Arguments &args, float4 a, float4 b, bool live) const {
        if constexpr (STREAM) {
            a = make_float4(a.x * w0.x, a.y * w0.y, a.z * w0.z, a.w * w0.w);
            b = make_float4(b.x * w1.x, b.y * w1.y, b.z * w1.z, b.w * w1.w);
        }
        return quantize_quads(a, b, args.codes + ((u64)row * PADDED + block * 32) * PLANES, args.meta + ((u64)row * (PADDED / 32) + block) * PLANES, live);
    }
};

extern "C" __global__ void __launch_bounds__(256, ENOUGH(256)) combine(const Arguments args) {
    let_next_start();
    u32 item = blockIdx.x * blockDim.x + threadIdx.x, of_row = item % EACH_ROW;
    const Part part(args, item / EACH_ROW, of_row);
    wait_for_inputs();
    bool live = false;
    float4 a, b;
    a = b = make_float4(0, 0, 0, 0);
    if (part.row < args.rows) part.add_terms(a, b, live, args);
    if constexpr (STREAM) {
        float sum = quads_squares(a, b);
        if (live && of_row % 4 == 0) args.squares[(u64)part.row * (COLS / 32) + part.block] = sum;
    }
    part.put(args, a, b, live);
}

#if BY_ROW
extern "C" __global__ void __launch_bounds__(EACH_ROW, ENOUGH(EACH_ROW)) combine_row(const Arguments args) {
    __shared__ float squares[COLS / 32], scales[EACH_ROW / WARP];
    let_next_start();
    const int of_row = threadIdx.x, warp = of_row / WARP;
    const Part part(args, blockIdx.x, of_row);
    wait_for_inputs();
    float4 a = make_float4(0, 0, 0, 0), b = a;
    bool live;
    part.add_terms(a, b, live, args);
    if (!live) return;
    float sum = quads_squares(a, b);
    if (of_row % 4 == 0) args.squares[(u64)part.row * (COLS / 32) + part.block] = squares[part.block] = sum;
    const Quads made = part.put(args, a, b, true);
    const float scale = scale_of(made.top, made.finite);
    float top = warp_max(fmaxf(0.0f, scale));
    if (of_row % WARP == 0) scales[warp] = top;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < EACH_ROW / WARP; i++) top = fmaxf(top, scales[i]);
    const HalfScale of_all = half_scale(top);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u64 at = half_place(part.block * 4 + i, part.row, args.rows) + of_row % 4 * 2;
        *(u32 *)(args.half_rows + at) = half_pair(made.words[i / 2], i % 2, scale * of_all.down);
    }
    if (warp != 0) return;
    const float factor = row_factor<COLS / 32>(squares, args.eps);
    if (of_row == 0) args.half_scales[part.row] = of_all.up * factor;
}
#endif
