
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
extern "C" __global__ void __launch_bounds__(64) kernel_kernel(float* __restrict__ A_ptr, nv_bfloat16* __restrict__ CAsplit_ptr);
extern "C" __global__ void __launch_bounds__(64) kernel_kernel_1(float* __restrict__ B_ptr, nv_bfloat16* __restrict__ CBsplit_ptr);
extern "C" __global__ void __launch_bounds__(64) kernel_kernel_2(nv_bfloat16* __restrict__ CAsplit_ptr, nv_bfloat16* __restrict__ CBsplit_ptr, float* __restrict__ Csplit_ptr);
extern "C" __global__ void __launch_bounds__(64) kernel_kernel(float* __restrict__ A_ptr, nv_bfloat16* __restrict__ CAsplit_ptr) {
  alignas(64) float CAsplit_in0_ptr[1];
  int cse_v1 = (((int)blockIdx.x) * 64);
  CAsplit_in0_ptr[0] = A_ptr[((((int)blockIdx.x) * 64) + ((int)threadIdx.x))];
  #pragma unroll
  for (int t_l = 0; t_l < 3; ++t_l) {
    alignas(64) nv_bfloat16 CAsplit_value_ptr[1];
    float condval;
    if (t_l == 1) {
          float v_ = CAsplit_in0_ptr[0];
          float v__1 = CAsplit_in0_ptr[0];
        uint v__2 = (((*(uint *)(&(v_))) + (uint)32767) + (((*(uint *)(&(v__1))) >> (uint)16) & (uint)1)) & (uint)4294901760;
      condval = (CAsplit_in0_ptr[0] - (*(float *)(&(v__2))));
    } else {
          float v__3 = CAsplit_in0_ptr[0];
          float v__4 = CAsplit_in0_ptr[0];
        uint v__5 = (((*(uint *)(&(v__3))) + (uint)32767) + (((*(uint *)(&(v__4))) >> (uint)16) & (uint)1)) & (uint)4294901760;
      condval = (*(float *)(&(v__5)));
    }
    CAsplit_value_ptr[0] = ((nv_bfloat16)condval);
    CAsplit_ptr[(((t_l * 4096) + (((int)blockIdx.x) * 64)) + ((int)threadIdx.x))] = CAsplit_value_ptr[0];
  }
}

extern "C" __global__ void __launch_bounds__(64) kernel_kernel_1(float* __restrict__ B_ptr, nv_bfloat16* __restrict__ CBsplit_ptr) {
  alignas(64) float CBsplit_in0_ptr[1];
  int cse_v2 = (((int)blockIdx.x) * 64);
  CBsplit_in0_ptr[0] = B_ptr[((((int)blockIdx.x) * 64) + ((int)threadIdx.x))];
  #pragma unroll
  for (int t_l = 0; t_l < 3; ++t_l) {
    alignas(64) nv_bfloat16 CBsplit_value_ptr[1];
    float condval;
    if (t_l == 2) {
          float v_ = CBsplit_in0_ptr[0];
          float v__1 = CBsplit_in0_ptr[0];
        uint v__2 = (((*(uint *)(&(v_))) + (uint)32767) + (((*(uint *)(&(v__1))) >> (uint)16) & (uint)1)) & (uint)4294901760;
      condval = (CBsplit_in0_ptr[0] - (*(float *)(&(v__2))));
    } else {
          float v__3 = CBsplit_in0_ptr[0];
          float v__4 = CBsplit_in0_ptr[0];
        uint v__5 = (((*(uint *)(&(v__3))) + (uint)32767) + (((*(uint *)(&(v__4))) >> (uint)16) & (uint)1)) & (uint)4294901760;
      condval = (*(float *)(&(v__5)));
    }
    CBsplit_value_ptr[0] = ((nv_bfloat16)condval);
    CBsplit_ptr[(((t_l * 4096) + (((int)blockIdx.x) * 64)) + ((int)threadIdx.x))] = CBsplit_value_ptr[0];
  }
}

