/* Memory: the users' aligned allocator, and the kernels' workspace with a small cache in each thread.
 * A kernel asks for the same sizes call after call, so after the first call no workspace request reaches malloc. */
#define _GNU_SOURCE
#include "workspace.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Before each block, in one aligned line of its own. */
struct block {
  struct block *next;
  size_t nbytes; /* usable */
};

enum { CACHED_BLOCKS = 16 }; /* kept by a thread; more are given back to the system */

struct cache {
  struct block *head;
  int count;
  int registered; /* this thread's blocks are freed at its exit */
};

static __thread struct cache thread_cache;
/* Usable bytes of all threads' blocks, in use or kept, and the most there have been. Touched only where the system is asked. */
static _Atomic uint64_t held, most_held;
static pthread_key_t exit_key;
static pthread_once_t exit_once = PTHREAD_ONCE_INIT;
static int exit_key_made;

_Static_assert(sizeof(struct block) <= TUNER_ALIGNMENT, "the header fits the line before the block");

static void *aligned(size_t nbytes) {
  void *memory = NULL;
  return posix_memalign(&memory, TUNER_ALIGNMENT, nbytes) == 0 ? memory : NULL;
}

void *tuner_alloc(size_t nbytes) {
  void *memory = NULL;
  if (nbytes <= SIZE_MAX / 2) memory = aligned(nbytes == 0 ? TUNER_ALIGNMENT : nbytes);
  if (memory == NULL) tuner_fail(TUNER_ERROR_MEMORY, "no memory for a buffer of %zu bytes", nbytes);
  return memory;
}

void tuner_free(void *memory) { free(memory); }

static struct block *new_block(uint64_t nbytes) {
  struct block *block = nbytes <= SIZE_MAX / 2 ? aligned((size_t)nbytes + TUNER_ALIGNMENT) : NULL;
  if (block == NULL) return NULL;
  block->next = NULL;
  block->nbytes = (size_t)nbytes;
  uint64_t now = atomic_fetch_add_explicit(&held, nbytes, memory_order_relaxed) + nbytes;
  uint64_t most = atomic_load_explicit(&most_held, memory_order_relaxed);
  while (most < now && !atomic_compare_exchange_weak_explicit(&most_held, &most, now, memory_order_relaxed, memory_order_relaxed)) {
  }
  return block;
}

static void free_block(struct block *block) {
  atomic_fetch_sub_explicit(&held, block->nbytes, memory_order_relaxed);
  free(block);
}

static void release(void *argument) {
  struct cache *cache = argument;
  while (cache->head != NULL) {
    struct block *block = cache->head;
    cache->head = block->next;
    free_block(block);
  }
  cache->count = 0;
  cache->registered = 0;
}

static void make_exit_key(void) { exit_key_made = pthread_key_create(&exit_key, release) == 0; }

static void *allocate(int device_type, int device_id, uint64_t nbytes, int code_hint, int bits_hint) {
  (void)device_type, (void)device_id, (void)code_hint, (void)bits_hint;
  struct cache *cache = &thread_cache;
  for (struct block **link = &cache->head; *link != NULL; link = &(*link)->next) {
    struct block *block = *link;
    /* Not one far too large: that would keep a big block busy while its owner asks for another. */
    if (block->nbytes >= nbytes && block->nbytes / 2 <= nbytes) {
      *link = block->next;
      cache->count -= 1;
      return (char *)block + TUNER_ALIGNMENT;
    }
  }
  struct block *block = new_block(nbytes);
  if (block == NULL) {
    tuner_fail(TUNER_ERROR_MEMORY, "no memory for a workspace of %llu bytes", (unsigned long long)nbytes);
    return NULL;
  }
  return (char *)block + TUNER_ALIGNMENT;
}

static int give_back(int device_type, int device_id, void *memory) {
  (void)device_type, (void)device_id;
  if (memory == NULL) return 0;
  struct cache *cache = &thread_cache;
  struct block *block = (struct block *)((char *)memory - TUNER_ALIGNMENT);
  if (!cache->registered) {
    pthread_once(&exit_once, make_exit_key);
    cache->registered = exit_key_made && pthread_setspecific(exit_key, cache) == 0;
  }
  if (!cache->registered || cache->count >= CACHED_BLOCKS) {
    free_block(block);
    return 0;
  }
  block->next = cache->head;
  cache->head = block;
  cache->count += 1;
  return 0;
}

/* Generated code calls through these; it brings weak definitions of its own that are null. */
TUNER_HIDDEN void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = allocate;
TUNER_HIDDEN int (*__TVMBackendFreeWorkspace)(int, int, void *) = give_back;

void *tuner_workspace(uint64_t nbytes) { return allocate(1, 0, nbytes, 0, 0); }

void tuner_workspace_free(void *memory) { give_back(1, 0, memory); }

uint64_t tuner_workspace_bytes(void) { return atomic_load_explicit(&most_held, memory_order_relaxed); }
