/* Attention on a processor, for one size of a head, SIZE, which is given to the compiler.

   Without HEADS: softmax(q k^T / sqrt(SIZE) + bias) v, and its gradients. All arrays are float32. q, k, v, out and their
   gradients are (batch, token, head, SIZE). bias, weights and the gradient of the bias are (batch, head, query, key);
   from one of the batch and from one head to the next a bias has `by_batch` and `by_head` numbers, 0 where all share it.
   weights are kept for the backward pass.

   With HEADS, and with REAL and an INT of its size: attention of queries to a few keys of their own, and what a bound on
   rounding needs to know of it. Arrays are as `certificates/few_keys.py` describes them: of a query, key or value the
   first numbers of all heads come first, so that all heads are computed together.

   Every sum has a fixed order, on however many threads. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#ifndef HEADS

#define PART (SIZE < 8 ? SIZE : 8) /* numbers of a head that are computed together */
#define PARTS (SIZE / PART)
#define LANES 8 /* keys that are computed together; a row is filled up with closed ones */

typedef float Lanes __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t Bits __attribute__((vector_size(LANES * 4)));
typedef float Part __attribute__((vector_size(PART * 4), aligned(4), may_alias));
typedef struct { Part part[PARTS]; } Head; /* a vector longer than the processor's would lie on the stack */

#define OF(type, x) (*(type *)(x))
#define TOKEN(x, tokens, t) OF(Head, (x) + ((b * (tokens) + (t)) * heads + h) * SIZE)
#define ALL_PARTS _Pragma("GCC unroll 4") for (int j = 0; j < PARTS; j++)
/* Runs what follows for row `b` and head `h`, on so many `threads`. */
#define ALL_HEADS_OF_ALL_ROWS \
    _Pragma("omp parallel for collapse(2) num_threads(threads)") \
    for (int64_t b = 0; b < batches; b++) \
        for (int64_t h = 0; h < heads; h++)
#define EACH(s, room) for (int64_t s = 0; s < (room); s += LANES)

/* A head's keys or values, one dimension after the other: to (SIZE, room), whose last columns are zero. */
static void turn(const float *x, int64_t heads, int64_t keys, int64_t room, float *to) {
    memset(to, 0, SIZE * room * sizeof(float));
    for (int64_t s = 0; s < keys; s++)
        for (int i = 0; i < SIZE; i++) to[i * room + s] = x[s * heads * SIZE + i];
}

/* The product of `a` with every column: to (room). */
static inline void products(Head a, const float *columns, int64_t room, float *to) {
    EACH(s, room) {
        Lanes sum = {0};
        for (int i = 0; i < SIZE; i++) sum += a.part[i / PART][i % PART] * OF(Lanes, columns + i * room + s);
        OF(Lanes, to + s) = sum;
    }
}

/* exp(x) of x <= 0 to two units in the last place, and 0 below -87 (the polynomial of Cephes' expf). */
static inline Lanes power(Lanes x) {
    Bits open = x > -87.0f;
    x = (Lanes)((Bits)x & open);
    Lanes n = (x * 1.44269504f + 12582912.0f) - 12582912.0f; /* rounded */
    Lanes r = x - n * 0.693359375f + n * 2.12194440e-4f;
    Lanes p = 1.9875691500e-4f * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    Bits whole = __builtin_convertvector(n, Bits) + 127;
    return (Lanes)((Bits)(p * (Lanes)(whole << 23)) & open);
}

static inline float total(Lanes x) {
    float sum = 0;
    for (int s = 0; s < LANES; s++) sum += x[s];
    return sum;
}

/* Softmax of a row, in place; a row without an open key becomes zero. */
static inline void softmax(float *row, int64_t room) {
    Lanes most = OF(Lanes, row), sum = {0};
    EACH(s, room) {
        Lanes x = OF(Lanes, row + s);
        Bits more = x > most;
        most = (Lanes)(((Bits)x & more) | ((Bits)most & ~more));
    }
    float top = most[0];
    for (int s = 1; s < LANES; s++) top = most[s] > top ? most[s] : top;
    top = top == -INFINITY ? 0 : top;
    EACH(s, room) sum += OF(Lanes, row + s) = power(OF(Lanes, row + s) - top);
    const float all = total(sum), share = all > 0 ? 1.0f / all : 0;
    EACH(s, room) OF(Lanes, row + s) *= share;
}

