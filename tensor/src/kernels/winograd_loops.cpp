// The innermost loops of convolutions by F(4x4, 3x3). Compiled once per instruction set, as
// kernels.cpp is, with the same rules: no inline function of anybody else, nothing but the unnamed
// namespace, and no contraction, so that all variants agree bit for bit. Where a multiplication and
// an addition are one operation, multiply_add() says so in each of them.
//
// With g a filter of 3 x 3, d a patch of 6 x 6 of the input and dy a tile of 4 x 4 of the output's
// gradient,
//
//     y  = A'[(G g G') * (B' d B)]A        summed over channels
//     dg = G'[(A dy A') * (B' d B)]G       summed over tiles
//
// where ' transposes and * multiplies element by element. The points of the interpolation are 0, 1,
// -1, 2, -2 and infinity.

#include "winograd_loops.hpp"

#if defined(__AVX512F__) || defined(__FMA__)
#include <immintrin.h>
#endif

#ifdef __clang__
#define RONDO_UNROLL _Pragma("unroll")
#else
#define RONDO_UNROLL _Pragma("GCC unroll 36")
#endif

// In a place where [[gnu::always_inline]] would be about the type.
#define RONDO_INLINE __attribute__((always_inline))

#define RONDO_TEXT_OF(word) #word
#define RONDO_NAME_OF(word) RONDO_TEXT_OF(word)

namespace rondo::tensor::RONDO_TENSOR_INSTRUCTION_SET {
namespace {

constexpr std::ptrdiff_t vector_floats = RONDO_TENSOR_VECTOR_FLOATS;

using Vector = float __attribute__((vector_size(RONDO_TENSOR_VECTOR_FLOATS * sizeof(float))));

constexpr int patch = static_cast<int>(winograd_patch);
constexpr int side = static_cast<int>(winograd_tile);
constexpr int taps = 3;  // along a side of a filter

// Memory has any alignment.
[[gnu::always_inline]] inline Vector load(const float* from) {
  Vector value;
  __builtin_memcpy(&value, from, sizeof(value));
  return value;
}

[[gnu::always_inline]] inline void store(float* into, Vector value) {
  __builtin_memcpy(into, &value, sizeof(value));
}

// Vector{} + value would be an addition: zero and -0 are zero.
[[gnu::always_inline]] inline Vector all(float value) {
#if defined(__AVX512F__)
  return _mm512_set1_ps(value);
#elif defined(__FMA__)
  return _mm256_set1_ps(value);
#else
  return Vector{value, value, value, value};
#endif
}

[[gnu::always_inline]] inline Vector multiply_add(Vector a, Vector b, Vector sum) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, sum);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(a, b, sum);
#else
  for (int i = 0; i < vector_floats; ++i) sum[i] = __builtin_fmaf(a[i], b[i], sum[i]);
  return sum;
#endif
}

[[gnu::always_inline]] inline Vector multiply_add(float a, Vector b, Vector sum) {
  return multiply_add(all(a), b, sum);
}

// The transforms of a row or a column. Each reads `from` with a distance between its elements, so
// that a square is transformed by its columns and then by its rows.

// B' d
struct InputTransform {
  static constexpr int reads = patch, writes = patch;
  [[gnu::always_inline]] static void run(const Vector* d, Vector* into) {
    const Vector even = multiply_add(-4.0F, d[2], d[4]);
    const Vector odd = multiply_add(-4.0F, d[1], d[3]);
    const Vector outer_even = d[4] - d[2];
    const Vector outer_odd = d[3] - d[1];
    into[0] = multiply_add(4.0F, d[0], multiply_add(-5.0F, d[2], d[4]));
    into[1] = even + odd;
    into[2] = even - odd;
    into[3] = multiply_add(2.0F, outer_odd, outer_even);
    into[4] = multiply_add(-2.0F, outer_odd, outer_even);
    into[5] = multiply_add(4.0F, d[1], multiply_add(-5.0F, d[3], d[5]));
  }
};

// A' m
struct OutputTransform {
  static constexpr int reads = patch, writes = side;
  [[gnu::always_inline]] static void run(const Vector* m, Vector* into) {
    const Vector inner_sum = m[1] + m[2];
    const Vector inner_difference = m[1] - m[2];
    const Vector outer_sum = m[3] + m[4];
    const Vector outer_difference = m[3] - m[4];
    into[0] = m[0] + inner_sum + outer_sum;
    into[1] = multiply_add(2.0F, outer_difference, inner_difference);
    into[2] = multiply_add(4.0F, outer_sum, inner_sum);
    into[3] = multiply_add(8.0F, outer_difference, inner_difference) + m[5];
  }
};

// A dy
struct GradientTransform {
  static constexpr int reads = side, writes = patch;
  [[gnu::always_inline]] static void run(const Vector* dy, Vector* into) {
    const Vector even = dy[0] + dy[2];
    const Vector odd = dy[1] + dy[3];
    const Vector outer_even = multiply_add(4.0F, dy[2], dy[0]);
    const Vector outer_odd = multiply_add(8.0F, dy[3], dy[1] + dy[1]);
    into[0] = dy[0];
    into[1] = even + odd;
    into[2] = even - odd;
    into[3] = outer_even + outer_odd;
    into[4] = outer_even - outer_odd;
    into[5] = dy[3];
  }
};

