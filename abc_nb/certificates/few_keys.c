/* Attention of queries to a few keys of their own, and what a bound on rounding needs to know of it.

   REAL, SIZE (numbers of a head) and HEADS are given to the compiler. Arrays are as `few_keys.py` describes them: of a
   query, key or value the first numbers of all heads come first, so that all heads are computed together. A context is
   computed by itself and in a fixed order. */
#include <math.h>
#include <stdint.h>

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

void mix(const REAL *query, const REAL *table, const int64_t *rows, const REAL *bias, REAL *means, REAL *spread,
         REAL *share, REAL *length, int64_t count, int64_t keys, double lost) {
    const REAL root = sqrt(SIZE);
    for (int64_t n = 0; n < count; n++) {
        const REAL *q = query + n * WIDTH, *at[keys];
        REAL w[keys][HEADS], top[HEADS], sum[HEADS] = {0}, mean[2 * WIDTH] = {0};
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
            for (int i = spread ? 0 : SIZE; i < 2 * SIZE; i++)
                ALL_HEADS mean[i * HEADS + h] += w[k][h] * at[k][i * HEADS + h];
        }
        for (int i = 0; i < WIDTH; i++) means[n * WIDTH + i] = mean[WIDTH + i];
        if (!spread) continue;
        for (int part = 0; part < 2; part++) { /* keys and values */
            REAL square[HEADS] = {0}, less[HEADS] = {0};
            for (int64_t k = 0; k < keys; k++)
                ALL_HEADS square[h] += w[k][h] * at[k][2 * WIDTH + part * HEADS + h];
            for (int i = 0; i < SIZE; i++)
                ALL_HEADS less[h] += mean[part * WIDTH + i * HEADS + h] * mean[part * WIDTH + i * HEADS + h];
            ALL_HEADS {
                const REAL variance = square[h] - less[h];
                spread[(2 * n + part) * HEADS + h] = sqrt((variance > 0 ? variance : 0) + (REAL)lost * square[h]);
            }
        }
        REAL own[HEADS] = {0};
        for (int i = 0; i < SIZE; i++) ALL_HEADS own[h] += q[i * HEADS + h] * q[i * HEADS + h];
        ALL_HEADS length[n * HEADS + h] = sqrt(own[h]);
        for (int64_t k = 0; k < keys; k++) {
            REAL most = 0;
            ALL_HEADS most = w[k][h] > most ? w[k][h] : most;
            share[n * keys + k] = most;
        }
    }
}
