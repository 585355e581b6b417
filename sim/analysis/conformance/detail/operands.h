// How the operands of cases are made, kind by kind. Everything is drawn as integers from a counter-based generator, so
// that no case depends on a math library, a thread or the case before it.
#pragma once

#include <ampscope/formats/random.h>
#include <ampscope/sim/analysis/conformance/cases.h>

namespace amp::conformance::detail {

/// Random numbers of one case.
class Draw {
  public:
    Draw(const RandomKey& key, std::uint64_t at) : key_(key), at_(at) {}

    std::uint32_t word() {
        if (used_ % 4 == 0) {
            key_.step = used_ / 4;
            words_ = key_.words(at_);
        }
        return words_[used_++ % 4];
    }
    /// 0 ... n - 1, each as likely as the others but for 2^-32 of it.
    std::uint32_t below(std::uint64_t n) { return static_cast<std::uint32_t>(word() * n >> 32); }
    int between(int low, int high) { return low + static_cast<int>(below(static_cast<std::uint64_t>(high - low + 1))); }
    bool one_in(std::uint32_t n) { return below(n) == 0; }
    /// An odd number of that many bits. Precondition: 1 <= bits <= 32.
    std::uint64_t odd(int bits) {
        const std::uint64_t top = std::uint64_t{1} << (bits - 1);
        return top | (word() & (top - 1)) | 1;
    }

  private:
    RandomKey key_;
    std::uint64_t at_;
    std::uint32_t used_ = 0;
    std::array<std::uint32_t, 4> words_{};
};

/// The codes that count as edges of a format, in ascending order.
std::vector<std::uint32_t> edge_codes(const FormatSpec& format);
bool is_finite_code(const FormatSpec& format, std::uint32_t code);
/// A code of which every finite one is as likely as any other.
std::uint32_t finite_code(const FormatSpec& format, Draw& draw);

/// The at-th of `count` cases of a kind.
std::vector<std::uint32_t> operands(const Question& question, Kind kind, const RandomKey& key, std::uint64_t at,
                                    std::uint64_t count);

/// Operands whose result lies halfway between two neighbours, or just beside; none if the operation has no such result
/// or none was found.
std::optional<OperandCodes> tie(const Question& question, const RandomKey& key, std::uint64_t at);

/// The a, b and c of a dot product.
std::vector<std::uint32_t> dot_operands(const Question& question, Kind kind, const RandomKey& key, std::uint64_t at);

} // namespace amp::conformance::detail
