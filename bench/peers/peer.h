// The request loop that the C peers share: it parses one line, fills the blocks and runs the clock.
// A peer supplies only a plan per job and the library calls; README.md describes the protocol.
#ifndef PEER_H
#define PEER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_BLOCKS = 256, MAX_LEN = 1 << 30, MAX_WORDS = 10 };

struct job {
    char code[64];
    int k, m, packet;
    size_t len;
    int lost[MAX_BLOCKS], losses;  // in rising order
    bool is_lost[MAX_BLOCKS];
    void *plan;                    // whatever the peer caches between calls
};

struct peer {
    const char *name, *version, *codes, *kernel;
    const char *(*prepare)(struct job *);                  // NULL, or why this job is refused
    int (*encode)(struct job *, unsigned char **blocks);   // 0 on success
    int (*decode)(struct job *, unsigned char **blocks);   // with everything cached that can be
    int (*decode_once)(struct job *, unsigned char **blocks);  // the library's one-call decode, may be NULL
    void (*release)(struct job *);
};

static const char *read_number(const char *word, uint64_t limit, uint64_t *out) {
    char *end;
    if (!word || *word < '0' || *word > '9') return "malformed request";
    *out = strtoull(word, &end, 10);
    return *end ? "malformed request" : *out > limit ? "a number is too large" : NULL;
}

static const char *read_losses(struct job *job, char *word) {
    char *rest = NULL;
    for (char *one = word ? strtok_r(word, ",", &rest) : NULL; one; one = strtok_r(NULL, ",", &rest)) {
        uint64_t position;
        if (!strcmp(one, "-")) continue;
        if (read_number(one, MAX_BLOCKS - 1, &position) || position >= (uint64_t)(job->k + job->m))
            return "a lost position is out of range";
        job->is_lost[position] = true;
    }
    for (int i = 0; i < job->k + job->m; i++)
        if (job->is_lost[i]) job->lost[job->losses++] = i;
    return job->losses > job->m ? "more blocks lost than parity" : NULL;
}

// All stripes lie in one arena, block after block, because that is how an engine would hold them. Five cache lines between
// the blocks keep them from all falling into the same cache sets, which would measure the layout and not the code.
static size_t stride(const struct job *job) { return (job->len + 63) / 64 * 64 + 5 * 64; }

static unsigned char *make_blocks(const struct job *job, size_t stripes, unsigned char ***pointers) {
    size_t blocks = (size_t)(job->k + job->m) * stripes, bytes = blocks * stride(job);
    unsigned char *arena = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    *pointers = malloc(blocks * sizeof **pointers);
    if (!arena || !*pointers) {
        free(arena);
        free(*pointers);
        return NULL;
    }
    // Writing every byte maps every page, so that no page fault lands inside the clock.
    uint64_t state = 0x9E3779B97F4A7C15;
    for (size_t i = 0; i < bytes / 8; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        memcpy(arena + 8 * i, &state, 8);
    }
    for (size_t i = 0; i < blocks; i++) (*pointers)[i] = arena + i * stride(job);
    return arena;
}

static void drain(uint64_t bytes) {
    char sink[65536];
    while (bytes) {
        size_t got = fread(sink, 1, bytes < sizeof sink ? bytes : sizeof sink, stdin);
        if (!got) return;
        bytes -= got;
    }
}

