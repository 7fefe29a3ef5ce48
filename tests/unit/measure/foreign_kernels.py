"""Honest kernels in C, each in a style of its own; all must be accepted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """A workload, and a kernel of it."""

    style: str
    spec: str
    source: str


MATMUL = "matmul:M=24,N=32,K=40"

FOREIGN: tuple[Foreign, ...] = (
    Foreign(
        style="three plain loops",
        spec=MATMUL,
        source="""
int f(const float *a, const float *b, float *c) {
  for (int i = 0; i < 24; i++)
    for (int j = 0; j < 32; j++) {
      float sum = 0;
      for (int k = 0; k < 40; k++) sum += a[i * 40 + k] * b[k * 32 + j];
      c[i * 32 + j] = sum;
    }
  return 0;
}""",
    ),
    Foreign(
        style="restrict pointers, rows of sums in a local array",
        spec=MATMUL,
        source="""
int f(const float *restrict a, const float *restrict b, float *restrict c) {
  for (int i = 0; i < 24; ++i) {
    float row[32] = {0};
    for (int k = 0; k < 40; ++k)
      for (int j = 0; j < 32; ++j) row[j] += a[i * 40 + k] * b[k * 32 + j];
    for (int j = 0; j < 32; ++j) c[i * 32 + j] = row[j];
  }
  return 0;
}""",
    ),
    Foreign(
        style="vector extensions of the compiler, register tiles",
        spec=MATMUL,
        source="""
typedef float v8 __attribute__((vector_size(32), aligned(32)));
int f(const float *a, const float *b, float *c) {
  for (int i = 0; i < 24; i += 4)
    for (int j = 0; j < 32; j += 8) {
      v8 s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
      for (int k = 0; k < 40; ++k) {
        v8 y = *(const v8 *)(b + k * 32 + j);
        s0 += y * a[i * 40 + k], s1 += y * a[i * 40 + 40 + k];
        s2 += y * a[i * 40 + 80 + k], s3 += y * a[i * 40 + 120 + k];
      }
      *(v8 *)(c + i * 32 + j) = s0, *(v8 *)(c + i * 32 + 32 + j) = s1;
      *(v8 *)(c + i * 32 + 64 + j) = s2, *(v8 *)(c + i * 32 + 96 + j) = s3;
    }
  return 0;
}""",
    ),
    Foreign(
        style="intrinsics",
        spec=MATMUL,
        source="""