/* `x` times `scale` where a weight was not dropped, and 0 elsewhere. */
static inline Lanes kept(Lanes x, Lanes weight, float scale) { return (Lanes)((Bits)(x * scale) & (weight > 0)); }

/* With `drawn`, a random number for each weight, those whose number is below `least` are dropped, and the others are
   multiplied by `scale`. A weight that was dropped is kept with a minus. */
void forward(const float *q, const float *k, const float *v, const float *bias, const int16_t *drawn, float *out,
             float *weights, int64_t batches, int64_t heads, int64_t queries, int64_t keys, int64_t by_batch,
             int64_t by_head, int64_t threads, int64_t least, double scale) {
    const int64_t room = (keys + LANES - 1) / LANES * LANES;
    ALL_HEADS_OF_ALL_ROWS {
        float row[room], turned[SIZE * room];
        turn(k + (b * keys * heads + h) * SIZE, heads, keys, room, turned);
        for (int64_t i = 0; i < queries; i++) {
            const float *added = bias + b * by_batch + h * by_head + i * keys;
            const int64_t at = ((b * heads + h) * queries + i) * keys;
            Head mixed = {0}, asked = TOKEN(q, queries, i);
            ALL_PARTS asked.part[j] *= 1.0f / sqrtf(SIZE);
            products(asked, turned, room, row);
            for (int64_t s = 0; bias && s < keys; s++) row[s] += added[s];
            for (int64_t s = keys; s < room; s++) row[s] = -INFINITY;
            softmax(row, room);
            for (int64_t s = 0; drawn && s < keys; s++) row[s] = drawn[at + s] < least ? -row[s] : row[s];
            if (weights) memcpy(weights + at, row, keys * sizeof(float));
            if (drawn) EACH(s, room) OF(Lanes, row + s) = kept(OF(Lanes, row + s), OF(Lanes, row + s), scale);
            for (int64_t s = 0; s < keys; s++) ALL_PARTS mixed.part[j] += row[s] * TOKEN(v, keys, s).part[j];
            TOKEN(out, queries, i) = mixed;
        }
    }
}

/* Writes dq, adds to dk and dv and, where it is wanted, writes dbias. */
void backward(const float *q, const float *k, const float *v, const float *weights, const float *dout, float *dq,
              float *dk, float *dv, float *dbias, int64_t batches, int64_t heads, int64_t queries, int64_t keys,
              int64_t threads, int64_t dropped, double enlarged) {
    const float scale = 1.0f / sqrtf(SIZE);
    const int64_t room = (keys + LANES - 1) / LANES * LANES;
    ALL_HEADS_OF_ALL_ROWS {
        float row[room], w[room], left[room], turned[SIZE * room];
        memset(w, 0, sizeof w);
        turn(v + (b * keys * heads + h) * SIZE, heads, keys, room, turned);
        for (int64_t i = 0; i < queries; i++) {
            const int64_t at = ((b * heads + h) * queries + i) * keys;
            Head mixed = {0}, asked = TOKEN(q, queries, i), d = TOKEN(dout, queries, i);
            ALL_PARTS asked.part[j] *= scale;
            Lanes sum = {0};
            memcpy(w, weights + at, keys * sizeof(float));
            products(d, turned, room, row);
            if (dropped) EACH(s, room) {
                const Lanes x = OF(Lanes, w + s);
                OF(Lanes, row + s) = kept(OF(Lanes, row + s), x, enlarged);
                OF(Lanes, left + s) = kept(x, x, enlarged);
                OF(Lanes, w + s) = (Lanes)((Bits)x & 0x7fffffff);
            }
            EACH(s, room) sum += OF(Lanes, w + s) * OF(Lanes, row + s);
            const float mean = total(sum);
            EACH(s, room) OF(Lanes, row + s) = OF(Lanes, w + s) * (OF(Lanes, row + s) - mean);
            if (dbias) memcpy(dbias + at, row, keys * sizeof(float));
            for (int64_t s = 0; s < keys; s++) {
                ALL_PARTS mixed.part[j] += row[s] * scale * TOKEN(k, keys, s).part[j];
                ALL_PARTS TOKEN(dk, keys, s).part[j] += row[s] * asked.part[j];
                ALL_PARTS TOKEN(dv, keys, s).part[j] += (dropped ? left : w)[s] * d.part[j];
            }
            TOKEN(dq, queries, i) = mixed;
        }
    }
}

#else

#define WIDTH (SIZE * HEADS)
#define ALL_HEADS _Pragma("omp simd") for (int h = 0; h < HEADS; h++)
#define DOUBLE (sizeof(REAL) == 8)

