/* A pretend SGLang server that streams on schedule and logs when it wrote what.
 *
 * One thread, epoll, a heap of due times. It speaks /generate (cumulative text), /v1/completions
 * and /v1/chat/completions, always streaming, one event a write. A token's time is absolute
 * (prompt read + TTFT + n * ITL), so that a late write doesn't delay the ones after it.
 *
 * The log has, per request: nine u64 of `struct entry`, then one u64 per event, the ns of
 * CLOCK_MONOTONIC just before its write.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HEAD_MAX = 1 << 18, TEXT_MAX = 1 << 20, READY = 256, LISTEN = 4096 };
enum kind { GENERATE, COMPLETIONS, CHAT };
enum fate { FINE, ERROR_500, CUT, STALLED };

struct entry {
    uint64_t number, kind, fate, asked, tokens, events, accepted, read, ended;
};

struct connection {
    int fd, busy, heap_at;
    size_t have, unsent_at, unsent;
    char *in, *rest;
    uint64_t accepted, begin, due;
    struct entry entry;
    uint64_t *written;
};

static struct {
    int port, per_event;
    double ttft_ms, itl_ms, errors, cuts, stall_s;
    long spared;
    const char *log;
} option = {0, 1, 50, 20, 0, 0, 0, 0, NULL};

static struct connection **heap;
static size_t heap_size, heap_room;
static int poller;
static uint64_t requests, late_ns, late_events, events;
static FILE *journal;
static char text[TEXT_MAX], out[TEXT_MAX + 4096];
static volatile sig_atomic_t leave;

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* -- the heap of due times */

static void place(size_t at, struct connection *c) {
    heap[at] = c;
    c->heap_at = (int)at;
}

static void sift_up(size_t at, struct connection *c) {
    for (; at && heap[(at - 1) / 2]->due > c->due; at = (at - 1) / 2) place(at, heap[(at - 1) / 2]);
    place(at, c);
}

static void sift_down(size_t at, struct connection *c) {
    for (size_t child; (child = 2 * at + 1) < heap_size; at = child) {
        if (child + 1 < heap_size && heap[child + 1]->due < heap[child]->due) child++;
        if (heap[child]->due >= c->due) break;
        place(at, heap[child]);
    }
    place(at, c);
}

static void schedule(struct connection *c, uint64_t due) {
    if (heap_size == heap_room) {
        heap_room = heap_room ? 2 * heap_room : 1024;
        heap = realloc(heap, heap_room * sizeof *heap);
    }
    c->due = due;
    sift_up(heap_size++, c);
}

static void unschedule(struct connection *c) {
    if (c->heap_at < 0) return;
    size_t at = (size_t)c->heap_at;
    struct connection *last = heap[--heap_size];
    c->heap_at = -1;
    if (last == c) return;
    if (at && heap[(at - 1) / 2]->due > last->due) sift_up(at, last);
    else sift_down(at, last);
}

/* -- answering */

static void record(struct connection *c) {
    c->entry.ended = now();
    if (journal) {
        fwrite(&c->entry, sizeof c->entry, 1, journal);
        fwrite(c->written, sizeof *c->written, c->entry.events, journal);
    }
    free(c->written);
    c->written = NULL;
    c->busy = 0;
}

static void drop(struct connection *c) {
    unschedule(c);
    if (c->busy) record(c);
    close(c->fd);
    free(c->rest);
    free(c->in);
    free(c);
}

/* Send, or keep what the socket has no room for. */
static int push(struct connection *c, const char *bytes, size_t size) {
    ssize_t sent = 0;
    if (!c->unsent) {
        sent = send(c->fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN) return -1;
        if (sent < 0) sent = 0;
    }
    if ((size_t)sent == size) return 0;
    size_t left = size - (size_t)sent;
    c->rest = realloc(c->rest, c->unsent_at + c->unsent + left);
    memcpy(c->rest + c->unsent_at + c->unsent, bytes + sent, left);
    c->unsent += left;
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT, .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &e);
    return 0;
}

static int push_rest(struct connection *c) {
    ssize_t sent = send(c->fd, c->rest + c->unsent_at, c->unsent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return errno == EAGAIN ? 0 : -1;
    c->unsent_at += (size_t)sent;
    c->unsent -= (size_t)sent;
    if (c->unsent) return 0;
    c->unsent_at = 0;
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    return epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &e);
}

static const char PAD[] =
    "\"weight_version\":\"default\",\"num_retractions\":0,\"queue_time\":0.0006151240004328429,"
    "\"reasoning_tokens\":0,";

