/* Attention of queries to a few keys of their own, and what a bound on rounding needs to know of it.

   REAL and SIZE, the numbers of a head, are given to the compiler. Arrays are as `few_keys.py` describes them. A
   context is computed by itself and in a fixed order. */
#include <stdint.h>
#include <tgmath.h>

static inline REAL dot(const REAL *a, const REAL *b) {
    REAL sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < SIZE; i++) sum += a[i] * b[i];
    return sum;
}

void mix(const REAL *query, const REAL *table, const int64_t *rows, const REAL *bias, REAL *values, REAL *spread,
         REAL *share, REAL *length, int64_t count, int64_t keys, int64_t heads, double lost) {
    const int64_t width = heads * SIZE;
    const REAL root = sqrt((REAL)SIZE);
    for (int64_t n = 0; n < count; n++) {
        const REAL *q = query + n * width, *at[keys];
        REAL w[keys * heads], means[2 * width], squares[2 * heads];
        for (int64_t k = 0; k < keys; k++) {
            at[k] = table + rows[n * keys + k] * 2 * (width + heads);
            for (int64_t h = 0; h < heads; h++)
                w[k * heads + h] = dot(q + h * SIZE, at[k] + h * SIZE) / root + bias[k * heads + h];
        }
        for (int64_t h = 0; h < heads; h++) {
            REAL top = w[h];
            for (int64_t k = 1; k < keys; k++) top = w[k * heads + h] > top ? w[k * heads + h] : top;
            for (int64_t k = 0; k < keys; k++) w[k * heads + h] -= top == -INFINITY ? 0 : top; /* no key is open */
        }
#pragma omp simd
        for (int64_t i = 0; i < keys * heads; i++) w[i] = exp(w[i]);
        for (int64_t h = 0; h < heads; h++) {
            REAL sum = 0;
            for (int64_t k = 0; k < keys; k++) sum += w[k * heads + h];
            for (int64_t k = 0; k < keys; k++) w[k * heads + h] /= sum > 0 ? sum : 1;
        }
        for (int64_t h = 0; h < 2 * heads; h++) {
            REAL square = 0, mean[SIZE] = {0};
            for (int64_t k = 0; k < keys; k++) {
                const REAL own = w[k * heads + h % heads];
                for (int i = 0; i < SIZE; i++) mean[i] += own * at[k][h * SIZE + i];
                square += own * at[k][2 * width + h];
            }
            for (int i = 0; i < SIZE; i++) means[h * SIZE + i] = mean[i];
            squares[h] = square;
        }
        for (int64_t h = 0; h < 2 * heads; h++) {
            const REAL variance = squares[h] - dot(means + h * SIZE, means + h * SIZE);
            spread[n * 2 * heads + h] = sqrt((variance > 0 ? variance : 0) + (REAL)lost * squares[h]);
        }
        for (int64_t i = 0; i < width; i++) values[n * width + i] = means[width + i];
        for (int64_t h = 0; h < heads; h++) length[n * heads + h] = sqrt(dot(q + h * SIZE, q + h * SIZE));
        for (int64_t k = 0; k < keys; k++) {
            REAL most = 0;
            for (int64_t h = 0; h < heads; h++) most = w[k * heads + h] > most ? w[k * heads + h] : most;
            share[n * keys + k] = most;
        }
    }
}
