/* The parent's side of a candidate's process.
 *
 * A candidate may write anything to its channel. Only an answer of the type and length that the request has goes to the host. */
#define _GNU_SOURCE
#include "supervisor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "candidate.h"
#include "frames.h"
#include "pace.h"

enum { CHUNK = 1 << 16, DYING_MS = 50 };
#define BEAT_S 1.0  /* between two signs of life */
#define STALL_S 2.0 /* an answer that was begun goes on within this */

static int host_in, host_out, fences;
static pid_t child;
static int channel = -1;
static double left_s;       /* of the time that the candidate may work */
static struct bind bound;   /* what the candidate was bound to */
static uint8_t chunk[CHUNK];
static char text[MAX_JSON];

enum outcome { OK, LATE, OVER, HOST_GONE };

void supervisor_init(int from, int to, int required) {
  host_in = from;
  host_out = to;
  fences = required;
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); /* who outlives a candidate comes to us, to be killed */
}

int supervised(void) { return child > 0; }

/* Kills our children: those of the candidate that it left behind. */
static void kill_strays(void) {
  char path[64];
  long stray;
  snprintf(path, sizeof path, "/proc/self/task/%ld/children", (long)getpid());
  FILE *list = fopen(path, "r");
  if (list == NULL) return;
  while (fscanf(list, "%ld", &stray) == 1) kill((pid_t)stray, SIGKILL);
  fclose(list);
}

/* The status of the process, which is dead afterwards, as are those that it left behind. */
static int end_child(void) {
  int status = 0;
  kill(-child, SIGKILL);
  kill(child, SIGKILL);
  for (int tries = 0; tries < 1000; ++tries) {
    int other;
    pid_t gone;
    while ((gone = waitpid(-1, &other, WNOHANG)) > 0)
      if (gone == child) status = other;
    if (gone < 0) break; /* there is none left */
    kill_strays();
    usleep(1000);
  }
  close(channel);
  channel = -1;
  child = 0;
  return status;
}

void supervise_close(void) {
  if (supervised()) end_child();
}

/* Whether the host has closed its end, and nothing that it sent before waits to be read. */
static int host_is_gone(void) {
  struct pollfd watched = {.fd = host_in, .events = POLLIN};
  return poll(&watched, 1, 0) > 0 && !(watched.revents & POLLIN);
}

/* Waits until the candidate has written; signs of life go to the host meanwhile, unless an answer is on its way. */
static enum outcome await(double *patience_s, int beats) {
  int watches = host_in;
  for (;;) {
    double start = now_s(), wait_s = *patience_s < BEAT_S ? *patience_s : BEAT_S;
    struct pollfd watched[2] = {{.fd = channel, .events = POLLIN}, {.fd = watches}};
    int ready = poll(watched, 2, wait_s > 0 ? (int)(wait_s * 1e3) + 1 : 0);
    *patience_s -= now_s() - start;
    if (ready < 0 && errno != EINTR) return OVER;
    if (ready > 0 && watched[1].revents) {
      if (host_is_gone()) return HOST_GONE;
      watches = -1; /* it said all it will: that is answered first */
    }
    if (ready > 0 && watched[0].revents & POLLIN) return OK;
    if (ready > 0 && watched[0].revents) return OVER;
    if (*patience_s <= 0) return LATE;
    if (ready == 0 && beats && send_frame(host_out, BEAT, NULL, 0, NULL, 0) != 0) return HOST_GONE;
  }
}

static enum outcome read_within(void *data, size_t bytes, double *patience_s, int beats) {
  for (size_t done = 0; done < bytes;) {
    enum outcome outcome = await(patience_s, beats);
    if (outcome != OK) return outcome;
    ssize_t part = read(channel, (char *)data + done, bytes - done);
    if (part == 0 || (part < 0 && errno != EINTR)) return OVER;
    if (part > 0) done += (size_t)part;
  }
  return OK;
}

static int say_ended(uint32_t how, int32_t code) {
  struct ended ended = {how, code, 0};
  return send_frame(host_out, ENDED, &ended, sizeof ended, NULL, 0);
}

/* Ends the candidate and tells the host why. */
static int give_up(enum outcome outcome) {
  if (outcome == LATE) {
    end_child();
    return say_ended(BY_DEADLINE, 0);
  }
  for (int waited = 0; outcome == OVER && waited < DYING_MS; ++waited) {
    siginfo_t dead = {0};
    if (waitid(P_PID, (id_t)child, &dead, WEXITED | WNOHANG | WNOWAIT) == 0 && dead.si_pid == child) {
      int status = end_child();
      return WIFSIGNALED(status) ? say_ended(BY_SIGNAL, WTERMSIG(status)) : say_ended(BY_EXIT, WEXITSTATUS(status));
    }
    usleep(1000);
  }
  end_child();
  return outcome == HOST_GONE ? -1 : say_ended(BROKE_PROTOCOL, 0);
}

