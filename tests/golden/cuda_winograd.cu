
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
extern "C" __global__ void __launch_bounds__(64) kernel_kernel(float* __restrict__ W_ptr, float* __restrict__ Yuwin_ptr);
extern "C" __global__ void __launch_bounds__(64) kernel_kernel_1(float* __restrict__ X_ptr, float* __restrict__ Yvwin_ptr);
extern "C" __global__ void __launch_bounds__(64) kernel_kernel_2(float* __restrict__ Ymwin_ptr, float* __restrict__ Yuwin_ptr, float* __restrict__ Yvwin_ptr);
extern "C" __global__ void __launch_bounds__(64) kernel_kernel_3(float* __restrict__ Ymwin_ptr, float* __restrict__ Ywin_ptr);
extern "C" __global__ void __launch_bounds__(64) kernel_kernel(float* __restrict__ W_ptr, float* __restrict__ Yuwin_ptr) {
  alignas(64) float Yuwin_in0_ptr[1];
  alignas(64) float Yuwin_in1_ptr[1];
  alignas(64) float Yuwin_in2_ptr[1];
  alignas(64) float Yuwin_in3_ptr[1];
  alignas(64) float Yuwin_in4_ptr[1];
  alignas(64) float Yuwin_in5_ptr[1];
  alignas(64) float Yuwin_in6_ptr[1];
  alignas(64) float Yuwin_in7_ptr[1];
  alignas(64) float Yuwin_in8_ptr[1];
  int cse_v1 = (((int)blockIdx.x) * 64);
  int cse_v2 = (((int)threadIdx.y) * 32);
  int cse_v8 = (((((int)blockIdx.x) * 64) + (((int)threadIdx.y) * 32)) + ((int)threadIdx.x));
  Yuwin_in0_ptr[0] = W_ptr[(((((int)blockIdx.x) * 64) + (((int)threadIdx.y) * 32)) + ((int)threadIdx.x))];
  Yuwin_in1_ptr[0] = W_ptr[((((((int)blockIdx.x) * 64) + (((int)threadIdx.y) * 32)) + ((int)threadIdx.x)) + 1024)];
  Yuwin_in2_ptr[0] = W_ptr[((((((int)blockIdx.x) * 64) + (((int)threadIdx.y) * 32)) + ((int)threadIdx.x)) + 512)];
  Yuwin_in3_ptr[0] = W_ptr[((((((int)blockIdx.x) * 64) + (((int)threadIdx.y) * 32)) + ((int)threadIdx.x)) + 3072)];
  Yuwin_in4_ptr[0] = W_ptr[((((((int)blockIdx.x) * 64) + (((int)threadIdx.y) * 32)) + ((int)threadIdx.x)) + 1536)];
  Yuwin_in5_ptr[0] = W_ptr[((((((int)blockIdx.x) * 64) + (((int)threadIdx.y) * 32)) + ((int)threadIdx.x)) + 4096)];
  Yuwin_in6_ptr[0] = W_ptr[((((((int)blockIdx.x) * 64) + (((int)threadIdx.y) * 32)) + ((int)threadIdx.x)) + 3584)];
  Yuwin_in7_ptr[0] = W_ptr[((((((int)blockIdx.x) * 64) + (((int)threadIdx.y) * 32)) + ((int)threadIdx.x)) + 2560)];
  Yuwin_in8_ptr[0] = W_ptr[((((((int)blockIdx.x) * 64) + (((int)threadIdx.y) * 32)) + ((int)threadIdx.x)) + 2048)];
  #pragma unroll
  for (int rq_l = 0; rq_l < 4; ++rq_l) {
    #pragma unroll
    for (int sq_l = 0; sq_l < 4; ++sq_l) {
      alignas(64) float Yuwin_value_ptr[1];
      float condval;
      if (rq_l == 0) {
        float condval_1;
        if (sq_l == 0) {
          condval_1 = Yuwin_in0_ptr[0];
        } else {
          float condval_2;
          if (sq_l == 1) {
            condval_2 = (((Yuwin_in0_ptr[0] + Yuwin_in1_ptr[0]) * 0x1p-1f/*5.000000e-01*/) + (Yuwin_in2_ptr[0] * 0x1p-1f/*5.000000e-01*/));
          } else {
            float condval_3;
            if (sq_l == 2) {
              condval_3 = (((Yuwin_in0_ptr[0] + Yuwin_in1_ptr[0]) * 0x1p-1f/*5.000000e-01*/) - (Yuwin_in2_ptr[0] * 0x1p-1f/*5.000000e-01*/));
            } else {
              condval_3 = Yuwin_in1_ptr[0];
            }
            condval_2 = condval_3;
          }
          condval_1 = condval_2;
        }
        condval = condval_1;
      } else {
        float condval_4;
        if (rq_l == 1) {
          float condval_5;
          if (sq_l == 0) {
            condval_5 = (((Yuwin_in0_ptr[0] + Yuwin_in3_ptr[0]) * 0x1p-1f/*5.000000e-01*/) + (Yuwin_in4_ptr[0] * 0x1p-1f/*5.000000e-01*/));
          } else {
            float condval_6;
            if (sq_l == 1) {
              condval_6 = ((((((Yuwin_in0_ptr[0] + Yuwin_in1_ptr[0]) * 0x1p-1f/*5.000000e-01*/) + (Yuwin_in2_ptr[0] * 0x1p-1f/*5.000000e-01*/)) + (((Yuwin_in3_ptr[0] + Yuwin_in5_ptr[0]) * 0x1p-1f/*5.000000e-01*/) + (Yuwin_in6_ptr[0] * 0x1p-1f/*5.000000e-01*/))) * 0x1p-1f/*5.000000e-01*/) + ((((Yuwin_in4_ptr[0] + Yuwin_in7_ptr[0]) * 0x1p-1f/*5.000000e-01*/) + (Yuwin_in8_ptr[0] * 0x1p-1f/*5.000000e-01*/)) * 0x1p-1f/*5.000000e-01*/));
            } else {
              float condval_7;
              if (sq_l == 2) {
                condval_7 = ((((((Yuwin_in0_ptr[0] + Yuwin_in1_ptr[0]) * 0x1p-1f/*5.000000e-01*/) - (Yuwin_in2_ptr[0] * 0x1p-1f/*5.000000e-01*/)) + (((Yuwin_in3_ptr[0] + Yuwin_in5_ptr[0]) * 0x1p-1f/*5.000000e-01*/) - (Yuwin_in6_ptr[0] * 0x1p-1f/*5.000000e-01*/))) * 0x1p-1f/*5.000000e-01*/) + ((((Yuwin_in4_ptr[0] + Yuwin_in7_ptr[0]) * 0x1p-1f/*5.000000e-01*/) - (Yuwin_in8_ptr[0] * 0x1p-1f/*5.000000e-01*/)) * 0x1p-1f/*5.000000e-01*/));
              } else {
                condval_7 = (((Yuwin_in1_ptr[0] + Yuwin_in5_ptr[0]) * 0x1p-1f/*5.000000e-01*/) + (Yuwin_in7_ptr[0] * 0x1p-1f/*5.000000e-01*/));
              }
              condval_6 = condval_7;
            }
            condval_5 = condval_6;
          }
          condval_4 = condval_5;
        } else {
          float condval_8;
          if (rq_l == 2) {
            float condval_9;
            if (sq_l == 0) {
              condval_9 = (((Yuwin_in0_ptr[0] + Yuwin_in3_ptr[0]) * 0x1p-1f/*5.000000e-01*/) - (Yuwin_in4_ptr[0] * 0x1p-1f/*5.000000e-01*/));
            } else {
              float condval_10;
              if (sq_l == 1) {
                condval_10 = ((((((Yuwin_in0_ptr[0] + Yuwin_in1_ptr[0]) * 0x1p-1f/*5.000000e-01*/) + (Yuwin_in2_ptr[0] * 0x1p-1f/*5.000000e-01*/)) + (((Yuwin_in3_ptr[0] + Yuwin_in5_ptr[0]) * 0x1p-1f/*5.000000e-01*/) + (Yuwin_in6_ptr[0] * 0x1p-1f/*5.000000e-01*/))) * 0x1p-1f/*5.000000e-01*/) - ((((Yuwin_in4_ptr[0] + Yuwin_in7_ptr[0]) * 0x1p-1f/*5.000000e-01*/) + (Yuwin_in8_ptr[0] * 0x1p-1f/*5.000000e-01*/)) * 0x1p-1f/*5.000000e-01*/));
              } else {
                float condval_11;
                if (sq_l == 2) {
                  condval_11 = ((((((Yuwin_in0_ptr[0] + Yuwin_in1_ptr[0]) * 0x1p-1f/*5.000000e-01*/) - (Yuwin_in2_ptr[0] * 0x1p-1f/*5.000000e-01*/)) + (((Yuwin_in3_ptr[0] + Yuwin_in5_ptr[0]) * 0x1p-1f/*5.000000e-01*/) - (Yuwin_in6_ptr[0] * 0x1p-1f/*5.000000e-01*/))) * 0x1p-1f/*5.000000e-01*/) - ((((Yuwin_in4_ptr[0] + Yuwin_in7_ptr[0]) * 0x1p-1f/*5.000000e-01*/) - (Yuwin_in8_ptr[0] * 0x1p-1f/*5.000000e-01*/)) * 0x1p-1f/*5.000000e-01*/));
                } else {
                  condval_11 = (((Yuwin_in1_ptr[0] + Yuwin_in5_ptr[0]) * 0x1p-1f/*5.000000e-01*/) - (Yuwin_in7_ptr[0] * 0x1p-1f/*5.000000e-01*/));
                }
                condval_10 = condval_11;
              }
              condval_9 = condval_10;
            }
            condval_8 = condval_9;
          } else {
            float condval_12;
            if (sq_l == 0) {
              condval_12 = Yuwin_in3_ptr[0];
            } else {
              float condval_13;
              if (sq_l == 1) {
                condval_13 = (((Yuwin_in3_ptr[0] + Yuwin_in5_ptr[0]) * 0x1p-1f/*5.000000e-01*/) + (Yuwin_in6_ptr[0] * 0x1p-1f/*5.000000e-01*/));
              } else {
                float condval_14;
                if (sq_l == 2) {
                  condval_14 = (((Yuwin_in3_ptr[0] + Yuwin_in5_ptr[0]) * 0x1p-1f/*5.000000e-01*/) - (Yuwin_in6_ptr[0] * 0x1p-1f/*5.000000e-01*/));
                } else {
                  condval_14 = Yuwin_in5_ptr[0];
                }
                condval_13 = condval_14;
              }
              condval_12 = condval_13;
            }
            condval_8 = condval_12;
          }
          condval_4 = condval_8;
        }
        condval = condval_4;
      }
      Yuwin_value_ptr[0] = condval;
      Yuwin_ptr[(((((rq_l * 2048) + (sq_l * 512)) + (((int)blockIdx.x) * 64)) + (((int)threadIdx.y) * 32)) + ((int)threadIdx.x))] = Yuwin_value_ptr[0];
    }
  }
}

