// Peer around Intel's ISA-L: its Cauchy and Vandermonde Reed-Solomon codes, its P+Q RAID-6 and its XOR.
// PEER_KERNEL=avx2 and plain call the kernels by name, past the library's own dispatch.
#include "peer.h"

#include <isa-l.h>

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

static void (*encode_data)(int, int, int, unsigned char *, unsigned char **, unsigned char **) = ec_encode_data;
static void (*init_tables)(int, int, unsigned char *, unsigned char *) = ec_init_tables;
static int (*pq)(int, int, void **) = pq_gen;
static int (*xor)(int, int, void **) = xor_gen;

struct plan {
    enum { MATRIX, PQ, XOR } kind;
    unsigned char *encode_tables, *decode_tables;
    int survivors[MAX_BLOCKS];
};

static void release(struct job *job) {
    struct plan *plan = job->plan;
    free(plan->encode_tables);
    free(plan->decode_tables);
    free(plan);
}

// Rows that give each lost block from the first k survivors: the inverse's rows for data, and the
// parity's own row times the inverse for parity.
static bool plan_decode(const struct job *job, struct plan *plan, const unsigned char *matrix) {
    int k = job->k, found = 0;
    unsigned char *square = malloc(k * k), *inverse = malloc(k * k), *rows = calloc(job->losses, k);
    for (int i = 0; found < k; i++)
        if (!job->is_lost[i]) {
            memcpy(square + found * k, matrix + i * k, k);
            plan->survivors[found++] = i;
        }
    bool fine = !gf_invert_matrix(square, inverse, k);
    for (int r = 0; fine && r < job->losses; r++)
        for (int t = 0; t < k; t++)
            for (int j = 0; j < k; j++)
                rows[r * k + j] ^= gf_mul(matrix[job->lost[r] * k + t], inverse[t * k + j]);
    plan->decode_tables = malloc((size_t)32 * k * job->losses);
    if (fine) init_tables(k, job->losses, rows, plan->decode_tables);
    free(square);
    free(inverse);
    free(rows);
    return fine;
}

static const char *prepare(struct job *job) {
    bool cauchy = !strcmp(job->code, "rs"), vandermonde = !strcmp(job->code, "rs-isa-vandermonde");
    bool raid6 = !strcmp(job->code, "raid6"), parity = !strcmp(job->code, "xor");
    int k = job->k, m = job->m;
    if (!cauchy && !vandermonde && !raid6 && !parity) return "unknown code";
    if (job->packet) return "a byte code has no packets";
    if (raid6 && m != 2) return "raid6 has two parity blocks";
    if (parity && m != 1) return "xor has one parity block";
    if ((raid6 || parity) && k < 2) return "the RAID functions need two data blocks";
    if (raid6 && job->len % 32) return "pq_gen needs LEN to be a multiple of 32";

    struct plan *plan = calloc(1, sizeof *plan);
    unsigned char *matrix = malloc((size_t)(k + m) * k);
    job->plan = plan;
    plan->kind = raid6 ? PQ : parity ? XOR : MATRIX;
    // P and Q are the first two rows of the Vandermonde matrix and the XOR is the first.
    if (cauchy) gf_gen_cauchy1_matrix(matrix, k + m, k);
    else gf_gen_rs_matrix(matrix, k + m, k);
    plan->encode_tables = malloc((size_t)32 * k * m);
    init_tables(k, m, matrix + k * k, plan->encode_tables);
    bool fine = !job->losses || plan_decode(job, plan, matrix);
    free(matrix);
    if (fine) return NULL;
    release(job);
    return "these survivors do not determine the data";
}

static int encode(struct job *job, unsigned char **blocks) {
    const struct plan *plan = job->plan;
    if (plan->kind == PQ) return pq(job->k + 2, (int)job->len, (void **)blocks);
    if (plan->kind == XOR) return xor(job->k + 1, (int)job->len, (void **)blocks);
    encode_data((int)job->len, job->k, job->m, plan->encode_tables, blocks, blocks + job->k);
    return 0;
}

static int decode(struct job *job, unsigned char **blocks) {
    const struct plan *plan = job->plan;
    int k = job->k;
    unsigned char *sources[MAX_BLOCKS], *targets[MAX_BLOCKS];
    for (int i = 0; i < k; i++) sources[i] = blocks[plan->survivors[i]];
    for (int i = 0; i < job->losses; i++) targets[i] = blocks[job->lost[i]];
    // ISA-L has no RAID-6 recovery: its users XOR for one block under P, generate a lost P+Q again,
    // and take the general code for the rest.
    if (plan->kind != MATRIX && job->losses == 1 && job->lost[0] <= k) {
        sources[k] = targets[0];
        return xor(k + 1, (int)job->len, (void **)sources);
    }
    if (plan->kind == PQ && job->lost[0] == k) return pq(k + 2, (int)job->len, (void **)blocks);
    encode_data((int)job->len, k, job->losses, plan->decode_tables, sources, targets);
    return 0;
}

int main(void) {
    const char *want = getenv("PEER_KERNEL"), *kernel = "auto";
    if (want && !strcmp(want, "plain")) {
        encode_data = ec_encode_data_base, pq = pq_gen_base, xor = xor_gen_base;
        kernel = "plain";
    }
#ifdef __x86_64__
    if (want && !strcmp(want, "avx2") && __builtin_cpu_supports("avx2")) {
        encode_data = ec_encode_data_avx2, pq = pq_gen_avx2;
        xor = xor_gen_avx;  // The library has no AVX2 XOR: AVX already has 256-bit vxorps.
        kernel = "avx2";
    }
#endif
#if ISAL_VERSION >= ISAL_MAKE_VERSION(2, 31, 0)
    // Since 2.31 the tables are laid out for GFNI where the CPU has it; every named kernel needs the old layout.
    if (strcmp(kernel, "auto")) init_tables = ec_init_tables_base;
#endif
    return serve(&(struct peer){
        .name = "isal",
        .version = TEXT(ISAL_MAJOR_VERSION) "." TEXT(ISAL_MINOR_VERSION) "." TEXT(ISAL_PATCH_VERSION),
        .codes = "rs,rs-isa-vandermonde,raid6,xor",
        .kernel = kernel,
        .prepare = prepare,
        .encode = encode,
        .decode = decode,
        .release = release,
    });
}
