// What an accumulator is: the order in which a sum is added up, what is cut off, where it rounds, and how it is shared
// out in parts. accumulator.h has the table of them.
#pragma once

#include <ampscope/formats/policy.h>
#include <ampscope/formats/spec.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace amp {

/// Removes the first word from a text of words with single spaces between them, and returns it.
constexpr std::string_view take_word(std::string_view& words) {
    const std::string_view first = words.substr(0, words.find(' '));
    words.remove_prefix(std::min(first.size() + 1, words.size()));
    return first;
}

/// The order of a sum and where it rounds.
enum class Accumulation : std::uint8_t {
    chain,    ///< s = fma(a, b, s) in the order of k; each step is rounded to `sum`, to nearest-even
    exact,    ///< the whole sum is rounded once, to `sum`, to nearest-even
    pairwise, ///< products, then a tree of additions, each rounded to `sum`; the left part of n terms is the largest
              ///< power of two below n
    kahan,    ///< compensated summation: all is rounded to `sum`, and what an addition lost is subtracted from the next
              ///< product
    fused,    ///< steps of `products` products: aligned, cut off, added exactly to the sum so far, then rounded to
              ///< `sum`
    // Steps of AMD's CDNA3: products are aligned and cut off at `fraction_bits`. Their sum is floored 31 bits below the
    // largest exponent of it and of the sum so far, and the latter at `fraction_bits`; then rounded to nearest-even.
    floored,        ///< all products of a step together
    floored_halves, ///< even and odd products apart, whose sums are floored at `fraction_bits` and added; a sum so far
                    ///< more than 25 binades below them counts as zero
    // Steps of FP32 operations, each rounded to nearest-even; subnormal operands and results become zeros.
    flushed_tree,   ///< products, added as a tree of neighbours, then to the sum so far
    flushed_pairs,  ///< fused multiply-adds to the sum so far, in each pair of products the second first
    flushed_chains, ///< one chain of fused multiply-adds of the even products and one of the odd ones, each from zero;
                    ///< their sum is added to the sum so far
    // Steps of exact products of integers, added to an INT32. The whole sum is then rounded once, to FP32.
    wrapped, ///< modulo 2^32
    clamped, ///< after each step clamped to -2^31 ... 2^31 - 1
};

/// How the parameters of a row are known.
enum class Evidence : std::uint8_t {
    definition, ///< the row is defined arithmetic; there is no hardware to compare it with
    recorded,   ///< its results equal outputs recorded on that hardware
    stated,     ///< a publication states it; it was not compared with recordings here
};

inline constexpr std::array<std::string_view, 3> evidence_names = {"definition", "recorded on hardware",
                                                                   "stated by a source"};

constexpr std::string_view name_of(Evidence evidence) { return evidence_names[static_cast<std::size_t>(evidence)]; }

/// Scales that an instruction applies to products within the sum. Their exponents are added to those of the products,
/// their significands multiply them; a NaN scale gives NaN.
struct ProductScales {
    int group = 0;     ///< least number of products that share a pair of scales; 0: it has none
    bool e4m3 = false; ///< besides E8M0 scales, also E4M3 ones, whose signs it ignores
    bool sums_groups =
        false; ///< the products of a group are added exactly, before their scales apply: one term a group
    /// The most products that share a pair of scales: both instructions have blocks of 32, mxf4nvf4 of 16, too (PTX ISA
    /// 9.0, section 9.7.14: scale_vec::1X, 2X and 4X).
    static constexpr int largest_block = 32;

    constexpr bool operator==(const ProductScales&) const = default;
};

/// How split-K shares out the products of a sum among its parts, and the order in which the parts' sums are added.
enum class SplitOrder : std::uint8_t {
    runs,         ///< each part takes as many tiles in a row, the last ones fewer; sums are added in the order of k
    cyclic,       ///< tile t belongs to part t mod N; sums are added in the order of the parts
    cyclic_pairs, ///< tiles as in cyclic; the last part's sum comes first, then those of parts i and i + ceil(N / 2)
                  ///< added to each other, in the order of i
};

/// A row of the table of split-K. The name of an accumulator has `suffix` behind the number of parts.
struct SplitRow {
    std::string_view suffix;
    SplitOrder order;
    int tile; ///< products of a tile
    std::string_view meaning;
};

// Source: mmaemu 0.1.0 (PyPI), mmaemu/model/plan.py, whose orders were fitted to and replayed on outputs of
// torch._scaled_mm (cuBLASLt 12.8.3.14) that were recorded on an H100 PCIe (runs) and an RTX 4060 (the other two).
// CUTLASS's GemmSplitKParallel adds in the order of runs, too (reduction/kernel/reduce_split_k.h). A part's tiles are
// one sum, which begins at zero.
inline constexpr std::array split_rows = {
    SplitRow{"", SplitOrder::runs, 128,
             "N parts of consecutive tiles of 128, added in order: cuBLASLt on an H100, CUTLASS"},
    SplitRow{"cyclic", SplitOrder::cyclic, 64, "tile t of 64 in part t mod N, added in order: cuBLASLt on an RTX 4060"},
    SplitRow{"pairs", SplitOrder::cyclic_pairs, 64,
             "the same, the last part first, then parts in pairs: cuBLASLt on an RTX 4060"},
};

