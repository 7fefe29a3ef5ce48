
#ifdef __CUDACC_RTC__
  #include <cuda/std/cstdint>
  using cuda::std::uint8_t;
  using cuda::std::uint16_t;
  using cuda::std::uint32_t;
  using cuda::std::uint64_t;
  using cuda::std::int8_t;
  using cuda::std::int16_t;
  using cuda::std::int32_t;
  using cuda::std::int64_t;

  #include <cuda/std/type_traits>
  namespace std {
    using cuda::std::is_same;
    using cuda::std::is_same_v;
    using cuda::std::is_integral;
    using cuda::std::is_signed;
    using cuda::std::is_unsigned;
    using cuda::std::is_floating_point;
    using cuda::std::enable_if;
    using cuda::std::conditional;
  }

  // NVRTC uses asm/volatile instead of __asm__/__volatile__ (gcc extension).
  #ifndef __asm__
  #define __asm__ asm
  #endif
  #ifndef __volatile__
  #define __volatile__ volatile
  #endif
#else
  #include <cstdint>
  #include <type_traits>
  #include <cuda.h>
#endif

#if !defined(__CUDA_ARCH__) || (__CUDA_ARCH__ >= 800)
#include <cuda_bf16.h>
__device__ nv_bfloat16 max(nv_bfloat16 a, nv_bfloat16 b)
{
  return __hgt(a, b) ? a : b;
}
__device__ nv_bfloat16 min(nv_bfloat16 a, nv_bfloat16 b)
{
  return __hlt(a, b) ? a : b;
}
#endif // __CUDA_ARCH__ >= 800
// Pack two bfloat16 values.
static inline __device__ __host__ unsigned
__pack_nv_bfloat162(const nv_bfloat16 x, const nv_bfloat16 y) {
  unsigned v0 = *((unsigned short *)&x);
  unsigned v1 = *((unsigned short *)&y);
  return (v1 << 16) | v0;
}

// Some bfp16 math functions are not supported in cuda_bfp16.h,
// so we define them here to make sure the generated CUDA code
// is valid.
#define CUDA_UNSUPPORTED_HALF_MATH_BINARY(HALF_MATH_NAME, FP32_MATH_NAME) \
static inline __device__ __host__ nv_bfloat16 HALF_MATH_NAME(nv_bfloat16 x, nv_bfloat16 y) {   \
  float tmp_x = __bfloat162float(x);                                      \
  float tmp_y = __bfloat162float(y);                                      \
  float result = FP32_MATH_NAME(tmp_x, tmp_y);                            \
  return __float2bfloat16(result);                                        \
}

#define CUDA_UNSUPPORTED_HALF_MATH_UNARY(HALF_MATH_NAME, FP32_MATH_NAME) \
static inline __device__ __host__ nv_bfloat16 HALF_MATH_NAME(nv_bfloat16 x) {          \
  float tmp_x = __bfloat162float(x);                                     \
  float result = FP32_MATH_NAME(tmp_x);                                  \
  return __float2bfloat16(result);                                       \
}

CUDA_UNSUPPORTED_HALF_MATH_BINARY(hpow, powf)
#if ((__CUDACC_VER_MAJOR__ < 12) || ((__CUDACC_VER_MAJOR__ == 12) && (__CUDACC_VER_MINOR__ < 8)))
CUDA_UNSUPPORTED_HALF_MATH_UNARY(htanh, tanhf)
#endif
CUDA_UNSUPPORTED_HALF_MATH_UNARY(htan, tanf)
CUDA_UNSUPPORTED_HALF_MATH_UNARY(hatan, atanf)
CUDA_UNSUPPORTED_HALF_MATH_UNARY(herf, erf)

#undef CUDA_UNSUPPORTED_HALF_MATH_BINARY
#undef CUDA_UNSUPPORTED_HALF_MATH_UNARY

template <typename T, typename TVec2>
struct __align__(8) half4_bfloat164 {
  T x, y, z, w;
  __host__ __device__ half4_bfloat164() : x(T(0)), y(T(0)), z(T(0)), w(T(0)) {}
  __host__ __device__ half4_bfloat164(T x, T y, T z, T w) : x(x), y(y), z(z), w(w) {}

};

using nv_bfloat164 = half4_bfloat164<nv_bfloat16, nv_bfloat162>;
__host__ __device__ nv_bfloat164 make_nv_bfloat164(nv_bfloat16 x, nv_bfloat16 y, nv_bfloat16 z, nv_bfloat16 w) {
    return nv_bfloat164(x, y, z, w);
}
__host__ __device__ nv_bfloat162 make_nv_bfloat162(nv_bfloat16 x, nv_bfloat16 y) {
    return nv_bfloat162(x, y);
}

