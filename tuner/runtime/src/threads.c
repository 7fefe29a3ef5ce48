/* The launcher of parallel loops: a persistent pool that spins briefly, then sleeps; one a library, grown on demand.
 * Only one call uses the pool at a time; a call that finds it busy (or is itself inside it) runs on its own thread, at once.
 * Shares that no worker has begun when the caller is done with its own, the caller does: other programs' threads cost no more.
 * A forked child starts without workers and makes its own when it first needs them. */
#define _GNU_SOURCE
#include "thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tvm_abi.h"

/* How long a thread that waits keeps its core before it sleeps. Longer than the gap between two kernels of a loop that
 * calls them back to back, short enough not to burn a core that somebody else could use. */
enum { SPIN_NS = 200000 };
enum { PATIENCE = 16 }; /* jobs between two times that a worker leaves its place */

/* One thread at a time: one that leaves its place to a new thread leaves all of this. */
struct worker {
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  atomic_uint posted;  /* counts the jobs given to this worker */
  atomic_uint claimed; /* the last of them whose share somebody does: this worker, or its caller */
  atomic_int sleeping;
  unsigned seen; /* the last job that the thread looked at */
  int stays;     /* jobs before it may leave its place */
} __attribute__((aligned(128)));

struct job {
  TunerTask task;
  void *closure;
  TunerParallelEnv env;
  int threads; /* the caller's included; the share of thread t are tasks t, t + threads, … */
  atomic_int failed;
  int error_status;
  char error_text[1024];
};

