// Peer around Jerasure 2 over GF-Complete: its byte codes, and its bit-matrix codes by smart schedules.
// PEER_KERNEL=plain switches GF-Complete's SIMD off, region XOR included; auto leaves it as it is.
#include "peer.h"

#include <jerasure.h>
#include <jerasure/cauchy.h>
#include <jerasure/galois.h>
#include <jerasure/liberation.h>
#include <jerasure/reed_sol.h>

#ifndef PEER_VERSION
#define PEER_VERSION "2"
#endif

struct plan {
    bool raid6;
    int w;
    int *matrix, *bits;            // the parity's rows, as bytes or as bits
    int **schedule;                // how to encode, for the bit-matrix codes
    int *inverse, *rows, survivors[MAX_BLOCKS];
    int **repair;                  // how to rebuild the lost blocks, likewise
};

static void release(struct job *job) {
    struct plan *plan = job->plan;
    free(plan->matrix);
    free(plan->bits);
    if (plan->schedule) jerasure_free_schedule(plan->schedule);
    if (plan->repair) jerasure_free_schedule(plan->repair);
    free(plan->inverse);
    free(plan->rows);
    free(plan);
}

static bool is_prime(int n) {
    for (int d = 2; d * d <= n; d++)
        if (n % d == 0) return false;
    return n > 1;
}

// Names the bit rows of the lost blocks over the survivors' bits: the same matrix that Jerasure
// builds inside its own (uncached) decoder, here made once so that the schedule can be reused.
static void plan_repair(const struct job *job, struct plan *plan) {
    int w = plan->w, wide = job->k * w;
    plan->rows = calloc((size_t)job->losses * w * wide, sizeof(int));
    for (int r = 0; r < job->losses * w; r++) {
        int block = job->lost[r / w], *row = plan->rows + (size_t)r * wide;
        for (int t = 0; t < wide; t++) {
            bool used = block < job->k ? t == block * w + r % w
                                       : plan->bits[(size_t)((block - job->k) * w + r % w) * wide + t];
            for (int c = 0; used && c < wide; c++) row[c] ^= plan->inverse[(size_t)t * wide + c];
        }
    }
    plan->repair = jerasure_smart_bitmatrix_to_schedule(job->k, job->losses, w, plan->rows);
}

static const char *plan_decode(struct job *job, struct plan *plan) {
    int erased[MAX_BLOCKS], side = job->k * (plan->bits ? plan->w : 1);
    for (int i = 0; i < job->k + job->m; i++) erased[i] = job->is_lost[i];
    plan->inverse = malloc((size_t)side * side * sizeof(int));
    int failed = plan->bits ? jerasure_make_decoding_bitmatrix(job->k, job->m, plan->w, plan->bits, erased,
                                                               plan->inverse, plan->survivors)
                            : jerasure_make_decoding_matrix(job->k, job->m, plan->w, plan->matrix, erased,
                                                            plan->inverse, plan->survivors);
    if (failed) return "these survivors do not determine the data";
    if (plan->bits) plan_repair(job, plan);
    return NULL;
}

static const char *plan_bytes(const struct job *job, struct plan *plan) {
    if (job->packet) return "a byte code has no packets";
    if (job->len % sizeof(long)) return "Jerasure needs LEN to be a multiple of 8";
    plan->matrix = plan->raid6 ? reed_sol_r6_coding_matrix(job->k, 8)
                               : reed_sol_vandermonde_coding_matrix(job->k, job->m, 8);
    return plan->matrix ? NULL : "Jerasure has no such matrix";
}

static const char *plan_liberation(const struct job *job, struct plan *plan) {
    if (job->m != 2) return "liberation has two parity blocks";
    for (plan->w = job->k > 3 ? job->k : 3; !is_prime(plan->w);) plan->w++;
    if (job->code[10] == '/') {
        uint64_t w;
        if (read_number(job->code + 11, 1 << 10, &w)) return "malformed word size";
        plan->w = (int)w;
    }
    if (plan->w < 3 || plan->w < job->k || !is_prime(plan->w)) return "liberation needs a prime w >= max(K, 3)";
    plan->bits = liberation_coding_bitmatrix(job->k, plan->w);
    return plan->bits ? NULL : "Jerasure has no such matrix";
}

static const char *plan_cauchy(const struct job *job, struct plan *plan, bool good) {
    int *matrix = good ? cauchy_good_general_coding_matrix(job->k, job->m, 8)
                       : cauchy_original_coding_matrix(job->k, job->m, 8);
    if (!matrix) return "Jerasure has no such matrix";
    plan->bits = jerasure_matrix_to_bitmatrix(job->k, job->m, 8, matrix);
    free(matrix);
    return NULL;
}

