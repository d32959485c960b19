#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace rondo::tools {

class Table;

/// The format in which a command prints its results.
enum class Format { text, csv, json };

/// The content of one cell. Nothing is a dash in text (an empty cell if it is aligned to the left),
/// an empty field in CSV, null in JSON. A table within a table is shown in JSON only.
using Value = std::variant<std::monostate, std::int64_t, std::uint64_t, double, std::string,
                           std::shared_ptr<const Table>>;

enum class Align { left, right };

/// How a column is called and shown. Programs get numbers as they are, people get them scaled and
/// rounded.
struct Column {
  std::string name = {};     ///< in CSV and JSON; empty: the column is not there
  std::string heading = {};  ///< in text; empty: the column is not there
  Align align = Align::right;
  int decimals = 0;    ///< in text, of what is no whole number
  double scale = 1.0;  ///< in text: 1e3 shows seconds as milliseconds
};

/// Rows under named columns, as text for people, and as CSV and JSON for programs.
class Table {
 public:
  /// Aligned, each line with `indent` in front. A column to the left in which nothing stands is
  /// left out. Without rows and columns: empty.
  [[nodiscard]] std::string text(std::string_view indent = {}) const;
  /// A line of names, then a line for each row; what needs quotes has them.
  [[nodiscard]] std::string csv() const;
  /// An array with an object for each row.
  [[nodiscard]] std::string json() const;
  /// One of the three.
  [[nodiscard]] std::string in(Format format) const;
  /// The only row as an object.
  [[nodiscard]] std::string json_object() const;

  [[nodiscard]] std::size_t rows() const noexcept { return rows_; }

 protected:
  explicit Table(std::size_t rows) : rows_(rows) {}

  struct Filled {
    Column column;
    std::vector<Value> cells;
  };
  std::size_t rows_;
  std::vector<Filled> columns_ = {};

  friend struct TableJson;
};

/// "1 rank", "2 ranks".
[[nodiscard]] std::string counted(std::int64_t number, std::string_view noun);

/// A text of somebody else, as a heading's column shows it: a "?" for each control character, which
/// could do anything to a terminal. Programs get the text as it is.
[[nodiscard]] std::string printable(std::string text);

/// A number, a text, a table, or an optional one of them as a cell.
template <class T>
[[nodiscard]] Value value_of(const T& value) {
  if constexpr (std::is_convertible_v<T, std::string_view>) {
    return std::string(std::string_view(value));
  } else if constexpr (std::is_base_of_v<Table, T>) {
    return std::make_shared<const Table>(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<double>(value);
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<std::int64_t>(value);
  } else {
    return static_cast<std::uint64_t>(value);
  }
}
template <class T>
[[nodiscard]] Value value_of(const std::optional<T>& value) {
  return value ? value_of(*value) : Value();
}

/// A table with one row for each of `rows`. It keeps no reference to them.
template <class Row>
class TableOf : public Table {
 public:
  explicit TableOf(std::span<const Row> rows) : Table(rows.size()), source_(rows) {}
  explicit TableOf(const std::vector<Row>& rows) : TableOf(std::span<const Row>(rows)) {}

  /// Adds a column; `get` is a member of Row, or a function of a row, which may return an optional.
  /// The rows must still be there.
  template <class Get>
  TableOf& add(Column column, Get get) {
    Filled filled{std::move(column), {}};
    for (const Row& row : source_) filled.cells.push_back(value_of(std::invoke(get, row)));
    this->columns_.push_back(std::move(filled));
    return *this;
  }

 private:
  std::span<const Row> source_;
};

}  // namespace rondo::tools