static struct {
  pthread_mutex_t lock; /* held by the call that uses the pool */
  int workers;
  int cores;       /* this process may use, as of the pool's last growth */
  atomic_int spin; /* whether every thread has a core to spin on */
  struct job job;  /* read by those who claimed a share of it */
  pthread_mutex_t done_mutex;
  pthread_cond_t done;
  atomic_int waiting; /* the caller sleeps until all are done */
  atomic_int cpu;     /* the caller was on when it launched, -1 where the system does not tell */
  atomic_uint pending __attribute__((aligned(128))); /* shares besides the caller's own that are not done */
  atomic_int elsewhere;                              /* of these, begun on another core than the caller's */
  struct worker worker[TUNER_MAX_THREADS - 1];
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .done_mutex = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

static atomic_int threads_setting; /* 0: as each kernel was tuned */
static __thread int threads_of_call = 1;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

int tuner_set_num_threads(int count) {
  if (count < 0 || count > TUNER_MAX_THREADS)
    return tuner_fail(TUNER_ERROR_EXTENT, "%d threads: give 1 to %d, or 0 for as many as each kernel was tuned for", count,
                      (int)TUNER_MAX_THREADS);
  atomic_store_explicit(&threads_setting, count, memory_order_relaxed);
  return TUNER_OK;
}

void tuner_begin_call(int tuned) {
  int setting = atomic_load_explicit(&threads_setting, memory_order_relaxed);
  threads_of_call = setting > 0 ? setting : tuned;
}

static inline void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int current_cpu(void) {
#if defined(__linux__)
  return sched_getcpu();
#else
  return -1;
#endif
}

/* Spins until there is a new job; 0 when the time ran out first. With `yield` it lets others of this core run. */
static int spin_for_job(struct worker *self, int yield) {
  int64_t deadline = 0;
  for (unsigned round = 0;; ++round) {
    if (atomic_load_explicit(&self->posted, memory_order_acquire) != self->seen) return 1;
    if (yield || round % 64 == 63) {
      int64_t now = now_ns();
      if (deadline == 0) deadline = now + SPIN_NS;
      if (now >= deadline) return 0;
      if (yield) sched_yield();
    }
    relax();
  }
}

/* Spins until the workers are done; 0 when the time ran out first. One that is not on another core may wait for this very core,
 * which is offered until all are elsewhere. */
static int spin_for_workers(int workers) {
  int64_t deadline = 0;
  for (unsigned round = 0;; ++round) {
    if (atomic_load_explicit(&pool.pending, memory_order_acquire) == 0) return 1;
    if (round % 64 == 63) {
      int64_t now = now_ns();
      if (deadline == 0) deadline = now + SPIN_NS;
      if (now >= deadline) return 0;
      if (atomic_load_explicit(&pool.elsewhere, memory_order_relaxed) < workers) sched_yield();
    }
    relax();
  }
}

static void run_tasks(struct job *job, int thread) {
  for (int id = thread; id < job->env.num_task; id += job->threads) {
    if (atomic_load_explicit(&job->failed, memory_order_relaxed) != 0) return;
    if (job->task(id, &job->env, job->closure) != 0) {
      int expected = 0;
      /* The first to fail leaves its text; the caller reads it after every thread is done. */
      if (atomic_compare_exchange_strong(&job->failed, &expected, 1)) {
        job->error_status = tuner_last_status() != TUNER_OK ? tuner_last_status() : TUNER_ERROR_INTERNAL;
        snprintf(job->error_text, sizeof job->error_text, "%s", tuner_last_error());
      }
      return;
    }
  }
}

static void finish(void) {
  if (atomic_fetch_sub(&pool.pending, 1) == 1 && atomic_load(&pool.waiting)) {
    pthread_mutex_lock(&pool.done_mutex);
    pthread_cond_signal(&pool.done);
    pthread_mutex_unlock(&pool.done_mutex);
  }
}

/* Whether the caller of this has a worker's share of its present job to do, which nobody else has then. */
static int claim(struct worker *worker) {
  unsigned posted = atomic_load_explicit(&worker->posted, memory_order_acquire), before = posted - 1;
  return atomic_compare_exchange_strong(&worker->claimed, &before, posted);
}

static void sleep_until_posted(struct worker *self) {
  pthread_mutex_lock(&self->mutex);
  atomic_store(&self->sleeping, 1);
  while (atomic_load(&self->posted) == self->seen) pthread_cond_wait(&self->wake, &self->mutex);
  atomic_store(&self->sleeping, 0);
  pthread_mutex_unlock(&self->mutex);
}

static int start_thread(struct worker *worker);

static void *work(void *argument) {
  struct worker *self = argument;
  int thread = (int)(self - pool.worker) + 1;
  int beside = 0; /* whether it was on its caller's core when it last had a job */
  for (;;) {
    if (!atomic_load(&pool.spin) || !spin_for_job(self, beside)) sleep_until_posted(self);
    int cpu = current_cpu();
    beside = cpu >= 0 && cpu == atomic_load_explicit(&pool.cpu, memory_order_relaxed);
    if (self->stays > 0) {
      self->stays -= 1;
    } else if (beside && atomic_load(&pool.spin)) {
      /* Systems wake a thread where it slept, or beside its waker, even if other cores idle; new ones begin on idle cores. */
      self->stays = PATIENCE;
      if (start_thread(self) == 0) return NULL;
    }
    self->seen = atomic_load_explicit(&self->posted, memory_order_acquire);
    if (!claim(self)) continue;
    if (!beside) atomic_fetch_add_explicit(&pool.elsewhere, 1, memory_order_relaxed);
    threads_of_call = 1; /* a parallel loop inside a task runs on the task's own thread */
    run_tasks(&pool.job, thread);
    finish();
  }
}

static void forget_workers(void) {
  pthread_mutex_init(&pool.lock, NULL);
  pthread_mutex_init(&pool.done_mutex, NULL);
  pthread_cond_init(&pool.done, NULL);
  atomic_store(&pool.waiting, 0);
  atomic_store(&pool.pending, 0);
  pool.workers = 0;
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, forget_workers); }

