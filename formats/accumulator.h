// How a matrix product adds up its terms: the sums of matrix hardware, and others to compare them with, as rows of one
// table.
//
// Hardware adds the products of a step and the sum so far as one fused operation: it aligns the significands to the
// largest exponent among them, cuts off what lies below, adds exactly and rounds once. The models and their parameters:
// Xie et al., "MMA-Sim", arXiv:2511.10909; Khattak and Mikaitis, "Accurate Models of NVIDIA Tensor Cores",
// arXiv:2512.07004. dot.h computes with a row.
#pragma once

#include <ampscope/formats/accumulation.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace amp {

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

/// A row of the table of matrix hardware. Its name consists of the generation of hardware, the instruction where a
/// generation has several that add differently, and the operands: "hopper-wgmma-fp8".
struct HardwareRow {
    std::string_view name, operands;
    int products, fraction_bits;
    Evidence evidence;           ///< evidence for the FP32 accumulator
    std::string_view acc16 = ""; ///< evidence for the FP16 accumulator: "recorded", "stated", or "" if there is none
    std::string_view sum = "fp32";
    bool interleaved = false;
    std::string_view note = "";
    ProductScales scales{};
    Accumulation method = Accumulation::fused;

    /// First part of the name: "hopper".
    [[nodiscard]] constexpr std::string_view generation() const { return name.substr(0, name.find('-')); }
    /// The name without the operands: "hopper-wgmma".
    [[nodiscard]] constexpr std::string_view instruction() const { return name.substr(0, name.rfind('-')); }
    [[nodiscard]] constexpr bool flushes() const { return Accumulator{.method = method}.flushes(); }
    [[nodiscard]] constexpr bool adds_integers() const { return Accumulator{.method = method}.adds_integers(); }
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

// Rows of Hopper were compared with an H200: ten million sums of each instruction, a million of them near zero, where
// the exponent of zeros matters (reports/crosscheck-NVIDIA-H200.md). tests/data/hardware has 320 of each.
inline constexpr std::string_view h200_note = "ten million sums on an H200";

/// A row of hardware whose steps are not fused.
constexpr HardwareRow in_steps(std::string_view name, std::string_view operands, int products, int fraction_bits,
                               Evidence evidence, Accumulation method, std::string_view note) {
    return {.name = name,
            .operands = operands,
            .products = products,
            .fraction_bits = fraction_bits,
            .evidence = evidence,
            .note = note,
            .method = method};
}

inline constexpr std::string_view cdna2_note = "subnormal inputs and sums become zeros; MMA-Sim, amd.py";
inline constexpr std::string_view cdna3_note = "MMA-Sim, amd.py";
// PTX ISA 9.0, mma and wgmma.mma_async, "Integer operations": "the accumulated value is wrapped", with .satfinite it is
// limited to MIN_INT32 ... MAX_INT32. That this happens once an instruction is how D = A * B + C reads.
inline constexpr std::string_view int32_note =
                                      "INT32 sums that wrap, then rounded to FP32; mma of .s8 or .s4, wgmma of .s8; "
                                      "AMX's TDPBSSD, with which it was compared",
                                  satfinite_note = "INT32 sums clamped after each instruction of 32 products, then "
                                                   "rounded to FP32; mma.m16n8k32 and wgmma of .s8, .satfinite",
                                  satfinite64_note = "the same after 64 products: mma.m16n8k64 of .s4";

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
    HardwareRow{"hopper-fp16", "fp16", 16, 25, Evidence::recorded, "recorded", "fp32", false, h200_note},
    HardwareRow{"hopper-bf16", "bf16", 16, 25, Evidence::recorded, "", "fp32", false, h200_note},
    HardwareRow{"hopper-tf32", "tf32", 8, 25, Evidence::recorded, "", "fp32", false,
                "ten million sums on an H200; FP32 operands are cut off, not rounded"},
    HardwareRow{"hopper-wgmma-fp16", "fp16", 16, 25, Evidence::recorded, "recorded", "fp32", false, h200_note},
    HardwareRow{"hopper-wgmma-bf16", "bf16", 16, 25, Evidence::recorded, "", "fp32", false, h200_note},
    HardwareRow{"hopper-wgmma-tf32", "tf32", 8, 25, Evidence::recorded, "", "fp32", false,
                "ten million sums on an H200; FP32 operands are cut off, not rounded"},
    HardwareRow{"hopper-wgmma-fp8", "e4m3 e5m2", 32, 13, Evidence::recorded, "recorded", "e8m13", false,
                "forty million sums on an H200; zero terms have no exponent that could be seen"},
    HardwareRow{"hopper-mma-fp8", "e4m3 e5m2", 16, 25, Evidence::recorded, "recorded", "fp32", true,
                "mma.sync converts to FP16, multiplies twice and adds; forty million sums on an H200"},
    HardwareRow{"blackwell-fp16", "fp16", 16, 25, Evidence::recorded, "recorded", "fp32", false, b200_note},
    HardwareRow{"blackwell-bf16", "bf16", 16, 25, Evidence::recorded, "", "fp32", false, b200_note},
    HardwareRow{"blackwell-tf32", "tf32", 8, 25, Evidence::recorded, "", "fp32", false,
                "outputs of a B200 that MATLAB-tensor-core published, of four products: that a step takes eight is "
                "stated"},
    HardwareRow{"blackwell-mma-fp8", "e4m3 e5m2", 16, 25, Evidence::recorded, "recorded", "fp32", true,
                "mma.sync as on Hopper: outputs of a B200 that MATLAB-tensor-core published"},
    HardwareRow{"blackwell-fp8",
                "e4m3 e5m2 e3m2 e2m3 e2m1",
                32,
                25,
                Evidence::stated,
                "stated",
                "fp32",
                false,
                "tcgen05, and its mxf8f6f4 with scales; a B200's mma.sync is blackwell-mma-fp8",
                {.group = 32}},
    HardwareRow{"blackwell-mxf4nvf4",
                "e2m1",
                64,
                35,
                Evidence::stated,
                "",
                "fp32",
                false,
                "MMA-Sim (commit c785138): sums of 16 are exact, scales in E4M3 or E8M0 for 16 or 32 are part of them",
                {.group = 16, .e4m3 = true, .sums_groups = true}},
    // AMD's matrix cores, as MMA-Sim (commit c785138, amd.py) computes them; no recordings are public. It gives a zero
    // factor the exponent -126, so that zero times a large factor would cut off other terms; here zeros have none.
    // CDNA1 is left out, since sources disagree about it.
    in_steps("cdna2-fp16", "fp16", 4, 0, Evidence::stated, Accumulation::flushed_tree, cdna2_note),
    in_steps("cdna2-bf16", "bf16", 2, 0, Evidence::stated, Accumulation::flushed_tree, cdna2_note),
    in_steps("cdna2-1k-bf16", "bf16", 4, 0, Evidence::stated, Accumulation::flushed_tree, cdna2_note),
    in_steps("cdna3-fp16", "fp16", 8, 24, Evidence::stated, Accumulation::floored, cdna3_note),
    in_steps("cdna3-bf16", "bf16", 8, 24, Evidence::stated, Accumulation::floored, cdna3_note),
    in_steps("cdna3-xf32", "tf32", 4, 24, Evidence::stated, Accumulation::floored, cdna3_note),
    in_steps("cdna3-fp8", "e4m3fnuz e5m2fnuz", 16, 24, Evidence::stated, Accumulation::floored_halves, cdna3_note),
    // Instructions of x86, compared with the processor's own (tests/test_x86_products.cpp).
    in_steps("avx512-bf16", "bf16", 2, 0, Evidence::recorded, Accumulation::flushed_pairs, "VDPBF16PS, in one lane"),
    in_steps("amx-bf16", "bf16", 32, 0, Evidence::recorded, Accumulation::flushed_chains,
             "TDPBF16PS, tiles of 16 pairs"),
    // Sums of integers, of any generation of tensor cores since Turing.
    in_steps("int32", "int8 int4 e0m3", 32, 0, Evidence::stated, Accumulation::wrapped, int32_note),
    in_steps("int32-satfinite", "int8 int4 e0m3", 32, 0, Evidence::stated, Accumulation::clamped, satfinite_note),
    in_steps("int32-satfinite-k64", "int4 e0m3", 64, 0, Evidence::stated, Accumulation::clamped, satfinite64_note),
};