extern "C" __global__ void __launch_bounds__(64) kernel_kernel_2(nv_bfloat16* __restrict__ CAsplit_ptr, nv_bfloat16* __restrict__ CBsplit_ptr, float* __restrict__ Csplit_ptr) {
  extern __shared__ __align__(64) uchar buf_dyn_shmem_ptr[];
  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> Csplit_acc_ptr[1];
  nvcuda::wmma::fill_fragment(Csplit_acc_ptr[0], 0x0p+0f/*0.000000e+00*/);
  int cse_v3 = (((int)threadIdx.z) * 256);
  int cse_v5 = (((int)threadIdx.x) & 3);
  int cse_v6 = (((int)threadIdx.z) * 16);
  int cse_v7 = ((((int)blockIdx.x) >> 1) * 1024);
  int cse_v8 = ((((int)threadIdx.x) >> 2) * 64);
  int cse_v9 = ((((int)blockIdx.x) & 1) * 32);
  for (int k_2 = 0; k_2 < 4; ++k_2) {
    int cse_v4 = (((int)threadIdx.x) * 8);
    __syncthreads();
    for (int ax3_ax4_ax5_fused_0 = 0; ax3_ax4_ax5_fused_0 < 2; ++ax3_ax4_ax5_fused_0) {
      if (((ax3_ax4_ax5_fused_0 * 2) + ((int)threadIdx.z)) < 3) {
        *(uint4*)(((nv_bfloat16*)buf_dyn_shmem_ptr) + (((ax3_ax4_ax5_fused_0 * 512) + (((int)threadIdx.z) * 256)) + (((int)threadIdx.x) * 8))) = *(uint4*)(CAsplit_ptr + ((((((ax3_ax4_ax5_fused_0 * 8192) + (((int)threadIdx.z) * 4096)) + ((((int)blockIdx.x) >> 1) * 1024)) + ((((int)threadIdx.x) >> 1) * 64)) + (k_2 * 16)) + ((((int)threadIdx.x) & 1) * 8)));
      }
    }
    for (int ax3_ax4_ax5_fused_0_1 = 0; ax3_ax4_ax5_fused_0_1 < 3; ++ax3_ax4_ax5_fused_0_1) {
      *(uint4*)(((nv_bfloat16*)buf_dyn_shmem_ptr) + ((((ax3_ax4_ax5_fused_0_1 * 512) + (((int)threadIdx.z) * 256)) + (((int)threadIdx.x) * 8)) + 768)) = *(uint4*)(CBsplit_ptr + ((((((ax3_ax4_ax5_fused_0_1 * 4096) + (k_2 * 1024)) + (((int)threadIdx.z) * 512)) + ((((int)threadIdx.x) >> 2) * 64)) + ((((int)blockIdx.x) & 1) * 32)) + ((((int)threadIdx.x) & 3) * 8)));
    }
    __syncthreads();
    for (int t_1 = 0; t_1 < 3; ++t_1) {
      nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, nv_bfloat16, nvcuda::wmma::row_major> Csplit_left_fragment_ptr[1];
      nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, nv_bfloat16, nvcuda::wmma::row_major> Csplit_right_fragment_ptr[1];
      nvcuda::wmma::load_matrix_sync(Csplit_left_fragment_ptr[0], (&(((nv_bfloat16*)buf_dyn_shmem_ptr)[(t_1 * 256)])), 16);
      nvcuda::wmma::load_matrix_sync(Csplit_right_fragment_ptr[0], (&(((nv_bfloat16*)buf_dyn_shmem_ptr)[(((t_1 * 512) + (((int)threadIdx.z) * 16)) + 768)])), 32);
      nvcuda::wmma::mma_sync(Csplit_acc_ptr[0], Csplit_left_fragment_ptr[0], Csplit_right_fragment_ptr[0], Csplit_acc_ptr[0]);
    }
  }
  __syncthreads();
  nvcuda::wmma::store_matrix_sync((&(((float*)buf_dyn_shmem_ptr)[((((int)threadIdx.z) * 256) + 384)])), Csplit_acc_ptr[0], 16, nvcuda::wmma::mem_row_major);
  __syncthreads();
  for (int ax6_ax7_fused_0 = 0; ax6_ax7_fused_0 < 2; ++ax6_ax7_fused_0) {
    *(float4*)(Csplit_ptr + (((((((((int)blockIdx.x) >> 1) * 1024) + (ax6_ax7_fused_0 * 512)) + ((((int)threadIdx.x) >> 2) * 64)) + ((((int)blockIdx.x) & 1) * 32)) + (((int)threadIdx.z) * 16)) + ((((int)threadIdx.x) & 3) * 4))) = *(float4*)(((float*)buf_dyn_shmem_ptr) + ((((((int)threadIdx.z) * 256) + (ax6_ax7_fused_0 * 128)) + (((int)threadIdx.x) * 4)) + 384));
  }
}
