/* Attention on a processor: softmax(q k^T / sqrt(SIZE) + bias) v, and its gradients.

   SIZE, the numbers of a head, is given to the compiler. All arrays are float32. q, k, v, out and their gradients are
   (batch, token, head, SIZE). bias, weights and the gradient of the bias are (batch, head, query, key); from one of the
   batch and from one head to the next a bias has `by_batch` and `by_head` numbers, 0 where all share it. weights are
   kept for the backward pass. Every sum has a fixed order. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES 8 /* keys that are computed together; a row is filled up with closed ones */

typedef float Lanes __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t Bits __attribute__((vector_size(LANES * 4)));
typedef float Head __attribute__((vector_size(SIZE * 4), aligned(4), may_alias));

#define OF(type, x) (*(type *)(x))
#define TOKEN(x, tokens, t) OF(Head, (x) + ((b * (tokens) + (t)) * heads + h) * SIZE)
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
        for (int i = 0; i < SIZE; i++) sum += a[i] * OF(Lanes, columns + i * room + s);
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

void forward(const float *q, const float *k, const float *v, const float *bias, float *out, float *weights,
             int64_t batches, int64_t heads, int64_t queries, int64_t keys, int64_t by_batch, int64_t by_head) {
    const int64_t room = (keys + LANES - 1) / LANES * LANES;
    float row[room], turned[SIZE * room];
    for (int64_t b = 0; b < batches; b++)
        for (int64_t h = 0; h < heads; h++) {
            turn(k + (b * keys * heads + h) * SIZE, heads, keys, room, turned);
            for (int64_t i = 0; i < queries; i++) {
                const float *added = bias + b * by_batch + h * by_head + i * keys;
                Head mixed = {0};
                products(TOKEN(q, queries, i) * (1.0f / sqrtf(SIZE)), turned, room, row);
                for (int64_t s = 0; bias && s < keys; s++) row[s] += added[s];
                for (int64_t s = keys; s < room; s++) row[s] = -INFINITY;
                softmax(row, room);
                for (int64_t s = 0; s < keys; s++) mixed += row[s] * TOKEN(v, keys, s);
                TOKEN(out, queries, i) = mixed;
                if (weights) memcpy(weights + ((b * heads + h) * queries + i) * keys, row, keys * sizeof(float));
            }
        }
}

/* Writes dq, adds to dk and dv and, where it is wanted, writes dbias. */
void backward(const float *q, const float *k, const float *v, const float *weights, const float *dout, float *dq,
              float *dk, float *dv, float *dbias, int64_t batches, int64_t heads, int64_t queries, int64_t keys) {
    const float scale = 1.0f / sqrtf(SIZE);
    const int64_t room = (keys + LANES - 1) / LANES * LANES;
    float row[room], w[room], turned[SIZE * room];
    memset(w, 0, sizeof w);
    for (int64_t b = 0; b < batches; b++)
        for (int64_t h = 0; h < heads; h++) {
            turn(v + (b * keys * heads + h) * SIZE, heads, keys, room, turned);
            for (int64_t i = 0; i < queries; i++) {
                const int64_t at = ((b * heads + h) * queries + i) * keys;
                Head mixed = {0}, asked = TOKEN(q, queries, i) * scale, d = TOKEN(dout, queries, i);
                Lanes sum = {0};
                memcpy(w, weights + at, keys * sizeof(float));
                products(d, turned, room, row);
                EACH(s, room) sum += OF(Lanes, w + s) * OF(Lanes, row + s);
                const float mean = total(sum);
                EACH(s, room) OF(Lanes, row + s) = OF(Lanes, w + s) * (OF(Lanes, row + s) - mean);
                if (dbias) memcpy(dbias + at, row, keys * sizeof(float));
                for (int64_t s = 0; s < keys; s++) {
                    mixed += row[s] * scale * TOKEN(k, keys, s);
                    TOKEN(dk, keys, s) += row[s] * asked;
                    TOKEN(dv, keys, s) += w[s] * d;
                }
                TOKEN(dq, queries, i) = mixed;
            }
        }
}