static const char *run_once(const struct peer *peer, struct job *job, bool decoding) {
    unsigned char **blocks, *arena = make_blocks(job, 1, &blocks);
    int given = decoding ? job->k + job->m : job->k, first = decoding ? 0 : job->k;
    if (!arena) {
        drain((uint64_t)given * job->len);
        return "not enough memory";
    }
    for (int i = 0; i < given; i++)
        if (fread(blocks[i], 1, job->len, stdin) != job->len) exit(1);
    int (*decode)(struct job *, unsigned char **) = peer->decode_once ? peer->decode_once : peer->decode;
    bool failed = decoding ? job->losses && decode(job, blocks) : peer->encode(job, blocks);
    if (!failed) {
        printf("ok %zu\n", (size_t)(job->k + job->m - first) * job->len);
        for (int i = first; i < job->k + job->m; i++) fwrite(blocks[i], 1, job->len, stdout);
    }
    free(arena);
    free(blocks);
    return failed ? "the library refused" : NULL;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static const char *run_timed(const struct peer *peer, struct job *job, bool decoding, size_t stripes, size_t rounds) {
    int total = job->k + job->m;
    unsigned char **blocks, *arena = make_blocks(job, stripes, &blocks);
    unsigned char *copy = malloc(job->len * (size_t)(job->losses + 1));
    const char *trouble = arena && copy ? NULL : "not enough memory";
    if (!trouble && decoding) {
        for (size_t s = 0; s < stripes && !trouble; s++)
            if (peer->encode(job, blocks + s * total)) trouble = "the library refused";
        // One stripe's lost blocks are really wiped, so that a decode that does nothing is noticed.
        for (int i = 0; i < job->losses; i++) {
            memcpy(copy + i * job->len, blocks[job->lost[i]], job->len);
            memset(blocks[job->lost[i]], 0, job->len);
        }
    }
    int (*work)(struct job *, unsigned char **) = decoding ? peer->decode : peer->encode;
    if (!trouble && work(job, blocks)) trouble = "the library refused";
    if (!trouble) {
        double start = seconds();
        for (size_t r = 0; r < rounds; r++)
            for (size_t s = 0; s < stripes; s++) work(job, blocks + s * total);
        double took = seconds() - start;
        for (int i = 0; decoding && i < job->losses; i++)
            if (memcmp(copy + i * job->len, blocks[job->lost[i]], job->len)) trouble = "decoded wrongly";
        if (!trouble) printf("ok %.9f\n", took);
    }
    if (arena) free(blocks);
    free(arena);
    free(copy);
    return trouble;
}

// Answers one request; what it returns is the reason for a "no".
static const char *answer(const struct peer *peer, char *line) {
    char *word[MAX_WORDS] = {0}, *rest = NULL;
    int words = 0;
    for (char *w = strtok_r(line, " \r\n", &rest); w && words < MAX_WORDS; w = strtok_r(NULL, " \r\n", &rest))
        word[words++] = w;
    if (!words) return "empty request";
    if (!strcmp(word[0], "hello")) {
        printf("ok %s %s codes=%s kernel=%s\n", peer->name, peer->version, peer->codes, peer->kernel);
        return NULL;
    }
    bool timed = !strncmp(word[0], "time-", 5);
    const char *verb = word[0] + (timed ? 5 : 0);
    bool decoding = !strcmp(verb, "decode");
    if (!decoding && strcmp(verb, "encode")) return "unknown request";

    struct job job = {0};
    uint64_t k, m, len, packet, stripes = 0, rounds = 0;
    const char *trouble = NULL, *why;
    if ((why = read_number(word[2], 1 << 16, &k)) || (why = read_number(word[3], 1 << 16, &m)) ||
        (why = read_number(word[4], MAX_LEN, &len)) || (why = read_number(word[5], MAX_LEN, &packet)))
        return why;
    uint64_t payload = timed ? 0 : (decoding ? k + m : k) * len;
    if (!k || !m || !len) trouble = "K, M and LEN must be positive";
    else if (k + m > MAX_BLOCKS) trouble = "more than 256 blocks";
    else if (strlen(word[1]) >= sizeof job.code) trouble = "unknown code";
    else if (timed && ((why = read_number(word[6], 1 << 24, &stripes)) || (why = read_number(word[7], 1 << 30, &rounds))))
        trouble = why;
    else if (timed && !stripes) trouble = "STRIPES must be positive";
    if (!trouble) {
        strcpy(job.code, word[1]);
        job.k = (int)k, job.m = (int)m, job.len = len, job.packet = (int)packet;
        trouble = decoding ? read_losses(&job, word[timed ? 8 : 6]) : NULL;
    }
    if (!trouble && timed && decoding && !job.losses) trouble = "nothing is lost";
    if (!trouble) trouble = peer->prepare(&job);
    if (trouble) {
        drain(payload);
        return trouble;
    }
    trouble = timed ? run_timed(peer, &job, decoding, stripes, rounds) : run_once(peer, &job, decoding);
    peer->release(&job);
    return trouble;
}

static int serve(const struct peer *peer) {
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, stdin) > 0 && strcmp(line, "quit\n")) {
        const char *trouble = answer(peer, line);
        if (trouble) printf("no %s\n", trouble);
        fflush(stdout);
    }
    free(line);
    return 0;
}

#endif
