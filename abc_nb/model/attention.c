/* Attention on a processor: softmax(q k^T / sqrt(SIZE) + bias) v, and its gradients.

   SIZE, the numbers of a head, is given to the compiler. All arrays are float32. q, k, v, out and their gradients
   are (batch, head, token, SIZE): the strides are those of the first three dimensions, and the numbers of a token
   lie together. bias is (batch, head, query, key), with strides too. weights (batch, head, query, key) are kept for
   the backward pass. Every sum has a fixed order, and a head is one thread's, so results are the same bit for bit on
   any number of threads. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES 8 /* keys that are computed together; a row is filled up with closed ones */
#define ROUNDED(n) (((n) + LANES - 1) / LANES * LANES)

typedef float Lanes __attribute__((vector_size(LANES * 4)));
typedef int32_t Bits __attribute__((vector_size(LANES * 4)));
typedef float Head __attribute__((vector_size(SIZE * 4)));

typedef struct { int64_t batch, head, token; } Strides;
typedef struct { int64_t batches, heads, queries, keys, threads; } Sizes;

#define AT(x, b, h, t) ((x) + (b) * x##_by.batch + (h) * x##_by.head + (t) * x##_by.token)

static inline Lanes load(const float *x) {
    Lanes found;
    memcpy(&found, x, sizeof found);
    return found;
}

static inline void store(float *to, Lanes x) { memcpy(to, &x, sizeof x); }

static inline Head head(const float *x) {
    Head found;
    memcpy(&found, x, sizeof found);
    return found;
}

static inline void add(float *to, Head x) {
    x += head(to);
    memcpy(to, &x, sizeof x);
}

/* Keys or values, one dimension after the other: to (SIZE, room). */
static void turn(const float *x, int64_t by, int64_t keys, int64_t room, float *restrict to) {
    for (int64_t s = 0; s < keys; s++)
        for (int i = 0; i < SIZE; i++) to[i * room + s] = x[s * by + i];
}

/* The product of `a` with every column: to (room). */
static inline void products(const float *a, const float *columns, int64_t room, float *to) {
    for (int64_t first = 0; first < room; first += LANES) {
        Lanes sum = {0};
        for (int i = 0; i < SIZE; i++) sum += a[i] * load(columns + i * room + first);
        store(to + first, sum);
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
    Lanes most = load(row), sum = {0};
    for (int64_t first = LANES; first < room; first += LANES) {
        Lanes x = load(row + first);
        Bits more = x > most;
        most = (Lanes)(((Bits)x & more) | ((Bits)most & ~more));
    }
    float top = most[0];
    for (int s = 1; s < LANES; s++) top = most[s] > top ? most[s] : top;
    if (top == -INFINITY) {
        memset(row, 0, room * sizeof(float));
        return;
    }
    for (int64_t first = 0; first < room; first += LANES) {
        Lanes x = power(load(row + first) - top);
        store(row + first, x);
        sum += x;
    }
    const float share = 1.0f / total(sum);
    for (int64_t first = 0; first < room; first += LANES) store(row + first, load(row + first) * share);
}

void forward(const float *q, const float *k, const float *v, const float *bias, float *out, float *weights, Sizes n,
             Strides q_by, Strides k_by, Strides v_by, Strides bias_by, Strides out_by) {
    const float scale = 1.0f / sqrtf(SIZE);
    const int64_t room = ROUNDED(n.keys);
#pragma omp parallel for collapse(2) num_threads(n.threads) if (n.threads > 1)
    for (int64_t b = 0; b < n.batches; b++)
        for (int64_t h = 0; h < n.heads; h++) {
            float row[room], turned[SIZE * room];
            memset(turned, 0, sizeof turned);
            turn(AT(k, b, h, 0), k_by.token, n.keys, room, turned);
            for (int64_t i = 0; i < n.queries; i++) {
                const float *extra = bias ? AT(bias, b, h, i) : 0;
                Head mixed = {0}, asked = head(AT(q, b, h, i)) * scale;
                products((float *)&asked, turned, room, row);
                for (int64_t s = 0; extra && s < n.keys; s++) row[s] += extra[s];
                for (int64_t s = n.keys; s < room; s++) row[s] = -INFINITY;
                softmax(row, room);
                for (int64_t s = 0; s < n.keys; s++) mixed += row[s] * head(AT(v, b, h, s));
                memcpy(AT(out, b, h, i), &mixed, sizeof mixed);
                if (weights) memcpy(weights + ((b * n.heads + h) * n.queries + i) * n.keys, row, n.keys * sizeof(float));
            }
        }
}

/* Writes dq, adds to dk and dv and, where it is wanted, writes dbias (batch, head, query, key). */
void backward(const float *q, const float *k, const float *v, const float *weights, const float *dout, float *dq,
              float *dk, float *dv, float *dbias, Sizes n, Strides q_by, Strides k_by, Strides v_by, Strides dout_by,
              Strides dq_by, Strides dk_by) {
    const Strides dv_by = dk_by;
    const float scale = 1.0f / sqrtf(SIZE);
    const int64_t room = ROUNDED(n.keys);
#pragma omp parallel for collapse(2) num_threads(n.threads) if (n.threads > 1)
    for (int64_t b = 0; b < n.batches; b++)
        for (int64_t h = 0; h < n.heads; h++) {
            float row[room], w[room], turned[SIZE * room];
            memset(turned, 0, sizeof turned);
            memset(w, 0, sizeof w);
            turn(AT(v, b, h, 0), v_by.token, n.keys, room, turned);
            for (int64_t i = 0; i < n.queries; i++) {
                const int64_t at = ((b * n.heads + h) * n.queries + i) * n.keys;
                Head mixed = {0}, asked = head(AT(q, b, h, i)) * scale, d = head(AT(dout, b, h, i));
                Lanes sum = {0};
                memcpy(w, weights + at, n.keys * sizeof(float));
                products((float *)&d, turned, room, row);
                for (int64_t s = 0; s < room; s += LANES) sum += load(w + s) * load(row + s);
                const float mean = total(sum);
                for (int64_t s = 0; s < room; s += LANES) store(row + s, load(w + s) * (load(row + s) - mean));
                if (dbias) memcpy(dbias + at, row, n.keys * sizeof(float));
                for (int64_t s = 0; s < n.keys; s++) {
                    mixed += row[s] * scale * head(AT(k, b, h, s));
                    add(AT(dk, b, h, s), row[s] * asked);
                    add(AT(dv, b, h, s), w[s] * d);
                }
                memcpy(AT(dq, b, h, i), &mixed, sizeof mixed);
            }
        }
}