/* exp(x) of x <= 0 for all heads to a few units in the last place, and 0 where it is next to nothing: with n = round(x
   / ln 2) and r = x - n ln 2, it is 2^n times the Taylor series of exp(r). */
static inline void power(REAL *restrict x) {
    const REAL least = DOUBLE ? -700 : -87, high = DOUBLE ? 0x1.62e42feep-1 : 0x1.62e4p-1;
    const REAL low = DOUBLE ? 0x1.a39ef35793c76p-33 : 0x1.7f7d1cp-20, whole = DOUBLE ? 0x1.8p52 : 0x1.8p23;
    ALL_HEADS {
        const REAL y = x[h] > least ? x[h] : 0, shifted = y * (REAL)1.4426950408889634 + whole, n = shifted - whole;
        const REAL r = y - n * high - n * low;
        REAL sum = 1;
#pragma GCC unroll 14
        for (int k = DOUBLE ? 14 : 8; k > 0; k--) sum = sum * r * ((REAL)1 / k) + 1;
        union { REAL number; INT bits; } two = {shifted};
        two.bits = (two.bits + (DOUBLE ? 1023 : 127)) << (DOUBLE ? 52 : 23);
        x[h] = x[h] > least ? sum * two.number : 0;
    }
}

/* Of vectors with the weights w, whose mean is `mean` and whose squared lengths stand in column `at` of a table's rows. */
static inline void deviation(int64_t keys, const REAL w[keys][HEADS], const REAL **rows, int64_t at, const REAL *mean,
                             REAL lost, REAL *to) {
    REAL square[HEADS] = {0}, less[HEADS] = {0};
    for (int64_t k = 0; k < keys; k++) ALL_HEADS square[h] += w[k][h] * rows[k][at + h];
    for (int i = 0; i < SIZE; i++) ALL_HEADS less[h] += mean[i * HEADS + h] * mean[i * HEADS + h];
    ALL_HEADS to[h] = sqrt((square[h] > less[h] ? square[h] - less[h] : 0) + lost * square[h]);
}

void mix(const REAL *query, const REAL *table, const int64_t *rows, const REAL *bias, REAL *means, REAL *length,
         REAL *of_keys, REAL *of_values, int64_t count, int64_t keys, double lost) {
    const REAL root = sqrt(SIZE);
    for (int64_t n = 0; n < count; n++) {
        const REAL *q = query + n * WIDTH, *at[keys];
        REAL w[keys][HEADS], top[HEADS], sum[HEADS] = {0}, own[HEADS] = {0}, mean[2 * WIDTH] = {0};
        ALL_HEADS top[h] = -INFINITY;
        for (int64_t k = 0; k < keys; k++) {
            at[k] = table + rows[n * keys + k] * 2 * (WIDTH + HEADS);
            REAL dot[HEADS] = {0};
            for (int i = 0; i < SIZE; i++) ALL_HEADS dot[h] += q[i * HEADS + h] * at[k][i * HEADS + h];
            ALL_HEADS w[k][h] = dot[h] / root + bias[k * HEADS + h];
            ALL_HEADS top[h] = w[k][h] > top[h] ? w[k][h] : top[h];
        }
        ALL_HEADS top[h] = top[h] == -INFINITY ? 0 : top[h]; /* no key is open */
        for (int64_t k = 0; k < keys; k++) {
            ALL_HEADS w[k][h] -= top[h];
            power(w[k]);
            ALL_HEADS sum[h] += w[k][h];
        }
        for (int64_t k = 0; k < keys; k++) {
            ALL_HEADS w[k][h] /= sum[h] > 0 ? sum[h] : 1;
            for (int i = 0; i < 2 * SIZE; i++) ALL_HEADS mean[i * HEADS + h] += w[k][h] * at[k][i * HEADS + h];
        }
        memcpy(means + n * WIDTH, mean + WIDTH, WIDTH * sizeof(REAL));
        for (int i = 0; i < SIZE; i++) ALL_HEADS own[h] += q[i * HEADS + h] * q[i * HEADS + h];
        ALL_HEADS length[n * HEADS + h] = sqrt(own[h]);
        deviation(keys, w, at, 2 * WIDTH, mean, lost, of_keys + n * HEADS);
        deviation(keys, w, at, 2 * WIDTH + HEADS, mean + WIDTH, lost, of_values + n * HEADS);
    }
}

#endif