/// Whether a tensor core of that generation of GPUs (say "hopper") multiplies numbers of format a by numbers of format
/// b. Any two formats of at most 8 bits may be mixed: PTX names a format for each operand (PTX ISA 9.0, section
/// 9.7.14).
constexpr bool multiplies(std::string_view generation, const FormatSpec& a, const FormatSpec& b) {
    const auto has = [&](const FormatSpec& operand) {
        return std::ranges::any_of(hardware_rows, [&](const HardwareRow& row) {
            return row.method == Accumulation::fused && row.generation() == generation && row.multiplies(operand);
        });
    };
    return has(a) && has(b) && (a == b || (a.bits() <= 8 && b.bits() <= 8));
}

/// Whether that generation of hardware (say "cdna2") takes subnormal operands for zero. Throws std::invalid_argument,
/// listing the names, for any other.
inline bool flushes_subnormals(std::string_view generation) {
    std::string known;
    for (const HardwareRow& row : hardware_rows) {
        if (row.adds_integers()) continue; // whose name is no generation
        if (row.generation() == generation) return row.flushes();
        const std::string name = std::string(known.empty() ? "" : ", ") + std::string(row.generation());
        if (!known.ends_with(name.substr(known.empty() ? 0 : 2))) known += name;
    }
    throw_unknown("hardware", generation, known + " (not cdna1, about which sources disagree)");
}

