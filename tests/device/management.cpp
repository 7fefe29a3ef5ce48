/* The double of NVML, libnvidia-ml.so.1: what the product asks of a device's management, for the device of driver.cpp. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#define API extern "C" __attribute__((visibility("default"))) int

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6 };
static int device, slices[7];

/* Slices that the GPU is partitioned into, by the environment. */
static int partitioned() { return getenv("DOUBLE_SLICES") ? atoi(getenv("DOUBLE_SLICES")) : 0; }

static int text(char *to, unsigned length, const char *what) { return snprintf(to, length, "%s", what), SUCCESS; }
static int number(void *of, unsigned *to, unsigned what) { return of == &device ? (*to = what, SUCCESS) : INVALID_ARGUMENT; }

API nvmlInit_v2() { return SUCCESS; }
API nvmlShutdown() { return SUCCESS; }
API nvmlDeviceGetHandleByPciBusId_v2(const char *place, void **handle) {
  if (strncmp(place, "0000:0", 6) != 0) return NOT_FOUND;
  return *handle = &device, SUCCESS;
}
API nvmlSystemGetDriverVersion(char *to, unsigned length) { return text(to, length, "580.00"); }
API nvmlDeviceGetCount_v2(unsigned *count) { return *count = 1, SUCCESS; }
API nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
  return index == 0 ? (*handle = &device, SUCCESS) : INVALID_ARGUMENT;
}
API nvmlDeviceGetMigMode(void *of, unsigned *now, unsigned *pending) {
  return *pending = partitioned() > 0, number(of, now, partitioned() > 0);
}
API nvmlDeviceGetMaxMigDeviceCount(void *of, unsigned *to) { return number(of, to, 7); }
API nvmlDeviceGetMigDeviceHandleByIndex(void *of, unsigned index, void **handle) {
  if (of != &device) return INVALID_ARGUMENT;
  return (int)index < partitioned() ? (*handle = &slices[index], SUCCESS) : NOT_FOUND;
}
API nvmlDeviceGetUUID(void *of, char *to, unsigned length) {
  if (of == &device) return text(to, length, "GPU-double");
  if (of < (void *)slices || of >= (void *)(slices + 7)) return INVALID_ARGUMENT;
  return snprintf(to, length, "MIG-double-%d", (int)((int *)of - slices)), SUCCESS;
}
API nvmlDeviceGetClockInfo(void *of, unsigned type, unsigned *to) { return number(of, to, type == 1 ? 1500 : 2000); }
/* Heat holds the second reading of a process down, and the power cap every one. */
API nvmlDeviceGetCurrentClocksThrottleReasons(void *of, unsigned long long *to) {
  static int readings;
  if (of != &device) return INVALID_ARGUMENT;
  return *to = 0x4 | (readings++ == 1 ? 0x20 : 0), SUCCESS;
}
/* At 100 W since the machine was started; a chip before Volta has no such counter, nor has a slice. */
API nvmlDeviceGetTotalEnergyConsumption(void *of, unsigned long long *millijoules) {
  if (of != &device || getenv("DOUBLE_WITHOUT_ENERGY")) return NOT_SUPPORTED;
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return *millijoules = 100ull * (now.tv_sec * 1000 + now.tv_nsec / 1000000), SUCCESS;
}
