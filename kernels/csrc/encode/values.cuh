// What the encoders share: numbers whose operations are each rounded once, a block in units of its largest value, the levels that codes
// stand for, and the search for the scale of a group of values. The definition is engine/src/format/blocks/encode, by the same names and
// in the same order of operations, so the bytes are the same.
//
// A warp has a block. What its lanes do side by side are whole sums, each by one lane in the order of the values; lanes hand results on
// through shared memory, with a `__syncwarp` between.
#pragma once
#include "common/base.cuh"

// A float of which no product is contracted with a sum.
struct f32 {
    float v;

    f32() = default;
    __device__ __forceinline__ f32(float v) : v(v) {}
};
__device__ __forceinline__ f32 operator+(f32 a, f32 b) { return __fadd_rn(a.v, b.v); }
__device__ __forceinline__ f32 operator-(f32 a, f32 b) { return __fsub_rn(a.v, b.v); }
__device__ __forceinline__ f32 operator*(f32 a, f32 b) { return __fmul_rn(a.v, b.v); }
__device__ __forceinline__ f32 operator/(f32 a, f32 b) { return __fdiv_rn(a.v, b.v); }
__device__ __forceinline__ f32 operator-(f32 a) { return -a.v; }
__device__ __forceinline__ void operator+=(f32 &a, f32 b) { a = a + b; }
__device__ __forceinline__ bool operator<(f32 a, f32 b) { return a.v < b.v; }
__device__ __forceinline__ bool operator>(f32 a, f32 b) { return a.v > b.v; }
__device__ __forceinline__ bool operator<=(f32 a, f32 b) { return a.v <= b.v; }
__device__ __forceinline__ bool operator>=(f32 a, f32 b) { return a.v >= b.v; }
__device__ __forceinline__ bool operator==(f32 a, f32 b) { return a.v == b.v; }
__device__ __forceinline__ f32 abs_of(f32 a) { return fabsf(a.v); }
// Between two numbers; what is none becomes the lower one.
__device__ __forceinline__ f32 within(f32 a, f32 low, f32 high) { return fminf(fmaxf(a.v, low.v), high.v); }
__device__ __forceinline__ f32 inverse_of(f32 a) { return a == 0.0f ? f32(0.0f) : f32(1.0f) / a; }

#define INFINITE __int_as_float(0x7f800000)
// Blocks whose largest value is below this are zeros.
#define LARGEST_MIN 1e-30f

// Values that share a scale, and what each weighs; in shared memory.
struct Group {
    const float *x, *w;
    int count;
};

// A factor as it is stored, and what that is in the block's units.
struct Factor {
    u32 bits;
    f32 d;
};

// Values of at most 1, and what they were divided by.
template <int COUNT> struct Block {
    f32 largest;
    float x[COUNT], w[COUNT];

    // By a warp; false if all are zeros. `weights`: null where all weigh the same. The largest is found by all lanes for themselves.
    __device__ __forceinline__ bool read(const float *from, const float *weights) {
        int lane = threadIdx.x % WARP;
        for (int i = lane; i < COUNT; i += WARP) x[i] = from[i], w[i] = weights ? weights[i] : 1.0f;
        __syncwarp();
        f32 most = 0.0f;
        for (int i = 0; i < COUNT; i++) most = fmaxf(most.v, fabsf(x[i]));
        __syncwarp();
        if (most < LARGEST_MIN) return false;
        for (int i = lane; i < COUNT; i += WARP) x[i] = (f32(x[i]) / most).v;
        if (lane == 0) largest = most;
        __syncwarp();
        return true;
    }
    __device__ __forceinline__ Group group(int g, int count) const { return {x + g * count, w + g * count, count}; }
    __device__ __forceinline__ Factor factor(f32 d) const {
        u32 bits = pack_f16(within(d * largest, -65504.0f, 65504.0f).v, 0.0f) & 0xffff;
        return {bits, f32(f16_to_f32(bits)) / largest};
    }
};

// Nearest whole number, ties to even, of |v| < 2^22.
__device__ __forceinline__ f32 nearest_whole(f32 v) { return (v + MAGIC) - MAGIC; }

