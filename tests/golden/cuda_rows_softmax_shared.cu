
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

#include <math_constants.h>

#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ < 700)
#define __shfl_sync(mask, var, lane, width) \
        __shfl((var), (lane), (width))

#define __shfl_down_sync(mask, var, offset, width) \
        __shfl_down((var), (offset), (width))

#define __shfl_up_sync(mask, var, offset, width) \
        __shfl_up((var), (offset), (width))
#endif

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
extern "C" __global__ void __launch_bounds__(64) kernel_kernel(float* __restrict__ X_ptr, float* __restrict__ Y_ptr);
extern "C" __global__ void __launch_bounds__(64) kernel_kernel(float* __restrict__ X_ptr, float* __restrict__ Y_ptr) {
  __shared__ alignas(64) float Y_load0_ptr[512];
  alignas(64) float R_acc_ptr[1];
  __shared__ alignas(64) float E_ptr[512];
  alignas(64) float Z_acc_ptr[1];
  int cse_v1 = (((int)threadIdx.x) * 4);
  int cse_v6 = ((((int)blockIdx.x) * 500) + (((int)threadIdx.x) * 4));
  #pragma unroll
  for (int ax2 = 0; ax2 < 2; ++ax2) {
    int cse_v2 = (ax2 * 256);
    *(float4*)(Y_load0_ptr + ((ax2 * 256) + (((int)threadIdx.x) * 4))) = *(float4*)(X_ptr + (((((int)blockIdx.x) * 500) + (((int)threadIdx.x) * 4)) + min((ax2 * 256), 244)));
  }
  alignas(64) float in_thread_R_acc_ptr[1];
  __shared__ alignas(64) float red_result_ptr[1];
  in_thread_R_acc_ptr[0] = -CUDART_INF_F;
  __syncthreads();
  #pragma unroll
  for (int ax2_1 = 0; ax2_1 < 2; ++ax2_1) {
    alignas(64) float R_in0_ptr[4];
    int cse_v3 = (ax2_1 * 256);
    *(float4*)(R_in0_ptr + 0) = *(float4*)(Y_load0_ptr + ((ax2_1 * 256) + (((int)threadIdx.x) * 4)));
    #pragma unroll
    for (int ax3 = 0; ax3 < 4; ++ax3) {
      float condval;
      if ((ax2_1 * 256) <= (((((int)threadIdx.x) * 4) + min((ax2_1 * 256), 244)) + ax3)) {
        condval = R_in0_ptr[ax3];
      } else {
        condval = -CUDART_INF_F;
      }
      in_thread_R_acc_ptr[0] = tuner_maximum(in_thread_R_acc_ptr[0], condval);
    }
  }
  __shared__ alignas(64) float red_buf_staging_ptr[2];
  alignas(64) float t0_ptr[1];
  alignas(64) uint mask_ptr[1];
  alignas(64) float red_buf0_ptr[1];
  alignas(64) float t0_ptr_1[1];
  alignas(64) uint mask_ptr_1[1];
  alignas(64) float red_buf0_ptr_1[1];
  red_buf0_ptr[0] = in_thread_R_acc_ptr[0];
  mask_ptr[0] = __activemask();
  t0_ptr[0] = __shfl_down_sync(mask_ptr[0], red_buf0_ptr[0], 16, 32);
  red_buf0_ptr[0] = tuner_maximum(red_buf0_ptr[0], t0_ptr[0]);
  t0_ptr[0] = __shfl_down_sync(mask_ptr[0], red_buf0_ptr[0], 8, 32);
  red_buf0_ptr[0] = tuner_maximum(red_buf0_ptr[0], t0_ptr[0]);
  t0_ptr[0] = __shfl_down_sync(mask_ptr[0], red_buf0_ptr[0], 4, 32);
  red_buf0_ptr[0] = tuner_maximum(red_buf0_ptr[0], t0_ptr[0]);
  t0_ptr[0] = __shfl_down_sync(mask_ptr[0], red_buf0_ptr[0], 2, 32);
  red_buf0_ptr[0] = tuner_maximum(red_buf0_ptr[0], t0_ptr[0]);
  t0_ptr[0] = __shfl_down_sync(mask_ptr[0], red_buf0_ptr[0], 1, 32);
  red_buf0_ptr[0] = tuner_maximum(red_buf0_ptr[0], t0_ptr[0]);
  if ((((int)threadIdx.x) % 32) == 0) {
    red_buf_staging_ptr[(((int)threadIdx.x) >> 5)] = red_buf0_ptr[0];
  }
  __syncthreads();
  if (((int)threadIdx.x) < 2) {
    red_buf0_ptr_1[0] = red_buf_staging_ptr[((int)threadIdx.x)];
  }
  mask_ptr_1[0] = __activemask();
  t0_ptr_1[0] = __shfl_down_sync(mask_ptr_1[0], red_buf0_ptr_1[0], 1, 32);
  red_buf0_ptr_1[0] = tuner_maximum(red_buf0_ptr_1[0], t0_ptr_1[0]);
  if (((int)threadIdx.x) == 0) {
    ((volatile float*)red_result_ptr)[0] = red_buf0_ptr_1[0];
  }
  __syncthreads();
  R_acc_ptr[0] = ((volatile float*)red_result_ptr)[0];
  #pragma unroll
  for (int ax2_2 = 0; ax2_2 < 2; ++ax2_2) {
    #pragma unroll
    for (int ax4 = 0; ax4 < 4; ++ax4) {
      int cse_v7 = (((ax2_2 * 256) + (((int)threadIdx.x) * 4)) + ax4);
      E_ptr[(((ax2_2 * 256) + (((int)threadIdx.x) * 4)) + ax4)] = expf((Y_load0_ptr[(((ax2_2 * 256) + (((int)threadIdx.x) * 4)) + ax4)] - R_acc_ptr[0]));
    }
  }
  alignas(64) float in_thread_Z_acc_ptr[1];
  __shared__ alignas(64) float red_result_ptr_1[1];
  in_thread_Z_acc_ptr[0] = 0x0p+0f/*0.000000e+00*/;
  __syncthreads();
  #pragma unroll
  for (int ax2_3 = 0; ax2_3 < 2; ++ax2_3) {
    alignas(64) float Z_in0_ptr[4];
    int cse_v4 = (ax2_3 * 256);
    *(float4*)(Z_in0_ptr + 0) = *(float4*)(E_ptr + ((ax2_3 * 256) + (((int)threadIdx.x) * 4)));
    #pragma unroll
    for (int ax3_1 = 0; ax3_1 < 4; ++ax3_1) {
      float condval_1;
      if ((ax2_3 * 256) <= (((((int)threadIdx.x) * 4) + min((ax2_3 * 256), 244)) + ax3_1)) {
        condval_1 = Z_in0_ptr[ax3_1];
      } else {
        condval_1 = 0x0p+0f/*0.000000e+00*/;
      }
      in_thread_Z_acc_ptr[0] = (in_thread_Z_acc_ptr[0] + condval_1);
    }
  }
  __shared__ alignas(64) float red_buf_staging_ptr_1[2];
  alignas(64) float t0_ptr_2[1];
  alignas(64) uint mask_ptr_2[1];
  alignas(64) float red_buf0_ptr_2[1];
  alignas(64) float t0_ptr_3[1];
  alignas(64) uint mask_ptr_3[1];
  alignas(64) float red_buf0_ptr_3[1];
  red_buf0_ptr_2[0] = in_thread_Z_acc_ptr[0];
  mask_ptr_2[0] = __activemask();
  t0_ptr_2[0] = __shfl_down_sync(mask_ptr_2[0], red_buf0_ptr_2[0], 16, 32);
  red_buf0_ptr_2[0] = (red_buf0_ptr_2[0] + t0_ptr_2[0]);
  t0_ptr_2[0] = __shfl_down_sync(mask_ptr_2[0], red_buf0_ptr_2[0], 8, 32);
  red_buf0_ptr_2[0] = (red_buf0_ptr_2[0] + t0_ptr_2[0]);
  t0_ptr_2[0] = __shfl_down_sync(mask_ptr_2[0], red_buf0_ptr_2[0], 4, 32);
  red_buf0_ptr_2[0] = (red_buf0_ptr_2[0] + t0_ptr_2[0]);
  t0_ptr_2[0] = __shfl_down_sync(mask_ptr_2[0], red_buf0_ptr_2[0], 2, 32);
  red_buf0_ptr_2[0] = (red_buf0_ptr_2[0] + t0_ptr_2[0]);
  t0_ptr_2[0] = __shfl_down_sync(mask_ptr_2[0], red_buf0_ptr_2[0], 1, 32);
  red_buf0_ptr_2[0] = (red_buf0_ptr_2[0] + t0_ptr_2[0]);
  if ((((int)threadIdx.x) % 32) == 0) {
    red_buf_staging_ptr_1[(((int)threadIdx.x) >> 5)] = red_buf0_ptr_2[0];
  }
  __syncthreads();
  if (((int)threadIdx.x) < 2) {
    red_buf0_ptr_3[0] = red_buf_staging_ptr_1[((int)threadIdx.x)];
  }
  mask_ptr_3[0] = __activemask();
  t0_ptr_3[0] = __shfl_down_sync(mask_ptr_3[0], red_buf0_ptr_3[0], 1, 32);
  red_buf0_ptr_3[0] = (red_buf0_ptr_3[0] + t0_ptr_3[0]);
  if (((int)threadIdx.x) == 0) {
    ((volatile float*)red_result_ptr_1)[0] = red_buf0_ptr_3[0];
  }
  __syncthreads();
  Z_acc_ptr[0] = ((volatile float*)red_result_ptr_1)[0];
  #pragma unroll
  for (int _column_s = 0; _column_s < 2; ++_column_s) {
    alignas(64) float Y_in0_ptr[4];
    alignas(64) float Y_value_ptr[4];
    int cse_v5 = (_column_s * 256);
    *(float4*)(Y_in0_ptr + 0) = *(float4*)(E_ptr + ((_column_s * 256) + (((int)threadIdx.x) * 4)));
    #pragma unroll
    for (int ax4_1 = 0; ax4_1 < 4; ++ax4_1) {
      Y_value_ptr[ax4_1] = (Y_in0_ptr[ax4_1] / Z_acc_ptr[0]);
    }
    *(float4*)(Y_ptr + (((((int)blockIdx.x) * 500) + (((int)threadIdx.x) * 4)) + min((_column_s * 256), 244))) = *(float4*)(Y_value_ptr + 0);
  }
}
