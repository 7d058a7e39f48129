// Blocks of 256 values in 8 groups with a scale and a minimum, whole multiples of two factors: Q4_K and Q5_K. A warp a block.
//
// -D: TYPE (of the numbers below), BYTES of an encoded block.
#include "arguments.cuh"
#include "encode/minimum.cuh"

#define WARPS 4
#define VALUES 256
#define GROUPS 8
#define ROUNDS 3
// So far from the nearest multiple others are tried, of scale and minimum each; multiples go up to 63.
#define REACH 3
#define EACH (2 * REACH + 1)
#define TRIED (EACH * EACH)
#define MULTIPLE_MAX 63
enum { Q4_K, Q5_K };
#define Q_MAX (TYPE == Q4_K ? 15.0f : 31.0f)

// What two factors lead to.
struct Coded {
    Factor d, m;
    f32 error;
    int scales[GROUPS], minima[GROUPS];

    __device__ __forceinline__ ScaleMin of(int l, int lm) const { return {d.d * float(l), -(m.d * float(lm))}; }
    __device__ __forceinline__ f32 code(int g, f32 x) const {
        ScaleMin s = of(scales[g], minima[g]);
        return s.code(x, inverse_of(s.scale), Q_MAX);
    }
};

struct Memory {
    Block<VALUES> block;
    union {
        Tried tried[GROUPS * TRIALS];
        struct {
            float errors[GROUPS * TRIED], least[GROUPS];
        };
        float a[VALUES];
    };
    float sums[5];
    ScaleMin fits[GROUPS];
    Coded best, next;
    u8 codes[VALUES];
};

// Multiples of `unit` around x: the first one tried, and how many there are.
struct Around {
    int first, count;

    __device__ __forceinline__ Around(f32 x, f32 unit) : first(0), count(1) {
        if (unit == 0.0f) return;
        int middle = (int)roundf(within(x / unit, 0.0f, float(MULTIPLE_MAX)).v);
        first = max(middle - REACH, 0), count = min(middle + REACH, MULTIPLE_MAX) - first + 1;
    }
};

// The best multiples near the fits for factors near these.
__device__ __forceinline__ void search(Memory &memory, f32 near_d, f32 near_m, Coded &coded) {
    int lane = threadIdx.x % WARP;
    if (lane == 0) coded.d = memory.block.factor(near_d), coded.m = memory.block.factor(near_m);
    __syncwarp();
    for (int i = lane; i < GROUPS * TRIED; i += WARP) {
        int g = i / TRIED, l = i % TRIED / EACH, lm = i % EACH;
        Around scales(memory.fits[g].scale, coded.d.d), minima(-memory.fits[g].min, coded.m.d);
        bool there = l < scales.count && lm < minima.count;
        ScaleMin trial = coded.of(scales.first + l, minima.first + lm);
        memory.errors[i] = there ? trial.error(memory.block.group(g, VALUES / GROUPS), Q_MAX).v : INFINITE;
    }
    __syncwarp();
    if (lane < GROUPS) {
        const float *errors = memory.errors + lane * TRIED;
        int best = 0;
        for (int i = 1; i < TRIED; i++)
            if (errors[i] < errors[best]) best = i;
        coded.scales[lane] = Around(memory.fits[lane].scale, coded.d.d).first + best / EACH;
        coded.minima[lane] = Around(-memory.fits[lane].min, coded.m.d).first + best % EACH;
        memory.least[lane] = errors[best];
    }
    __syncwarp();
    if (lane == 0) {
        coded.error = 0.0f;
        for (int g = 0; g < GROUPS; g++) coded.error += memory.least[g];
    }
    __syncwarp();
}