#include <mma.h>

#if (((__CUDACC_VER_MAJOR__ == 11) && (__CUDACC_VER_MINOR__ >= 4)) || \
     (__CUDACC_VER_MAJOR__ > 11))
#define TVM_ENABLE_L2_PREFETCH 1
#else
#define TVM_ENABLE_L2_PREFETCH 0
#endif

#ifdef _WIN32
  using uint = unsigned int;
  using uchar = unsigned char;
  using ushort = unsigned short;
  using int64_t = long long;
  using uint64_t = unsigned long long;
#else
  #define uint unsigned int
  #define uchar unsigned char
  #define ushort unsigned short
#endif
__forceinline__ __device__ void tvm_builtin_ptx_cp_async_wait_group_async_wait_group_0() {
  asm volatile("cp.async.wait_group 0;" :  :  : "memory");
}
__forceinline__ __device__ void tvm_builtin_ptx_cp_async_wait_group_async_wait_group_1() {
  asm volatile("cp.async.wait_group 1;" :  :  : "memory");
}
__forceinline__ __device__ void tvm_builtin_ptx_cp_async_commit_group_async_commit_group() {
  asm volatile("cp.async.commit_group;" :  : );
}

__forceinline__ __device__ void ptx_cp_async_legacy_cg_16_2_2(void* dst, int dst_off, void* src, int src_off) {
  uint8_t* dst_p = (uint8_t*)dst + dst_off * 2;
  uint8_t* src_p = (uint8_t*)src + src_off * 2;
  unsigned int dst_addr = __cvta_generic_to_shared(dst_p);
  asm volatile("cp.async.cg.shared.global [%0], [%1], %2;"
    :: "r"(dst_addr), "l"(src_p), "n"(16));
}

/* Sums of 64 rows by 32 columns, spread over the 128 threads of a warpgroup as wgmma has them. */
namespace nvcuda { namespace wmma {
template <> class fragment<accumulator, 64, 32, 64, float> { public: float x[16]; };
typedef fragment<accumulator, 64, 32, 64, float> tuner_warpgroup_sums;
static __device__ __forceinline__ void fill_fragment(tuner_warpgroup_sums &sums, float value) {
#pragma unroll
  for (int i = 0; i < 16; ++i) sums.x[i] = value;
}
static __device__ __forceinline__ void store_matrix_sync(float *to, const tuner_warpgroup_sums &sums, unsigned stride, layout_t) {
  float *mine = to + (threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4) * stride + threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    *(float2 *)(mine + i * 8) = make_float2(sums.x[4 * i], sums.x[4 * i + 1]);
    *(float2 *)(mine + 8 * stride + i * 8) = make_float2(sums.x[4 * i + 2], sums.x[4 * i + 3]);
  }
}
}}
typedef nvcuda::wmma::tuner_warpgroup_sums tuner_sums;
static __device__ __forceinline__ unsigned tuner_shared(const void *place) { return (unsigned)__cvta_generic_to_shared(place); }
/* An operand in rows of 128 bytes with their pieces permuted (128-byte swizzle), eight rows 1024 bytes from the next eight. */
static __device__ __forceinline__ unsigned long long tuner_matrix(unsigned place, unsigned panel_bytes) {
  return (unsigned long long)((place & 0x3ffff) >> 4) | (unsigned long long)(panel_bytes >> 4) << 16 | 64ull << 32 | 1ull << 62;
}
static __device__ __forceinline__ void tuner_begin() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void tuner_end() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
/* Tensor cores read by another way than copies write: each thread's copies are ordered before a barrier lets others read them. */
static __device__ __forceinline__ void tuner_order() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#define __syncthreads() (tuner_order(), __syncthreads())