// G g
struct FilterTransform {
  static constexpr int reads = taps, writes = patch;
  [[gnu::always_inline]] static void run(const Vector* g, Vector* into) {
    const Vector inner = (g[0] + g[2]) * all(-1.0F / 6);
    const Vector outer = multiply_add(4.0F, g[2], g[0]) * all(1.0F / 24);
    into[0] = g[0] * all(0.25F);
    into[1] = multiply_add(-1.0F / 6, g[1], inner);
    into[2] = multiply_add(1.0F / 6, g[1], inner);
    into[3] = multiply_add(1.0F / 12, g[1], outer);
    into[4] = multiply_add(-1.0F / 12, g[1], outer);
    into[5] = g[2];
  }
};

// G' m
struct WeightTransform {
  static constexpr int reads = patch, writes = taps;
  [[gnu::always_inline]] static void run(const Vector* m, Vector* into) {
    const Vector inner_sum = m[1] + m[2];
    const Vector inner_difference = m[2] - m[1];
    const Vector outer_sum = m[3] + m[4];
    const Vector outer_difference = m[3] - m[4];
    into[0] =
        multiply_add(0.25F, m[0], multiply_add(-1.0F / 6, inner_sum, outer_sum * all(1.0F / 24)));
    into[1] = multiply_add(1.0F / 6, inner_difference, outer_difference * all(1.0F / 12));
    into[2] = multiply_add(-1.0F / 6, inner_sum, multiply_add(1.0F / 6, outer_sum, m[5]));
  }
};

// Transforms a square of vectors: read(row, column) gives one, write(row, column, value) takes one.
template <typename Transform, typename Read, typename Write>
[[gnu::always_inline]] inline void transform_square(const Read& read, const Write& write) {
  Vector half[Transform::writes][Transform::reads];
  RONDO_UNROLL for (int column = 0; column < Transform::reads; ++column) {
    Vector from[Transform::reads];
    Vector into[Transform::writes];
    RONDO_UNROLL for (int row = 0; row < Transform::reads; ++row) from[row] = read(row, column);
    Transform::run(from, into);
    RONDO_UNROLL for (int row = 0; row < Transform::writes; ++row) half[row][column] = into[row];
  }
  RONDO_UNROLL for (int row = 0; row < Transform::writes; ++row) {
    Vector into[Transform::writes];
    Transform::run(half[row], into);
    RONDO_UNROLL for (int column = 0; column < Transform::writes; ++column) {
      write(row, column, into[column]);
    }
  }
}

// The pixels of a rectangle that lie within the image: [first, last) of each side.
struct Inside {
  [[gnu::always_inline]] Inside(const WinogradSquare& square, int extent)
      : first_row(square.top < 0 ? -square.top : 0),
        last_row(square.rows - square.top < extent ? square.rows - square.top : extent),
        first_column(square.left < 0 ? -square.left : 0),
        last_column(square.columns - square.left < extent ? square.columns - square.left : extent),
        whole(first_row == 0 && last_row == extent && first_column == 0 && last_column == extent) {}
  [[gnu::always_inline]] bool has(int row, int column) const {
    return row >= first_row && row < last_row && column >= first_column && column < last_column;
  }
  std::ptrdiff_t first_row, last_row, first_column, last_column;
  bool whole;
};

[[gnu::always_inline]] inline std::ptrdiff_t offset_in(const WinogradSquare& square, int row,
                                                       int column) {
  return ((square.top + row) * square.columns + square.left + column) * square.channels;
}

template <typename Transform, bool whole>
void transform_pixels(const WinogradSquare& square, const Inside& inside, const float* image,
                      WinogradTile tile) {
  for (std::ptrdiff_t c = 0; c < square.used; c += vector_floats) {
    transform_square<Transform>(
        [&](int row, int column) RONDO_INLINE {
          if (!whole && !inside.has(row, column)) return Vector{};
          return load(image + offset_in(square, row, column) + c);
        },
        [&](int row, int column, Vector value)
            RONDO_INLINE { store(tile.data + (row * patch + column) * tile.plane + c, value); });
  }
}

template <typename Transform>
void transform_image(const WinogradSquare& square, const float* image, WinogradTile tile) {
  const Inside inside(square, Transform::reads);
  if (inside.whole) return transform_pixels<Transform, true>(square, inside, image, tile);
  transform_pixels<Transform, false>(square, inside, image, tile);
}

void write_output(const WinogradSquare& square, const float* bias, bool rectified,
                  WinogradTile tile, float* image) {
  const Inside inside(square, side);
  for (std::ptrdiff_t f = 0; f < square.used; f += vector_floats) {
    const Vector added = bias == nullptr ? Vector{} : load(bias + f);
    transform_square<OutputTransform>(
        [&](int row, int column)
            RONDO_INLINE { return load(tile.data + (row * patch + column) * tile.plane + f); },
        [&](int row, int column, Vector value) RONDO_INLINE {
          if (!inside.whole && !inside.has(row, column)) return;
          if (bias != nullptr) value += added;
          if (rectified) value = value > Vector{} ? value : Vector{};
          store(image + offset_in(square, row, column) + f, value);
        });
  }
}