static const char *make_plan(struct job *job, struct plan *plan) {
    const char *code = job->code;
    bool good = !strcmp(code, "cauchy-good"), original = !strcmp(code, "cauchy-original");
    bool liberation = !strcmp(code, "liberation") || !strncmp(code, "liberation/", 11);
    plan->w = 8;
    plan->raid6 = !strcmp(code, "raid6");
    if (plan->raid6 && job->m != 2) return "raid6 has two parity blocks";
    if (plan->raid6 || !strcmp(code, "rs-vandermonde")) return plan_bytes(job, plan);
    if (!good && !original && !liberation) return "unknown code";

    const char *trouble = liberation ? plan_liberation(job, plan) : plan_cauchy(job, plan, good);
    if (trouble) return trouble;
    if (job->packet <= 0 || job->packet % sizeof(long)) return "Jerasure needs PACKET to be a multiple of 8";
    if (job->len % ((size_t)plan->w * job->packet)) return "LEN must be a multiple of w * PACKET";
    plan->schedule = jerasure_smart_bitmatrix_to_schedule(job->k, job->m, plan->w, plan->bits);
    return NULL;
}

static const char *prepare(struct job *job) {
    job->plan = calloc(1, sizeof(struct plan));
    const char *trouble = make_plan(job, job->plan);
    if (!trouble && job->losses) trouble = plan_decode(job, job->plan);
    if (trouble) release(job);
    return trouble;
}

static int encode(struct job *job, unsigned char **blocks) {
    const struct plan *plan = job->plan;
    char **data = (char **)blocks, **coding = data + job->k;
    int size = (int)job->len;
    if (plan->raid6) return !reed_sol_r6_encode(job->k, 8, data, coding, size);
    if (plan->matrix) jerasure_matrix_encode(job->k, job->m, 8, plan->matrix, data, coding, size);
    else jerasure_schedule_encode(job->k, job->m, plan->w, plan->schedule, data, coding, size, job->packet);
    return 0;
}

// The byte codes rebuild lost data from the inverse and then lost parity from the data, as
// jerasure_matrix_decode does; the bit codes run one schedule from the survivors to all lost blocks.
static int decode(struct job *job, unsigned char **blocks) {
    const struct plan *plan = job->plan;
    char **data = (char **)blocks, **coding = data + job->k;
    int k = job->k, size = (int)job->len;
    if (plan->matrix) {
        for (int i = 0; i < job->losses; i++) {
            int id = job->lost[i];
            if (id < k)
                jerasure_matrix_dotprod(k, 8, plan->inverse + id * k, (int *)plan->survivors, id, data, coding, size);
            else jerasure_matrix_dotprod(k, 8, plan->matrix + (id - k) * k, NULL, id, data, coding, size);
        }
        return 0;
    }
    char *sources[MAX_BLOCKS], *targets[MAX_BLOCKS];
    for (int i = 0; i < k; i++) sources[i] = data[plan->survivors[i]];
    for (int i = 0; i < job->losses; i++) targets[i] = data[job->lost[i]];
    jerasure_schedule_encode(k, job->losses, plan->w, plan->repair, sources, targets, size, job->packet);
    return 0;
}

// The library's own decoders, so that a byte comparison does not rest on the plans above.
static int decode_once(struct job *job, unsigned char **blocks) {
    const struct plan *plan = job->plan;
    char **data = (char **)blocks, **coding = data + job->k;
    int erasures[MAX_BLOCKS + 1];
    memcpy(erasures, job->lost, sizeof job->lost);
    erasures[job->losses] = -1;
    if (!plan->bits)
        return jerasure_matrix_decode(job->k, job->m, 8, plan->matrix, 1, erasures, data, coding, (int)job->len);
    return jerasure_schedule_decode_lazy(job->k, job->m, plan->w, plan->bits, erasures, data, coding, (int)job->len,
                                         job->packet, 1);
}

int main(void) {
    const char *want = getenv("PEER_KERNEL");
    bool plain = want && !strcmp(want, "plain");
    if (plain) {
        // GF-Complete reads these once, at its first field. They are what also takes the SIMD out of its
        // region XOR and of the doubling under reed_sol_r6_encode, which no field option reaches.
        const char *features[] = {"SSE2", "SSE3", "SSSE3", "SSE4", "SSE4_PCLMUL"};
        for (int i = 0; i < 5; i++) {
            char name[64];
            snprintf(name, sizeof name, "GF_COMPLETE_DISABLE_%s", features[i]);
            setenv(name, "1", 1);
        }
        gf_t *field = malloc(sizeof *field);
        if (!gf_init_hard(field, 8, GF_MULT_TABLE, GF_REGION_DEFAULT, GF_DIVIDE_DEFAULT, 0, 0, 0, NULL, NULL)) return 1;
        galois_change_technique(field, 8);
    }
    return serve(&(struct peer){
        .name = "jerasure",
        .version = PEER_VERSION,
        .codes = "rs-vandermonde,cauchy-original,cauchy-good,liberation,raid6",
        .kernel = plain ? "plain" : "auto",
        .prepare = prepare,
        .encode = encode,
        .decode = decode,
        .decode_once = decode_once,
        .release = release,
    });
}