static int usable_cores(void) {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
  return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

static int start_thread(struct worker *worker) {
  pthread_t thread;
  pthread_attr_t attributes;
  sigset_t all, before;
  if (pthread_attr_init(&attributes) != 0) return -1;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  sigfillset(&all); /* signals are the program's business, not the pool's */
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int status = pthread_create(&thread, &attributes, work, worker);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return status;
}

static int start_worker(struct worker *worker) {
  pthread_mutex_init(&worker->mutex, NULL);
  pthread_cond_init(&worker->wake, NULL);
  atomic_store(&worker->posted, 0);
  atomic_store(&worker->claimed, 0);
  atomic_store(&worker->sleeping, 0);
  worker->seen = 0;
  worker->stays = 0;
  return start_thread(worker);
}

/* Grows the pool to `threads` with the caller; fewer when the system gives no more. Returns how many there are. */
static int grow(int threads) {
  if (pool.workers >= threads - 1) return threads;
  pthread_once(&fork_once, watch_forks);
  pool.cores = usable_cores();
  while (pool.workers < threads - 1 && start_worker(&pool.worker[pool.workers]) == 0) pool.workers += 1;
  return pool.workers + 1;
}

static void post(struct worker *worker) {
  atomic_fetch_add(&worker->posted, 1);
  /* Nobody waits for a worker that lost its core while it held the lock: if it misses this job, its caller does the share. */
  if (atomic_load(&worker->sleeping) && pthread_mutex_trylock(&worker->mutex) == 0) {
    pthread_cond_signal(&worker->wake);
    pthread_mutex_unlock(&worker->mutex);
  }
}

static void wait_for_all(int workers) {
  if (atomic_load(&pool.spin) && spin_for_workers(workers)) return;
  pthread_mutex_lock(&pool.done_mutex);
  atomic_store(&pool.waiting, 1);
  while (atomic_load(&pool.pending) != 0) pthread_cond_wait(&pool.done, &pool.done_mutex);
  atomic_store(&pool.waiting, 0);
  pthread_mutex_unlock(&pool.done_mutex);
}

/* Does the shares that no worker has begun; returns how many. */
static int take_over(struct job *job) {
  int shares = 0, woken = 0; /* woken: whether some worker is, and has not run yet */
  for (int thread = job->threads - 1; thread > 0; --thread) {
    struct worker *worker = &pool.worker[thread - 1];
    if (!claim(worker)) continue;
    woken |= atomic_load_explicit(&worker->sleeping, memory_order_relaxed);
    run_tasks(job, thread);
    atomic_fetch_sub(&pool.pending, 1);
    shares += 1;
  }
  if (woken) sched_yield(); /* it may wait for this core, only to leave it */
  return shares;
}

static int run_alone(TunerTask task, void *closure, int num_task) {
  TunerParallelEnv env = {NULL, num_task};
  for (int id = 0; id < num_task; ++id) {
    if (task(id, &env, closure) != 0) return -1;
  }
  return 0;
}

/* `num_task` 0: as many tasks as threads. */
static int launch(TunerTask task, void *closure, int num_task) {
  int threads = threads_of_call;
  if (num_task > 0 && num_task < threads) threads = num_task;
  if (threads <= 1 || pthread_mutex_trylock(&pool.lock) != 0) return run_alone(task, closure, num_task > 0 ? num_task : 1);
  threads = grow(threads);
  atomic_store_explicit(&pool.spin, pool.cores >= threads, memory_order_relaxed);
  struct job *job = &pool.job;
  job->task = task;
  job->closure = closure;
  job->env = (TunerParallelEnv){NULL, num_task > 0 ? num_task : threads};
  job->threads = threads;
  atomic_store_explicit(&pool.cpu, current_cpu(), memory_order_relaxed);
  atomic_store(&job->failed, 0);
  atomic_store_explicit(&pool.elsewhere, 0, memory_order_relaxed);
  atomic_store(&pool.pending, (unsigned)(threads - 1));
  for (int i = 0; i < threads - 1; ++i) post(&pool.worker[i]);
  run_tasks(job, 0);
  wait_for_all(threads - 1 - take_over(job));
  int failed = atomic_load(&job->failed);
  if (failed) tuner_fail(job->error_status, "%s", job->error_text);
  pthread_mutex_unlock(&pool.lock);
  return failed ? -1 : 0;
}

int tuner_run_lanes(TunerTask lane, void *closure, int lanes) {
  tuner_begin_call(lanes);
  return launch(lane, closure, lanes) == 0 ? TUNER_OK : tuner_last_status();
}

void tuner_run_shares(TunerTask share, void *closure) { launch(share, closure, 0); }

static int no_barrier(int task_id, TunerParallelEnv *env) {
  (void)task_id, (void)env;
  tuner_fail(TUNER_ERROR_INTERNAL, "barriers inside parallel loops are not supported");
  return -1;
}

/* Generated code calls through these; it brings weak definitions of its own that are null. */
TUNER_HIDDEN int (*__TVMBackendParallelLaunch)(TunerTask, void *, int) = launch;
TUNER_HIDDEN int (*__TVMBackendParallelBarrier)(int, TunerParallelEnv *) = no_barrier;