/* Passes an answer's bytes on. The host was promised all of them: where the candidate stops, zeros follow, and it is ended. */
static int pass_on(uint32_t type, size_t bytes) {
  struct header header = {type, (uint32_t)bytes};
  enum outcome outcome = OK;
  if (write_all(host_out, &header, sizeof header) != 0) return -1;
  while (bytes > 0) {
    size_t part = bytes < CHUNK ? bytes : CHUNK;
    double patience_s = STALL_S;
    if (outcome == OK) outcome = read_within(chunk, part, &patience_s, 0);
    if (outcome == HOST_GONE) return -1;
    if (outcome != OK) memset(chunk, 0, sizeof chunk);
    if (write_all(host_out, chunk, part) != 0) return -1;
    bytes -= part;
  }
  if (outcome != OK) end_child();
  return 0;
}

static int is_end(const struct header *header) {
  return header->type == ENDED && header->length >= sizeof(struct ended) && header->length <= sizeof(struct ended) + MAX_TEXT;
}

static int is_status(const struct header *header) {
  return header->type == STATUS && header->length >= sizeof(int32_t) && header->length <= sizeof(int32_t) + MAX_TEXT;
}

/* The candidate's answer to a request, of that type and length, goes to the host. */
static int answer(uint32_t type, size_t least, size_t most) {
  struct header header;
  enum outcome outcome = read_within(&header, sizeof header, &left_s, 1);
  if (outcome != OK) return give_up(outcome);
  if (type == BYTES && header.type == BYTES && header.length == most) return pass_on(BYTES, most);
  int fits = header.type == type && header.length >= least && header.length <= most && header.length <= sizeof text;
  if (!fits && !is_end(&header) && !(type == TIMES && is_status(&header))) {
    end_child();
    return say_ended(BROKE_PROTOCOL, 0);
  }
  double patience_s = STALL_S;
  outcome = read_within(text, header.length, &patience_s, 0);
  if (outcome != OK) return give_up(outcome);
  if (header.type == ENDED) end_child();
  return send_frame(host_out, header.type, text, header.length, NULL, 0);
}

/* Starts a process that calls `work`. 0, or -1 where there can be none. */
static int start(void (*work)(int, const void *), const void *request) {
  int pair[2];
  pid_t parent = getpid();
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return -1;
  child = fork();
  if (child < 0) {
    close(pair[0]);
    close(pair[1]);
    child = 0;
    return -1;
  }
  if (child == 0) {
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    signal(SIGPIPE, SIG_DFL);
    work(pair[1], request);
    _exit(0);
  }
  close(pair[1]);
  channel = pair[0];
  return 0;
}

struct opening {
  const struct open *request;
  const struct blob *library;
};

static void open_candidate(int to, const void *request) {
  const struct opening *opening = request;
  candidate(to, opening->request, opening->library, fences);
}

int supervise_open(const struct open *request, const struct blob *library) {
  struct opening opening = {request, library};
  memset(&bound, 0, sizeof bound);
  left_s = (double)request->deadline_ms / 1e3;
  if (start(open_candidate, &opening) != 0) return say_ended(NO_MEMORY, 0);
  return answer(OPENED, 0, MAX_JSON);
}

int supervise_own(uint32_t type, size_t most, uint32_t limit_ms, void (*work)(int, const void *), const void *request) {
  left_s = (double)limit_ms / 1e3;
  if (start(work, request) != 0) return say_ended(NO_MEMORY, 0);
  int gone = answer(type, 0, most);
  supervise_close();
  return gone;
}

int supervise(uint32_t type, const void *payload, size_t bytes) {
  if (type == BIND) memcpy(&bound, payload, sizeof bound);
  if (send_frame(channel, type, payload, bytes, NULL, 0) != 0) return give_up(OVER);
  switch (type) {
    case RUN: {
      size_t samples = ((const struct run *)payload)->repeat * sizeof(double);
      return answer(TIMES, samples, samples);
    }
    case OUTPUT: {
      uint32_t index = *(const uint32_t *)payload;
      return answer(BYTES, 0, index < MAX_OUTPUTS ? bound.output_bytes[index] : 0);
    }
    case CHECK:
      return answer(SURROUNDINGS, sizeof(struct surroundings), sizeof(struct surroundings));
    case PACE:
      return answer(SECONDS, sizeof(double), sizeof(double));
    default:
      return answer(DONE, 0, 0);
  }
}