extern "C" __global__ void __launch_bounds__(64) kernel_kernel_1(float* __restrict__ X_ptr, float* __restrict__ Yvwin_ptr) {
  alignas(64) float Yvwin_in0_ptr[1];
  alignas(64) float Yvwin_in1_ptr[1];
  alignas(64) float Yvwin_in2_ptr[1];
  alignas(64) float Yvwin_in3_ptr[1];
  alignas(64) float Yvwin_in4_ptr[1];
  alignas(64) float Yvwin_in5_ptr[1];
  alignas(64) float Yvwin_in6_ptr[1];
  alignas(64) float Yvwin_in7_ptr[1];
  alignas(64) float Yvwin_in8_ptr[1];
  alignas(64) float Yvwin_in9_ptr[1];
  alignas(64) float Yvwin_in10_ptr[1];
  alignas(64) float Yvwin_in11_ptr[1];
  alignas(64) float Yvwin_in12_ptr[1];
  alignas(64) float Yvwin_in13_ptr[1];
  alignas(64) float Yvwin_in14_ptr[1];
  alignas(64) float Yvwin_in15_ptr[1];
  int cse_v3 = (((int)blockIdx.x) * 2);
  int cse_v4 = (((int)threadIdx.y) * 2);
  int cse_v5 = (((int)threadIdx.x) & 2147483647);
  int cse_v7 = ((0 & 2147483647) * 1024);
  int cse_v10 = ((((((int)threadIdx.y) * 2) - 1) & 2147483647) * 16);
  int cse_v15 = (((0 & 2147483647) * 1024) + ((((((int)blockIdx.x) * 2) - 1) & 2147483647) * 128));
  float condval;
  if ((1 <= ((int)blockIdx.x)) && (1 <= ((int)threadIdx.y))) {
    condval = X_ptr[(((((0 & 2147483647) * 1024) + ((((((int)blockIdx.x) * 2) - 1) & 2147483647) * 128)) + ((((((int)threadIdx.y) * 2) - 1) & 2147483647) * 16)) + (((int)threadIdx.x) & 2147483647))];
  } else {
    condval = 0x0p+0f/*0.000000e+00*/;
  }
  Yvwin_in0_ptr[0] = condval;
  int cse_v11 = ((((((int)threadIdx.y) * 2) + 1) & 2147483647) * 16);
  float condval_1;
  if (1 <= ((int)blockIdx.x)) {
    condval_1 = X_ptr[(((((0 & 2147483647) * 1024) + ((((((int)blockIdx.x) * 2) - 1) & 2147483647) * 128)) + ((((((int)threadIdx.y) * 2) + 1) & 2147483647) * 16)) + (((int)threadIdx.x) & 2147483647))];
  } else {
    condval_1 = 0x0p+0f/*0.000000e+00*/;
  }
  Yvwin_in1_ptr[0] = condval_1;
  int cse_v16 = (((0 & 2147483647) * 1024) + ((((((int)blockIdx.x) * 2) + 1) & 2147483647) * 128));
  float condval_2;
  if (1 <= ((int)threadIdx.y)) {
    condval_2 = X_ptr[(((((0 & 2147483647) * 1024) + ((((((int)blockIdx.x) * 2) + 1) & 2147483647) * 128)) + ((((((int)threadIdx.y) * 2) - 1) & 2147483647) * 16)) + (((int)threadIdx.x) & 2147483647))];
  } else {
    condval_2 = 0x0p+0f/*0.000000e+00*/;
  }
  Yvwin_in2_ptr[0] = condval_2;
  Yvwin_in3_ptr[0] = X_ptr[(((((0 & 2147483647) * 1024) + ((((((int)blockIdx.x) * 2) + 1) & 2147483647) * 128)) + ((((((int)threadIdx.y) * 2) + 1) & 2147483647) * 16)) + (((int)threadIdx.x) & 2147483647))];
  int cse_v9 = (((((int)threadIdx.y) * 2) & 2147483647) * 16);
  float condval_3;
  if (1 <= ((int)blockIdx.x)) {
    condval_3 = X_ptr[(((((0 & 2147483647) * 1024) + ((((((int)blockIdx.x) * 2) - 1) & 2147483647) * 128)) + (((((int)threadIdx.y) * 2) & 2147483647) * 16)) + (((int)threadIdx.x) & 2147483647))];
  } else {
    condval_3 = 0x0p+0f/*0.000000e+00*/;
  }
  Yvwin_in4_ptr[0] = condval_3;
  Yvwin_in5_ptr[0] = X_ptr[(((((0 & 2147483647) * 1024) + ((((((int)blockIdx.x) * 2) + 1) & 2147483647) * 128)) + (((((int)threadIdx.y) * 2) & 2147483647) * 16)) + (((int)threadIdx.x) & 2147483647))];
  int cse_v12 = ((((((int)threadIdx.y) * 2) + 2) & 2147483647) * 16);
  float condval_4;
  if ((1 <= ((int)blockIdx.x)) && (((int)threadIdx.y) < 3)) {
    condval_4 = X_ptr[(((((0 & 2147483647) * 1024) + ((((((int)blockIdx.x) * 2) - 1) & 2147483647) * 128)) + ((((((int)threadIdx.y) * 2) + 2) & 2147483647) * 16)) + (((int)threadIdx.x) & 2147483647))];
  } else {
    condval_4 = 0x0p+0f/*0.000000e+00*/;
  }
  Yvwin_in6_ptr[0] = condval_4;
  float condval_5;
  if (((int)threadIdx.y) < 3) {
    condval_5 = X_ptr[(((((0 & 2147483647) * 1024) + ((((((int)blockIdx.x) * 2) + 1) & 2147483647) * 128)) + ((((((int)threadIdx.y) * 2) + 2) & 2147483647) * 16)) + (((int)threadIdx.x) & 2147483647))];
  } else {
    condval_5 = 0x0p+0f/*0.000000e+00*/;
  }
  Yvwin_in7_ptr[0] = condval_5;
  int cse_v13 = (((0 & 2147483647) * 1024) + (((((int)blockIdx.x) * 2) & 2147483647) * 128));
  float condval_6;
  if (1 <= ((int)threadIdx.y)) {
    condval_6 = X_ptr[(((((0 & 2147483647) * 1024) + (((((int)blockIdx.x) * 2) & 2147483647) * 128)) + ((((((int)threadIdx.y) * 2) - 1) & 2147483647) * 16)) + (((int)threadIdx.x) & 2147483647))];
  } else {
    condval_6 = 0x0p+0f/*0.000000e+00*/;
  }
  Yvwin_in8_ptr[0] = condval_6;
  Yvwin_in9_ptr[0] = X_ptr[(((((0 & 2147483647) * 1024) + (((((int)blockIdx.x) * 2) & 2147483647) * 128)) + ((((((int)threadIdx.y) * 2) + 1) & 2147483647) * 16)) + (((int)threadIdx.x) & 2147483647))];
  Yvwin_in10_ptr[0] = X_ptr[(((((0 & 2147483647) * 1024) + (((((int)blockIdx.x) * 2) & 2147483647) * 128)) + (((((int)threadIdx.y) * 2) & 2147483647) * 16)) + (((int)threadIdx.x) & 2147483647))];
  float condval_7;
  if (((int)threadIdx.y) < 3) {
    condval_7 = X_ptr[(((((0 & 2147483647) * 1024) + (((((int)blockIdx.x) * 2) & 2147483647) * 128)) + ((((((int)threadIdx.y) * 2) + 2) & 2147483647) * 16)) + (((int)threadIdx.x) & 2147483647))];
  } else {
    condval_7 = 0x0p+0f/*0.000000e+00*/;
  }
  Yvwin_in11_ptr[0] = condval_7;
  int cse_v17 = (((0 & 2147483647) * 1024) + ((((((int)blockIdx.x) * 2) + 2) & 2147483647) * 128));
  float condval_8;
  if ((((int)blockIdx.x) < 3) && (1 <= ((int)threadIdx.y))) {
    condval_8 = X_ptr[(((((0 & 2147483647) * 1024) + ((((((int)blockIdx.x) * 2) + 2) & 2147483647) * 128)) + ((((((int)threadIdx.y) * 2) - 1) & 2147483647) * 16)) + (((int)threadIdx.x) & 2147483647))];
  } else {
    condval_8 = 0x0p+0f/*0.000000e+00*/;
  }
  Yvwin_in12_ptr[0] = condval_8;
  float condval_9;
  if (((int)blockIdx.x) < 3) {
    condval_9 = X_ptr[(((((0 & 2147483647) * 1024) + ((((((int)blockIdx.x) * 2) + 2) & 2147483647) * 128)) + ((((((int)threadIdx.y) * 2) + 1) & 2147483647) * 16)) + (((int)threadIdx.x) & 2147483647))];
  } else {
    condval_9 = 0x0p+0f/*0.000000e+00*/;
  }
  Yvwin_in13_ptr[0] = condval_9;
  float condval_10;
  if (((int)blockIdx.x) < 3) {
    condval_10 = X_ptr[(((((0 & 2147483647) * 1024) + ((((((int)blockIdx.x) * 2) + 2) & 2147483647) * 128)) + (((((int)threadIdx.y) * 2) & 2147483647) * 16)) + (((int)threadIdx.x) & 2147483647))];
  } else {
    condval_10 = 0x0p+0f/*0.000000e+00*/;
  }
  Yvwin_in14_ptr[0] = condval_10;
  float condval_11;
  if ((((int)blockIdx.x) < 3) && (((int)threadIdx.y) < 3)) {
    condval_11 = X_ptr[(((((0 & 2147483647) * 1024) + ((((((int)blockIdx.x) * 2) + 2) & 2147483647) * 128)) + ((((((int)threadIdx.y) * 2) + 2) & 2147483647) * 16)) + (((int)threadIdx.x) & 2147483647))];
  } else {
    condval_11 = 0x0p+0f/*0.000000e+00*/;
  }
  Yvwin_in15_ptr[0] = condval_11;
  #pragma unroll
  for (int rq_l = 0; rq_l < 4; ++rq_l) {
    #pragma unroll
    for (int sq_l = 0; sq_l < 4; ++sq_l) {
      alignas(64) float Yvwin_value_ptr[1];
      float condval_12;
      if (rq_l == 0) {
        float condval_13;
        if (sq_l == 0) {
          condval_13 = ((Yvwin_in0_ptr[0] - Yvwin_in1_ptr[0]) - (Yvwin_in2_ptr[0] - Yvwin_in3_ptr[0]));
        } else {
          float condval_14;
          if (sq_l == 1) {
            condval_14 = ((Yvwin_in1_ptr[0] + Yvwin_in4_ptr[0]) - (Yvwin_in3_ptr[0] + Yvwin_in5_ptr[0]));
          } else {
            float condval_15;
            if (sq_l == 2) {
              condval_15 = ((Yvwin_in1_ptr[0] - Yvwin_in4_ptr[0]) - (Yvwin_in3_ptr[0] - Yvwin_in5_ptr[0]));
            } else {
              condval_15 = ((0x0p+0f/*0.000000e+00*/ - (Yvwin_in4_ptr[0] - Yvwin_in6_ptr[0])) - (0x0p+0f/*0.000000e+00*/ - (Yvwin_in5_ptr[0] - Yvwin_in7_ptr[0])));
            }
            condval_14 = condval_15;
          }
          condval_13 = condval_14;
        }
        condval_12 = condval_13;
      } else {
        float condval_16;
        if (rq_l == 1) {
          float condval_17;
          if (sq_l == 0) {
            condval_17 = ((Yvwin_in2_ptr[0] - Yvwin_in3_ptr[0]) + (Yvwin_in8_ptr[0] - Yvwin_in9_ptr[0]));
          } else {
            float condval_18;
            if (sq_l == 1) {
              condval_18 = ((Yvwin_in3_ptr[0] + Yvwin_in5_ptr[0]) + (Yvwin_in9_ptr[0] + Yvwin_in10_ptr[0]));
            } else {
              float condval_19;
              if (sq_l == 2) {
                condval_19 = ((Yvwin_in3_ptr[0] - Yvwin_in5_ptr[0]) + (Yvwin_in9_ptr[0] - Yvwin_in10_ptr[0]));
              } else {
                condval_19 = ((0x0p+0f/*0.000000e+00*/ - (Yvwin_in5_ptr[0] - Yvwin_in7_ptr[0])) + (0x0p+0f/*0.000000e+00*/ - (Yvwin_in10_ptr[0] - Yvwin_in11_ptr[0])));
              }
              condval_18 = condval_19;
            }
            condval_17 = condval_18;
          }
          condval_16 = condval_17;
        } else {
          float condval_20;
          if (rq_l == 2) {
            float condval_21;
            if (sq_l == 0) {
              condval_21 = ((Yvwin_in2_ptr[0] - Yvwin_in3_ptr[0]) - (Yvwin_in8_ptr[0] - Yvwin_in9_ptr[0]));
            } else {
              float condval_22;
              if (sq_l == 1) {
                condval_22 = ((Yvwin_in3_ptr[0] + Yvwin_in5_ptr[0]) - (Yvwin_in9_ptr[0] + Yvwin_in10_ptr[0]));
              } else {
                float condval_23;
                if (sq_l == 2) {
                  condval_23 = ((Yvwin_in3_ptr[0] - Yvwin_in5_ptr[0]) - (Yvwin_in9_ptr[0] - Yvwin_in10_ptr[0]));
                } else {
                  condval_23 = ((0x0p+0f/*0.000000e+00*/ - (Yvwin_in5_ptr[0] - Yvwin_in7_ptr[0])) - (0x0p+0f/*0.000000e+00*/ - (Yvwin_in10_ptr[0] - Yvwin_in11_ptr[0])));
                }
                condval_22 = condval_23;
              }
              condval_21 = condval_22;
            }
            condval_20 = condval_21;
          } else {
            float condval_24;
            if (sq_l == 0) {
              condval_24 = (0x0p+0f/*0.000000e+00*/ - ((Yvwin_in8_ptr[0] - Yvwin_in9_ptr[0]) - (Yvwin_in12_ptr[0] - Yvwin_in13_ptr[0])));
            } else {
              float condval_25;
              if (sq_l == 1) {
                condval_25 = (0x0p+0f/*0.000000e+00*/ - ((Yvwin_in9_ptr[0] + Yvwin_in10_ptr[0]) - (Yvwin_in13_ptr[0] + Yvwin_in14_ptr[0])));
              } else {
                float condval_26;
                if (sq_l == 2) {
                  condval_26 = (0x0p+0f/*0.000000e+00*/ - ((Yvwin_in9_ptr[0] - Yvwin_in10_ptr[0]) - (Yvwin_in13_ptr[0] - Yvwin_in14_ptr[0])));
                } else {
                  condval_26 = (0x0p+0f/*0.000000e+00*/ - ((0x0p+0f/*0.000000e+00*/ - (Yvwin_in10_ptr[0] - Yvwin_in11_ptr[0])) - (0x0p+0f/*0.000000e+00*/ - (Yvwin_in14_ptr[0] - Yvwin_in15_ptr[0]))));
                }
                condval_25 = condval_26;
              }
              condval_24 = condval_25;
            }
            condval_20 = condval_24;
          }
          condval_16 = condval_20;
        }
        condval_12 = condval_16;
      }
      Yvwin_value_ptr[0] = condval_12;
      Yvwin_ptr[(((((rq_l * 1024) + (sq_l * 256)) + (((int)blockIdx.x) * 64)) + (((int)threadIdx.y) * 16)) + ((int)threadIdx.x))] = Yvwin_value_ptr[0];
    }
  }
}

