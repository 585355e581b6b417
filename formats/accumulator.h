// How a matrix product adds up its terms: the sums of matrix hardware, and others to compare them with, as rows of one
// table.
//
// Hardware adds the products of a step and the sum so far as one fused operation: it aligns the significands to the
// largest exponent among them, cuts off what lies below, adds exactly and rounds once. The models and their parameters:
// Xie et al., "MMA-Sim", arXiv:2511.10909; Khattak and Mikaitis, "Accurate Models of NVIDIA Tensor Cores",
// arXiv:2512.07004. dot.h computes with a row.
#pragma once

#include <ampscope/formats/policy.h>
#include <ampscope/formats/spec.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace amp {

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
};

/// How the parameters of a row are known.
enum class Evidence : std::uint8_t {
    definition, ///< the row is defined arithmetic; there is no hardware to compare it with
    recorded,   ///< its results equal outputs recorded on that hardware
    stated,     ///< a publication states it; it was not compared with recordings here
    inferred,   ///< it follows from recordings of related hardware
};

inline constexpr std::array<std::string_view, 4> evidence_names = {"definition", "recorded on hardware",
                                                                   "stated by a source", "inferred"};

constexpr std::string_view name_of(Evidence evidence) { return evidence_names[static_cast<std::size_t>(evidence)]; }

struct Accumulator {
    /// The value of zero_exponent where zero terms do not take part in the alignment.
    static constexpr int no_zero_exponent = -16384;

    char name[48] = "fp32";
    Accumulation method = Accumulation::chain;
    FormatSpec sum = format("fp32"); ///< format that sums are rounded to; with 14 significant bits they are kept in
                                     ///< FP32 registers
    // Of fused sums only:
    std::string_view operands{};                ///< names of the formats it multiplies, with spaces between; empty: any
    int products = 0;                           ///< number of products that one step adds
    int fraction_bits = 0;                      ///< bits kept below the units place of the largest exponent
    Rounding rounding = Rounding::nearest_even; ///< rounding of the sum of a step
    int zero_exponent = no_zero_exponent;       ///< exponent of zero products and of a zero sum in the alignment
    bool keeps_negative_zero = false;           ///< whether a sum of nothing but negative zeros is -0
    /// Each `products` products have E8M0 scales, whose exponents are added to those of the products.
    bool scales_products = false;
    /// The 32 products of an instruction are added in two steps that begin at +0: first those with k mod 4 in {0, 1},
    /// then {2, 3}. Their sum is added to the sum so far, to nearest-even.
    bool interleaved = false;
    /// Number of products after which the sum is added to a total, to nearest-even, and begins anew; 0: never.
    int promote_every = 0;
    Evidence evidence = Evidence::definition;
    std::string_view note{};