/* Write the event after which `tokens` are generated, framed as a chunk, into `out`. */
static size_t compose(struct connection *c, uint64_t before, uint64_t tokens, int last) {
    char *body = out + 16, *p = body;
    const char *reason = last ? "length" : NULL;
    if (c->entry.kind == GENERATE) {
        p += sprintf(p, "data: {\"text\":\"%.*s\",\"meta_info\":{\"id\":\"%032lx\",\"finish_reason\":%s,"
                     "\"prompt_tokens\":32,%s\"completion_tokens\":%lu,\"cached_tokens\":0,"
                     "\"dp_rank\":null}}\n\n",
                     (int)(5 * tokens), text, (unsigned long)c->entry.number,
                     last ? "{\"type\":\"length\",\"length\":1}" : "null", PAD, (unsigned long)tokens);
    } else {
        int chat = c->entry.kind == CHAT, size = (int)(5 * (tokens - before));
        p += sprintf(p, "data: {\"id\":\"%032lx\",\"object\":\"%s\",\"created\":1796021152,\"model\":\"m\","
                     "\"choices\":[{\"index\":0,", (unsigned long)c->entry.number,
                     chat ? "chat.completion.chunk" : "text_completion");
        p += sprintf(p, chat ? "\"delta\":{\"reasoning_content\":null,\"content\":\"%.*s\"}" : "\"text\":\"%.*s\"",
                     size, text);
        p += sprintf(p, reason ? ",\"logprobs\":null,\"finish_reason\":\"%s\"" : ",\"logprobs\":null,\"finish_reason\":%s",
                     reason ? reason : "null");
        p += sprintf(p, ",\"matched_stop\":null}],\"usage\":{\"prompt_tokens\":32,\"total_tokens\":%lu,"
                     "\"completion_tokens\":%lu,\"prompt_tokens_details\":null,\"reasoning_tokens\":0}}\n\n",
                     (unsigned long)(32 + tokens), (unsigned long)tokens);
    }
    size_t size = (size_t)(p - body);
    char frame[20];
    int length = sprintf(frame, "%zx\r\n", size);
    memcpy(body - length, frame, (size_t)length);
    memcpy(p, "\r\n", 2);
    memmove(out, body - length, size + (size_t)length + 2);
    return size + (size_t)length + 2;
}

static int finish(struct connection *c) {
    static const char end[] = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";
    if (push(c, end, sizeof end - 1)) return -1;
    record(c);
    return 0;
}

/* Send the next event, or what the request's fate is instead. */
static int step(struct connection *c, uint64_t at) {
    struct entry *e = &c->entry;
    if (e->fate == CUT && e->tokens >= e->asked / 2) return -1;
    if (e->fate == STALLED && e->events == 2 && option.stall_s > 0) {
        c->begin += (uint64_t)(option.stall_s * 1e9); /* the schedule moves: it stalls once */
        e->fate = FINE;
        schedule(c, c->due + (uint64_t)(option.stall_s * 1e9));
        return 0;
    }
    uint64_t before = e->tokens, add = before ? (uint64_t)option.per_event : 1;
    e->tokens = before + add > e->asked ? e->asked : before + add;
    size_t size = compose(c, before, e->tokens, e->tokens == e->asked);
    events++;
    if (at > c->due + 1000000) late_events++;
    if (at > c->due && at - c->due > late_ns) late_ns = at - c->due;
    c->written[e->events++] = now();
    if (push(c, out, size)) return -1;
    if (e->tokens == e->asked) return finish(c);
    double after_ms = option.ttft_ms + option.itl_ms * (double)e->events;
    schedule(c, option.itl_ms > 0 ? c->begin + (uint64_t)(after_ms * 1e6) : at);
    return 0;
}

static int plain(struct connection *c, int status, const char *body) {
    char answer[512];
    int size = sprintf(answer, "HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n%s",
                       status, strlen(body), body);
    return push(c, answer, (size_t)size);
}

static enum fate fate_of(uint64_t number) {
    if ((long)number < option.spared) return FINE;
    uint64_t n = number - (uint64_t)option.spared;
    if (option.stall_s > 0 && n == 3) return STALLED;
    if (option.errors > 0 && n % (uint64_t)(1 / option.errors) == 1) return ERROR_500;
    if (option.cuts > 0 && n % (uint64_t)(1 / option.cuts) == 2) return CUT;
    return FINE;
}

static uint64_t number_after(const char *body, const char *key) {
    const char *found = strstr(body, key);
    return found ? strtoull(found + strlen(key), NULL, 10) : 0;
}

static int answer(struct connection *c, const char *path, const char *body) {
    static const char head[] = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
                               "transfer-encoding: chunked\r\n\r\n";
    enum kind kind;
    if (!strncmp(path, "/generate ", 10)) kind = GENERATE;
    else if (!strncmp(path, "/v1/completions ", 16)) kind = COMPLETIONS;
    else if (!strncmp(path, "/v1/chat/completions ", 21)) kind = CHAT;
    else return plain(c, strncmp(path, "/flush_cache ", 13) ? 404 : 200, "{}");
    uint64_t asked = number_after(body, kind == GENERATE ? "\"max_new_tokens\":" : "\"max_tokens\":");
    if (!asked || 5 * asked > TEXT_MAX) return plain(c, 400, "{\"error\":{\"message\":\"how many tokens?\"}}");
    c->entry = (struct entry){.number = requests, .kind = kind, .asked = asked, .accepted = c->accepted};
    c->entry.fate = fate_of(requests++);
    c->written = malloc(sizeof *c->written * asked);
    c->busy = 1;
    c->entry.read = c->begin = now();
    if (c->entry.fate == ERROR_500) {
        int sent = plain(c, 500, "{\"error\":{\"message\":\"injected failure\"}}");
        record(c);
        return sent;
    }
    if (push(c, head, sizeof head - 1)) return -1;
    schedule(c, c->begin + (uint64_t)(option.ttft_ms * 1e6));
    return 0;
}