// The factors for which the error of these codes is least, by 2 x 2 least squares over the whole block; false if there are none.
__device__ __forceinline__ bool fitted(Memory &memory, const Coded &coded, f32 &d, f32 &m) {
    int lane = threadIdx.x % WARP;
    for (int i = lane; i < VALUES; i += WARP) {
        int g = i / (VALUES / GROUPS);
        memory.a[i] = (f32(coded.scales[g]) * coded.code(g, memory.block.x[i])).v;
    }
    __syncwarp();
    // Sums of w a a, w a b, w b b, w a x, w b x, a lane each.
    if (lane < 5) {
        f32 sum = 0.0f;
        for (int i = 0; i < VALUES; i++) {
            f32 a = memory.a[i], b = -float(coded.minima[i / (VALUES / GROUPS)]), x = memory.block.x[i];
            f32 first = lane == 2 || lane == 4 ? b : a, second = lane == 0 ? a : lane < 3 ? b : x;
            sum += f32(memory.block.w[i]) * first * second;
        }
        memory.sums[lane] = sum.v;
    }
    __syncwarp();
    f32 aa = memory.sums[0], ab = memory.sums[1], bb = memory.sums[2], ax = memory.sums[3], bx = memory.sums[4];
    if (bb == 0.0f) {
        d = ax / aa, m = 0.0f;
        return aa > 0.0f;
    }
    f32 det = aa * bb - ab * ab;
    d = (ax * bb - bx * ab) / det, m = (bx * aa - ax * ab) / det;
    return det > 0.0f;
}

// The 12 bytes of eight 6-bit scales and minima.
__device__ __forceinline__ u8 multiples_byte(const int *l, const int *m, int at) {
    if (at < 4) return l[at] | l[at + 4] >> 4 << 6;
    if (at < 8) return m[at - 4] | m[at] >> 4 << 6;
    return (l[at - 4] & 15) | m[at - 4] << 4;
}
__device__ __forceinline__ u8 byte_of(const u8 *q, const Coded &coded, int at) {
    if (at < 4) return (u8)((at < 2 ? coded.d.bits : coded.m.bits) >> at % 2 * 8);
    if (at < 16) return multiples_byte(coded.scales, coded.minima, at - 4);
    if (TYPE == Q5_K && at < 48) {
        u8 byte = 0;
        for (int g = 0; g < GROUPS; g++) byte |= q[g * 32 + at - 16] >> 4 << g;
        return byte;
    }
    int nibble = at - (TYPE == Q5_K ? 48 : 16);
    return nibbles_at(q + nibble / 32 * 64, 32, nibble % 32);
}

__device__ __forceinline__ void encode(Memory &memory) {
    int lane = threadIdx.x % WARP;
    fit_all<GROUPS>(memory.block, Q_MAX, 0.0f, memory.tried, memory.fits);
    f32 d = 0.0f, m = 0.0f;
    for (int g = 0; g < GROUPS; g++) {
        if (memory.fits[g].scale > d) d = memory.fits[g].scale;
        if (-memory.fits[g].min > m) m = -memory.fits[g].min;
    }
    search(memory, d / float(MULTIPLE_MAX), m / float(MULTIPLE_MAX), memory.best);
    for (int round = 0; round < ROUNDS; round++) {
        if (!fitted(memory, memory.best, d, m)) break;
        search(memory, d, m, memory.next);
        if (memory.next.error >= memory.best.error) break;
        __syncwarp();
        if (lane < GROUPS) memory.best.scales[lane] = memory.next.scales[lane], memory.best.minima[lane] = memory.next.minima[lane];
        if (lane == 0) memory.best.d = memory.next.d, memory.best.m = memory.next.m, memory.best.error = memory.next.error;
        __syncwarp();
    }
    for (int i = lane; i < VALUES; i += WARP) memory.codes[i] = (u8)memory.best.code(i / (VALUES / GROUPS), memory.block.x[i]).v;
    __syncwarp();
}

extern "C" __global__ void __launch_bounds__(WARPS *WARP) encode_rows(const Arguments args) {
    __shared__ Memory memories[WARPS];
    let_next_start();
    wait_for_inputs();
    Memory &memory = memories[threadIdx.x / WARP];
    u64 block = (u64)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (block >= args.blocks) return;
    bool some = memory.block.read(args.x + block * VALUES, weights_of<VALUES>(args, block));
    if (some) encode(memory);
    for (int i = threadIdx.x % WARP; i < BYTES; i += WARP) args.out[block * BYTES + i] = some ? byte_of(memory.codes, memory.best, i) : 0;
}