struct Accumulator {
    /// The value of zero_exponent where zero terms do not take part in the alignment.
    static constexpr int no_zero_exponent = -16384;

    char name[48] = "fp32";
    Accumulation method = Accumulation::chain;
    FormatSpec sum = fp32_format(); ///< format that sums are rounded to; with 14 significant bits they are kept in FP32
                                    ///< registers
    // Of the sums of hardware only:
    std::string_view operands{};                ///< names of the formats it multiplies, with spaces between; empty: any
    int products = 0;                           ///< number of products that one step adds
    int fraction_bits = 0;                      ///< bits kept below the units place of the largest exponent
    Rounding rounding = Rounding::nearest_even; ///< rounding of the sum of a step
    int zero_exponent = no_zero_exponent;       ///< exponent of zero products and of a zero sum in the alignment
    ProductScales scales{};
    /// The 32 products of an instruction are added in two steps that begin at +0: first those with k mod 4 in {0, 1},
    /// then {2, 3}. Their sum is added to the sum so far, to nearest-even.
    bool interleaved = false;
    /// Number of products after which the sum is added to a total, to nearest-even, and begins anew; 0: never.
    int promote_every = 0;
    /// Number of parts of split-K; the sums of the parts are added in the format of the total, to nearest-even.
    int parts = 1;
    SplitOrder split = SplitOrder::runs;
    int tile = 0; ///< products of a tile that goes to one part
    Evidence evidence = Evidence::definition;
    std::string_view note{};

    /// The name of the row of the table: without "-promoteN" and "-splitN".
    [[nodiscard]] constexpr std::string_view row() const {
        const std::string_view whole = name;
        return whole.substr(0, std::min(whole.find("-promote"), whole.find("-split")));
    }
    /// The same without split-K, for the sum of one part.
    [[nodiscard]] constexpr Accumulator of_part() const {
        Accumulator part = *this;
        part.parts = 1;
        return part;
    }
    /// Whether subnormal operands and sums become zeros.
    [[nodiscard]] constexpr bool flushes() const {
        return method == Accumulation::flushed_tree || method == Accumulation::flushed_pairs ||
               method == Accumulation::flushed_chains;
    }
    /// The format of the register that holds a sum; what is added to a sum has it, too.
    [[nodiscard]] constexpr FormatSpec result() const {
        return method == Accumulation::fused && sum.exponent_bits == 8 ? fp32_format() : sum;
    }
    /// The format of the total: FP32 where sums are promoted.
    [[nodiscard]] constexpr FormatSpec total() const { return promote_every == 0 ? result() : fp32_format(); }
    /// Whether it multiplies integers.
    [[nodiscard]] constexpr bool adds_integers() const {
        return method == Accumulation::wrapped || method == Accumulation::clamped;
    }
    /// Whether it is a chain of fused multiply-adds in FP32.
    [[nodiscard]] constexpr bool is_fp32_chain() const {
        return method == Accumulation::chain && sum == fp32_format() && promote_every == 0 && parts == 1;
    }
    /// Number of products after which only the result is carried on. A last, shorter period is filled up with zeros.
    [[nodiscard]] constexpr int period() const {
        return promote_every != 0 ? promote_every : interleaved ? 32 : std::max(products, 1);
    }
    /// The format in which a fused sum reads an operand of the given format. It matters because subnormals are aligned
    /// by the exponent of the format they are read in. It is one of `operands`, and holds every value of the operand's
    /// format; but TF32 hardware reads FP32, too, and drops its last 13 bits. Precondition: takes(operand).
    [[nodiscard]] constexpr FormatSpec reads(const FormatSpec& operand) const { return find_operand(operand).format; }
    [[nodiscard]] constexpr bool takes(const FormatSpec& operand) const { return find_operand(operand).found; }

    constexpr bool operator==(const Accumulator& other) const { return std::string_view(name) == other.name; }

  private:
    struct Operand {
        bool found;
        FormatSpec format;
    };
    [[nodiscard]] constexpr Operand find_operand(const FormatSpec& operand) const;
};

constexpr Accumulator::Operand Accumulator::find_operand(const FormatSpec& operand) const {
    if (operands.empty()) return {true, operand};
    if (adds_integers()) {
        // Codes less a zero point have a bit more than the operand's format, the widest of which comes first. Kernels
        // multiply the codes and correct the sum, which leads to the same INT32 if it wraps but not if it is clamped.
        const bool wraps = method == Accumulation::wrapped;
        const int most = format(operands.substr(0, operands.find(' '))).bits() + (wraps ? 1 : 0), bits = operand.bits();
        return {operand.is_integer() && operand.min_subnormal_exponent() == 0 && bits <= most &&
                    (wraps || bits == 8 || bits == 4),
                operand};
    }
    Operand result{false, operand};
    for (std::string_view rest = operands; !rest.empty();) {
        const std::string_view item = take_word(rest);
        const FormatSpec f = format(item);
        const bool holds = operand.fraction_bits <= f.fraction_bits && operand.max_exponent() <= f.max_exponent() &&
                           operand.min_subnormal_exponent() >= f.min_subnormal_exponent();
        const bool cuts = item == "tf32" && operand.exponent_bits == 8;
        if (operand == f || (!result.found && (holds || cuts))) result = {true, f};
    }
    if (interleaved) result.format = format("fp16"); // converted first
    return result;
}

} // namespace amp