/* -- reading */

static int readable(struct connection *c) {
    ssize_t got = recv(c->fd, c->in + c->have, HEAD_MAX - 1 - c->have, MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN ? 0 : -1;
    if (!got) return -1;
    c->have += (size_t)got;
    c->in[c->have] = 0;
    char *blank = strstr(c->in, "\r\n\r\n");
    if (!blank) return c->have < HEAD_MAX - 1 ? 0 : -1;
    char *length = strcasestr(c->in, "content-length:");
    size_t size = length && length < blank ? strtoull(length + 15, NULL, 10) : 0;
    char *body = blank + 4;
    if (c->have < (size_t)(body - c->in) + size) return 0;
    char *path = strchr(c->in, ' ');
    int sent = path ? answer(c, path + 1, body) : -1;
    c->have = 0; /* nobody pipelines here */
    return sent;
}

static void welcome(int listener) {
    int fd, one = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct connection *c = calloc(1, sizeof *c);
        c->fd = fd;
        c->heap_at = -1;
        c->accepted = now();
        c->in = malloc(HEAD_MAX);
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e);
    }
}

static void serve_due(void) {
    uint64_t at = now();
    for (size_t turn = 0; heap_size && heap[0]->due <= at && turn < READY; turn++) {
        struct connection *c = heap[0];
        unschedule(c);
        if (step(c, at)) drop(c);
    }
}

static void serve(int listener) {
    struct epoll_event ready[READY];
    while (!leave) {
        uint64_t at = now();
        struct timespec wait = {3600, 0};
        if (heap_size) {
            uint64_t left = heap[0]->due > at ? heap[0]->due - at : 0;
            wait = (struct timespec){(time_t)(left / 1000000000u), (long)(left % 1000000000u)};
        }
        int count = epoll_pwait2(poller, ready, READY, &wait, NULL);
        for (int i = 0; i < count; i++) {
            struct connection *c = ready[i].data.ptr;
            if (!c) welcome(listener);
            else if ((ready[i].events & EPOLLOUT && push_rest(c)) ||
                     (ready[i].events & ~(unsigned)EPOLLOUT && readable(c))) drop(c);
        }
        serve_due();
    }
}

static void stop(int number) {
    (void)number;
    leave = 1;
}

static void read_options(int count, char **words) {
    static const struct option known[] = {
        {"port", 1, 0, 'p'}, {"ttft-ms", 1, 0, 't'}, {"itl-ms", 1, 0, 'i'}, {"per-event", 1, 0, 'n'},
        {"errors", 1, 0, 'e'}, {"cuts", 1, 0, 'c'}, {"stall-s", 1, 0, 's'}, {"spared", 1, 0, 'f'},
        {"log", 1, 0, 'l'}, {0}};
    for (int letter; (letter = getopt_long(count, words, "", known, NULL)) >= 0;) {
        switch (letter) {
        case 'p': option.port = atoi(optarg); break;
        case 't': option.ttft_ms = atof(optarg); break;
        case 'i': option.itl_ms = atof(optarg); break;
        case 'n': option.per_event = atoi(optarg); break;
        case 'e': option.errors = atof(optarg); break;
        case 'c': option.cuts = atof(optarg); break;
        case 's': option.stall_s = atof(optarg); break;
        case 'f': option.spared = atol(optarg); break;
        case 'l': option.log = optarg; break;
        default: exit(2);
        }
    }
}

static int listen_on(int port) {
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (void *)&address, size) || listen(fd, LISTEN)) {
        perror("listen");
        exit(1);
    }
    getsockname(fd, (void *)&address, &size);
    printf("%d\n", ntohs(address.sin_port)); /* whoever started us waits for this line */
    fflush(stdout);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e);
    return fd;
}

int main(int count, char **words) {
    read_options(count, words);
    sched_setscheduler(0, SCHED_RR, &(struct sched_param){.sched_priority = 1});
    signal(SIGTERM, stop);
    signal(SIGINT, stop);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    for (size_t i = 0; i + 5 < sizeof text; i += 5) memcpy(text + i, " word", 5);
    journal = option.log ? fopen(option.log, "wb") : NULL;
    poller = epoll_create1(0);
    int listener = listen_on(option.port);
    serve(listener);
    if (journal) fclose(journal);
    printf("{\"events\": %lu, \"late_over_1ms\": %lu, \"latest_ms\": %.3f}\n", (unsigned long)events,
           (unsigned long)late_events, (double)late_ns / 1e6);
    return 0;
}