extern "C" __global__ void __launch_bounds__(64) kernel_kernel_2(float* __restrict__ Ymwin_ptr, float* __restrict__ Yuwin_ptr, float* __restrict__ Yvwin_ptr) {
  alignas(64) float Ymwin_acc_ptr[1];
  Ymwin_acc_ptr[0] = 0x0p+0f/*0.000000e+00*/;
  for (int c_2 = 0; c_2 < 16; ++c_2) {
    Ymwin_acc_ptr[0] = (Ymwin_acc_ptr[0] + (Yvwin_ptr[(((((int)blockIdx.x) * 32) + (((int)threadIdx.y) * 16)) + c_2)] * Yuwin_ptr[((((((int)blockIdx.x) >> 3) * 512) + (c_2 * 32)) + ((int)threadIdx.x))]));
  }
  Ymwin_ptr[(((((int)blockIdx.x) * 64) + (((int)threadIdx.y) * 32)) + ((int)threadIdx.x))] = Ymwin_acc_ptr[0];
}

extern "C" __global__ void __launch_bounds__(64) kernel_kernel_3(float* __restrict__ Ymwin_ptr, float* __restrict__ Ywin_ptr) {
  alignas(64) float Ywin_in0_ptr[4];
  alignas(64) float Ywin_in1_ptr[4];
  alignas(64) float Ywin_in2_ptr[4];
  alignas(64) float Ywin_in3_ptr[4];
  alignas(64) float Ywin_in4_ptr[4];
  alignas(64) float Ywin_in5_ptr[4];
  alignas(64) float Ywin_in6_ptr[4];
  alignas(64) float Ywin_in7_ptr[4];
  alignas(64) float Ywin_in8_ptr[4];
  alignas(64) float Ywin_in9_ptr[4];
  alignas(64) float Ywin_in10_ptr[4];
  alignas(64) float Ywin_in11_ptr[4];
  alignas(64) float Ywin_in12_ptr[4];
  alignas(64) float Ywin_in13_ptr[4];
  alignas(64) float Ywin_in14_ptr[4];
  alignas(64) float Ywin_in15_ptr[4];
  int cse_v6 = (((int)threadIdx.x) * 4);
  int cse_v14 = ((((((int)blockIdx.x) * 256) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 4));
  *(float4*)(Ywin_in0_ptr + 0) = *(float4*)(Ymwin_ptr + ((((((int)blockIdx.x) * 256) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 4)));
  *(float4*)(Ywin_in1_ptr + 0) = *(float4*)(Ymwin_ptr + (((((((int)blockIdx.x) * 256) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 4)) + 512));
  *(float4*)(Ywin_in2_ptr + 0) = *(float4*)(Ymwin_ptr + (((((((int)blockIdx.x) * 256) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 4)) + 1024));
  *(float4*)(Ywin_in3_ptr + 0) = *(float4*)(Ymwin_ptr + (((((((int)blockIdx.x) * 256) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 4)) + 2048));
  *(float4*)(Ywin_in4_ptr + 0) = *(float4*)(Ymwin_ptr + (((((((int)blockIdx.x) * 256) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 4)) + 2560));
  *(float4*)(Ywin_in5_ptr + 0) = *(float4*)(Ymwin_ptr + (((((((int)blockIdx.x) * 256) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 4)) + 3072));
  *(float4*)(Ywin_in6_ptr + 0) = *(float4*)(Ymwin_ptr + (((((((int)blockIdx.x) * 256) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 4)) + 4096));
  *(float4*)(Ywin_in7_ptr + 0) = *(float4*)(Ymwin_ptr + (((((((int)blockIdx.x) * 256) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 4)) + 4608));
  *(float4*)(Ywin_in8_ptr + 0) = *(float4*)(Ymwin_ptr + (((((((int)blockIdx.x) * 256) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 4)) + 5120));
  *(float4*)(Ywin_in9_ptr + 0) = *(float4*)(Ymwin_ptr + (((((((int)blockIdx.x) * 256) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 4)) + 1536));
  *(float4*)(Ywin_in10_ptr + 0) = *(float4*)(Ymwin_ptr + (((((((int)blockIdx.x) * 256) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 4)) + 3584));
  *(float4*)(Ywin_in11_ptr + 0) = *(float4*)(Ymwin_ptr + (((((((int)blockIdx.x) * 256) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 4)) + 5632));
  *(float4*)(Ywin_in12_ptr + 0) = *(float4*)(Ymwin_ptr + (((((((int)blockIdx.x) * 256) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 4)) + 6144));
  *(float4*)(Ywin_in13_ptr + 0) = *(float4*)(Ymwin_ptr + (((((((int)blockIdx.x) * 256) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 4)) + 6656));
  *(float4*)(Ywin_in14_ptr + 0) = *(float4*)(Ymwin_ptr + (((((((int)blockIdx.x) * 256) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 4)) + 7168));
  *(float4*)(Ywin_in15_ptr + 0) = *(float4*)(Ymwin_ptr + (((((((int)blockIdx.x) * 256) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 4)) + 7680));
  #pragma unroll
  for (int h_l = 0; h_l < 2; ++h_l) {
    #pragma unroll
    for (int w_l = 0; w_l < 2; ++w_l) {
      alignas(64) float Ywin_value_ptr[4];
      #pragma unroll
      for (int ax14 = 0; ax14 < 4; ++ax14) {
        float condval;
        if (h_l == 0) {
          float condval_1;
          if (w_l == 0) {
            condval_1 = ((Ywin_in0_ptr[ax14] + (Ywin_in1_ptr[ax14] + Ywin_in2_ptr[ax14])) + ((Ywin_in3_ptr[ax14] + (Ywin_in4_ptr[ax14] + Ywin_in5_ptr[ax14])) + (Ywin_in6_ptr[ax14] + (Ywin_in7_ptr[ax14] + Ywin_in8_ptr[ax14]))));
          } else {
            condval_1 = (((Ywin_in1_ptr[ax14] - Ywin_in2_ptr[ax14]) + Ywin_in9_ptr[ax14]) + (((Ywin_in4_ptr[ax14] - Ywin_in5_ptr[ax14]) + Ywin_in10_ptr[ax14]) + ((Ywin_in7_ptr[ax14] - Ywin_in8_ptr[ax14]) + Ywin_in11_ptr[ax14])));
          }
          condval = condval_1;
        } else {
          float condval_2;
          if (w_l == 0) {
            condval_2 = (((Ywin_in3_ptr[ax14] + (Ywin_in4_ptr[ax14] + Ywin_in5_ptr[ax14])) - (Ywin_in6_ptr[ax14] + (Ywin_in7_ptr[ax14] + Ywin_in8_ptr[ax14]))) + (Ywin_in12_ptr[ax14] + (Ywin_in13_ptr[ax14] + Ywin_in14_ptr[ax14])));
          } else {
            condval_2 = ((((Ywin_in4_ptr[ax14] - Ywin_in5_ptr[ax14]) + Ywin_in10_ptr[ax14]) - ((Ywin_in7_ptr[ax14] - Ywin_in8_ptr[ax14]) + Ywin_in11_ptr[ax14])) + ((Ywin_in13_ptr[ax14] - Ywin_in14_ptr[ax14]) + Ywin_in15_ptr[ax14]));
          }
          condval = condval_2;
        }
        Ywin_value_ptr[ax14] = condval;
      }
      *(float4*)(Ywin_ptr + ((((((((int)blockIdx.x) * 1024) + (((int)threadIdx.z) * 512)) + (h_l * 256)) + (((int)threadIdx.y) * 64)) + (w_l * 32)) + (((int)threadIdx.x) * 4))) = *(float4*)(Ywin_value_ptr + 0);
    }
  }
}