// All whole numbers between two.
template <int MIN, int MAX> struct Whole {
    static __device__ __forceinline__ f32 nearest(f32 y) { return nearest_whole(within(y, float(MIN), float(MAX))); }
};

// 16 levels in ascending order, of which T::level(i) is one; halves between neighbours are exact.
template <class T> struct Table {
    static __device__ __forceinline__ bool beyond(f32 y, int i) { return y > (f32(T::level(i)) + T::level(i + 1)) * 0.5f; }
    static __device__ __forceinline__ int at(f32 y) {
        int at = 0;
#pragma unroll
        for (int i = 0; i < 15; i++) at += beyond(y, i);
        return at;
    }
    // What is beyond one half is beyond those before it: the last one decides, without a look-up.
    static __device__ __forceinline__ f32 nearest(f32 y) {
        f32 level = T::level(0);
#pragma unroll
        for (int i = 0; i < 15; i++) level = beyond(y, i) ? T::level(i + 1) : level.v;
        return level;
    }
};

struct Products {
    f32 xq, qq;
};
// `sum w x q` and `sum w q^2` of the levels nearest to x times `inverse`.
template <class L> __device__ __forceinline__ Products products(Group group, f32 inverse) {
    Products sums = {0.0f, 0.0f};
    for (int i = 0; i < group.count; i++) {
        f32 x = group.x[i], w = group.w[i], q = L::nearest(x * inverse);
        sums.xq += w * x * q;
        sums.qq += w * q * q;
    }
    return sums;
}
// `sum w (x - scale level)^2` with the nearest levels.
template <class L> __device__ __forceinline__ f32 error_of(Group group, f32 scale) {
    f32 inverse = inverse_of(scale), sum = 0.0f;
    for (int i = 0; i < group.count; i++) {
        f32 x = group.x[i], w = group.w[i], off = x - scale * L::nearest(x * inverse);
        sum += w * off * off;
    }
    return sum;
}
// The first value of largest magnitude.
__device__ __forceinline__ f32 extreme_of(const float *x, int count) {
    f32 most = 0.0f;
    for (int i = 0; i < count; i++)
        if (abs_of(x[i]) > abs_of(most)) most = x[i];
    return most;
}
// The scale that least squares give where the extreme value lies on one of `count` ends, from the products at each.
__device__ __forceinline__ f32 best_scale(const Products *tried, int count) {
    f32 best = 0.0f, scale = 0.0f;
    for (int i = 0; i < count; i++) {
        f32 xq = tried[i].xq, qq = tried[i].qq;
        if (qq > 0.0f && xq * xq > best * qq) best = xq * xq / qq, scale = xq / qq;
    }
    return scale;
}

// Where the extreme value may lie beside the outermost level of whole numbers, on both sides.
template <int END> struct Ends {
    static constexpr int COUNT = 38;
    static __device__ __forceinline__ f32 at(int i) {
        f32 off = f32(0.1f) * float(i / 2 - 9);
        return i % 2 ? f32(END) + off : -f32(END) - off;
    }
};

// Levels of IQ4_NL and IQ4_XS.
struct Iq4 {
    static __device__ __forceinline__ float level(int i) {
        constexpr signed char levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
        return levels[i];
    }
};
struct Iq4Ends {
    static constexpr int COUNT = 58;
    static __device__ __forceinline__ f32 at(int i) { return f32(i % 2 ? Iq4::level(15) : Iq4::level(0)) + float(i / 2 - 14); }
};

// Byte `i` of nibbles of 2 * half codes: the low ones of the first half, the high ones of the second.
__device__ __forceinline__ u8 nibbles_at(const u8 *codes, int half, int i) { return (codes[i] & 15) | codes[half + i] << 4; }

// What the values of a block of COUNT weigh, by its row; null where all weigh the same.
template <int COUNT> __device__ __forceinline__ const float *weights_of(const Arguments &args, u64 block) {
    u64 of_row = args.cols / COUNT;
    return args.weights ? args.weights + args.set_of[block / of_row] * args.cols + block % of_row * COUNT : nullptr;
}
