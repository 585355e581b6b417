// The header of a file of cases, read line by line.
#pragma once

#include <ampscope/sim/analysis/conformance/cases.h>

#include <string>
#include <string_view>
#include <vector>

namespace amp::conformance {

inline constexpr std::string_view first_line = "ampscope vectors 1"; ///< the number counts layouts

namespace detail {

class HeaderReader {
  public:
    /// Takes a line. Throws std::invalid_argument, which says what is wrong with it; the line "columns" is the last,
    /// and so says what the lines before lack.
    void line(std::string_view text);
    [[nodiscard]] bool complete() const { return complete_; }
    [[nodiscard]] const Question& question() const { return question_; }

  private:
    void finish(std::string_view columns);

    Question question_{.count = 0}; // the lines that follow say how many cases there are
    std::vector<std::string> seen_;
    int count_ = 0;
    bool complete_ = false;
};

} // namespace detail

} // namespace amp::conformance