    /// The name of the row of the table: without "-promoteN".
    [[nodiscard]] constexpr std::string_view row() const {
        const std::string_view whole = name;
        return whole.substr(0, whole.find("-promote"));
    }
    /// The format of the register that holds a sum; what is added to a sum has it, too.
    [[nodiscard]] constexpr FormatSpec result() const {
        return method == Accumulation::fused && sum.exponent_bits == 8 ? format("fp32") : sum;
    }
    /// The format of the total: FP32 where sums are promoted.
    [[nodiscard]] constexpr FormatSpec total() const { return promote_every == 0 ? result() : format("fp32"); }
    /// Whether it is a chain of fused multiply-adds in FP32.
    [[nodiscard]] constexpr bool is_fp32_chain() const {
        return method == Accumulation::chain && sum == format("fp32") && promote_every == 0;
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

/// A sum that no hardware has, of operands of any format.
struct PlainSum {
    std::string_view name;
    Accumulation method;
    std::string_view meaning;
};

inline constexpr std::array plain_sums = {
    PlainSum{"exact", Accumulation::exact, "the whole sum is rounded once, to FP32"},
    PlainSum{"pairwise", Accumulation::pairwise, "FP32 products, added as a tree"},
    PlainSum{"kahan", Accumulation::kahan, "FP32 products, added with Kahan's correction"},
};

/// Removes the first word from a text of words with single spaces between them, and returns it.
constexpr std::string_view take_word(std::string_view& words) {
    const std::string_view first = words.substr(0, words.find(' '));
    words.remove_prefix(std::min(first.size() + 1, words.size()));
    return first;
}

/// A row of the table of matrix hardware. Its name consists of the generation of GPUs, the instruction where a
/// generation has several that add differently, and the operands: "hopper-wgmma-fp8".
struct HardwareRow {
    std::string_view name, operands;
    int products, fraction_bits;
    Evidence evidence;           ///< evidence for the FP32 accumulator
    std::string_view acc16 = ""; ///< evidence for the FP16 accumulator: "recorded", "stated", or "" if there is none
    std::string_view sum = "fp32";
    bool interleaved = false;
    std::string_view note = "";
    bool scales_products = false;

    /// First part of the name: "hopper".
    [[nodiscard]] constexpr std::string_view generation() const { return name.substr(0, name.find('-')); }
    /// The name without the operands: "hopper-wgmma".
    [[nodiscard]] constexpr std::string_view instruction() const { return name.substr(0, name.rfind('-')); }
    /// Whether that format is one of the operands.
    [[nodiscard]] constexpr bool multiplies(const FormatSpec& operand) const {
        for (std::string_view rest = operands; !rest.empty();)
            if (take_word(rest) == std::string_view(operand.name)) return true;
        return false;
    }
};

inline constexpr std::string_view fp8_note =
    "zero terms have no exponent: those that MMA-Sim states (-132, -133; FP16 -21, -133) cut off no bit of an FP8 "
    "product";
// Rows of Blackwell were compared with what north-numerical-computing/MATLAB-tensor-core (commit b12b5a7) recorded on a
// B200: 5,000 products of each format and accumulator, through wmma and, in FP8, mma.sync.
inline constexpr std::string_view b200_note = "outputs of a B200 that MATLAB-tensor-core published";

inline constexpr std::array hardware_rows = {
    HardwareRow{"volta-fp16", "fp16", 4, 23, Evidence::recorded, "recorded"},
    HardwareRow{"turing-fp16", "fp16", 8, 24, Evidence::stated, "stated"},
    HardwareRow{"ampere-fp16", "fp16", 8, 24, Evidence::recorded, "recorded"},
    HardwareRow{"ampere-bf16", "bf16", 8, 24, Evidence::recorded},
    HardwareRow{"ampere-tf32", "tf32", 4, 24, Evidence::recorded},
    HardwareRow{"ada-fp16", "fp16", 8, 24, Evidence::recorded, "recorded"},
    HardwareRow{"ada-bf16", "bf16", 8, 24, Evidence::recorded},
    HardwareRow{"ada-tf32", "tf32", 4, 24, Evidence::recorded},
    HardwareRow{"ada-e4m3", "e4m3", 16, 13, Evidence::recorded, "recorded", "e8m13", false, fp8_note},
    HardwareRow{"ada-e5m2", "e5m2", 16, 13, Evidence::recorded, "recorded", "e8m13", false, fp8_note},
    HardwareRow{"hopper-fp16", "fp16", 16, 25, Evidence::recorded, "recorded"},
    HardwareRow{"hopper-bf16", "bf16", 16, 25, Evidence::recorded},
    HardwareRow{"hopper-tf32", "tf32", 8, 25, Evidence::recorded, "", "fp32", false,
                "recordings have four products: that a step takes eight is stated"},
    HardwareRow{"hopper-wgmma-fp16", "fp16", 16, 25, Evidence::stated, "stated"},
    HardwareRow{"hopper-wgmma-bf16", "bf16", 16, 25, Evidence::stated},
    HardwareRow{"hopper-wgmma-tf32", "tf32", 8, 25, Evidence::stated},
    HardwareRow{"hopper-wgmma-fp8", "e4m3 e5m2", 32, 13, Evidence::recorded, "stated", "e8m13", false,
                "recordings begin at zero: that the sum so far is cut off alike is stated; zero terms as in Ada's FP8"},
    HardwareRow{"hopper-mma-fp8", "e4m3 e5m2", 16, 25, Evidence::inferred, "recorded", "fp32", true,
                "mma.sync converts to FP16, multiplies twice and adds: 24 to 26 bits fit the recordings; inferred for "
                "the FP32 accumulator from those of a B200"},
    HardwareRow{"blackwell-fp16", "fp16", 16, 25, Evidence::recorded, "recorded", "fp32", false, b200_note},
    HardwareRow{"blackwell-bf16", "bf16", 16, 25, Evidence::recorded, "", "fp32", false, b200_note},
    HardwareRow{"blackwell-tf32", "tf32", 8, 25, Evidence::recorded, "", "fp32", false,
                "outputs of a B200 that MATLAB-tensor-core published, of four products: that a step takes eight is "
                "stated"},
    HardwareRow{"blackwell-mma-fp8", "e4m3 e5m2", 16, 25, Evidence::recorded, "recorded", "fp32", true,
                "mma.sync as on Hopper: outputs of a B200 that MATLAB-tensor-core published"},
    HardwareRow{"blackwell-fp8", "e4m3 e5m2 e3m2 e2m3 e2m1", 32, 25, Evidence::stated, "stated", "fp32", false,
                "tcgen05, and its mxf8f6f4 with scales; a B200's mma.sync is blackwell-mma-fp8", true},
};

/// Whether an instruction of that generation of GPUs (say "hopper") multiplies numbers of format a by numbers of format
/// b. Any two formats of at most 8 bits may be mixed: PTX names a format for each operand (PTX ISA 9.0, section
/// 9.7.14).
constexpr bool multiplies(std::string_view generation, const FormatSpec& a, const FormatSpec& b) {
    const auto has = [&](const FormatSpec& operand) {
        return std::ranges::any_of(hardware_rows, [&](const HardwareRow& row) {
            return row.generation() == generation && row.multiplies(operand);
        });
    };
    return has(a) && has(b) && (a == b || (a.bits() <= 8 && b.bits() <= 8));
}

namespace detail {

constexpr void set_name(Accumulator& a, std::string_view name) {
    if (name.size() >= sizeof a.name) throw std::invalid_argument("accumulator: the name is too long");
    for (char& c : a.name) c = 0;
    for (std::size_t i = 0; i < name.size(); ++i) a.name[i] = name[i];
}

constexpr Accumulator hardware_accumulator(const HardwareRow& row, bool acc16) {
    Accumulator a{.method = Accumulation::fused,
                  .sum = acc16 ? format("fp16") : format(row.sum),
                  .operands = row.operands,
                  .products = row.products,
                  .fraction_bits = row.fraction_bits,
                  .rounding = acc16 ? Rounding::nearest_even : Rounding::toward_zero,
                  .scales_products = row.scales_products,
                  .interleaved = row.interleaved,
                  .evidence = !acc16                    ? row.evidence
                              : row.acc16 == "recorded" ? Evidence::recorded
                                                        : Evidence::stated,
                  .note = row.note};
    // Khattak and Mikaitis found these exponents for 23, 24 and 25 bits. MMA-Sim (arXiv:2511.10909, as of 2026) states
    // the same for FP32 sums and one less for FP16 sums; only ties broken by bits below 2^-44 would show the
    // difference. For 13 bits see fp8_note.
    if (row.fraction_bits >= 23) a.zero_exponent = (acc16 ? 4 : -108) - row.fraction_bits;
    return a;
}

/// Removes `suffix` from the end of `text`; whether it was there.
constexpr bool take_suffix(std::string_view& text, std::string_view suffix) {
    const bool found = text.ends_with(suffix);
    if (found) text.remove_suffix(suffix.size());
    return found;
}

/// Reads "-promoteN" at the end of a name and removes it; 0 if there is none, -1 unless 1 <= N <= 999999.
constexpr int take_promotion(std::string_view& text) {
    constexpr std::string_view word = "-promote";
    const std::size_t at = text.rfind(word);
    if (at == std::string_view::npos) return 0;
    int n = 0;
    const std::string_view digits = text.substr(at + word.size());
    for (const char c : digits) {
        if (c < '0' || c > '9' || n > 99999) return -1;
        n = n * 10 + (c - '0');
    }
    text.remove_suffix(text.size() - at);
    return n > 0 ? n : -1;
}

constexpr Accumulator base_accumulator(std::string_view name, std::string_view full) {
    std::string_view base = name;
    const bool acc16 = take_suffix(base, "-acc16");
    for (const HardwareRow& row : hardware_rows)
        if (row.name == base && (!acc16 || !row.acc16.empty())) return hardware_accumulator(row, acc16);
    for (const PlainSum& row : plain_sums)
        if (row.name == name) return {.method = row.method};
    const FormatSpec* const row = find_format(name);
    const bool custom =
        row == nullptr && name.size() > 3 && name[0] == 'e' && name[1] >= '2' && name[1] <= '8' && name[2] == 'm';
    if ((row != nullptr && !row->is_scale()) || custom) return {.sum = format(name)};
    throw_unknown("accumulator", full,
                  names_of_rows(hardware_rows) + ", " + names_of_rows(plain_sums) +
                      ", or a format (fp32, bf16, e6m9 ...) for a chain of fused "
                      "multiply-adds; -acc16 for the FP16 accumulator of an fp16 or FP8 row, -promoteN to "
                      "add sums of N products in FP32");
}

} // namespace detail

/// The accumulator of that name. The name is a row of matrix hardware, "exact", "pairwise", "kahan", or the name of a
/// format for a chain of fused multiply-adds in it. It may end in "-acc16" for hardware that has an FP16 accumulator,
/// and then in "-promoteN" for sums that are added to an FP32 total after every N products, as CUTLASS and DeepSeek-V3
/// do with N = 128.
/// Throws std::invalid_argument for any other name.
constexpr Accumulator accumulator(std::string_view name) {
    std::string_view rest = name;
    const int promotion = detail::take_promotion(rest);
    Accumulator a = detail::base_accumulator(rest, name);
    if (promotion != 0) {
        if (promotion < 0 || promotion % a.period() != 0)
            throw std::invalid_argument("accumulator '" + std::string(name) +
                                        "': sums are promoted after a multiple of " + std::to_string(a.period()) +
                                        " products");
        a.promote_every = promotion;
    }
    detail::set_name(a, name);
    return a;
}

constexpr Accumulator::Operand Accumulator::find_operand(const FormatSpec& operand) const {
    if (operands.empty()) return {true, operand};
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
