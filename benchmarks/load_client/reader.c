/* The floor: a closed loop that reads, stamps and counts events, and does nothing else.
 *
 *     reader PORT CONCURRENCY REQUESTS TOKENS
 *
 * One thread, epoll, keep-alive, one clock read per recv, no JSON. Prints one JSON object; times
 * are in ms.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

struct stream {
    int fd, newline;
    long seen;
    uint64_t sent, last;
    char tail[5];
};

static double *ttft, *itl;
static long ttfts, itls, tokens, started, ended, reads;
static char request[1024], buffer[1 << 18];
static int request_size;

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int ascending(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double quantile(const double *values, long count, double share) {
    return count ? values[(long)(share * (double)(count - 1))] : 0;
}

static void ask(struct stream *s) {
    started++;
    s->seen = 0;
    s->sent = now();
    if (write(s->fd, request, (size_t)request_size) != request_size) exit(1);
}

static void count_event(struct stream *s, uint64_t at, long limit) {
    if (s->seen == limit) return; /* the closing [DONE] */
    if (s->seen++) itl[itls++] = (double)(at - s->last) / 1e6;
    else ttft[ttfts++] = (double)(at - s->sent) / 1e6;
    s->last = at;
    tokens++;
}

/* Count blank lines; remember whether the read ended in the middle of one, and its last bytes. */
static int read_once(struct stream *s, long limit) {
    ssize_t size = recv(s->fd, buffer, sizeof buffer, MSG_DONTWAIT);
    uint64_t at = now();
    if (size <= 0) return size < 0 ? 0 : (fprintf(stderr, "the server closed\n"), exit(1), 0);
    reads++;
    char *end = buffer + size, *p = buffer;
    if (s->newline && *p == '\n') count_event(s, at, limit);
    while ((p = memchr(p, '\n', (size_t)(end - p)))) {
        if (++p < end && *p == '\n') count_event(s, at, limit), p++;
        if (p >= end) break;
    }
    s->newline = end[-1] == '\n' && !(size > 1 && end[-2] == '\n');
    size_t keep = size < 5 ? (size_t)size : 5;
    memmove(s->tail, s->tail + keep, 5 - keep);
    memcpy(s->tail + 5 - keep, end - keep, keep);
    return !memcmp(s->tail, "0\r\n\r\n", 5);
}

int main(int count, char **words) {
    if (count != 5) return fprintf(stderr, "usage: reader PORT CONCURRENCY REQUESTS TOKENS\n"), 2;
    /* As our client does: whatever else the machine has to do meets neither, or both. */
    sched_setscheduler(0, SCHED_RR, &(struct sched_param){.sched_priority = 1});
    int port = atoi(words[1]), slots = atoi(words[2]), poller = epoll_create1(0), one = 1;
    long requests = atol(words[3]), limit = atol(words[4]);
    char body[256];
    int size = sprintf(body, "{\"text\":\"x\",\"sampling_params\":{\"max_new_tokens\":%ld},\"stream\":true}", limit);
    request_size = sprintf(request, "POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", size, body);
    ttft = malloc(sizeof *ttft * (size_t)requests);
    itl = malloc(sizeof *itl * (size_t)(requests * (limit + 1)));
    struct stream *streams = calloc((size_t)slots, sizeof *streams);
    uint64_t begin = now();
    for (int i = 0; i < slots && started < requests; i++) {
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        streams[i].fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(streams[i].fd, (void *)&address, sizeof address)) return perror("connect"), 1;
        setsockopt(streams[i].fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = &streams[i]};
        epoll_ctl(poller, EPOLL_CTL_ADD, streams[i].fd, &e);
        ask(&streams[i]);
    }
    while (ended < requests) {
        struct epoll_event ready[256];
        int found = epoll_wait(poller, ready, 256, -1);
        for (int i = 0; i < found; i++) {
            struct stream *s = ready[i].data.ptr;
            if (!read_once(s, limit)) continue;
            ended++;
            memset(s->tail, 0, sizeof s->tail);
            if (started < requests) ask(s);
        }
    }
    double duration = (double)(now() - begin) / 1e9;
    qsort(ttft, (size_t)ttfts, sizeof *ttft, ascending);
    qsort(itl, (size_t)itls, sizeof *itl, ascending);
    printf("{\"tokens\": %ld, \"reads\": %ld, \"duration\": %.6f, \"ttft_p50\": %.4f, \"ttft_p99\": %.4f,"
           " \"itl_p50\": %.4f, \"itl_p99\": %.4f}\n", tokens, reads, duration, quantile(ttft, ttfts, .5),
           quantile(ttft, ttfts, .99), quantile(itl, itls, .5), quantile(itl, itls, .99));
    return 0;
}