namespace detail {

constexpr void set_name(Accumulator& a, std::string_view name) {
    if (name.size() >= sizeof a.name) throw std::invalid_argument("accumulator: the name is too long");
    for (char& c : a.name) c = 0;
    for (std::size_t i = 0; i < name.size(); ++i) a.name[i] = name[i];
}

constexpr Accumulator hardware_accumulator(const HardwareRow& row, bool acc16) {
    const bool fused = row.method == Accumulation::fused;
    Accumulator a{.method = row.method,
                  .sum = acc16 ? format("fp16") : format(row.sum),
                  .operands = row.operands,
                  .products = row.products,
                  .fraction_bits = row.fraction_bits,
                  .rounding = acc16 || !fused ? Rounding::nearest_even : Rounding::toward_zero,
                  .scales = row.scales,
                  .interleaved = row.interleaved,
                  .evidence = !acc16                    ? row.evidence
                              : row.acc16 == "recorded" ? Evidence::recorded
                                                        : Evidence::stated,
                  .note = row.note};
    // Khattak and Mikaitis found these exponents for 23, 24 and 25 bits. MMA-Sim (arXiv:2511.10909, as of 2026) states
    // the same for FP32 sums and one less for FP16 sums, which ties broken by bits below 2^-44 refute on an H200. For
    // 13 bits see fp8_note.
    if (fused && row.fraction_bits >= 23) a.zero_exponent = (acc16 ? 4 : -108) - row.fraction_bits;
    // Where groups are summed, MMA-Sim gives a zero the least exponent of FP32; a group that adds up to zero has its
    // scales' exponent.
    if (row.scales.sums_groups) a.zero_exponent = -126;
    return a;
}

/// Removes `suffix` from the end of `text`; whether it was there.
constexpr bool take_suffix(std::string_view& text, std::string_view suffix) {
    const bool found = text.ends_with(suffix);
    if (found) text.remove_suffix(suffix.size());
    return found;
}

/// Removes a word and the number behind it, say "-promote128", from the end of a name. Returns the number; 0 if the
/// word is not there, -1 unless 1 <= N <= 999999.
constexpr int take_number(std::string_view& text, std::string_view word) {
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

/// Reads "-splitN", with the suffix of a row of split_rows behind it, at the end of a name and removes it.
constexpr void take_split(std::string_view& text, std::string_view full, Accumulator& to) {
    constexpr std::string_view word = "-split";
    const std::size_t at = text.rfind(word);
    if (at == std::string_view::npos) return;
    const std::size_t end = std::min(text.find_first_not_of("0123456789", at + word.size()), text.size());
    const std::string_view suffix = text.substr(end);
    text = text.substr(0, end);
    to.parts = take_number(text, word);
    const auto* const row = std::ranges::find(split_rows, suffix, &SplitRow::suffix);
    if (row == split_rows.end() || to.parts < 2 || to.parts > 1024)
        throw std::invalid_argument(
            "accumulator '" + std::string(full) +
            "': expected -splitN, -splitNcyclic or -splitNpairs at the end, with 2 to 1024 parts, after any -acc16 and "
            "-promoteN");
    to.split = row->order;
    to.tile = row->tile;
}

constexpr Accumulator base_accumulator(std::string_view name, std::string_view full) {
    std::string_view base = name;
    const bool acc16 = take_suffix(base, "-acc16");
    for (const HardwareRow& row : hardware_rows)
        if (row.name == base && (!acc16 || !row.acc16.empty())) return hardware_accumulator(row, acc16);
    for (const PlainSum& row : plain_sums)
        if (row.name == name) return {.method = row.method};
    const FormatSpec* const row = find_format(name);
    const bool general = name.size() > 3 && name[0] == 'e' && name[1] >= '2' && name[1] <= '8' && name[2] == 'm';
    if ((row != nullptr && !row->is_scale()) || (row == nullptr && general)) return {.sum = format(name)};
    if (name.starts_with("binary")) { // of IEEE P3109
        const FormatSpec sum = format(name);
        if (sum.is_signed) return {.sum = sum};
    }
    throw_unknown("accumulator", full,
                  names_of_rows(hardware_rows) + " (not CDNA1, about which sources disagree), " +
                      names_of_rows(plain_sums) +
                      ", or a format (fp32, bf16, e6m9, binary16p11 ...) for a chain of fused "
                      "multiply-adds; -acc16 for the FP16 accumulator of an fp16 or FP8 row, -promoteN to "
                      "add sums of N products in FP32, -splitN for split-K in N parts, in this order");
}

} // namespace detail

/// The accumulator of that name. The name is a row of matrix hardware, "exact", "pairwise", "kahan", or the name of a
/// format for a chain of fused multiply-adds in it. It may end in "-acc16" for hardware that has an FP16 accumulator,
/// then in "-promoteN" for sums that are added to an FP32 total after every N products, as CUTLASS and DeepSeek-V3 do
/// with N = 128, and then in "-splitN" for split-K in N parts (split_rows). In a part, promotion begins anew.
/// Throws std::invalid_argument for any other name.
constexpr Accumulator accumulator(std::string_view name) {
    std::string_view rest = name;
    Accumulator split;
    detail::take_split(rest, name, split);
    const int promotion = detail::take_number(rest, "-promote");
    Accumulator a = detail::base_accumulator(rest, name);
    a.parts = split.parts;
    a.split = split.split;
    a.tile = split.tile;
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

} // namespace amp
