
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
extern "C" __global__ void __launch_bounds__(64) kernel_kernel(float* __restrict__ A_ptr, float* __restrict__ B_ptr, float* __restrict__ C_ptr);
extern "C" __global__ void __launch_bounds__(64) kernel_kernel(float* __restrict__ A_ptr, float* __restrict__ B_ptr, float* __restrict__ C_ptr) {
  alignas(64) float C_acc_ptr[8];
  #pragma unroll
  for (int i_0_init = 0; i_0_init < 2; ++i_0_init) {
    #pragma unroll
    for (int i_l_init = 0; i_l_init < 4; ++i_l_init) {
      C_acc_ptr[((i_0_init * 4) + i_l_init)] = 0x0p+0f/*0.000000e+00*/;
    }
  }
  __shared__ alignas(64) float C_fetch0_ptr[576];
  __shared__ alignas(64) float C_fetch1_ptr[272];
  alignas(64) float C_fetch1_local_ptr[4];
  alignas(64) float C_fetch0_local_ptr[8];
  int cse_v1 = (((int)threadIdx.y) * 67);
  int cse_v12 = min(((((int)blockIdx.x) % 5) * 16), 51);
  for (int ax2_ax3_fused_0 = 0; ax2_ax3_fused_0 < 4; ++ax2_ax3_fused_0) {
    C_fetch1_local_ptr[ax2_ax3_fused_0] = B_ptr[((((ax2_ax3_fused_0 * 268) + (((int)threadIdx.y) * 67)) + min(((((int)blockIdx.x) % 5) * 16), 51)) + ((int)threadIdx.x))];
  }
  int cse_v2 = (((int)threadIdx.y) * 256);
  int cse_v3 = (((int)threadIdx.x) >> 2);
  int cse_v4 = (((int)threadIdx.x) & 3);
  int cse_v7 = ((((int)threadIdx.x) >> 2) * 64);
  int cse_v8 = ((((int)threadIdx.x) & 3) * 4);
  int cse_v13 = min(((((int)blockIdx.x) / 5) * 32), 29);
  int cse_v14 = (min(((((int)blockIdx.x) / 5) * 32), 29) * 64);
  for (int ax2_ax3_fused_0_1 = 0; ax2_ax3_fused_0_1 < 2; ++ax2_ax3_fused_0_1) {
    *(float4*)(C_fetch0_local_ptr + (ax2_ax3_fused_0_1 * 4)) = *(float4*)(A_ptr + (((((ax2_ax3_fused_0_1 * 1024) + (((int)threadIdx.y) * 256)) + ((((int)threadIdx.x) >> 2) * 64)) + (min(((((int)blockIdx.x) / 5) * 32), 29) * 64)) + ((((int)threadIdx.x) & 3) * 4)));
  }
  int cse_v5 = (((int)threadIdx.y) * 17);
  for (int ax2_ax3_fused_0_2 = 0; ax2_ax3_fused_0_2 < 4; ++ax2_ax3_fused_0_2) {
    C_fetch1_ptr[(((ax2_ax3_fused_0_2 * 68) + (((int)threadIdx.y) * 17)) + ((int)threadIdx.x))] = C_fetch1_local_ptr[ax2_ax3_fused_0_2];
  }
  int cse_v6 = (((int)threadIdx.y) * 4);
  int cse_v9 = ((((int)threadIdx.x) & 3) * 144);
  for (int ax2_ax3_fused_0_3 = 0; ax2_ax3_fused_0_3 < 2; ++ax2_ax3_fused_0_3) {
      int4 v_ = make_int4(((((((((int)threadIdx.x) & 3) * 144) + (ax2_ax3_fused_0_3 * 16)) + (((int)threadIdx.y) * 4)) + (((int)threadIdx.x) >> 2)))+(36*0), ((((((((int)threadIdx.x) & 3) * 144) + (ax2_ax3_fused_0_3 * 16)) + (((int)threadIdx.y) * 4)) + (((int)threadIdx.x) >> 2)))+(36*1), ((((((((int)threadIdx.x) & 3) * 144) + (ax2_ax3_fused_0_3 * 16)) + (((int)threadIdx.y) * 4)) + (((int)threadIdx.x) >> 2)))+(36*2), ((((((((int)threadIdx.x) & 3) * 144) + (ax2_ax3_fused_0_3 * 16)) + (((int)threadIdx.y) * 4)) + (((int)threadIdx.x) >> 2)))+(36*3));
      float4 v__1 = *(float4*)(C_fetch0_local_ptr + (ax2_ax3_fused_0_3 * 4));
      C_fetch0_ptr[v_.x] = v__1.x;
      C_fetch0_ptr[v_.y] = v__1.y;
      C_fetch0_ptr[v_.z] = v__1.z;
      C_fetch0_ptr[v_.w] = v__1.w;
  }
  for (int k_2 = 0; k_2 < 3; ++k_2) {
    for (int ax2_ax3_fused_0_4 = 0; ax2_ax3_fused_0_4 < 4; ++ax2_ax3_fused_0_4) {
      C_fetch1_local_ptr[ax2_ax3_fused_0_4] = B_ptr[((((((k_2 * 1072) + (ax2_ax3_fused_0_4 * 268)) + (((int)threadIdx.y) * 67)) + min(((((int)blockIdx.x) % 5) * 16), 51)) + ((int)threadIdx.x)) + 1072)];
    }
    for (int ax2_ax3_fused_0_5 = 0; ax2_ax3_fused_0_5 < 2; ++ax2_ax3_fused_0_5) {
      *(float4*)(C_fetch0_local_ptr + (ax2_ax3_fused_0_5 * 4)) = *(float4*)(A_ptr + (((((((ax2_ax3_fused_0_5 * 1024) + (((int)threadIdx.y) * 256)) + ((((int)threadIdx.x) >> 2) * 64)) + (min(((((int)blockIdx.x) / 5) * 32), 29) * 64)) + (k_2 * 16)) + ((((int)threadIdx.x) & 3) * 4)) + 16));
    }
    __syncthreads();
    for (int k_1 = 0; k_1 < 4; ++k_1) {
      #pragma unroll
      for (int k_0 = 0; k_0 < 4; ++k_0) {
        #pragma unroll
        for (int i_0 = 0; i_0 < 2; ++i_0) {
          #pragma unroll
          for (int i_l = 0; i_l < 4; ++i_l) {
            int cse_v10 = ((i_0 * 4) + i_l);
            C_acc_ptr[((i_0 * 4) + i_l)] = (C_acc_ptr[((i_0 * 4) + i_l)] + (C_fetch0_ptr[(((((k_1 * 144) + (k_0 * 36)) + (i_0 * 16)) + (((int)threadIdx.y) * 4)) + i_l)] * C_fetch1_ptr[(((k_1 * 68) + (k_0 * 17)) + ((int)threadIdx.x))]));
          }
        }
      }
    }
    __syncthreads();
    for (int ax2_ax3_fused_0_6 = 0; ax2_ax3_fused_0_6 < 4; ++ax2_ax3_fused_0_6) {
      C_fetch1_ptr[(((ax2_ax3_fused_0_6 * 68) + (((int)threadIdx.y) * 17)) + ((int)threadIdx.x))] = C_fetch1_local_ptr[ax2_ax3_fused_0_6];
    }
    for (int ax2_ax3_fused_0_7 = 0; ax2_ax3_fused_0_7 < 2; ++ax2_ax3_fused_0_7) {
        int4 v__2 = make_int4(((((((((int)threadIdx.x) & 3) * 144) + (ax2_ax3_fused_0_7 * 16)) + (((int)threadIdx.y) * 4)) + (((int)threadIdx.x) >> 2)))+(36*0), ((((((((int)threadIdx.x) & 3) * 144) + (ax2_ax3_fused_0_7 * 16)) + (((int)threadIdx.y) * 4)) + (((int)threadIdx.x) >> 2)))+(36*1), ((((((((int)threadIdx.x) & 3) * 144) + (ax2_ax3_fused_0_7 * 16)) + (((int)threadIdx.y) * 4)) + (((int)threadIdx.x) >> 2)))+(36*2), ((((((((int)threadIdx.x) & 3) * 144) + (ax2_ax3_fused_0_7 * 16)) + (((int)threadIdx.y) * 4)) + (((int)threadIdx.x) >> 2)))+(36*3));
        float4 v__3 = *(float4*)(C_fetch0_local_ptr + (ax2_ax3_fused_0_7 * 4));
        C_fetch0_ptr[v__2.x] = v__3.x;
        C_fetch0_ptr[v__2.y] = v__3.y;
        C_fetch0_ptr[v__2.z] = v__3.z;
        C_fetch0_ptr[v__2.w] = v__3.w;
    }
  }
  __syncthreads();
  for (int k_1_1 = 0; k_1_1 < 4; ++k_1_1) {
    #pragma unroll
    for (int k_0_1 = 0; k_0_1 < 4; ++k_0_1) {
      #pragma unroll
      for (int i_0_1 = 0; i_0_1 < 2; ++i_0_1) {
        #pragma unroll
        for (int i_l_1 = 0; i_l_1 < 4; ++i_l_1) {
          int cse_v11 = ((i_0_1 * 4) + i_l_1);
          C_acc_ptr[((i_0_1 * 4) + i_l_1)] = (C_acc_ptr[((i_0_1 * 4) + i_l_1)] + (C_fetch0_ptr[(((((k_1_1 * 144) + (k_0_1 * 36)) + (i_0_1 * 16)) + (((int)threadIdx.y) * 4)) + i_l_1)] * C_fetch1_ptr[(((k_1_1 * 68) + (k_0_1 * 17)) + ((int)threadIdx.x))]));
        }
      }
    }
  }
  #pragma unroll
  for (int ax4 = 0; ax4 < 2; ++ax4) {
    #pragma unroll
    for (int ax6 = 0; ax6 < 4; ++ax6) {
      C_ptr[((((((ax4 * 1072) + (((int)threadIdx.y) * 268)) + (min(((((int)blockIdx.x) / 5) * 32), 29) * 67)) + (ax6 * 67)) + min(((((int)blockIdx.x) % 5) * 16), 51)) + ((int)threadIdx.x))] = C_acc_ptr[((ax4 * 4) + ax6)];
    }
  }
}
