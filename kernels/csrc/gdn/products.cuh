// Products of f32 values as two bf16 each, by a warp: high * high + high * low + low * high. Chunks have C tokens.
#pragma once
#include "common/base.cuh"

// Two values as bf16, the first one low in the word; what is left of them likewise.
struct Split {
    u32 high, low;
};
__device__ __forceinline__ u32 bf16_pair(float first, float second) {
    u32 two;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(second), "f"(first));
    return two;
}
__device__ __forceinline__ Split split(float first, float second) {
    u32 high = bf16_pair(first, second);
    return {high, bf16_pair(first - low_bf16(high), second - high_bf16(high))};
}

// Left operand of a product: 16 rows, 16 of the inner dimension.
struct Left {
    u32 high[4], low[4];
};
// What two neighbouring accumulator tiles hold, as left operand.
__device__ __forceinline__ Left left_of(const float (&a)[4], const float (&b)[4]) {
    Left l;
    Split s0 = split(a[0], a[1]), s1 = split(a[2], a[3]), s2 = split(b[0], b[1]), s3 = split(b[2], b[3]);
    l.high[0] = s0.high, l.high[1] = s1.high, l.high[2] = s2.high, l.high[3] = s3.high;
    l.low[0] = s0.low, l.low[1] = s1.low, l.low[2] = s2.low, l.low[3] = s3.low;
    return l;
}

__device__ __forceinline__ void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Right operand of a product: 16 of the inner dimension, two tiles of 8 columns.
struct Right {
    u32 high[4], low[4];
};
// c0, c1 += l * r, small terms first.
__device__ __forceinline__ void multiply(float (&c0)[4], float (&c1)[4], const Left &l, const Right &r) {
    mma(c0, l.low, r.high[0], r.high[1]), mma(c1, l.low, r.high[2], r.high[3]);
    mma(c0, l.high, r.low[0], r.low[1]), mma(c1, l.high, r.low[2], r.low[3]);
    mma(c0, l.high, r.high[0], r.high[1]), mma(c1, l.high, r.high[2], r.high[3]);
}
// Two such products in turns: an instruction waits for the fourth before it, not for the second. This is what a lone warp's speed
// hangs on.
__device__ __forceinline__ void multiply(float (&c0)[4], float (&c1)[4], const Left &l, const Right &r, float (&d0)[4], float (&d1)[4],
                                         const Left &m, const Right &s) {
    mma(c0, l.low, r.high[0], r.high[1]), mma(c1, l.low, r.high[2], r.high[3]);
    mma(d0, m.low, s.high[0], s.high[1]), mma(d1, m.low, s.high[2], s.high[3]);
    mma(c0, l.high, r.low[0], r.low[1]), mma(c1, l.high, r.low[2], r.low[3]);
    mma(d0, m.high, s.low[0], s.low[1]), mma(d1, m.high, s.low[2], s.low[3]);
    mma(c0, l.high, r.high[0], r.high[1]), mma(c1, l.high, r.high[2], r.high[3]);
    mma(d0, m.high, s.high[0], s.high[1]), mma(d1, m.high, s.high[2], s.high[3]);
}

// And four, of one left operand: an instruction waits for the eighth before it.
__device__ __forceinline__ void multiply(const Left &l, float (&a0)[4], float (&a1)[4], const Right &a, float (&b0)[4], float (&b1)[4], const Right &b,
                                         float (&c0)[4], float (&c1)[4], const Right &c, float (&d0)[4], float (&d1)[4], const Right &d) {
    mma(a0, l.low, a.high[0], a.high[1]), mma(a1, l.low, a.high[2], a.high[3]);
    mma(b0, l.low, b.high[0], b.high[1]), mma(b1, l.low, b.high[2], b.high[3]);
    mma(c0, l.low, c.high[0], c.high[1]), mma(c1, l.low, c.high[2], c.high[3]);
    mma(d0, l.low, d.high[0], d.high[1]), mma(d1, l.low, d.high[2], d.high[3]);
    mma(a0, l.high, a.low[0], a.low[1]), mma(a1, l.high, a.low[2], a.low[3]);
    mma(b0, l.high, b.low[0], b.low[1]), mma(b1, l.high, b.low[2], b.low[3]);
    mma(c0, l.high, c.low[0], c.low[1]), mma(c1, l.high, c.low[2], c.low[3]);
    mma(d0, l.high, d.low[0], d.low[1]), mma(d1, l.high, d.low[2], d.low[3]);
    mma(a0, l.high, a.high[0], a.high[1]), mma(a1, l.high, a.high[2], a.high[3]);
    mma(b0, l.high, b.high[0], b.high[1]), mma(b1, l.high, b.high[2], b.high[3]);
    mma(c0, l.high, c.high[0], c.high[1]), mma(c1, l.high, c.high[2], c.high[3]);
    mma(d0, l.high, d.high[0], d.high[1]), mma(d1, l.high, d.high[2], d.high[3]);
}

__device__ __forceinline__ void ldmatrix(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
__device__ __forceinline__ void ldmatrix_trans(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
// Both parts of a right operand, the low one LOW bytes on.
template <int LOW> __device__ __forceinline__ Right right_at(u32 at) {
    Right r;
    ldmatrix(r.high, at), ldmatrix(r.low, at + LOW);
    return r;
}
template <int LOW> __device__ __forceinline__ Right turned_right_at(u32 at) {
    Right r;
    ldmatrix_trans(r.high, at), ldmatrix_trans(r.low, at + LOW);
    return r;
}

// Where element (row, col) of a matrix with rows of LENGTH lies.
template <int LENGTH> __device__ __forceinline__ int place(int row, int col) {
    return row * LENGTH + ((col / 8 ^ (row & 7)) * 8) + col % 8;
}

// What a lane has of accumulators (columns 2t and 2t + 1 of each tile), and rows and groups of columns of right operands that it reads: as
// they are, and for those that ldmatrix turns.
struct Lanes {
    int t, row, col, turned_row, turned_col;
};

// sum += left * (the lower triangle at `at`)^T.
__device__ __forceinline__ void multiply_triangle(float (&sum)[8][4], const float (&left)[8][4], u32 at, const Lanes &lanes) {
#pragma unroll
    for (int step = 0; step < C / 16; step++) {
        Left l = left_of(left[2 * step], left[2 * step + 1]);
        u32 from = at + place<C>(lanes.row, 16 * step + 8 * lanes.col) * 2;
#pragma unroll
        for (int np = step; np < 4; np += 2) {
            Right a = right_at<C * C * 2>(from + np * 16 * C * 2);
            if (np == 3) {
                multiply(sum[6], sum[7], l, a);
            } else {
                Right b = right_at<C * C * 2>(from + (np + 1) * 16 * C * 2);
                multiply(sum[2 * np], sum[2 * np + 1], l, a, sum[2 * np + 2], sum[2 * np + 3], l, b);
            }
        }
    }
}
