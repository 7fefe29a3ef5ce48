
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
extern "C" __global__ void __launch_bounds__(64) kernel_kernel(float* __restrict__ X_ptr, float* __restrict__ Y_ptr, float* __restrict__ beta_ptr, float* __restrict__ gamma_ptr);
extern "C" __global__ void __launch_bounds__(64) kernel_kernel(float* __restrict__ X_ptr, float* __restrict__ Y_ptr, float* __restrict__ beta_ptr, float* __restrict__ gamma_ptr) {
  alignas(64) float Y_load0_ptr[4];
  alignas(64) float S_acc_ptr[1];
  alignas(64) float V_acc_ptr[1];
  alignas(64) float Q_ptr[1];
  alignas(64) float Y_in0_ptr[4];
  alignas(64) float Y_in1_ptr[4];
  int cse_v1 = (((int)threadIdx.x) * 4);
  *(float4*)(Y_in0_ptr + 0) = *(float4*)(gamma_ptr + (((int)threadIdx.x) * 4));
  *(float4*)(Y_in1_ptr + 0) = *(float4*)(beta_ptr + (((int)threadIdx.x) * 4));
  int cse_v2 = ((((int)blockIdx.x) * 256) + (((int)threadIdx.x) * 4));
  *(float4*)(Y_load0_ptr + 0) = *(float4*)(X_ptr + ((((int)blockIdx.x) * 256) + (((int)threadIdx.x) * 4)));
  alignas(64) float in_thread_S_acc_ptr[1];
  __shared__ alignas(64) float red_result_ptr[1];
  in_thread_S_acc_ptr[0] = 0x0p+0f/*0.000000e+00*/;
  #pragma unroll
  for (int ax3 = 0; ax3 < 4; ++ax3) {
    in_thread_S_acc_ptr[0] = (in_thread_S_acc_ptr[0] + Y_load0_ptr[ax3]);
  }
  __shared__ alignas(64) float red_buf_staging_ptr[2];
  alignas(64) float t0_ptr[1];
  alignas(64) uint mask_ptr[1];
  alignas(64) float red_buf0_ptr[1];
  alignas(64) float t0_ptr_1[1];
  alignas(64) uint mask_ptr_1[1];
  alignas(64) float red_buf0_ptr_1[1];
  red_buf0_ptr[0] = in_thread_S_acc_ptr[0];
  mask_ptr[0] = __activemask();
  t0_ptr[0] = __shfl_down_sync(mask_ptr[0], red_buf0_ptr[0], 16, 32);
  red_buf0_ptr[0] = (red_buf0_ptr[0] + t0_ptr[0]);
  t0_ptr[0] = __shfl_down_sync(mask_ptr[0], red_buf0_ptr[0], 8, 32);
  red_buf0_ptr[0] = (red_buf0_ptr[0] + t0_ptr[0]);
  t0_ptr[0] = __shfl_down_sync(mask_ptr[0], red_buf0_ptr[0], 4, 32);
  red_buf0_ptr[0] = (red_buf0_ptr[0] + t0_ptr[0]);
  t0_ptr[0] = __shfl_down_sync(mask_ptr[0], red_buf0_ptr[0], 2, 32);
  red_buf0_ptr[0] = (red_buf0_ptr[0] + t0_ptr[0]);
  t0_ptr[0] = __shfl_down_sync(mask_ptr[0], red_buf0_ptr[0], 1, 32);
  red_buf0_ptr[0] = (red_buf0_ptr[0] + t0_ptr[0]);
  if ((((int)threadIdx.x) % 32) == 0) {
    red_buf_staging_ptr[(((int)threadIdx.x) >> 5)] = red_buf0_ptr[0];
  }
  __syncthreads();
  if (((int)threadIdx.x) < 2) {
    red_buf0_ptr_1[0] = red_buf_staging_ptr[((int)threadIdx.x)];
  }
  mask_ptr_1[0] = __activemask();
  t0_ptr_1[0] = __shfl_down_sync(mask_ptr_1[0], red_buf0_ptr_1[0], 1, 32);
  red_buf0_ptr_1[0] = (red_buf0_ptr_1[0] + t0_ptr_1[0]);
  if (((int)threadIdx.x) == 0) {
    ((volatile float*)red_result_ptr)[0] = red_buf0_ptr_1[0];
  }
  __syncthreads();
  S_acc_ptr[0] = ((volatile float*)red_result_ptr)[0];
  alignas(64) float in_thread_V_acc_ptr[1];
  __shared__ alignas(64) float red_result_ptr_1[1];
  in_thread_V_acc_ptr[0] = 0x0p+0f/*0.000000e+00*/;
  #pragma unroll
  for (int ax3_1 = 0; ax3_1 < 4; ++ax3_1) {
    in_thread_V_acc_ptr[0] = (in_thread_V_acc_ptr[0] + ((Y_load0_ptr[ax3_1] - (S_acc_ptr[0] * 0x1p-8f/*3.906250e-03*/)) * (Y_load0_ptr[ax3_1] - (S_acc_ptr[0] * 0x1p-8f/*3.906250e-03*/))));
  }
  __shared__ alignas(64) float red_buf_staging_ptr_1[2];
  alignas(64) float t0_ptr_2[1];
  alignas(64) uint mask_ptr_2[1];
  alignas(64) float red_buf0_ptr_2[1];
  alignas(64) float t0_ptr_3[1];
  alignas(64) uint mask_ptr_3[1];
  alignas(64) float red_buf0_ptr_3[1];
  red_buf0_ptr_2[0] = in_thread_V_acc_ptr[0];
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
  V_acc_ptr[0] = ((volatile float*)red_result_ptr_1)[0];
  Q_ptr[0] = (0x1p+0f/*1.000000e+00*/ / sqrtf(((V_acc_ptr[0] * 0x1p-8f/*3.906250e-03*/) + 0x1.4f8b588e368f1p-17f/*1.000000e-05*/)));
  float4 __1;
    float4 __2;
      float4 __3;
        float4 __4;
          float4 v_ = *(float4*)(Y_load0_ptr + 0);
          float4 v__1 = make_float4((S_acc_ptr[0] * 0x1p-8f/*3.906250e-03*/), (S_acc_ptr[0] * 0x1p-8f/*3.906250e-03*/), (S_acc_ptr[0] * 0x1p-8f/*3.906250e-03*/), (S_acc_ptr[0] * 0x1p-8f/*3.906250e-03*/));
          __4.x = (v_.x-v__1.x);
          __4.y = (v_.y-v__1.y);
          __4.z = (v_.z-v__1.z);
          __4.w = (v_.w-v__1.w);
        float4 v__2 = make_float4(Q_ptr[0], Q_ptr[0], Q_ptr[0], Q_ptr[0]);
        __3.x = (__4.x*v__2.x);
        __3.y = (__4.y*v__2.y);
        __3.z = (__4.z*v__2.z);
        __3.w = (__4.w*v__2.w);
      float4 v__3 = *(float4*)(Y_in0_ptr + 0);
      __2.x = (__3.x*v__3.x);
      __2.y = (__3.y*v__3.y);
      __2.z = (__3.z*v__3.z);
      __2.w = (__3.w*v__3.w);
    float4 v__4 = *(float4*)(Y_in1_ptr + 0);
    __1.x = (__2.x+v__4.x);
    __1.y = (__2.y+v__4.y);
    __1.z = (__2.z+v__4.z);
    __1.w = (__2.w+v__4.w);
  *(float4*)(Y_ptr + ((((int)blockIdx.x) * 256) + (((int)threadIdx.x) * 4))) = __1;
}