#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
int f(const float *a, const float *b, float *c) {
  for (int i = 0; i < 24; ++i)
    for (int j = 0; j < 32; j += 8) {
      __m256 sum = _mm256_setzero_ps();
      for (int k = 0; k < 40; ++k)
        sum = _mm256_fmadd_ps(_mm256_set1_ps(a[i * 40 + k]), _mm256_load_ps(b + k * 32 + j), sum);
      _mm256_storeu_ps(c + i * 32 + j, sum);
    }
  return 0;
}
#elif defined(__ARM_NEON)
#include <arm_neon.h>
int f(const float *a, const float *b, float *c) {
  for (int i = 0; i < 24; ++i)
    for (int j = 0; j < 32; j += 4) {
      float32x4_t sum = vdupq_n_f32(0);
      for (int k = 0; k < 40; ++k) sum = vfmaq_n_f32(sum, vld1q_f32(b + k * 32 + j), a[i * 40 + k]);
      vst1q_f32(c + i * 32 + j, sum);
    }
  return 0;
}
#else
#include <immintrin.h>
int f(const float *a, const float *b, float *c) {
  for (int i = 0; i < 24; ++i)
    for (int j = 0; j < 32; j += 4) {
      __m128 sum = _mm_setzero_ps();
      for (int k = 0; k < 40; ++k)
        sum = _mm_add_ps(sum, _mm_mul_ps(_mm_set1_ps(a[i * 40 + k]), _mm_load_ps(b + k * 32 + j)));
      _mm_store_ps(c + i * 32 + j, sum);
    }
  return 0;
}
#endif""",
    ),
    Foreign(
        style="packs into memory of its own, and frees it",
        spec=MATMUL,
        source="""
#include <stdlib.h>
int f(const float *a, const float *b, float *c) {
  float *columns = aligned_alloc(64, 32 * 40 * sizeof(float));
  if (!columns) return 1;
  for (int k = 0; k < 40; ++k) for (int j = 0; j < 32; ++j) columns[j * 40 + k] = b[k * 32 + j];
  for (int i = 0; i < 24; ++i)
    for (int j = 0; j < 32; ++j) {
      float sum = 0;
      for (int k = 0; k < 40; ++k) sum += a[i * 40 + k] * columns[j * 40 + k];
      c[i * 32 + j] = sum;
    }
  free(columns);
  return 0;
}""",
    ),
    Foreign(
        style="static workspace, written anew in each call",
        spec=MATMUL,
        source="""
static _Alignas(64) float columns[32][40];
int f(const float (*a)[40], const float (*b)[32], float (*c)[32]) {
  for (int k = 0; k < 40; ++k) for (int j = 0; j < 32; ++j) columns[j][k] = b[k][j];
  for (int i = 0; i < 24; ++i)
    for (int j = 0; j < 32; ++j) {
      double sum = 0;
      for (int k = 0; k < 40; ++k) sum += a[i][k] * columns[j][k];
      c[i][j] = (float)sum;
    }
  return 0;
}""",
    ),
    Foreign(
        style="recursion on halves",
        spec="matmul:M=16,N=16,K=16",
        source="""
static void add(const float *a, const float *b, float *c, int n) {
  if (n == 4) {
    for (int i = 0; i < 4; ++i) for (int k = 0; k < 4; ++k) for (int j = 0; j < 4; ++j)
      c[i * 16 + j] += a[i * 16 + k] * b[k * 16 + j];
    return;
  }
  int h = n / 2;
  for (int i = 0; i < 2; ++i) for (int j = 0; j < 2; ++j) for (int k = 0; k < 2; ++k)
    add(a + (i * 16 + k) * h, b + (k * 16 + j) * h, c + (i * 16 + j) * h, h);
}
int f(const float *a, const float *b, float *c) {
  for (int i = 0; i < 256; ++i) c[i] = 0;
  add(a, b, c, 16);
  return 0;
}""",
    ),
    Foreign(
        style="inline assembly in the innermost loop",
        spec="elementwise:M=100,N=7,act=relu",
        source="""
int f(const float *x, float *y) {
  for (int i = 0; i < 700; ++i) {
    float value = x[i];
#if defined(__x86_64__)
    __asm__("" : "+x"(value));
#else
    __asm__("" : "+w"(value));
#endif
    y[i] = value > 0 ? value : value == value ? 0 : value;
  }
  return 0;
}""",
    ),
    Foreign(
        style="mathematics of the C library",
        spec="elementwise:M=33,N=5,act=gelu",
        source="""
#include <math.h>
int f(const float *x, float *y) {
  for (int i = 0; i < 165; ++i) y[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
  return 0;
}""",
    ),
    Foreign(
        style="two passes over each row",
        spec="softmax:M=9,N=50",
        source="""
#include <math.h>
int f(const float *restrict x, float *restrict y) {
  for (int row = 0; row < 9; ++row, x += 50, y += 50) {
    float most = x[0], sum = 0;
    for (int i = 1; i < 50; ++i) most = x[i] > most ? x[i] : most;
    for (int i = 0; i < 50; ++i) sum += y[i] = expf(x[i] - most);
    for (int i = 0; i < 50; ++i) y[i] /= sum;
  }
  return 0;
}""",
    ),
    Foreign(
        style="sums in double precision",
        spec="layer_norm:M=6,N=40",
        source="""
#include <math.h>
int f(const float *x, const float *gamma, const float *beta, float *y) {
  for (int row = 0; row < 6; ++row) {
    const float *from = x + row * 40;
    double mean = 0, square = 0;
    for (int i = 0; i < 40; ++i) mean += from[i];
    mean /= 40;
    for (int i = 0; i < 40; ++i) square += (from[i] - mean) * (from[i] - mean);
    double scale = 1 / sqrt(square / 40 + 1e-5);
    for (int i = 0; i < 40; ++i) y[row * 40 + i] = (float)((from[i] - mean) * scale) * gamma[i] + beta[i];
  }
  return 0;
}""",  # noqa: E501
    ),
    Foreign(
        style="blocks of a transposition, memcpy of rows",
        spec="transpose:M=37,N=29",
        source="""
#include <string.h>
enum { M = 37, N = 29, B = 8 };
static int least(int a, int b) { return a < b ? a : b; }
int f(const float *x, float *y) {
  for (int i = 0; i < M; i += B)
    for (int j = 0; j < N; ++j) {
      float piece[B];
      int count = least(B, M - i);
      for (int k = 0; k < count; ++k) piece[k] = x[(i + k) * N + j];
      memcpy(y + j * M + i, piece, (size_t)count * sizeof piece[0]);
    }
  return 0;
}""",
    ),
    Foreign(
        style="variable-length arrays and pointers to rows",
        spec="conv2d:N=1,H=8,W=9,CI=3,CO=4,KH=3,KW=3,pad=1",
        source="""
int f(const float *x, const float *w, float *y) {
  int h = 8, width = 9;
  float padded[(h + 2)][(width + 2)][3];
  for (int i = 0; i < h + 2; ++i) for (int j = 0; j < width + 2; ++j) for (int c = 0; c < 3; ++c)
    padded[i][j][c] = i && j && i <= h && j <= width ? x[((i - 1) * width + j - 1) * 3 + c] : 0;
  for (int i = 0; i < h; ++i) for (int j = 0; j < width; ++j) for (int o = 0; o < 4; ++o) {
    float sum = 0;
    for (int r = 0; r < 3; ++r) for (int s = 0; s < 3; ++s) for (int c = 0; c < 3; ++c)
      sum += padded[i + r][j + s][c] * w[((r * 3 + s) * 3 + c) * 4 + o];
    y[(i * width + j) * 4 + o] = sum;
  }
  return 0;
}""",
    ),
    Foreign(
        style="skips what padding leaves out",
        spec="depthwise_conv2d:N=1,H=7,W=7,C=5,KH=3,KW=3,pad=1",
        source="""
int f(const float *x, const float *w, float *y) {
  for (int i = 0; i < 7; ++i) for (int j = 0; j < 7; ++j) for (int c = 0; c < 5; ++c) {
    float sum = 0;
    for (int r = 0; r < 3; ++r) {
      int row = i + r - 1;
      if (row < 0 || row >= 7) continue;
      for (int s = 0; s < 3; ++s) {
        int column = j + s - 1;
        if (column < 0 || column >= 7) continue;
        sum += x[(row * 7 + column) * 5 + c] * w[(r * 3 + s) * 5 + c];
      }
    }
    y[(i * 7 + j) * 5 + c] = sum;
  }
  return 0;
}""",
    ),
    Foreign(
        style="pairwise sums by a stack of partial ones",
        spec="reduce_sum:M=8,N=64,axis=1",
        source="""
int f(const float *x, float *y) {
  for (int row = 0; row < 8; ++row) {
    float level[64];
    for (int i = 0; i < 64; ++i) level[i] = x[row * 64 + i];
    for (int n = 32; n; n /= 2) for (int i = 0; i < n; ++i) level[i] += level[i + n];
    y[row] = level[0];
  }
  return 0;
}""",
    ),
    Foreign(
        style="integers, with a table of functions",
        spec="matmul:M=5,N=6,K=32,dtype=int8",
        source="""
#include <stdint.h>
static int32_t step(int32_t sum, int8_t a, int8_t b) { return sum + a * b; }
static int32_t (*const steps[])(int32_t, int8_t, int8_t) = {step, step};
int f(const int8_t *a, const int8_t *b, int32_t *c) {
  for (int i = 0; i < 5; ++i) for (int j = 0; j < 6; ++j) {
    int32_t sum = 0;
    for (int k = 0; k < 32; ++k) sum = steps[k & 1](sum, a[i * 32 + k], b[k * 6 + j]);
    c[i * 6 + j] = sum;
  }
  return 0;
}""",
    ),
    Foreign(
        style="bits of bfloat16, summed in float",
        spec="matmul:M=8,N=8,K=24,dtype=bfloat16",
        source="""
#include <stdint.h>
#include <string.h>
static float wide(uint16_t bits) {
  uint32_t word = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &word, sizeof value);
  return value;
}
static uint16_t narrow(float value) {
  uint32_t word;
  memcpy(&word, &value, sizeof word);
  if (value != value) return 0x7fc0;
  return (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
}
int f(const uint16_t *a, const uint16_t *b, uint16_t *c) {
  for (int i = 0; i < 8; ++i) for (int j = 0; j < 8; ++j) {
    float sum = 0;
    for (int k = 0; k < 24; ++k) sum += wide(a[i * 24 + k]) * wide(b[k * 8 + j]);
    c[i * 8 + j] = narrow(sum);
  }
  return 0;
}""",
    ),
    Foreign(
        style="double precision with fused multiply-adds",
        spec="dense:M=3,N=10,K=33,dtype=float64,bias=true",
        source="""
#include <math.h>
int f(const double *x, const double *w, const double *bias, double *y) {
  for (int i = 0; i < 3; ++i) for (int n = 0; n < 10; ++n) {
    double sum = bias[n];
    for (int k = 0; k < 33; ++k) sum = fma(x[i * 33 + k], w[n * 33 + k], sum);
    y[i * 10 + n] = sum;
  }
  return 0;
}""",
    ),
    Foreign(
        style="a static table of offsets, goto for the tail",
        spec="max_pool2d:N=1,H=8,W=8,C=3,KH=2,KW=2,stride=2",
        source="""
static const int offsets[4] = {0, 3, 24, 27};
int f(const float *x, float *y) {
  int place = 0;
next:
  {
    const float *from = x + place / 12 * 48 + place / 3 % 4 * 6 + place % 3;
    float most = from[0];
    for (int i = 1; i < 4; ++i) {
      float value = from[offsets[i]];
      most = value > most || value != value ? value : most;
    }
    y[place] = most;
  }
  if (++place < 48) goto next;
  return 0;
}""",
    ),
    Foreign(
        style="indices, macros and structures",
        spec="embedding:V=20,D=12,N=7",
        source="""
#include <stdint.h>
struct row { float value[12]; };
#define CLAMPED(index, count) ((index) < 0 ? 0 : (index) >= (count) ? (count) - 1 : (index))
int f(const int32_t *indices, const struct row *table, struct row *y) {
  for (int i = 0; i < 7; ++i) y[i] = table[CLAMPED(indices[i], 20)];
  return 0;
}""",
    ),
)
