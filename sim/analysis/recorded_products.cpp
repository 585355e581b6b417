#include <ampscope/sim/analysis/recorded_products.h>

#include <ampscope/formats/dot.h>
#include <ampscope/formats/environment.h>
#include <ampscope/sim/base/parallel.h>
#include <ampscope/sim/io/tensor_file.h>

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>

namespace amp {

namespace {

struct Words {
    std::vector<std::uint64_t> shape;
    std::vector<float> values; // converted from their bits
};

std::optional<Words> read_words(const TensorFile& file, const std::string& name) {
    const auto entry = std::ranges::find(file.tensors(), name, &TensorEntry::name);
    if (entry == file.tensors().end()) return std::nullopt;
    if (info(entry->dtype).bits != 32 || entry->storage_order)
        throw FileError(file.path(),
                        fmt::format("{}: expected 32-bit words in C order, got {}", name, info(entry->dtype).name));
    Words words{entry->shape, std::vector<float>(entry->count)};
    const auto stream = file.stream(static_cast<std::size_t>(entry - file.tensors().begin()));
    if (const auto bytes = std::as_writable_bytes(std::span(words.values)); stream->read(bytes) != bytes.size())
        throw FileError(file.path(), name + ": ends early");
    return words;
}

Words require_words(const TensorFile& file, const std::string& name) {
    if (std::optional<Words> words = read_words(file, name)) return *std::move(words);
    std::vector<std::string> names;
    for (const TensorEntry& t : file.tensors()) names.push_back(t.name);
    throw FileError(file.path(), fmt::format("expected an array {}, got {}", name, fmt::join(names, ", ")));
}

/// Index of the first number that is not a value of the format; std::nullopt if all are.
std::optional<std::size_t> stranger(const FormatSpec& f, const std::vector<float>& values) {
    for (std::size_t i = 0; i < values.size(); ++i)
        if (!std::isnan(values[i]) && quantize(f, values[i]) != values[i]) return i;
    return std::nullopt;
}

FormatSpec operand_format(const TensorFile& file, const std::string& name, const Words& words, const Accumulator& acc,
                          const std::optional<std::string>& given) {
    std::vector<std::string_view> candidates;
    if (given) candidates.push_back(*given);
    // hardware truncates FP32 words
    else if (acc.operands.empty() || acc.operands == "tf32") candidates.push_back("fp32");
    else
        for (std::string_view rest = acc.operands; !rest.empty();
             rest.remove_prefix(std::min(rest.find(' '), rest.size() - 1) + 1))
            candidates.push_back(rest.substr(0, rest.find(' ')));
    for (const std::string_view candidate : candidates)
        if (!stranger(format(candidate), words.values)) return format(candidate);
    const std::size_t at = *stranger(format(candidates.front()), words.values);
    throw FileError(file.path(), fmt::format("{}: element {}, {:#010x}, is no value of {}", name, at,
                                             std::bit_cast<std::uint32_t>(words.values[at]), candidates.front()));
}

/// The name of the row with the accumulator that computed this output.
std::string row_for(std::string name, std::string_view output) {
    if (output == "d_fp16" && name.find("-acc16") == std::string::npos)
        name.insert(std::min(name.find("-promote"), name.size()), "-acc16");
    return name;
}

bool same(const FormatSpec& result, float got, float want) {
    if (result.exponent_bits == 5 && std::isnan(got) && std::isnan(want)) return true;
    return std::bit_cast<std::uint32_t>(got) == std::bit_cast<std::uint32_t>(want);
}

void compare(RecordedComparison& r, const Words& a, const Words& b, const Words& c, const Words& d) {
    const auto k = static_cast<std::size_t>(r.k);
    r.nearby = nearby_sums(r.accumulator);
    std::mutex mutex;
    for_each_chunk(r.cases, 256, 0, [&](std::uint64_t begin, std::uint64_t end) {
        std::vector<RecordedMismatch> found;
        std::vector<std::uint64_t> refuted(r.nearby.size());
        for (std::size_t i = begin; i < end; ++i) {
            const float addend = quantize(r.accumulator.total(), c.values[i]);
            const auto sum = [&](const Accumulator& acc) {
                return dot(acc, r.a, r.b, std::span(a.values).subspan(i * k, k), std::span(b.values).subspan(i * k, k),
                           addend);
            };
            const auto gives = [&](float got) { return same(r.accumulator.total(), got, d.values[i]); };
            if (const float got = sum(r.accumulator); !gives(got))
                found.push_back({i, std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(d.values[i])});
            for (std::size_t n = 0; n < refuted.size(); ++n) refuted[n] += gives(sum(r.nearby[n].accumulator)) ? 0 : 1;
        }
        const std::lock_guard lock(mutex);
        for (std::size_t n = 0; n < refuted.size(); ++n) r.nearby[n].refuted += refuted[n];
        r.mismatches += found.size();
        r.first.insert(r.first.end(), found.begin(), found.end());
        std::ranges::sort(r.first, {}, &RecordedMismatch::index);
        r.first.resize(std::min<std::size_t>(r.first.size(), 3));
    });
}

/// The most products of a step with which dot.h computes.
int longest_step(const Accumulator& acc) {
    if (acc.adds_integers()) return std::numeric_limits<int>::max();
    return acc.method == Accumulation::fused ? 64 : acc.flushes() ? 32 : 16;
}

} // namespace

std::vector<NearbySum> nearby_sums(const Accumulator& acc) {
    std::vector<NearbySum> all;
    const auto add = [&](std::string_view difference, const auto& change) {
        all.push_back({difference, acc});
        change(all.back().accumulator);
    };
    const bool fused = acc.method == Accumulation::fused, groups = acc.scales.sums_groups;
    if (acc.fraction_bits > 0) {
        add("a bit less", [](Accumulator& a) { --a.fraction_bits; });
        add("a bit more", [](Accumulator& a) { ++a.fraction_bits; });
    }
    if (acc.products > 1 && acc.method != Accumulation::wrapped) {
        if (acc.products / 2 >= std::max(acc.scales.group, 2))
            add("half the products", [](Accumulator& a) { a.products /= 2; });
        if (2 * acc.products <= longest_step(acc)) add("twice the products", [](Accumulator& a) { a.products *= 2; });
    }
    if (fused && !groups) {
        if (acc.zero_exponent == Accumulator::no_zero_exponent) {
            add("zeros with an exponent", [](Accumulator& a) {
                a.zero_exponent =
                    (a.sum.exponent_bits == 5 ? 4 : -108) - a.fraction_bits; // as rows of more bits have it
            });
        } else {
            add("zeros a binade lower", [](Accumulator& a) { --a.zero_exponent; });
            add("zeros a binade higher", [](Accumulator& a) { ++a.zero_exponent; });
            add("zeros without an exponent", [](Accumulator& a) { a.zero_exponent = Accumulator::no_zero_exponent; });
        }
    }
    if (fused)
        add("the other rounding", [](Accumulator& a) {
            a.rounding = a.rounding == Rounding::nearest_even ? Rounding::toward_zero : Rounding::nearest_even;
        });
    if (groups) add("no sums of groups", [](Accumulator& a) { a.scales.sums_groups = false; });
    const auto other = [&](Accumulation from, Accumulation to, std::string_view difference) {
        if (acc.method == from) add(difference, [&](Accumulator& a) { a.method = to; });
    };
    other(Accumulation::floored, Accumulation::floored_halves, "even and odd products apart");
    other(Accumulation::floored_halves, Accumulation::floored, "all products together");
    other(Accumulation::wrapped, Accumulation::clamped, "clamped");
    other(Accumulation::clamped, Accumulation::wrapped, "wrapped");
    if (acc.flushes()) add("a chain in FP32", [](Accumulator& a) { a.method = Accumulation::chain; });
    return all;
}

std::string differences(const std::vector<NearbySum>& nearby, bool refuted) {
    std::vector<std::string_view> some;
    for (const NearbySum& n : nearby)
        if ((n.refuted > 0) == refuted) some.push_back(n.difference);
    return fmt::format("{}", fmt::join(some, ", "));
}

bool is_accumulator(const std::string& name) {
    try {
        accumulator(name);
        return true;
    } catch (const std::invalid_argument&) {
        return false;
    }
}

void check(const RecordedQuestion& question) {
    const Accumulator acc = accumulator(question.accumulator);
    for (const auto& given : {question.a, question.b})
        if (given && !acc.takes(format(*given)))
            throw std::invalid_argument(fmt::format("{} takes {}, not {}", acc.name, acc.operands, *given));
}

std::vector<RecordedComparison> compare_recorded(const std::filesystem::path& path, const RecordedQuestion& question) {
    const FloatEnvironment environment;
    check(question);
    const std::unique_ptr<TensorFile> file = open_tensor_file(path);
    const Words a = require_words(*file, "a"), b = require_words(*file, "b"), c = require_words(*file, "c");
    if (a.shape.size() != 2 || b.shape != a.shape || c.values.size() != a.shape[0])
        throw FileError(path,
                        fmt::format("expected a and b of cases x k and c of cases, got {}, {} and {}",
                                    fmt::join(a.shape, " x "), fmt::join(b.shape, " x "), fmt::join(c.shape, " x ")));
    const bool narrow = question.accumulator.find("-acc16") != std::string::npos;
    std::vector<RecordedComparison> results;
    for (const std::string output : {"d_fp32", "d_fp16"}) {
        const std::string name = row_for(question.accumulator, output);
        if (question.output ? *question.output != output : (narrow && output == "d_fp32") || !is_accumulator(name))
            continue;
        const std::optional<Words> d = question.output ? require_words(*file, output) : read_words(*file, output);
        if (!d) continue;
        if (d->values.size() != a.shape[0])
            throw FileError(path, fmt::format("{}: expected {} numbers, got {}", output, a.shape[0], d->values.size()));
        RecordedComparison r{.accumulator = accumulator(name), .output = output, .k = a.shape[1], .cases = a.shape[0]};
        r.a = operand_format(*file, "a", a, r.accumulator, question.a);
        r.b = operand_format(*file, "b", b, r.accumulator, question.b);
        compare(r, a, b, c, *d);
        results.push_back(std::move(r));
    }
    if (results.empty())
        throw FileError(path, fmt::format("expected an array d_fp32 or d_fp16 that {} can make", question.accumulator));
    return results;
}

} // namespace amp