void transform_filters(const WinogradFilters& task) {
  const std::ptrdiff_t last = taps * taps - 1;
  const float* const first = task.turned ? task.from + last * task.tap : task.from;
  const std::ptrdiff_t tap = task.turned ? -task.tap : task.tap;
  for (std::ptrdiff_t c = 0; c < task.channels; ++c) {
    for (std::ptrdiff_t f = 0; f < task.columns; f += vector_floats) {
      transform_square<FilterTransform>(
          [&](int row, int column) RONDO_INLINE {
            return load(first + (row * taps + column) * tap + c * task.channel + f);
          },
          [&](int row, int column, Vector value) RONDO_INLINE {
            store(task.into + (row * patch + column) * task.plane + c * task.columns + f, value);
          });
    }
  }
}

void write_weights(WinogradTile tile, std::ptrdiff_t count, float* into,
                   std::ptrdiff_t tap_distance) {
  for (std::ptrdiff_t i = 0; i < count; i += vector_floats) {
    transform_square<WeightTransform>(
        [&](int row, int column)
            RONDO_INLINE { return load(tile.data + (row * patch + column) * tile.plane + i); },
        [&](int row, int column, Vector value)
            RONDO_INLINE { store(into + (row * taps + column) * tap_distance + i, value); });
  }
}

// Some rows of a product, whose sums are registers.
template <int rows, int vectors>
[[gnu::always_inline]] inline void multiply_rows(const WinogradProduct& task,
                                                 std::ptrdiff_t first) {
  const float* left = task.left + first * task.left_row;
  float* into = task.into + first * task.into_row;
  Vector sums[rows * vectors];
  RONDO_UNROLL for (int i = 0; i < rows * vectors; ++i) {
    const float* before = into + i / vectors * task.into_row + i % vectors * vector_floats;
    sums[i] = task.add ? load(before) : Vector{};
  }
  const float* right = task.right;
  for (std::ptrdiff_t step = 0; step < task.steps; ++step) {
    Vector columns[vectors];
    RONDO_UNROLL for (int v = 0; v < vectors; ++v) columns[v] = load(right + v * vector_floats);
    RONDO_UNROLL for (int row = 0; row < rows; ++row) {
      const Vector value = all(left[row * task.left_row]);
      RONDO_UNROLL for (int v = 0; v < vectors; ++v) {
        sums[row * vectors + v] = multiply_add(value, columns[v], sums[row * vectors + v]);
      }
    }
    left += task.left_step;
    right += task.right_step;
  }
  RONDO_UNROLL for (int i = 0; i < rows * vectors; ++i) {
    store(into + i / vectors * task.into_row + i % vectors * vector_floats, sums[i]);
  }
}

// AVX-512 has 32 registers: 8 rows of 2 vectors, or of 1, leave room for both operands. The others
// have 16.
constexpr int widest = 2;
constexpr int rows_at_once = vector_floats == 16 ? 8 : 4;

// So many steps read a part of `right` that stays in the first-level cache from rows to rows.
constexpr std::ptrdiff_t steps_at_once = 128;

template <int vectors>
void multiply_panel(const WinogradProduct& task) {
  WinogradProduct part = task;
  for (std::ptrdiff_t step = 0; step < task.steps; step += steps_at_once) {
    const std::ptrdiff_t left = task.steps - step;
    part.steps = left < steps_at_once ? left : steps_at_once;
    for (std::ptrdiff_t row = 0; row < task.rows; row += rows_at_once) {
      multiply_rows<rows_at_once, vectors>(part, row);
    }
    part.left += part.steps * task.left_step;
    part.right += part.steps * task.right_step;
    part.add = true;
  }
}

void multiply(const WinogradProduct& task) {
  if constexpr (vector_floats == 4) {
    // A panel of 16 columns is four vectors.
    WinogradProduct part = task;
    for (std::ptrdiff_t f = 0; f < task.columns; f += widest * vector_floats) {
      part.right = task.right + f;
      part.into = task.into + f;
      multiply_panel<widest>(part);
    }
  } else if (task.columns == widest * vector_floats) {
    multiply_panel<widest>(task);
  } else {
    multiply_panel<1>(task);
  }
}

}  // namespace

const WinogradLoops winograd_loops = {
    .name = RONDO_NAME_OF(RONDO_TENSOR_INSTRUCTION_SET),
    .widest_panel = vector_floats == 16 ? 32 : 16,
    .transform_input = transform_image<InputTransform>,
    .write_output = write_output,
    .transform_gradient = transform_image<GradientTransform>,
    .transform_filters = transform_filters,
    .write_weights = write_weights,
    .multiply = multiply,
};

}  // namespace rondo::tensor::RONDO_TENSOR_INSTRUCTION_SET
