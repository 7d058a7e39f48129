// What both ways of GDN take of b and a.
#pragma once
#include "common/base.cuh"

__device__ __forceinline__ float softplus(float x) { return x > 20.0f ? x : log1pf(__expf(x)); }