static __device__ __forceinline__ void tuner_warpgroup_multiply_1_1_bf16_turned_16(
    tuner_sums *d, unsigned long long left, unsigned long long right) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, 1, 1, 1, 0, 0;"
    : "+f"(d[0].x[0]), "+f"(d[0].x[1]), "+f"(d[0].x[2]), "+f"(d[0].x[3]), "+f"(d[0].x[4]), "+f"(d[0].x[5]), "+f"(d[0].x[6]), "+f"(d[0].x[7]), "+f"(d[0].x[8]), "+f"(d[0].x[9]), "+f"(d[0].x[10]), "+f"(d[0].x[11]), "+f"(d[0].x[12]), "+f"(d[0].x[13]), "+f"(d[0].x[14]), "+f"(d[0].x[15]), "+f"(d[1].x[0]), "+f"(d[1].x[1]), "+f"(d[1].x[2]), "+f"(d[1].x[3]), "+f"(d[1].x[4]), "+f"(d[1].x[5]), "+f"(d[1].x[6]), "+f"(d[1].x[7]), "+f"(d[1].x[8]), "+f"(d[1].x[9]), "+f"(d[1].x[10]), "+f"(d[1].x[11]), "+f"(d[1].x[12]), "+f"(d[1].x[13]), "+f"(d[1].x[14]), "+f"(d[1].x[15]) : "l"(left), "l"(right));
}
static __device__ __forceinline__ void tuner_warpgroup_multiply_1_1_bf16_turned(tuner_sums *sums, int first, const void *left, const void *right) {
  unsigned a = tuner_shared(left), b = tuner_shared(right);
  tuner_begin();
#pragma unroll
  for (int square = 0; square < 1; ++square) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      unsigned long long rows = tuner_matrix(a + square * 8192 + k * 32, 1), columns = tuner_matrix(b + k * 32, 1);
      tuner_warpgroup_multiply_1_1_bf16_turned_16(sums + first + square * 2, rows, columns);
    }
  }
  tuner_end();
}
extern "C" __global__ void __launch_bounds__(128) kernel_kernel(nv_bfloat16* __restrict__ A_ptr, nv_bfloat16* __restrict__ B_ptr, nv_bfloat16* __restrict__ C_ptr);
extern "C" __global__ void __launch_bounds__(128) kernel_kernel(nv_bfloat16* __restrict__ A_ptr, nv_bfloat16* __restrict__ B_ptr, nv_bfloat16* __restrict__ C_ptr) {
  extern __shared__ __align__(1024) uchar buf_dyn_shmem_ptr[];
  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 64, 32, 64, float> C_acc_ptr[2];
  #pragma unroll
  for (int half_init = 0; half_init < 2; ++half_init) {
    nvcuda::wmma::fill_fragment(C_acc_ptr[half_init], 0x0p+0f/*0.000000e+00*/);
  }
  int cse_v1 = (((int)threadIdx.x) * 8);
  int cse_v5 = ((((int)threadIdx.x) >> 3) * 192);
  int cse_v8 = (((((int)threadIdx.x) & 7) ^ ((((int)threadIdx.x) & 63) >> 3)) * 8);
  #pragma unroll
  for (int ax2_ax3_ax4_ax5_ax6_ax7_fused_0 = 0; ax2_ax3_ax4_ax5_ax6_ax7_fused_0 < 4; ++ax2_ax3_ax4_ax5_ax6_ax7_fused_0) {
    ptx_cp_async_legacy_cg_16_2_2(buf_dyn_shmem_ptr, (((ax2_ax3_ax4_ax5_ax6_ax7_fused_0 * 1024) + (((int)threadIdx.x) * 8)) + 8192), A_ptr, (((ax2_ax3_ax4_ax5_ax6_ax7_fused_0 * 3072) + ((((int)threadIdx.x) >> 3) * 192)) + (((((int)threadIdx.x) & 7) ^ ((((int)threadIdx.x) & 63) >> 3)) * 8)));
  }
  #pragma unroll
  for (int ax2_ax3_ax4_ax5_ax6_ax7_ax8_fused_0 = 0; ax2_ax3_ax4_ax5_ax6_ax7_ax8_fused_0 < 4; ++ax2_ax3_ax4_ax5_ax6_ax7_ax8_fused_0) {
    ptx_cp_async_legacy_cg_16_2_2(buf_dyn_shmem_ptr, ((ax2_ax3_ax4_ax5_ax6_ax7_ax8_fused_0 * 1024) + (((int)threadIdx.x) * 8)), B_ptr, (((ax2_ax3_ax4_ax5_ax6_ax7_ax8_fused_0 * 3072) + ((((int)threadIdx.x) >> 3) * 192)) + (((((int)threadIdx.x) & 7) ^ ((((int)threadIdx.x) & 63) >> 3)) * 8)));
  }
  tvm_builtin_ptx_cp_async_commit_group_async_commit_group();
  for (int k_2_fused = 0; k_2_fused < 2; ++k_2_fused) {
    int cse_v2 = (k_2_fused * 64);
    int cse_v7 = (((k_2_fused + 1) & 1) * 4096);
    __syncthreads();
    #pragma unroll
    for (int ax2_ax3_ax4_ax5_ax6_ax7_fused_0_1 = 0; ax2_ax3_ax4_ax5_ax6_ax7_fused_0_1 < 4; ++ax2_ax3_ax4_ax5_ax6_ax7_fused_0_1) {
      ptx_cp_async_legacy_cg_16_2_2(buf_dyn_shmem_ptr, ((((((k_2_fused + 1) & 1) * 4096) + (ax2_ax3_ax4_ax5_ax6_ax7_fused_0_1 * 1024)) + (((int)threadIdx.x) * 8)) + 8192), A_ptr, (((((ax2_ax3_ax4_ax5_ax6_ax7_fused_0_1 * 3072) + ((((int)threadIdx.x) >> 3) * 192)) + (k_2_fused * 64)) + (((((int)threadIdx.x) & 7) ^ ((((int)threadIdx.x) & 63) >> 3)) * 8)) + 64));
    }
    #pragma unroll
    for (int ax2_ax3_ax4_ax5_ax6_ax7_ax8_fused_0_1 = 0; ax2_ax3_ax4_ax5_ax6_ax7_ax8_fused_0_1 < 4; ++ax2_ax3_ax4_ax5_ax6_ax7_ax8_fused_0_1) {
      ptx_cp_async_legacy_cg_16_2_2(buf_dyn_shmem_ptr, (((((k_2_fused + 1) & 1) * 4096) + (ax2_ax3_ax4_ax5_ax6_ax7_ax8_fused_0_1 * 1024)) + (((int)threadIdx.x) * 8)), B_ptr, (((((ax2_ax3_ax4_ax5_ax6_ax7_ax8_fused_0_1 * 3072) + ((((int)threadIdx.x) >> 3) * 192)) + (k_2_fused * 64)) + (((((int)threadIdx.x) & 7) ^ ((((int)threadIdx.x) & 63) >> 3)) * 8)) + 64));
    }
    tvm_builtin_ptx_cp_async_commit_group_async_commit_group();
    tvm_builtin_ptx_cp_async_wait_group_async_wait_group_1();
    __syncthreads();
    int cse_v3 = (k_2_fused * 4096);
    tuner_warpgroup_multiply_1_1_bf16_turned(C_acc_ptr, 0, (&(((nv_bfloat16*)buf_dyn_shmem_ptr)[((k_2_fused * 4096) + 8192)])), (&(((nv_bfloat16*)buf_dyn_shmem_ptr)[(k_2_fused * 4096)])));
  }
  tvm_builtin_ptx_cp_async_wait_group_async_wait_group_0();
  __syncthreads();
  tuner_warpgroup_multiply_1_1_bf16_turned(C_acc_ptr, 0, (&(((nv_bfloat16*)buf_dyn_shmem_ptr)[8192])), (&(((nv_bfloat16*)buf_dyn_shmem_ptr)[0])));
  #pragma unroll
  for (int ax6 = 0; ax6 < 2; ++ax6) {
    __syncthreads();
    nvcuda::wmma::store_matrix_sync((&(((float*)buf_dyn_shmem_ptr)[4096])), C_acc_ptr[ax6], 40, nvcuda::wmma::mem_row_major);
    __syncthreads();
    for (int ax7_ax8_ax9_ax10_fused_0 = 0; ax7_ax8_ax9_ax10_fused_0 < 2; ++ax7_ax8_ax9_ax10_fused_0) {
      int cse_v4 = (((int)threadIdx.x) >> 2);
      int cse_v6 = ((((int)threadIdx.x) & 3) * 8);
      uint4 __1;
      ulonglong4 v_ = *(ulonglong4*)(((float*)buf_dyn_shmem_ptr) + ((((ax7_ax8_ax9_ax10_fused_0 * 1280) + ((((int)threadIdx.x) >> 2) * 40)) + ((((int)threadIdx.x) & 3) * 8)) + 4096));
      ((nv_bfloat162*)(&(__1.x)))->x = (nv_bfloat16)(((float2*)(&(v_.x)))->x);
      ((nv_bfloat162*)(&(__1.x)))->y = (nv_bfloat16)(((float2*)(&(v_.x)))->y);
      ((nv_bfloat162*)(&(__1.y)))->x = (nv_bfloat16)(((float2*)(&(v_.y)))->x);
      ((nv_bfloat162*)(&(__1.y)))->y = (nv_bfloat16)(((float2*)(&(v_.y)))->y);
      ((nv_bfloat162*)(&(__1.z)))->x = (nv_bfloat16)(((float2*)(&(v_.z)))->x);
      ((nv_bfloat162*)(&(__1.z)))->y = (nv_bfloat16)(((float2*)(&(v_.z)))->y);
      ((nv_bfloat162*)(&(__1.w)))->x = (nv_bfloat16)(((float2*)(&(v_.w)))->x);
      ((nv_bfloat162*)(&(__1.w)))->y = (nv_bfloat16)(((float2*)(&(v_.w)))->y);
      *(uint4*)(C_ptr + ((((ax7_ax8_ax9_ax10_fused_0 * 2048) + ((((int)threadIdx.x) >> 2) * 64)) + (ax6 * 32)) + ((((int)threadIdx.x) & 3) * 8))) = __1;
    }
  }
}
