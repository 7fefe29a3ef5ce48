
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

static __device__ __forceinline__ float tuner_maximum(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float extreme;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(extreme) : "f"(a), "f"(b));
  return extreme;
#else
  return a > b || a != a ? a : b;
#endif
}
static __device__ __forceinline__ double tuner_maximum(double a, double b) {
  return a > b || a != a ? a : b;
}
extern "C" __global__ void __launch_bounds__(64) kernel_kernel(nv_bfloat16* __restrict__ W_ptr, nv_bfloat16* __restrict__ X_ptr, nv_bfloat16* __restrict__ Y_ptr);
extern "C" __global__ void __launch_bounds__(64) kernel_kernel(nv_bfloat16* __restrict__ W_ptr, nv_bfloat16* __restrict__ X_ptr, nv_bfloat16* __restrict__ Y_ptr) {
  extern __shared__ __align__(64) uchar buf_dyn_shmem_ptr[];
  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> Y_acc_ptr[1];
  nvcuda::wmma::fill_fragment(Y_acc_ptr[0], 0x0p+0f/*0.000000e+00*/);
  for (int ax6_ax7_ax8_ax9_fused_0 = 0; ax6_ax7_ax8_ax9_fused_0 < 14; ++ax6_ax7_ax8_ax9_fused_0) {
    int cse_v4 = ((ax6_ax7_ax8_ax9_fused_0 * 2) + ((int)threadIdx.z));
    if (((ax6_ax7_ax8_ax9_fused_0 * 2) + ((int)threadIdx.z)) < 27) {
      int cse_v1 = (((int)threadIdx.x) & 15);
      int cse_v5 = (((ax6_ax7_ax8_ax9_fused_0 * 2) + ((int)threadIdx.z)) / 9);
      int cse_v7 = ((((ax6_ax7_ax8_ax9_fused_0 * 2) + ((int)threadIdx.z)) / 9) + ((int)blockIdx.x));
      int cse_v8 = ((((ax6_ax7_ax8_ax9_fused_0 * 4) + (((int)threadIdx.z) * 2)) + (((int)threadIdx.x) >> 4)) % 18);
      int cse_v9 = (((((ax6_ax7_ax8_ax9_fused_0 * 4) + (((int)threadIdx.z) * 2)) + (((int)threadIdx.x) >> 4)) % 18) * 16);
      nv_bfloat16 condval;
      if ((((1 <= ((((ax6_ax7_ax8_ax9_fused_0 * 2) + ((int)threadIdx.z)) / 9) + ((int)blockIdx.x))) && (((((ax6_ax7_ax8_ax9_fused_0 * 2) + ((int)threadIdx.z)) / 9) + ((int)blockIdx.x)) < 17)) && (1 <= ((((ax6_ax7_ax8_ax9_fused_0 * 4) + (((int)threadIdx.z) * 2)) + (((int)threadIdx.x) >> 4)) % 18))) && (((((ax6_ax7_ax8_ax9_fused_0 * 4) + (((int)threadIdx.z) * 2)) + (((int)threadIdx.x) >> 4)) % 18) < 17)) {
        condval = X_ptr[((((((((ax6_ax7_ax8_ax9_fused_0 * 2) + ((int)threadIdx.z)) / 9) * 256) + (((int)blockIdx.x) * 256)) + (((((ax6_ax7_ax8_ax9_fused_0 * 4) + (((int)threadIdx.z) * 2)) + (((int)threadIdx.x) >> 4)) % 18) * 16)) + (((int)threadIdx.x) & 15)) - 272)];
      } else {
        condval = __float2bfloat16_rn(0x0p+0f/*0.000000e+00*/);
      }
      ((nv_bfloat16*)buf_dyn_shmem_ptr)[((((((ax6_ax7_ax8_ax9_fused_0 * 2) + ((int)threadIdx.z)) / 9) * 288) + (((((ax6_ax7_ax8_ax9_fused_0 * 4) + (((int)threadIdx.z) * 2)) + (((int)threadIdx.x) >> 4)) % 18) * 16)) + (((int)threadIdx.x) & 15))] = condval;
    }
  }
  int cse_v2 = (((int)threadIdx.z) * 256);
  for (int ax4_ax5_ax6_ax7_fused_0 = 0; ax4_ax5_ax6_ax7_fused_0 < 9; ++ax4_ax5_ax6_ax7_fused_0) {
    int cse_v6 = (((ax4_ax5_ax6_ax7_fused_0 * 512) + (((int)threadIdx.z) * 256)) + (((int)threadIdx.x) * 8));
    *(uint4*)(((nv_bfloat16*)buf_dyn_shmem_ptr) + ((((ax4_ax5_ax6_ax7_fused_0 * 512) + (((int)threadIdx.z) * 256)) + (((int)threadIdx.x) * 8)) + 1728)) = *(uint4*)(W_ptr + (((ax4_ax5_ax6_ax7_fused_0 * 512) + (((int)threadIdx.z) * 256)) + (((int)threadIdx.x) * 8)));
  }
  int cse_v3 = (((int)threadIdx.z) * 16);
  __syncthreads();
  for (int r_1 = 0; r_1 < 3; ++r_1) {
    for (int s_1 = 0; s_1 < 3; ++s_1) {
      nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, nv_bfloat16, nvcuda::wmma::row_major> Y_left_fragment_ptr[1];
      nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, nv_bfloat16, nvcuda::wmma::row_major> Y_right_fragment_ptr[1];
      nvcuda::wmma::load_matrix_sync(Y_left_fragment_ptr[0], (&(((nv_bfloat16*)buf_dyn_shmem_ptr)[((r_1 * 288) + (s_1 * 16))])), 16);
      nvcuda::wmma::load_matrix_sync(Y_right_fragment_ptr[0], (&(((nv_bfloat16*)buf_dyn_shmem_ptr)[((((r_1 * 1536) + (s_1 * 512)) + (((int)threadIdx.z) * 16)) + 1728)])), 32);
      nvcuda::wmma::mma_sync(Y_acc_ptr[0], Y_left_fragment_ptr[0], Y_right_fragment_ptr[0], Y_acc_ptr[0]);
    }
  }
  __syncthreads();
  nvcuda::wmma::store_matrix_sync((&(((float*)buf_dyn_shmem_ptr)[(((int)threadIdx.z) * 256)])), Y_acc_ptr[0], 16, nvcuda::wmma::mem_row_major);
  __syncthreads();
  for (int ax8_ax9_fused_0 = 0; ax8_ax9_fused_0 < 2; ++ax8_ax9_fused_0) {
    nv_bfloat164 __1;
    float4 __2;
    float4 v_ = *(float4*)(((float*)buf_dyn_shmem_ptr) + (((((int)threadIdx.z) * 256) + (ax8_ax9_fused_0 * 128)) + (((int)threadIdx.x) * 4)));
    float4 v__1 = make_float4(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
    __2.x = tuner_maximum(v_.x, v__1.x);
    __2.y = tuner_maximum(v_.y, v__1.y);
    __2.z = tuner_maximum(v_.z, v__1.z);
    __2.w = tuner_maximum(v_.w, v__1.w);
    __1.x = (nv_bfloat16)(__2.x);
    __1.y = (nv_bfloat16)(__2.y);
    __1.z = (nv_bfloat16)(__2.z);
    __1.w = (nv_bfloat16)(__2.w);
    *(nv_bfloat164*)(Y_ptr + (((((((int)blockIdx.x) * 512) + (ax8_ax9_fused_0 * 256)) + ((((int)threadIdx.x) >> 2) * 32)) + (((int)threadIdx.z) * 16)) + ((((int)threadIdx.x) & 3) * 4))) = __1;
  }
}
